/* paths: where the compiler finds what it ships with, from wherever it is run. */
#ifndef DRIVER_PATHS_H
#define DRIVER_PATHS_H

#include "base/session.h"

/* The folder of model definitions and published configs. NULL and one diagnostic where there is
 * none. */
const char *driver_models_dir(Session *s);
const char *driver_runtime_lib(Session *s);
const char *driver_cuda_lib(Session *s);

bool driver_path_exists(const char *path);
const char *driver_path_dir(Session *s, const char *path); /* `.` where the path has no folder */
/* The absolute path of a file or folder that exists; else the path itself. */
const char *driver_path_absolute(Session *s, const char *path);

/* Writes a whole file; it appears by rename, so that nothing half-written is ever seen. */
Status driver_write_file(Session *s, const char *path, const char *text, size_t length);

#endif
