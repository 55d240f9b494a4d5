#include <string.h>

#include "backend/backend.h"
#include "driver/compile.h"
#include "ir/print.h"

Status driver_emit(Session *s, IrModule *m, const char *form)
{
    const char *ptx;
    if (!form || !strcmp(form, "ir")) {
        if (!m->stages.n)
            ir_print(stdout, m);
        for (uint32_t i = 0; i < m->stages.n; i++) {
            printf("%s# stage %u\n", i ? "\n" : "", i);
            ir_print(stdout, m->stages.at[i]);
        }
        return STATUS_OK;
    }
    TRY(backend_ptx(s, m, &ptx));
    fputs(ptx, stdout);
    return STATUS_OK;
}
