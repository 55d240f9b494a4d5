/* localize: one program per rank class. With one rank the whole tensors are the local ones. */
#include "passes/pass.h"

static int64_t at_least_1(int64_t size)
{
    return size > 1 ? size : 1;
}

Status pass_localize(PassContext *c)
{
    const PassOptions *o = c->options;
    c->m->mesh =
        (IrMeshSizes){at_least_1(o->tp), at_least_1(o->dp), at_least_1(o->dpr), at_least_1(o->pp)};
    return STATUS_OK;
}
