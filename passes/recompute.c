/* recompute: marks the regions of @fwd whose values the backward pass makes again. A region is a
 * whole block (`block`, `selective`) or one part of it (`submodule`). Regions select blocks and
 * roles of the scope tree, never names; a selector that matches nothing is an error. */
#include "passes/pass.h"

#include <string.h>

#include "base/diag.h"

typedef struct Marker {
    PassContext *c;
    IrGraph *g;
    bool by_part;
    Map region_of; /* scope -> region */
    Map kept;      /* block scopes that keep_last spares */
} Marker;

static bool role_selected(const PassOptions *o, Sym role)
{
    for (uint32_t i = 0; i < o->recompute_parts.n; i++)
        if (o->recompute_parts.at[i] == role)
            return true;
    return o->recompute_parts.n == 0 && strcmp(role, "other") != 0;
}

/* The part that an op belongs to, within its block; {0} outside every part. */
static IrScope part_of(const IrModule *m, IrScope scope)
{
    while (scope.i && ir_scope_rec(m, scope)->kind != IR_SCOPE_PART)
        scope = ir_scope_rec(m, scope)->parent;
    return scope;
}

/* The scope that one region covers for this op, or {0}: it stays as it is. */
static IrScope region_scope(Marker *k, IrOp op)
{
    IrModule *m = k->c->m;
    IrScope scope = ir_op(k->g, op)->scope, block = ir_scope_block(m, scope);
    if (!block.i || map_get(&k->kept, block.i, NULL))
        return (IrScope){0};
    if (!k->by_part)
        return block;
    IrScope part = part_of(m, scope);
    return part.i && role_selected(k->c->options, ir_scope_rec(m, part)->role) ? part
                                                                               : (IrScope){0};
}

static IrRegion region_for(Marker *k, IrScope scope)
{
    uint64_t known;
    if (map_get(&k->region_of, scope.i, &known))
        return (IrRegion){(uint32_t)known};
    IrRegionRec rec = {
        .kind = IR_REGION_RECOMPUTE, .scope = scope, .policy = k->c->options->recompute_policy};
    vec_push(k->c->m->s->arena, &k->g->regions, rec);
    map_put(&k->region_of, scope.i, k->g->regions.n - 1);
    pass_stat(k->c, "regions", 1);
    return (IrRegion){k->g->regions.n - 1};
}

/* What a region keeps all the same: discrete choices always, products and attention under
 * `selective`. */
static void keep_results(Marker *k, IrOp op, IrRegion region)
{
    uint32_t traits = ir_op_info(ir_op_kind(k->g, op))->traits;
    bool selective = !strcmp(k->c->options->recompute_policy, "selective");
    if (!(traits & IR_DISCRETE) && !(selective && (traits & IR_PRODUCT)))
        return;
    for (uint32_t r = 0; r < ir_op(k->g, op)->n_out; r++)
        vec_push(k->c->m->s->arena, &k->g->regions.at[region.i].saves, ir_out(k->g, op, r));
}

static Status mark(Marker *k)
{
    IrRegion open = {0};
    for (uint32_t i = 0; i < k->g->order.n; i++) {
        IrOp op = k->g->order.at[i];
        IrScope scope = region_scope(k, op);
        bool seen = scope.i && map_get(&k->region_of, scope.i, NULL);
        IrRegion region = scope.i ? region_for(k, scope) : (IrRegion){0};
        if (seen && region.i != open.i) {
            diag(k->c->s, ir_op(k->g, op)->span, recompute_scattered,
                 ir_scope_rec(k->c->m, scope)->name);
            return STATUS_USER;
        }
        ir_op(k->g, op)->region = open = region;
        if (region.i)
            keep_results(k, op, region);
    }
    return STATUS_OK;
}

/* Blocks in the order of their first op; of a pipeline's stage, those of the whole model. */
static uint32_t list_blocks(Marker *k, IrScope *out_blocks)
{
    const IrModule *m = k->c->m;
    Map seen;
    map_init(&seen, k->c->scratch);
    uint32_t n = 0;
    for (uint32_t i = 1; m->mesh.pp > 1 && i < m->scopes.n; i++)
        if (m->scopes.at[i].kind == IR_SCOPE_BLOCK)
            out_blocks[n++] = (IrScope){i};
    if (n)
        return n;
    for (uint32_t i = 0; i < k->g->order.n; i++) {
        IrScope block = ir_scope_block(k->c->m, ir_op(k->g, k->g->order.at[i])->scope);
        if (!block.i || map_get(&seen, block.i, NULL))
            continue;
        map_put(&seen, block.i, 1);
        out_blocks[n++] = block;
    }
    return n;
}

static Status check_roles(Marker *k)
{
    const PassOptions *o = k->c->options;
    IrModule *m = k->c->m;
    for (uint32_t i = 0; i < o->recompute_parts.n; i++) {
        bool found = false;
        const char *roles = "";
        Map listed;
        map_init(&listed, k->c->scratch);
        for (uint32_t s = 1; s < m->scopes.n; s++) {
            Sym role = m->scopes.at[s].role;
            if (m->scopes.at[s].kind != IR_SCOPE_PART || map_get(&listed, map_key(role), NULL))
                continue;
            map_put(&listed, map_key(role), 1);
            found |= role == o->recompute_parts.at[i];
            roles = arena_printf(k->c->scratch, "%s%s`%s`", roles, *roles ? ", " : "", role);
        }
        if (!found) {
            diag(k->c->s, o->recompute_parts_span, recompute_no_role, o->recompute_parts.at[i],
                 roles);
            return STATUS_USER;
        }
    }
    return STATUS_OK;
}

Status pass_recompute(PassContext *c)
{
    const PassOptions *o = c->options;
    if (!strcmp(o->recompute_policy, "none"))
        return STATUS_OK;
    Marker k = {.c = c,
                .g = ir_graph_find(c->m, "fwd"),
                .by_part = !strcmp(o->recompute_policy, "submodule")};
    map_init(&k.region_of, c->scratch);
    map_init(&k.kept, c->scratch);
    IrScope *blocks = ARENA_ARRAY(c->scratch, IrScope, c->m->scopes.n);
    uint32_t n_blocks = list_blocks(&k, blocks);
    if (!n_blocks) {
        diag(c->s, o->recompute_span, recompute_no_blocks, o->recompute_policy);
        return STATUS_USER;
    }
    if (o->recompute_keep_last > n_blocks) {
        diag(c->s, o->recompute_keep_span, recompute_keep_last, (long long)o->recompute_keep_last,
             n_blocks);
        return STATUS_USER;
    }
    for (uint32_t i = n_blocks - (uint32_t)o->recompute_keep_last; i < n_blocks; i++)
        map_put(&k.kept, blocks[i].i, 1);
    TRY(check_roles(&k));
    pass_stat(c, "blocks", n_blocks);
    return mark(&k);
}
