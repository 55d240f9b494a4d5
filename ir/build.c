#include "ir/ir.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/diag.h"

IrBuilder ir_builder(IrGraph *g)
{
    return (IrBuilder){.g = g, .at = UINT32_MAX, .scope = {1}};
}

static IrAttr attr_default(IrModule *m, const IrOpInfo *info, uint32_t i)
{
    IrAttr attr = {0};
    switch (info->attr[i].type) {
    case IR_ATTR_I64:
        attr.i = (int64_t)info->attr[i].number;
        break;
    case IR_ATTR_F64:
        attr.f = info->attr[i].number;
        break;
    case IR_ATTR_BOOL:
        attr.b = info->attr[i].number != 0;
        break;
    case IR_ATTR_SYM:
        attr.sym = intern_n(&m->s->interner, info->attr[i].text, strcspn(info->attr[i].text, "|"));
        break;
    }
    return attr;
}

static void fill_attrs(IrModule *m, const IrOpInfo *info, const IrOpArgs *args, IrAttr *out)
{
    for (uint32_t i = 0; i < info->n_attr; i++)
        out[i] = attr_default(m, info, i);
    for (uint32_t j = 0; j < IR_MAX_ATTRS && args->attrs[j]; j++) {
        uint32_t i = 0;
        while (i < info->n_attr && strcmp(info->attr[i].name, args->attrs[j]))
            i++;
        if (i == info->n_attr) {
            fprintf(stderr, "internal error: op `%s` has no attribute `%s`\n", info->name,
                    args->attrs[j]);
            abort();
        }
        if (info->attr[i].type == IR_ATTR_BOOL)
            out[i].b = args->values[j].b;
        else
            out[i] = args->values[j];
    }
}

/* Operand i's declaration: a variadic op's last one repeats. */
static bool operand_optional(const IrOpInfo *info, uint32_t i)
{
    return info->in[i < info->n_in ? i : info->n_in - 1].optional;
}

static bool check_operands(IrBuilder *b, const IrOpInfo *info, const IrOpArgs *args, uint32_t n_in)
{
    Session *s = b->g->m->s;
    if (args->n_in > info->n_in && !(info->traits & IR_VARIADIC)) {
        diag(s, b->span, ir_operand_count, info->name, info->n_in, args->n_in);
        return false;
    }
    for (uint32_t i = 0; i < n_in; i++) {
        bool present = i < args->n_in && args->in[i].i;
        if (present || operand_optional(info, i))
            continue;
        diag(s, b->span, ir_operand_missing, info->name,
             info->in[i < info->n_in ? i : info->n_in - 1].name);
        return false;
    }
    return true;
}

static bool infer(IrBuilder *b, const IrOpInfo *info, const IrOpArgs *args, uint32_t n_in,
                  const IrAttr *attrs, IrType *out)
{
    IrModule *m = b->g->m;
    IrType small[16] = {{0}};
    IrType *in = n_in <= 16 ? small : ARENA_ARRAY(m->s->arena, IrType, n_in);
    for (uint32_t i = 0; i < n_in && i < args->n_in; i++)
        in[i] = ir_value_type(b->g, args->in[i]);
    for (uint32_t i = 0; i < IR_MAX_OUTS; i++)
        out[i] = args->out[i];
    IrShapeCall call = {.m = m, .in = in, .n_in = n_in, .attr = attrs, .out = out};
    if (!info->shape(&call)) {
        diag(m->s, b->span, ir_shape, info->name, call.why ? call.why : "the operands do not fit");
        return false;
    }
    for (uint32_t i = 0; i < info->n_out; i++) {
        if (ir_type_bytes(m, out[i]) > IR_MOST_BYTES) {
            diag(m->s, b->span, ir_too_large, info->name, ir_type_text(m, out[i]));
            return false;
        }
        if (!args->out[i].i || args->out[i].i == out[i].i)
            continue;
        if (!ir_type_agree(m, args->out[i], out[i])) {
            diag(m->s, b->span, ir_result_type, info->name, info->out[i].name,
                 ir_type_text(m, args->out[i]), ir_type_text(m, out[i]));
            return false;
        }
        out[i] = args->out[i]; /* the caller's spelling of the dims */
    }
    return true;
}

static void insert(IrBuilder *b, IrOp op)
{
    IrGraph *g = b->g;
    vec_push(g->m->s->arena, &g->order, op);
    if (b->at >= g->order.n)
        return;
    memmove(&g->order.at[b->at + 1], &g->order.at[b->at],
            (g->order.n - 1 - b->at) * sizeof *g->order.at);
    g->order.at[b->at++] = op;
}

/* Adds the record, its operands (absent ones at the end included) and its place in the order. The
 * caller adds the results next. */
static IrOp add_op(IrBuilder *b, IrOpRec rec, const IrValue *in, uint32_t n_given)
{
    IrGraph *g = b->g;
    Arena *arena = g->m->s->arena;
    rec.first_in = g->operands.n;
    rec.first_out = g->values.n;
    vec_reserve(arena, &g->operands, g->operands.n + rec.n_in);
    for (uint32_t i = 0; i < rec.n_in; i++)
        g->operands.at[g->operands.n++] = i < n_given ? in[i] : (IrValue){0};
    vec_push(arena, &g->ops, rec);
    IrOp op = {g->ops.n - 1};
    insert(b, op);
    g->epoch++;
    return op;
}

static void add_attrs(IrGraph *g, IrOpRec *rec, const IrAttr *attrs, uint32_t n)
{
    rec->first_attr = g->attrs.n;
    for (uint32_t i = 0; i < n; i++)
        vec_push(g->m->s->arena, &g->attrs, attrs[i]);
}

static void add_result(IrGraph *g, IrOp op, uint32_t i, Sym name, IrType type)
{
    name = ir_value_fresh_name(g, name);
    map_put(&g->names, map_key(name), g->values.n);
    IrValueRec rec = {.name = name,
                      .type = type,
                      .def = IR_DEF_RESULT,
                      .op = op,
                      .result = i,
                      .span = ir_op(g, op)->span,
                      .place = {.offset = -1}};
    vec_push(g->m->s->arena, &g->values, rec);
}

static Sym first_name(const IrGraph *g, IrOp op)
{
    return ir_value(g, ir_out(g, op, 0))->name;
}

IrOp ir_build(IrBuilder *b, const IrOpArgs *args)
{
    IrGraph *g = b->g;
    Session *s = g->m->s;
    const IrOpInfo *info = ir_op_info(args->kind);
    assert(args->kind > IR_OP_none && args->kind < IR_OP_COUNT);
    bool variadic = info->traits & IR_VARIADIC;
    uint32_t n_in = variadic && args->n_in > info->n_in ? args->n_in : info->n_in;
    IrAttr attrs[IR_MAX_ATTRS];
    IrType out[IR_MAX_OUTS];
    fill_attrs(g->m, info, args, attrs);
    if (!check_operands(b, info, args, n_in) || !infer(b, info, args, n_in, attrs, out))
        return (IrOp){0};
    IrOpRec rec = {.kind = (uint16_t)args->kind,
                   .serves = (uint8_t)b->serves,
                   .n_in = n_in,
                   .n_out = info->n_out,
                   .scope = b->scope,
                   .region = b->region,
                   .re = b->re,
                   .span = b->span};
    add_attrs(g, &rec, attrs, info->n_attr);
    IrOp op = add_op(b, rec, args->in, args->n_in);
    Sym name = args->name ? args->name : sym(s, info->name);
    for (uint32_t i = 0; i < info->n_out; i++) {
        add_result(g, op, i, name, out[i]);
        if (i + 1 < info->n_out)
            name = args->out_names[i + 1] ? args->out_names[i + 1]
                                          : intern_printf(&s->interner, "%s.%s", first_name(g, op),
                                                          info->out[i + 1].name);
    }
    return op;
}

IrValue ir_build_simple(IrBuilder *b, IrOpKind kind, Sym name, uint32_t n, ...)
{
    IrValue in[IR_MAX_INS];
    assert(n <= IR_MAX_INS);
    va_list list;
    va_start(list, n);
    for (uint32_t i = 0; i < n; i++)
        in[i] = va_arg(list, IrValue);
    va_end(list);
    IrOpArgs args = {.kind = kind, .in = in, .n_in = n, .name = name};
    IrOp op = ir_build(b, &args);
    return op.i && ir_op(b->g, op)->n_out ? ir_out(b->g, op, 0) : (IrValue){0};
}

IrOp ir_clone(IrBuilder *b, const IrGraph *from, IrOp op, IrMapFn map, void *context,
              const char *prefix, const char *suffix)
{
    IrGraph *g = b->g;
    Session *s = g->m->s;
    assert(from->m == g->m);
    IrOpRec rec = *ir_op(from, op); /* a copy: `from` may be this graph, whose arrays move */
    const uint32_t first_out = rec.first_out;
    IrValue small[16];
    IrValue *in = rec.n_in <= 16 ? small : ARENA_ARRAY(s->arena, IrValue, rec.n_in);
    IrAttr attrs[IR_MAX_ATTRS];
    uint32_t n_attr = ir_op_info((IrOpKind)rec.kind)->n_attr;
    for (uint32_t i = 0; i < rec.n_in; i++) {
        IrValue old = ir_in(from, op, i);
        in[i] = old.i ? map(context, old) : old;
    }
    for (uint32_t i = 0; i < n_attr; i++)
        attrs[i] = from->attrs.at[rec.first_attr + i];
    rec.dead = false;
    rec.region = b->region;
    if (b->serves)
        rec.serves = (uint8_t)b->serves;
    if (b->re)
        rec.re = b->re;
    add_attrs(g, &rec, attrs, n_attr);
    IrOp clone = add_op(b, rec, in, rec.n_in);
    for (uint32_t i = 0; i < rec.n_out; i++) {
        const IrValueRec *old = &from->values.at[first_out + i];
        IrType type = old->type;
        Sym name = intern_printf(&s->interner, "%s%s%s", prefix ? prefix : "", old->name,
                                 suffix ? suffix : "");
        add_result(g, clone, i, name, type);
    }
    return clone;
}
