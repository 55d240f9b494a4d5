/* The verifier's rules on a module's tables and on values that cross graphs; ir/verify.c lists
 * them. */
#include "ir/verify_state.h"

static void fault(Verifier *v, Span span, const char *what, const char *name, const char *why)
{
    diag(v->s, span, ir_module_fault, what, name, why);
}

static void check_axes(Verifier *v)
{
    for (uint32_t i = 0; i < v->m->axes.n; i++) {
        const IrAxis *axis = &v->m->axes.at[i];
        if (axis->size < 1)
            fault(v, no_span, "axis", axis->name, "its size is below 1");
        if (ir_axis_find(v->m, axis->name) != axis)
            fault(v, no_span, "axis", axis->name, "it is declared twice");
    }
}

static void check_scopes(Verifier *v)
{
    for (uint32_t i = 1; i < v->m->scopes.n; i++) {
        const IrScopeRec *rec = &v->m->scopes.at[i];
        if ((i == 1) != (rec->kind == IR_SCOPE_MODEL))
            fault(v, rec->span, "scope", rec->name, "the first scope alone is the model");
        if (rec->parent.i >= i || (i > 1 && !rec->parent.i))
            fault(v, rec->span, "scope", rec->name, "its parent does not stand before it");
        if (rec->kind == IR_SCOPE_PART && !rec->role)
            fault(v, rec->span, "scope", rec->name, "a part needs a role");
        if (ir_scope_find(v->m, rec->name).i != i)
            fault(v, rec->span, "scope", rec->name, "it is not found by its name");
    }
}

static bool belongs(IrStateKind kind)
{
    return kind == IR_STATE_MASTER || kind == IR_STATE_MOMENT1 || kind == IR_STATE_MOMENT2 ||
           kind == IR_STATE_ACC;
}

static bool same_dims(const IrModule *m, IrType a, IrType b)
{
    const IrTypeInfo *ia = ir_type_info(m, a), *ib = ir_type_info(m, b);
    if (ia->rank != ib->rank)
        return false;
    for (uint32_t i = 0; i < ia->rank; i++)
        if (!ir_dim_equal(&ia->dim[i], &ib->dim[i]))
            return false;
    return true;
}

/* Elements of the whole buffer; 0: an axis that it is cut along does not exist. */
static int64_t flat_numel(const IrModule *m, const IrStateRec *rec)
{
    const int64_t sizes[IR_MESH_SIZES] = {m->mesh.tp, m->mesh.dp, m->mesh.dpr, m->mesh.pp};
    int64_t numel = ir_type_numel(m, rec->type);
    for (uint32_t i = 0; rec->cut && i < IR_MESH_SIZES; i++)
        if (!strcmp(ir_mesh_size_names[i], rec->cut))
            return numel <= INT64_MAX / sizes[i] ? numel * sizes[i] : INT64_MAX;
    return rec->cut ? 0 : numel;
}

static const char *pieces_fault(const IrModule *m, const IrStateRec *rec)
{
    if (!rec->n_pieces)
        return rec->cut ? "it is cut and has no pieces" : NULL;
    if (rec->first_piece > m->pieces.n || rec->n_pieces > m->pieces.n - rec->first_piece)
        return "its pieces do not exist";
    int64_t numel = flat_numel(m, rec), end = 0;
    if (!numel)
        return "it is cut along an axis that the mesh does not have";
    for (uint32_t i = 0; i < rec->n_pieces; i++) {
        const IrPiece *piece = &m->pieces.at[rec->first_piece + i];
        if (piece->begin < end)
            return "its pieces overlap";
        int64_t n = ir_type_numel(m, piece->type);
        if (n > numel || piece->begin > numel - n)
            return "a piece ends outside it";
        end = piece->begin + n;
    }
    return NULL;
}

static const char *state_fault(Verifier *v, const IrStateRec *rec)
{
    const IrModule *m = v->m;
    if (!rec->type.i || rec->type.i >= m->types.n)
        return "it has no type";
    if (rec->scope.i >= m->scopes.n)
        return "its scope does not exist";
    if (belongs(rec->kind) != (rec->of.i != 0))
        return rec->of.i ? "a state of this kind belongs to no parameter"
                         : "it must say which parameter it belongs to";
    if (rec->of.i >= m->states.n)
        return "its parameter does not exist";
    if (rec->of.i && ir_state_rec(m, rec->of)->kind != IR_STATE_PARAM)
        return "it belongs to a state that is no parameter";
    const char *pieces = pieces_fault(m, rec);
    if (pieces)
        return pieces;
    if (rec->of.i && !rec->n_pieces && !same_dims(m, rec->type, ir_state_rec(m, rec->of)->type))
        return "its dims are not its parameter's";
    if (rec->trainable && rec->kind != IR_STATE_PARAM)
        return "only a parameter is trainable";
    uint64_t bytes = (uint64_t)ir_type_bytes(m, rec->type);
    if (rec->offset >= 0 && m->arena_bytes &&
        ((uint64_t)rec->offset > m->arena_bytes || bytes > m->arena_bytes - (uint64_t)rec->offset))
        return "it lies outside the arena";
    return NULL;
}

static void check_states(Verifier *v)
{
    for (uint32_t i = 1; i < v->m->states.n; i++) {
        const IrStateRec *rec = &v->m->states.at[i];
        const char *why = state_fault(v, rec);
        if (why)
            fault(v, rec->span, "state", rec->name, why);
        if (ir_state_find(v->m, rec->name).i != i)
            fault(v, rec->span, "state", rec->name, "it is not found by its name");
    }
}

void ir_verify_module(Verifier *v)
{
    check_axes(v);
    check_scopes(v);
    check_states(v);
    for (uint32_t i = 0; i < v->m->graphs.n; i++)
        if (ir_graph_find(v->m, v->m->graphs.at[i]->name) != v->m->graphs.at[i])
            fault(v, no_span, "graph", v->m->graphs.at[i]->name, "its name is taken");
}

/* -- values that cross graphs by equal names -- */

static IrValue find_param(const IrGraph *g, Sym name)
{
    IrValue v = ir_value_find(g, name);
    return v.i && ir_value(g, v)->def == IR_DEF_PARAM ? v : (IrValue){0};
}

/* Names of results in a map: saved sets have thousands. */
static Map result_names(Verifier *v, const IrGraph *g)
{
    Map names;
    map_init(&names, v->scratch);
    for (uint32_t i = 0; i < g->results.n; i++)
        map_put(&names, map_key(ir_value(g, g->results.at[i])->name), g->results.at[i].i);
    return names;
}

/* Each param of `to` comes from a result of `from`, or is one of @fwd's inputs. */
static void check_params(Verifier *v, const IrGraph *to, const IrGraph *from, const IrGraph *fwd)
{
    Map results = result_names(v, from);
    for (uint32_t i = 0; i < to->params.n; i++) {
        const IrValueRec *param = ir_value(to, to->params.at[i]);
        uint64_t at;
        const IrGraph *in = from;
        IrValue source = {0};
        if (map_get(&results, map_key(param->name), &at)) {
            source.i = (uint32_t)at;
        } else {
            in = fwd;
            source = find_param(fwd, param->name);
        }
        if (!source.i)
            diag(v->s, param->span, ir_crossing_fault, to->name, param->name, from->name);
        else if (!ir_type_agree(v->m, param->type, ir_value_type(in, source)))
            diag(v->s, param->span, ir_crossing_type, to->name, param->name,
                 ir_type_text(to->m, param->type), in->name,
                 ir_type_text(to->m, ir_value_type(in, source)));
    }
}

void ir_verify_saved_set(Verifier *v)
{
    const IrGraph *fwd = ir_graph_find(v->m, "fwd"), *bwd = ir_graph_find(v->m, "bwd");
    const IrGraph *update = ir_graph_find(v->m, "update");
    if (!fwd || !bwd)
        return;
    check_params(v, bwd, fwd, fwd);
    for (uint32_t i = ir_module_has_loss(v->m); i < fwd->results.n; i++) {
        const IrValueRec *saved = ir_value(fwd, fwd->results.at[i]);
        if (!find_param(bwd, saved->name).i)
            diag(v->s, saved->span, ir_unread_save, saved->name);
    }
    if (update)
        check_params(v, update, bwd, fwd);
}
