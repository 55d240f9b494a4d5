/* freeze: parameters that the recipe freezes are marked; they have no gradient, no moments and
 * no backward work. The model is whole here: what it has of parameters is counted, and the
 * optimizer's groups are held against their names. */
#include "passes/pass.h"

#include <fnmatch.h>
#include <string.h>

#include "base/diag.h"

static void freeze_state(PassContext *c, IrState state)
{
    IrStateRec *rec = ir_state_rec(c->m, state);
    pass_stat(c, "parameters frozen", rec->trainable);
    rec->trainable = false;
}

/* Every table that a lookup reads: token, position and per-layer tables, and with them a tied
 * head. */
static void freeze_embeddings(PassContext *c, const IrGraph *g)
{
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        const IrValueRec *table = ir_value(g, ir_in(g, op, 0));
        if (ir_op_kind(g, op) == IR_OP_embed && table->def == IR_DEF_STATE)
            freeze_state(c, table->state);
    }
}

static Status freeze_matching(PassContext *c, PassPattern pattern)
{
    bool matched = false;
    for (uint32_t i = 1; i < c->m->states.n; i++) {
        IrStateRec *rec = &c->m->states.at[i];
        if (rec->kind != IR_STATE_PARAM || fnmatch(pattern.glob, rec->name, 0))
            continue;
        freeze_state(c, (IrState){i});
        matched = true;
    }
    if (!matched)
        diag(c->s, pattern.span, freeze_matches_nothing, pattern.glob);
    return matched ? STATUS_OK : STATUS_USER;
}

/* The group that a parameter belongs to: the first that matches. */
static uint32_t find_group(const PassOptions *o, Sym name)
{
    uint32_t i = 0;
    while (i < o->groups.n && fnmatch(o->groups.at[i].pattern, name, 0))
        i++;
    return i;
}

/* The last group is of what is left, and may be empty. */
static Status check_groups(PassContext *c)
{
    const PassOptions *o = c->options;
    bool *used = ARENA_ARRAY(c->scratch, bool, o->groups.n + 1);
    for (uint32_t i = 1; i < c->m->states.n; i++)
        if (c->m->states.at[i].kind == IR_STATE_PARAM)
            used[find_group(o, c->m->states.at[i].name)] = true;
    for (uint32_t i = 0; i + 1 < o->groups.n; i++) {
        if (used[i])
            continue;
        diag(c->s, o->groups.at[i].span, group_matches_nothing, o->groups.at[i].pattern);
        return STATUS_USER;
    }
    return STATUS_OK;
}

static IrParameters count_parameters(const IrModule *m)
{
    IrParameters count = {0};
    for (uint32_t i = 1; i < m->states.n; i++) {
        const IrStateRec *state = &m->states.at[i];
        if (state->kind != IR_STATE_PARAM)
            continue;
        uint64_t numel = (uint64_t)ir_type_numel(m, state->type);
        count.tensors++;
        count.elements += numel;
        count.trained += state->trainable ? numel : 0;
    }
    return count;
}

Status pass_freeze(PassContext *c)
{
    const PassOptions *o = c->options;
    if (o->freeze_embeddings)
        for (uint32_t k = 0; k < c->m->graphs.n; k++)
            freeze_embeddings(c, c->m->graphs.at[k]);
    for (uint32_t i = 0; i < o->freeze.n; i++)
        TRY(freeze_matching(c, o->freeze.at[i]));
    if (o->freeze_all)
        TRY(freeze_matching(c, (PassPattern){sym(c->s, "*"), no_span}));
    TRY(check_groups(c));
    c->m->parameters = count_parameters(c->m);
    if (c->m->parameters.trained)
        return STATUS_OK;
    diag(c->s, o->freeze_span, freeze_everything);
    return STATUS_USER;
}
