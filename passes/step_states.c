#include "passes/step_states.h"

IrState step_scalar(IrModule *m, const char *name, DType dtype)
{
    Sym interned = sym(m->s, name);
    IrState found = ir_state_find(m, interned);
    if (found.i)
        return found;
    return ir_state_add(m, (IrStateRec){.name = interned,
                                        .kind = IR_STATE_SCALAR,
                                        .type = ir_type_scalar(m, dtype),
                                        .offset = -1});
}

IrState step_companion(IrModule *m, IrState param, const char *suffix, IrStateKind kind,
                       DType dtype)
{
    const IrStateRec *of = ir_state_rec(m, param);
    Sym name = intern_printf(&m->s->interner, "%s.%s", of->name, suffix);
    IrState found = ir_state_find(m, name);
    if (found.i)
        return found;
    return ir_state_add(m, (IrStateRec){.name = name,
                                        .kind = kind,
                                        .type = ir_type_with_dtype(m, of->type, dtype),
                                        .of = param,
                                        .scope = of->scope,
                                        .span = of->span,
                                        .offset = -1});
}
