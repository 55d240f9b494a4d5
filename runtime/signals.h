/* signals: Ctrl-C and SIGTERM as a question that the run asks between steps; the second one ends
 * the process at once. */
#ifndef RUNTIME_SIGNALS_H
#define RUNTIME_SIGNALS_H

#include "base/session.h"

typedef struct RtSignals RtSignals;

/* Blocks both signals in the caller and in every thread that it starts later: before the workers
 * are made. */
Status rt_signals_new(Session *s, RtSignals **out_signals);
void rt_signals_free(RtSignals *signals);
bool rt_signals_stop(const RtSignals *signals); /* whether one has come; false for NULL */

#endif
