/* stages: cuts the model into the stages of a pipeline, a module each, before anything else is
 * made of it: gradients, optimizer and memory of a stage then follow from its own forward pass.
 * An op of a block belongs to the block's stage, one that follows from blocks to the last stage
 * that it reads from, and one in front of them to the first, unless it is made where it is read.
 * A value that a later stage reads goes from stage to stage, once over every border. */
#include "passes/stages.h"

#include <fnmatch.h>
#include <string.h>

#include "base/diag.h"

/* -- blocks -- */

static IrScope outer_block(const IrModule *m, IrScope scope)
{
    IrScope outer = {0};
    for (IrScope at = ir_scope_block(m, scope); at.i;
         at = ir_scope_block(m, ir_scope_rec(m, at)->parent))
        outer = at;
    return outer;
}

static void find_blocks(Stages *s)
{
    Map index;
    map_init(&index, s->c->scratch);
    for (uint32_t i = 0; i < s->g->order.n; i++) {
        IrOp op = s->g->order.at[i];
        IrScope block = outer_block(s->g->m, ir_op(s->g, op)->scope);
        uint64_t at = s->n_blocks;
        stage_op(s, op)->block = -1;
        if (!block.i)
            continue;
        if (!map_get(&index, block.i, &at)) {
            map_put(&index, block.i, at);
            s->n_blocks++;
        }
        stage_op(s, op)->block = (int32_t)at;
    }
}

static const StageOp *maker(const Stages *s, IrValue v)
{
    const IrValueRec *rec = ir_value(s->g, v);
    return v.i && rec->def == IR_DEF_RESULT ? stage_op(s, rec->op) : NULL;
}

static bool reads_state(const Stages *s, IrOp op)
{
    for (uint32_t k = 0; k < ir_op(s->g, op)->n_in; k++)
        if (ir_value(s->g, ir_in(s->g, op, k))->def == IR_DEF_STATE)
            return true;
    return false;
}

static void find_roles(Stages *s)
{
    for (uint32_t i = 0; i < s->g->order.n; i++) {
        IrOp op = s->g->order.at[i];
        StageOp *at = stage_op(s, op);
        bool free = ir_op_info(ir_op_kind(s->g, op))->traits & IR_PURE && !reads_state(s, op);
        for (uint32_t k = 0; k < ir_op(s->g, op)->n_in; k++) {
            const StageOp *from = maker(s, ir_in(s->g, op, k));
            at->behind |= from && (from->behind || from->block >= 0);
            free &= !from || from->role == STAGE_FREE;
        }
        at->role = free && at->block < 0 ? STAGE_FREE : STAGE_FIXED;
    }
}

static void place_ops(Stages *s)
{
    for (uint32_t i = 0; i < s->g->order.n; i++) {
        IrOp op = s->g->order.at[i];
        StageOp *at = stage_op(s, op);
        while (at->block >= 0 && (uint32_t)at->block >= s->first_block[at->piece + 1])
            at->piece++;
        for (uint32_t k = 0; at->block < 0 && k < ir_op(s->g, op)->n_in; k++) {
            const StageOp *from = maker(s, ir_in(s->g, op, k));
            if (from && from->role == STAGE_FIXED && from->piece > at->piece)
                at->piece = from->piece;
        }
    }
}

static void find_wants(Stages *s)
{
    const IrGraph *g = s->g;
    s->wants = ARENA_ARRAY(s->c->scratch, bool, g->values.n);
    for (uint32_t v = 1; v < g->values.n; v++)
        s->wants[v] = g->values.at[v].def == IR_DEF_STATE &&
                      ir_state_rec(g->m, g->values.at[v].state)->trainable;
    for (uint32_t i = 0; i < g->order.n; i++) {
        const IrOpRec *rec = ir_op(g, g->order.at[i]);
        bool any = false;
        for (uint32_t k = 0; k < rec->n_in; k++)
            any |= s->wants[ir_in(g, g->order.at[i], k).i];
        for (uint32_t r = 0; any && r < rec->n_out; r++)
            s->wants[rec->first_out + r] =
                dtype_is_float(ir_type_info(g->m, g->values.at[rec->first_out + r].type)->dtype);
    }
}

/* -- what is read where -- */

static void need(Stages *s, IrValue v, uint32_t piece)
{
    const IrValueRec *rec = ir_value(s->g, v);
    bool *at = &s->needed[(size_t)v.i * s->n_pieces + piece];
    if (!v.i || *at)
        return;
    *at = true;
    if (rec->def != IR_DEF_RESULT || stage_op(s, rec->op)->role == STAGE_FIXED)
        return;
    for (uint32_t k = 0; k < ir_op(s->g, rec->op)->n_in; k++)
        need(s, ir_in(s->g, rec->op, k), piece);
}

static void find_needs(Stages *s)
{
    s->needed = ARENA_ARRAY(s->c->scratch, bool, (size_t)s->g->values.n * s->n_pieces);
    for (uint32_t i = 0; i < s->g->order.n; i++) {
        IrOp op = s->g->order.at[i];
        for (uint32_t k = 0; stage_op(s, op)->role == STAGE_FIXED && k < ir_op(s->g, op)->n_in; k++)
            need(s, ir_in(s->g, op, k), stage_op(s, op)->piece);
    }
}

/* A stage that has more than one piece gets a value once, at the first piece behind the one that
 * makes it. */
bool stages_crosses(const Stages *s, IrValue v, uint32_t piece)
{
    const StageOp *from = maker(s, v);
    if (!from || from->role != STAGE_FIXED || from->piece > piece)
        return false;
    for (uint32_t u = piece + 1; u < s->n_pieces; u++) {
        uint32_t away = (u - from->piece) % s->n_stages, arrives = from->piece + away;
        if (s->needed[(size_t)v.i * s->n_pieces + u] && away && arrives > piece)
            return true;
    }
    return false;
}

/* -- ties -- */

static Sym tie_comm(const Stages *s, const bool *holds, int64_t ranks)
{
    Session *session = s->c->s;
    const char *text = "pp:";
    if (ranks == s->n_stages)
        return sym(session, "pp");
    for (uint32_t i = 0, n = 0; i < s->n_stages; i++)
        if (holds[i])
            text = arena_printf(s->c->scratch, "%s%s%u", text, n++ ? "," : "", i);
    return sym(session, text);
}

/* Parameters that several stages hold, in the order of the model's. A communicator of some stages
 * alone is a word of bits. */
static Status find_ties(const Stages *s, IrModule *whole)
{
    enum { MOST_STAGES = 64 };
    bool *holds = ARENA_ARRAY(s->c->scratch, bool, s->n_stages);
    for (uint32_t i = 1; i < whole->states.n; i++) {
        Sym name = whole->states.at[i].name;
        int64_t ranks = 0;
        bool first = true;
        for (uint32_t k = 0; k < s->n_stages; k++) {
            IrState state = ir_state_find(whole->stages.at[k], name);
            holds[k] = state.i && !ir_state_rec(whole->stages.at[k], state)->narrow.whole;
            ranks += holds[k];
        }
        if (ranks > 1 && ranks < s->n_stages && s->n_stages > MOST_STAGES) {
            diag(s->c->s, s->c->options->pp_span, pp_tied, (long long)s->n_stages, name,
                 MOST_STAGES);
            return STATUS_USER;
        }
        for (uint32_t k = 0; ranks > 1 && k < s->n_stages; k++) {
            IrTie tie = {name, tie_comm(s, holds, ranks), ranks, first};
            if (!holds[k])
                continue;
            vec_push(s->c->s->arena, &whole->stages.at[k]->ties, tie);
            first = false;
        }
        if (ranks > 1)
            pass_stat(s->c, "parameters on several stages", 1);
    }
    return STATUS_OK;
}

/* -- the pass -- */

/* Each stage keeps what it has of the values that --keep names; one of them must have some. */
static Status check_kept(const Stages *s)
{
    const PassPatterns *keep = &s->c->options->keep;
    for (uint32_t k = 0; k < keep->n; k++) {
        bool found = false;
        for (uint32_t v = 1; v < s->g->values.n; v++)
            found |= s->g->values.at[v].def == IR_DEF_RESULT &&
                     !fnmatch(keep->at[k].glob, s->g->values.at[v].name, 0);
        if (found)
            continue;
        diag(s->c->s, keep->at[k].span, keep_matches_nothing, keep->at[k].glob);
        return STATUS_USER;
    }
    return STATUS_OK;
}

static Status check_schedule(const PassContext *c)
{
    const PassOptions *o = c->options;
    bool interleaved = !strcmp(o->pp_schedule, "interleaved_1f1b");
    const char *bad = NULL;
    if (o->pp_chunks > 1 && !interleaved)
        diag(c->s, o->pp_schedule_span, pp_chunks, (long long)o->pp_chunks);
    else if (interleaved && o->micro_batches % o->pp)
        diag(c->s, o->pp_schedule_span, pp_multiple, (long long)o->pp, (long long)o->micro_batches);
    else if (!strcmp(o->pp_schedule, "zero_bubble") && o->micro_batches < o->pp)
        diag(c->s, o->pp_schedule_span, pp_fewest, (long long)o->micro_batches, (long long)o->pp);
    else
        bad = "";
    return bad ? STATUS_OK : STATUS_USER;
}

Status pass_stages(PassContext *c)
{
    const PassOptions *o = c->options;
    if (o->pp < 2)
        return STATUS_OK;
    Stages s = {.c = c, .g = ir_graph_find(c->m, "fwd"), .n_stages = (uint32_t)o->pp};
    s.n_chunks = o->pp_chunks > 1 ? (uint32_t)o->pp_chunks : 1;
    s.n_pieces = s.n_stages * s.n_chunks;
    s.uses = ir_uses(s.g, c->scratch);
    s.ops = ARENA_ARRAY(c->scratch, StageOp, s.g->ops.n);
    TRY(check_schedule(c));
    TRY(check_kept(&s));
    find_blocks(&s);
    find_roles(&s);
    TRY(stages_cut(&s));
    place_ops(&s);
    stages_narrow(&s);
    find_wants(&s);
    find_needs(&s);
    for (uint32_t i = 0; i < s.n_stages; i++)
        vec_push(c->s->arena, &c->m->stages, stages_module(&s, i));
    TRY(find_ties(&s, c->m));
    pass_stat(c, "stages", s.n_stages);
    return STATUS_OK;
}
