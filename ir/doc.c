#include "ir/doc.h"

#include "ir/print.h"

/* The columns that other layers expand into functions, here as their names. */
typedef struct OpColumns {
    const char *grad, *shard, *cost, *cpu_class, *cpu, *cuda_class, *cuda;
} OpColumns;

#include "ir/op_columns.h"
#undef GRAD
#undef SHARD
#undef COST
#undef CPU
#undef CUDA
#define GRAD(f) .grad = #f,
#define SHARD(text) .shard = text,
#define COST(f) .cost = #f,
#define CPU(class, f) .cpu_class = #class, .cpu = #f,
#define CUDA(class, f) .cuda_class = #class, .cuda = #f,
#define OP(name, doc, ins, outs, attrs, ...) {__VA_ARGS__},

static const OpColumns columns[IR_OP_COUNT] = {
    {0},
#include "ir/ops.def"
};
#undef OP
#include "ir/op_columns.h"

static const char *const level_names[] = {"model", "step", "local", "planned"};

static const struct {
    uint32_t bit;
    const char *text;
} trait_texts[] = {
    {IR_PURE, "pure"},
    {IR_RANDOM, "random (counter-based key)"},
    {IR_STATE_UPDATE, "updates states"},
    {IR_CACHE, "uses the K/V cache"},
    {IR_COLLECTIVE, "collective"},
    {IR_COMMUTATIVE, "commutative"},
    {IR_PRODUCT, "a product: kept by selective recompute"},
    {IR_DISCRETE, "a discrete choice: saved, never replayed"},
    {IR_VIEW, "its result is its operand's memory"},
    {IR_VARIADIC, "its last operand repeats"},
    {IR_TUPLE, "all results are the model's, none is a residual"},
    {IR_POINTWISE, "pointwise: replayed by pointwise recompute"},
    {IR_STRIDED, "writes rows that lie apart: as parts of a concat, in place"},
};

/* `%y, %y.rstd = rmsnorm %x, [%w] eps=1e-06` */
static void print_form(FILE *out, const IrOpInfo *info)
{
    for (uint32_t i = 0; i < info->n_out; i++)
        fprintf(out, "%s%%%s", i ? ", " : "", info->out[i].name);
    fprintf(out, "%s%s", info->n_out ? " = " : "", info->name);
    for (uint32_t i = 0; i < info->n_in; i++) {
        bool optional = info->in[i].optional;
        fprintf(out, "%s%s%c%s%s", i ? ", " : " ", optional ? "[" : "",
                info->in[i].written ? '$' : '%', info->in[i].name, optional ? "]" : "");
    }
    if (info->traits & IR_VARIADIC)
        fputs(" ...", out);
}

static void print_default(FILE *out, const IrOpInfo *info, uint32_t i)
{
    const char *text = info->attr[i].text;
    switch (info->attr[i].type) {
    case IR_ATTR_I64:
        fprintf(out, "whole number, default %lld", (long long)info->attr[i].number);
        break;
    case IR_ATTR_F64:
        fputs("number, default ", out);
        ir_print_f64(out, info->attr[i].number);
        break;
    case IR_ATTR_BOOL:
        fprintf(out, "true or false, default %s", info->attr[i].number != 0 ? "true" : "false");
        break;
    case IR_ATTR_SYM:
        if (!*text) {
            fputs("any word", out);
            break;
        }
        fputs("one of", out);
        for (const char *at = text; *at; at += *at == '|') {
            size_t n = strcspn(at, "|");
            fprintf(out, "%s `%.*s`%s", at == text ? "" : ",", (int)n, at,
                    at == text ? " (default)" : "");
            at += n;
        }
        break;
    }
}

static void print_traits(FILE *out, uint32_t traits)
{
    const char *comma = "";
    for (uint32_t i = 0; i < sizeof trait_texts / sizeof *trait_texts; i++) {
        if (!(traits & trait_texts[i].bit))
            continue;
        fprintf(out, "%s%s", comma, trait_texts[i].text);
        comma = "; ";
    }
}

static void print_levels(FILE *out, uint32_t levels)
{
    uint32_t first = 0, last = 3;
    while (first < 3 && !(levels >> first & 1))
        first++;
    while (last && !(levels >> last & 1))
        last--;
    fprintf(out, "%s", level_names[first]);
    if (last > first)
        fprintf(out, " to %s", level_names[last]);
}

/* `class f`, in words. */
static void print_lowering(FILE *out, const char *class, const char *f)
{
    if (!strcmp(class, "FUSED"))
        fputs("compiled, fuses with its neighbours", out);
    else if (!strcmp(class, "KERNEL"))
        fprintf(out, "runtime kernel `%s`", f);
    else
        fputs("no code", out);
}

static void print_rows(FILE *out, IrOpKind kind, const char *bullet)
{
    const IrOpInfo *info = ir_op_info(kind);
    const OpColumns *col = &columns[kind];
    for (uint32_t i = 0; i < info->n_attr; i++) {
        fprintf(out, "%sattribute `%s`: ", bullet, info->attr[i].name);
        print_default(out, info, i);
        fputc('\n', out);
    }
    fprintf(out, "%slevels: ", bullet);
    print_levels(out, info->levels);
    fprintf(out, "\n%seffects: ", bullet);
    print_traits(out, info->traits);
    fprintf(out, "\n%sgradient: %s\n", bullet,
            strcmp(col->grad, "none") ? "yes" : "nothing flows back");
    fprintf(out, "%ssharding: `%s`\n%scpu: ", bullet, col->shard, bullet);
    print_lowering(out, col->cpu_class, col->cpu);
    fprintf(out, "\n%scuda: ", bullet);
    print_lowering(out, col->cuda_class, col->cuda);
    fputc('\n', out);
}

void ir_explain_op(FILE *out, IrOpKind kind)
{
    const IrOpInfo *info = ir_op_info(kind);
    fprintf(out, "%s: %s\n\n    ", info->name, info->doc);
    print_form(out, info);
    fputs("\n\n", out);
    print_rows(out, kind, "  ");
}

void ir_ops_markdown(FILE *out)
{
    fputs("# Ops\n\n"
          "Generated from `ir/ops.def`, where each op is one row. `[..]` marks an operand that may "
          "be "
          "absent, `$` a state\nthat the op writes. In the sharding rule `!x` must be whole, and a "
          "letter that stands only on the left is summed.\n",
          out);
    for (unsigned kind = 1; kind < IR_OP_COUNT; kind++) {
        const IrOpInfo *info = ir_op_info((IrOpKind)kind);
        fprintf(out, "\n## %s\n\n%s\n\n```\n", info->name, info->doc);
        print_form(out, info);
        fputs("\n```\n\n", out);
        print_rows(out, (IrOpKind)kind, "- ");
    }
}
