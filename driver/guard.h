/* guard: runs a command in a child process, so that our own bugs, whatever way they end it, leave a
 * reproducer. */
#ifndef DRIVER_GUARD_H
#define DRIVER_GUARD_H

#include "driver/args.h"

/* Returns the process's exit code. */
int driver_guard_run(const DriverCommand *command, const DriverArgs *args, int argc, char **argv);

/* Brings out what a command has printed; that it cannot be written is an error. */
Status driver_guard_output(Session *s);

#endif
