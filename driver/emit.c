#include <string.h>

#include "backend/backend.h"
#include "driver/compile.h"
#include "ir/print.h"

Status driver_emit(Session *s, IrModule *m, const char *form)
{
    const char *ptx;
    if (!form || !strcmp(form, "ir")) {
        ir_print(stdout, m);
        return STATUS_OK;
    }
    TRY(backend_ptx(s, m, &ptx));
    fputs(ptx, stdout);
    return STATUS_OK;
}
