/* Types, the builder, editing, clones and uses. */
#include "ir_support.h"

typedef struct Fixture {
    Bench *bench;
    Session *s;
    IrModule *m;
    IrGraph *g;
    IrBuilder b;
} Fixture;

static Fixture fixture(void)
{
    Fixture f = {.bench = bench_new()};
    f.s = f.bench->s;
    f.m = ir_module_new(f.s);
    f.g = ir_graph_new(f.m, sym(f.s, "fwd"));
    f.b = ir_builder(f.g);
    return f;
}

static IrType type_of(Fixture *f, DType dtype, uint32_t rank, const int64_t *dims)
{
    IrTypeInfo info = {.dtype = dtype, .rank = rank};
    for (uint32_t i = 0; i < rank; i++)
        info.dim[i] = ir_dim_number(dims[i]);
    return ir_type(f->m, &info);
}

#define TYPE(f, dtype, ...)                                                                        \
    type_of((f), (dtype), sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                      \
            (int64_t[]){__VA_ARGS__})

static IrValue param(Fixture *f, const char *name, IrType type)
{
    return ir_graph_param(f->g, sym(f->s, name), type, (Span){0});
}

static void test_types(void **state)
{
    (void)state;
    Fixture f = fixture();
    Sym heads = sym(f.s, "heads");
    IrDim dim =
        ir_dim_product(ir_dim_number(3), ir_dim_product(ir_dim_axis(heads, 8), ir_dim_number(16)));
    IrTypeInfo info = {.dtype = DTYPE_BF16, .rank = 2, .dim = {ir_dim_number(1), dim}};
    IrType type = ir_type(f.m, &info);
    assert_int_equal(type.i, ir_type(f.m, &info).i);
    assert_string_equal(ir_type_text(f.m, type), "bf16[1,3*heads*16]");
    assert_int_equal(ir_type_numel(f.m, type), 3 * 8 * 16);
    assert_int_equal(ir_type_bytes(f.m, type), 2 * 3 * 8 * 16);
    assert_int_equal(ir_type_last(f.m, type), 384);
    assert_int_equal(ir_axis_find(f.m, heads)->size, 8);
    /* the same size in other factors is another type that agrees */
    IrType flat = TYPE(&f, DTYPE_BF16, 1, 384);
    assert_int_not_equal(flat.i, type.i);
    assert_true(ir_type_agree(f.m, flat, type));
    assert_false(ir_type_agree(f.m, flat, ir_type_with_dtype(f.m, type, DTYPE_F32)));
    /* a divided factor: local size, and no agreement with the whole or an undivided dim of that
     * size */
    info.dim[1].f[1].mesh = IR_MESH_TP;
    info.dim[1].f[1].parts = 4;
    IrType local = ir_type(f.m, &info);
    assert_string_equal(ir_type_text(f.m, local), "bf16[1,3*(heads/tp=4)*16]");
    assert_int_equal(ir_type_last(f.m, local), 96);
    assert_false(ir_type_agree(f.m, local, TYPE(&f, DTYPE_BF16, 1, 96)));
    /* of the same size, with the same factor divided, but other elements on a rank */
    IrTypeInfo other = info;
    other.dim[1].f[0].size = 16;
    other.dim[1].f[2].size = 3;
    assert_false(ir_type_agree(f.m, local, ir_type(f.m, &other)));
    /* three dims, row-major: what stands before and behind the divided factor counts */
    IrDim apart[] = {ir_dim_number(3), {.n = 1, .f = {info.dim[1].f[1]}}, ir_dim_number(16)};
    assert_true(ir_dims_alike(info.dim, 2, apart, 3));
    assert_false(ir_dims_alike(other.dim, 2, apart, 3));
    assert_string_equal(ir_type_text(f.m, ir_type_scalar(f.m, DTYPE_F64)), "f64[]");
    assert_int_equal(ir_type_last(f.m, ir_type_scalar(f.m, DTYPE_F64)), 1);
    /* an axis of another size than the module's says so */
    IrTypeInfo odd = {.dtype = DTYPE_F32, .rank = 1, .dim = {ir_dim_axis(heads, 5)}};
    assert_string_equal(ir_type_text(f.m, ir_type(f.m, &odd)), "f32[heads=5]");
    /* more than four factors: numbers fold first */
    IrDim many = ir_dim_product(dim, ir_dim_product(ir_dim_number(2), ir_dim_number(2)));
    assert_int_equal(many.n, 4);
    assert_int_equal(ir_dim_size(&many), 4 * 384);
    /* neighbours: what stands before the axis stays there */
    assert_int_equal(many.f[0].size, 3);
    assert_ptr_equal(many.f[1].axis, heads);
    bench_free(f.bench);
}

static void test_build(void **state)
{
    (void)state;
    Fixture f = fixture();
    IrValue x = param(&f, "x", TYPE(&f, DTYPE_F32, 2, 5, 8)),
            w = param(&f, "w", TYPE(&f, DTYPE_F32, 8));
    IrOp op = ir_build(&f.b, &(IrOpArgs){.kind = IR_OP_rmsnorm,
                                         .in = (IrValue[]){x, w},
                                         .n_in = 2,
                                         .attrs = {"eps"},
                                         .values = {{.f = 1e-5}},
                                         .name = sym(f.s, "n")});
    assert_true(ir_attr_f64(f.g, op, "eps") == 1e-5);
    assert_string_equal(ir_attr_sym(f.g, op, "round"), "after_weight");
    assert_string_equal(ir_value(f.g, ir_out(f.g, op, 1))->name, "n.rstd");
    assert_string_equal(ir_type_text(f.m, ir_value_type(f.g, ir_out(f.g, op, 1))), "f32[2,5]");
    /* an absent optional operand is value 0; names stay unique */
    IrValue n = ir_build_simple(&f.b, IR_OP_rmsnorm, sym(f.s, "n"), 1, x);
    assert_string_equal(ir_value(f.g, n)->name, "n.1");
    assert_int_equal(ir_op(f.g, ir_value(f.g, n)->op)->n_in, 2);
    assert_int_equal(ir_in(f.g, ir_value(f.g, n)->op, 1).i, 0);
    /* in the middle, the point moving behind what is built */
    f.b.at = 1;
    IrValue a = ir_build_simple(&f.b, IR_OP_act, sym(f.s, "a"), 1, x);
    IrValue b = ir_build_simple(&f.b, IR_OP_act, sym(f.s, "b"), 1, a);
    assert_int_equal(f.g->order.n, 4);
    assert_int_equal(f.g->order.at[1].i, ir_value(f.g, a)->op.i);
    assert_int_equal(f.g->order.at[2].i, ir_value(f.g, b)->op.i);
    assert_int_equal(f.g->order.at[3].i, ir_value(f.g, n)->op.i);
    /* one diagnostic, and no trace in the graph, where the operands do not fit */
    uint32_t n_ops = f.g->ops.n, n_values = f.g->values.n;
    assert_int_equal(ir_build_simple(&f.b, IR_OP_add, sym(f.s, "z"), 2, w, x).i, 0);
    assert_int_equal(f.s->n_errors, 1);
    assert_says(f.bench,
                "`add`: `b` is f32[2,5,8]: neither a scalar nor the trailing dims of `a`, f32[8]");
    assert_int_equal(f.g->ops.n, n_ops);
    assert_int_equal(f.g->values.n, n_values);
    assert_int_equal(ir_verify(f.s, f.m), STATUS_OK);
    bench_free(f.bench);
}

/* Result types of every kind of shape rule. */
static void test_shapes(void **state)
{
    (void)state;
    Bench *bench = bench_new();
    IrModule *m = bench_parse(
        bench,
        "module level=step\naxis b = 2\naxis s = 8\naxis d = 16\naxis heads = 4\naxis kv = 2\n"
        "axis v = 50\nparam $e : bf16[v,d]\nparam $qkv : bf16[3*heads*4,d]\nparam $g : bf16[d]\n"
        "param $c1 : bf16[d,3*heads*4]\n"
        "graph @g {\nparam %ids : i32[b,s]\nparam %x64 : f64[b,s,d]\nparam %one : bf16[]\n"
        "%h = embed $e, %ids\n%p = linear %h, $qkv\n%p2 = linear %h, $c1 in_out=true\n"
        "%q = slice %p index=2 parts=3\n%q5 = slice %p parts=4\n"
        "%n, %n.mean, %n.rstd = layernorm %h, $g\n%n64, %n64.rstd = rmsnorm %x64\n"
        "%qh = reshape %q : bf16[b,s,heads,4]\n%kp = slice %q parts=2\n"
        "%k = reshape %kp : bf16[b,s,kv,4]\n%o, %o.lse = attention %qh, %k, %k\n"
        "%cos, %sin = rope_table %ids dims=4\n%cos64, %sin64 = rope_table %ids dims=4 : "
        "f64[b,s,2], "
        "f64[b,s,2]\n%r = rope %qh, %cos, %sin\n%loss, %lse = lm_loss %h, $e, %ids\n"
        "%cat = concat %q, _, %q\n%sc = mul %h, %one\n%row = add %h, $g\n"
        "%dx = linear_grad_x %p, $qkv\n%dw = linear_grad_w %p, %h\n"
        "%dw32 = linear_grad_w %p, %h : f32[3*heads*4,d]\n%dwt = linear_grad_w %p, %h in_out=true\n"
        "%sum = sum_rows %h : f32[d]\n%dq, %dk, %dv = attention_grad %o, %qh, %k, %k, %o, %o.lse\n"
        "%dh, %de = lm_loss_grad %loss, %h, $e, %ids, %lse\n%sq = norm_sq %dw\n}\n");
    static const char *const types[][2] = {{"h", "bf16[b,s,d]"},
                                           {"p", "bf16[b,s,3*heads*4]"},
                                           {"p2", "bf16[b,s,3*heads*4]"},
                                           {"q", "bf16[b,s,heads*4]"},
                                           {"q5", "bf16[b,s,3*heads]"},
                                           {"n", "bf16[b,s,d]"},
                                           {"n.mean", "f32[b,s]"},
                                           {"n.rstd", "f32[b,s]"},
                                           {"n64.rstd", "f64[b,s]"},
                                           {"o", "bf16[b,s,heads,4]"},
                                           {"o.lse", "f32[b,heads,s]"},
                                           {"cos", "f32[b,s,2]"},
                                           {"sin64", "f64[b,s,2]"},
                                           {"r", "bf16[b,s,heads,4]"},
                                           {"loss", "f32[]"},
                                           {"lse", "f32[b,s]"},
                                           {"cat", "bf16[b,s,3*heads*4]"},
                                           {"sc", "bf16[b,s,d]"},
                                           {"row", "bf16[b,s,d]"},
                                           {"dx", "bf16[b,s,d]"},
                                           {"dw", "bf16[3*heads*4,d]"},
                                           {"dw32", "f32[3*heads*4,d]"},
                                           {"dwt", "bf16[d,3*heads*4]"},
                                           {"dk", "bf16[b,s,kv,4]"},
                                           {"dh", "bf16[b,s,d]"},
                                           {"de", "bf16[v,d]"},
                                           {"sq", "f64[]"},
                                           {"sum", "f32[d]"}};
    IrGraph *g = ir_graph_find(m, "g");
    for (uint32_t i = 0; i < sizeof types / sizeof *types; i++) {
        IrValue v = ir_value_find(g, sym(bench->s, types[i][0]));
        if (strcmp(ir_type_text(m, ir_value_type(g, v)), types[i][1]))
            fail_msg("%%%s is %s, not %s", types[i][0], ir_type_text(m, ir_value_type(g, v)),
                     types[i][1]);
    }
    assert_int_equal(ir_verify(bench->s, m), STATUS_OK);
    bench_free(bench);
}

static void test_shape_faults(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"%y = embed %x, %x", "`ids` is f32[2,6] but must be of an integer type"},
        {"%y = embed $v, %ids", "`table` is f32[6] but must have two dims"},
        {"%y = linear %x, $v", "`w` is f32[6] but must have two dims"},
        {"%y = linear %x, $w in_out=true",
         "the last dim of `x`, f32[2,6], is not the first dim of `w`"},
        {"%y = linear %x, $h", "`x` is f32 but `w` is bf16"},
        {"%y = linear %x, $w, $v", "the bias is f32[6] but `w` is f32[3,6]"},
        {"%y = glu %x, $w", "the operands must have one type, not f32[2,6] and f32[3,6]"},
        {"%y = act %ids", "`x` must be of a float type, not i32[2]"},
        {"%y = cast %x", "the result's type must be given"},
        {"%y = cast %x : bf16[6,2]", "a cast keeps the dims"},
        {"%y = reshape %x : f32[2,7]", "has 12 elements, the result, f32[2,7], 14"},
        {"%y = reshape %x : bf16[12]", "a reshape keeps the dtype"},
        {"%y, %r = rmsnorm %x, $w", "`w` is f32[3,6] but must have one dim"},
        {"%y = slice %x parts=4", "the last dim of f32[2,6] does not part into parts=4"},
        {"%y = slice %x parts=2 index=2", "index=2 is not below parts=2"},
        {"%y = concat _, _", "at least one part must be present"},
        {"%y = concat %x, $w", "the parts must have one type"},
        {"%c, %s = rope_table %ids dims=3", "dims=3 must be even and above 0"},
        {"%o, %l = attention %x, %x, %x", "q, k and v must be [batch, seq, heads, D]"},
        {"%l, %e = lm_loss %x, $w, %x", "`targets` is f32[2,6] but must be one integer per row"},
        {"%y = sum_rows %x : f32[2]", "must have the trailing dims of `x`"},
        {"%y = linear_grad_w %x, $w", "must have the same rows and dtype"},
        {"accumulate $v, %x", "`state` is f32[6] but `x` is f32[2,6]"},
        {"advance $v, $v, $v", "operand 0 is f32[6] but must be a scalar"},
        {"sgd $w, %x, _, _, $v, $v, $v", "operand 1 is f32[2,6] but the weight is f32[3,6]"},
        {"%d = embed_grad %ids, %x : f32[9,5]", "the result must be [rows, D]"},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Bench *bench = bench_new();
        char text[512];
        snprintf(text, sizeof text,
                 "module level=step\nparam $w : f32[3,6]\nparam $v : f32[6]\nparam $h : bf16[3,6]\n"
                 "graph @g {\nparam %%x : f32[2,6]\nparam %%ids : i32[2]\n%s\n}\n",
                 cases[i][0]);
        if (bench_try(bench, text))
            fail_msg("fits: %s", cases[i][0]);
        assert_says(bench, cases[i][1]);
        assert_int_equal(bench->s->n_errors, 1);
        bench_free(bench);
    }
}

static IrValue map_to(void *context, IrValue old)
{
    IrValue *map = context;
    return map[old.i].i ? map[old.i] : old;
}

static void test_edit(void **state)
{
    (void)state;
    Fixture f = fixture();
    IrValue x = param(&f, "x", TYPE(&f, DTYPE_F32, 4));
    IrValue a = ir_build_simple(&f.b, IR_OP_act, sym(f.s, "a"), 1, x);
    IrValue b = ir_build_simple(&f.b, IR_OP_add, sym(f.s, "b"), 2, a, a);
    IrValue c = ir_build_simple(&f.b, IR_OP_mul, sym(f.s, "c"), 2, b, a);
    vec_push(f.s->arena, &f.g->results, c);
    Arena *arena = arena_new();
    IrUses uses = ir_uses(f.g, arena);
    assert_int_equal(uses.first[a.i + 1] - uses.first[a.i], 3);
    assert_int_equal(uses.at[uses.first[a.i]].i, ir_value(f.g, b)->op.i);
    assert_int_equal(uses.at[uses.first[a.i] + 2].i, ir_value(f.g, c)->op.i);
    assert_int_equal(uses.first[c.i + 1], uses.first[c.i]);
    assert_true(uses.is_result[c.i] && !uses.is_result[b.i]);
    assert_int_equal(ir_positions(f.g, arena)[ir_value(f.g, c)->op.i], 2);
    uint32_t epoch = f.g->epoch;
    ir_replace_uses(f.g, b, x);
    assert_int_not_equal(f.g->epoch, epoch);
    ir_op_remove(f.g, ir_value(f.g, b)->op);
    ir_graph_compact(f.g);
    assert_int_equal(f.g->order.n, 2);
    assert_int_equal(ir_in(f.g, ir_value(f.g, c)->op, 0).i, x.i);
    assert_int_equal(ir_value_find(f.g, sym(f.s, "b")).i, 0); /* the name is free again */
    ir_value_rename(f.g, c, sym(f.s, "b"));
    assert_int_equal(ir_value_find(f.g, sym(f.s, "b")).i, c.i);
    assert_int_equal(ir_verify(f.s, f.m), STATUS_OK);
    /* a replay of `a` and `b`, into the same graph */
    IrValue *map = ARENA_ARRAY(arena, IrValue, 64);
    f.b.re = sym(f.s, "a");
    IrOp a2 = ir_clone(&f.b, f.g, ir_value(f.g, a)->op, map_to, map, NULL, ".re");
    map[a.i] = ir_out(f.g, a2, 0);
    f.b.re = sym(f.s, "b");
    IrOp b2 = ir_clone(&f.b, f.g, ir_value(f.g, c)->op, map_to, map, "p/", ".re");
    assert_string_equal(ir_value(f.g, ir_out(f.g, a2, 0))->name, "a.re");
    assert_string_equal(ir_value(f.g, ir_out(f.g, b2, 0))->name, "p/b.re");
    assert_int_equal(ir_in(f.g, b2, 1).i, ir_out(f.g, a2, 0).i);
    assert_int_equal(ir_verify(f.s, f.m), STATUS_OK);
    arena_free(arena);
    bench_free(f.bench);
}

/* A thousand wishes for one name, and a large module, in time that nobody notices. */
static void test_size(void **state)
{
    (void)state;
    Fixture f = fixture();
    IrValue x = param(&f, "x", TYPE(&f, DTYPE_F32, 4)), v = x;
    for (uint32_t i = 0; i < 96000; i++)
        v = ir_build_simple(&f.b, IR_OP_add, sym(f.s, "v"), 2, v, x);
    vec_push(f.s->arena, &f.g->results, v);
    assert_string_equal(ir_value(f.g, v)->name, "v.95999");
    assert_int_equal(ir_verify(f.s, f.m), STATUS_OK);
    char *text = bench_print(f.m), *again = bench_print(bench_parse(f.bench, text));
    assert_true(!strcmp(text, again));
    free(text);
    free(again);
    bench_free(f.bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),  cmocka_unit_test(test_build),
        cmocka_unit_test(test_shapes), cmocka_unit_test(test_shape_faults),
        cmocka_unit_test(test_edit),   cmocka_unit_test(test_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
