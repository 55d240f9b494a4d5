#include <stdarg.h>
#include <stdio.h>

#include "runtime/kernel.h"

void rt_fault_raise(RtFault *fault, const char *format, ...)
{
    if (__atomic_exchange_n(&fault->raised, 1, __ATOMIC_ACQ_REL))
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(fault->message, sizeof fault->message, format, args);
    va_end(args);
}
