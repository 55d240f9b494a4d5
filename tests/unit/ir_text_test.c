/* The text form: print and parse are inverse, and a wrong text gets one precise diagnostic. */
#include "ir_support.h"

/* A module in which every record field has a value that is not its default. */
static const char everything[] =
    "module level=planned model=tiny micro_batches=2 arena_bytes=1048576\n"
    "axis batch = 2\n"
    "axis seq = 8\n"
    "axis hidden = 16\n"
    "axis heads = 4\n"
    "axis \"odd name\" = 3\n"
    "file \"models/tiny.model\"\n"
    "scope @tiny model def=tiny !1:1\n"
    "scope @h.0 block def=layer !12:3+7\n"
    "scope @h.0/mlp part role=mlp in=@h.0 !13:5\n"
    "file \"other.model\"\n"
    "scope @h.1 block def=layer !2:3\n"
    "param $h.0.w : f32[hidden,hidden] at 4096 init=normal(0.02) in=@h.0/mlp !13:9+1\n"
    "param $h.0.g : f32[hidden] at 256 init=one in=@h.0 frozen !13:9\n"
    "buffer $\"b-1\" : bf16[\"odd name\"] init=const(-0.5)\n"
    "moment1 $h.0.w.exp_avg : f32[hidden,hidden] at 8192 of=$h.0.w\n"
    "acc $h.0.w.acc : f32[hidden,hidden] at 16384 of=$h.0.w\n"
    "scalar $loss_sum : f64[] at 0\n"
    "\n"
    "graph @step {\n"
    "  file \"models/tiny.model\"\n"
    "  param %ids : i32[batch,seq] at 64 !3:4\n"
    "  param %x : f32[batch,seq,3*heads*4] at 65536\n"
    "  instance @fwd 1\n"
    "  in @h.0/mlp\n"
    "  %m1/q = slice %x index=1 parts=3 : f32[batch,seq,heads*4] view(%x, 16, 16, 48) !14:2\n"
    "  recompute @h.0 policy=block saves(%m1/y, %m1/n.rstd) {\n"
    "    %m1/y = linear %m1/q, $h.0.w : f32[batch,seq,hidden] at 131072 workspace(0, 64) !15:3\n"
    "    %m1/n, %m1/n.rstd = rmsnorm %m1/y, $h.0.g eps=1e-05 round=before_weight : "
    "f32[batch,seq,hidden] at 196608, f32[batch,seq] at 200 !15:4\n"
    "  }\n"
    "  kernel @k12 workspace=128 {\n"
    "    in none\n"
    "    file \"other.model\"\n"
    "    %m1/n.re, %m1/n.re.rstd = rmsnorm %m1/y eps=1e-05 : f32[batch,seq,hidden], "
    "f32[batch,seq] re=%m1/n serves=both !9:9\n"
    "    %\"m1/a-b\" = act %m1/n.re fn=silu : f32[batch,seq,hidden] at 300000 serves=input\n"
    "  }\n"
    "  instance @bwd 0\n"
    "  in @tiny\n"
    "  %z = concat %m1/y, _, %m1/y : f32[batch,seq,3*hidden] at 1000 serves=weight\n"
    "  instance none 0\n"
    "  %c = cast %ids : i64[batch,seq] at 4\n"
    "  %dw = linear_grad_w %m1/y, %m1/q : f32[hidden,hidden] at 5000\n"
    "  %left = act %m1/y : f32[batch,seq,hidden] view(%both, 0, 16, 32)\n"
    "  %both = concat %left, %m1/y : f32[batch,seq,2*hidden] at 6000\n"
    "  accumulate $h.0.w.acc, %dw first=true\n"
    "  %e = flat_piece %x : f32[192,(heads/tp=2)*(batch/dp=2)*2] view(%x, 0, 1, 1)\n"
    "  result %c\n"
    "  result %m1/y\n"
    "}\n"
    "\n"
    "graph @eval {\n"
    "}\n";

static void test_round_trip(void **state)
{
    (void)state;
    Bench *bench = bench_new();
    char *text = bench_print(bench_parse(bench, everything));
    assert_string_equal(text, everything);
    free(text);
    bench_free(bench);
}

static void test_records(void **state)
{
    (void)state;
    Bench *bench = bench_new();
    Session *s = bench->s;
    IrModule *m = bench_parse(bench, everything);
    IrGraph *g = ir_graph_find(m, "step");
    IrValue n = ir_value_find(g, sym(s, "m1/n")), re = ir_value_find(g, sym(s, "m1/n.re"));
    IrOp op = ir_value(g, n)->op;
    assert_int_equal(ir_op_kind(g, op), IR_OP_rmsnorm);
    assert_true(ir_attr_f64(g, op, "eps") == 1e-5);
    assert_string_equal(ir_attr_sym(g, op, "round"), "before_weight");
    assert_int_equal(ir_op(g, op)->instance, 1);
    assert_string_equal(ir_op(g, op)->graph, "fwd");
    assert_int_equal(ir_op(g, op)->span.line, 15);
    assert_string_equal(ir_op(g, op)->span.file, "models/tiny.model");
    assert_int_equal(ir_value(g, n)->place.offset, 196608);
    assert_int_equal(g->regions.at[ir_op(g, op)->region.i].saves.n, 2);
    assert_string_equal(ir_op(g, ir_value(g, re)->op)->re, "m1/n");
    assert_int_equal(ir_op(g, ir_value(g, re)->op)->serves, IR_SERVES_BOTH);
    assert_int_equal(ir_value(g, re)->place.offset, -1);
    assert_int_equal(ir_in(g, ir_value(g, re)->op, 1).i, 0);
    IrValue q = ir_value_find(g, sym(s, "m1/q"));
    assert_int_equal(ir_value(g, q)->place.base.i, ir_value_find(g, sym(s, "x")).i);
    assert_int_equal(ir_value(g, q)->place.pitch, 48);
    IrStateRec *w = ir_state_rec(m, ir_state_find(m, sym(s, "h.0.w")));
    assert_true(w->trainable && w->init == IR_INIT_NORMAL && w->init_value == 0.02);
    assert_int_equal(w->offset, 4096);
    assert_string_equal(ir_scope_role(m, w->scope), "mlp");
    assert_false(ir_state_rec(m, ir_state_find(m, sym(s, "h.0.g")))->trainable);
    assert_string_equal(ir_scope_rec(m, ir_scope_block(m, w->scope))->name, "h.0");
    bench_free(bench);
}

/* Types may be left out where they are inferred, comments and blank lines are free. */
static void test_short_forms(void **state)
{
    (void)state;
    Bench *bench = bench_new();
    IrModule *m = bench_parse(bench, "# a comment\n\nmodule level=model  # another\n"
                                     "axis d = 4\nparam $w : f32[3,d]\n"
                                     "graph @fwd {\n param %x : f32[2,d]\n\n"
                                     " %y = linear %x, $w\n result %y\n}");
    IrGraph *g = ir_graph_find(m, "fwd");
    IrValue y = ir_value_find(g, sym(bench->s, "y"));
    assert_string_equal(ir_type_text(m, ir_value_type(g, y)), "f32[2,3]");
    assert_int_equal(ir_verify(bench->s, m), STATUS_OK);
    bench_free(bench);
}

static void test_numbers(void **state)
{
    (void)state;
    static const double values[] = {0.1, 1.0 / 3, 1e300, 5e-324, -0.0,
                                    3,   2.5e-7,  1e-6,  1e22,   123456789.123};
    for (uint32_t i = 0; i < sizeof values / sizeof *values; i++) {
        char *text;
        size_t n;
        FILE *out = open_memstream(&text, &n);
        ir_print_f64(out, values[i]);
        fclose(out);
        double back = strtod(text, NULL);
        assert_memory_equal(&back, &values[i], sizeof back);
        Bench *bench = bench_new();
        char module[256];
        snprintf(module, sizeof module,
                 "module level=model\n\ngraph @fwd {\n  param %%x : f32[]\n"
                 "  %%y = scale %%x factor=%s : f32[]\n}\n",
                 text);
        char *again = bench_print(bench_parse(bench, module));
        assert_string_equal(again, module);
        free(again);
        free(text);
        bench_free(bench);
    }
}

#define HEAD                                                                                       \
    "module level=model\naxis d = 4\nparam $w : f32[3,d]\ngraph @fwd {\n param %x : f32[2,d]\n"

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "t.sir:1:1: error: expected `module level=`, found the end of the file"},
        {"module level=modle\n", "unknown level `modle`"},
        {"module model=a\n", "expected `level=`"},
        {"module level=model\nfoo\n", "t.sir:2:1: error: unknown declaration `foo`"},
        {"module level=model\naxis d = 0\n", "0 is not in 1 to"},
        {"module level=model\naxis d = 1\naxis d = 2\n",
         "t.sir:3:6: error: axis `d` is there already"},
        {"module level=model\nparam $w : f32[d]\n", "axis `d` is not declared"},
        {"module level=model\nparam $w : f33[2]\n", "unknown dtype `f33`\n"},
        {"module level=model\nparam $w : f33[2]\n", "hint: did you mean `f32`?"},
        {"module level=model\nparam $w : f32[2,2,2,2,2,2]\n", "at most 5 dims"},
        {"module level=model\nparam $w : f32[2*2*2*2*2]\n", "at most 4 factors"},
        {"module level=model\nparam $w : f32[3000000000*3000000000*3000000000]\n", "larger than"},
        {"module level=model\nparam $w : f32[(4/tp=2)*(4/tp=2)]\n", "divides two factors"},
        {"module level=model\nparam $w : f32[2] of=$v\n", "state `$v` is not declared"},
        {"module level=model\nparam $w : f32[2] in=@v\n", "scope `@v` is not declared"},
        {"module level=model\nparam $\"w : f32[2]\n", "the closing quote is missing"},
        {"module level=model\nparam $w ; f32[2]\n", "t.sir:2:10: error: `;` begins nothing"},
        {HEAD, "expected `}`, found the end of the file"},
        {HEAD "%y = rmsnrm %x\n}\n", "t.sir:6:6: error: there is no op `rmsnrm`"},
        {HEAD "%y = rmsnrm %x\n}\n", "did you mean `rmsnorm`?"},
        {HEAD "%y = act %xx\n}\n", "t.sir:6:10: error: value `%xx` is not defined above in @fwd"},
        {HEAD "%y = act %xx\n}\n", "did you mean `x`?"},
        {HEAD "%y = act %x : f32[2,d] view(%zz, 0, 4, 4)\n}\n",
         "t.sir:6:29: error: value `%zz` is not defined above in @fwd"},
        {HEAD "%y = linear %x, $v\n}\n", "t.sir:6:17: error: state `$v` is not declared"},
        {HEAD "%y = linear %x\n}\n", "t.sir:6:6: error: `linear` needs its operand `w`"},
        {HEAD "%y = act %x, %x\n}\n", "`act` takes 1 operands, not 2"},
        {HEAD "%y, %z = act %x\n}\n", "`act` has 1 results, not 2"},
        {HEAD "%x = act %x\n}\n", "t.sir:6:1: error: value `x` is there already"},
        {HEAD "%y = act %x : f32[2,5]\n}\n", "result `y` is said to be f32[2,5] but is f32[2,d]"},
        {HEAD "%y = act %x : f16[2,d]\n}\n", "result `y` is said to be f16[2,d] but is f32[2,d]"},
        {HEAD "%y = add %x, $w\n}\n", "neither a scalar nor the trailing dims of `a`, f32[2,d]"},
        {HEAD "%y = act %x fm=relu\n}\n", "t.sir:6:13: error: `act` has no attribute `fm`"},
        {HEAD "%y = act %x fn=rellu\n}\n", "attribute `fn` of `act` must be gelu_tanh|"},
        {HEAD "%y = scale %x factor=a\n}\n",
         "attribute `factor` of `scale` must be a number, not `a`"},
        {HEAD "%y = slice %x index=0.5\n}\n", "must be a whole number, not `0.5`"},
        {HEAD "%y = scale %x factor=2 factor=3\n}\n", "attribute `factor` is there already"},
        {HEAD "%y = scale %x !1\n}\n", "expected `:`, found the end of the line"},
        {HEAD "kernel @k {\nkernel @j {\n}\n}\n}\n", "a region cannot stand inside another"},
        {HEAD "recompute @\"\" saves(%q) {\n}\n}\n", "value `%q` is not defined above in @fwd"},
        {HEAD "result %q\n}\n", "t.sir:6:8: error: value `%q` is not defined"},
        {HEAD "}\ngraph @fwd {\n}\n", "graph `fwd` is there already"},
        {HEAD "%y = act %x serves=all\n}\n", "unknown purpose `all`"},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Bench *bench = bench_new();
        IrModule *m = bench_try(bench, cases[i].text);
        if (m)
            fail_msg("parses: %s", cases[i].text);
        assert_says(bench, cases[i].says);
        if (bench->s->n_errors != 1)
            fail_msg("not one error: %s", bench_said(bench));
        bench_free(bench);
    }
}

/* One wrong line, one error: what hangs on it is passed over in silence. Several faults are all
 * told. */
static void test_collected(void **state)
{
    (void)state;
    Bench *bench = bench_new();
    assert_null(bench_try(bench, HEAD "%a = foo %x\n%b = act %a\n%c = add %b, %x\n%d = bar %x\n"
                                      "result %c\n}\n"));
    assert_int_equal(bench->s->n_errors, 2);
    assert_says(bench, "no op `foo`");
    assert_says(bench, "no op `bar`");
    bench_free(bench);
}

/* The reference's examples are modules that parse, verify, and print as they stand or in full. */
static void test_reference(void **state)
{
    (void)state;
    Bench *bench = bench_new();
    Source page;
    assert_int_equal(session_read_source(bench->s, "docs/ir.md", (Span){0}, &page), STATUS_OK);
    uint32_t n = 0;
    for (const char *at = page.text; (at = strstr(at, "```sir\n")); n++) {
        at += strlen("```sir\n");
        const char *end = strstr(at, "```\n");
        assert_non_null(end);
        char *text = arena_strndup(bench->s->arena, at, (size_t)(end - at));
        IrModule *m = bench_parse(bench, text);
        if (ir_verify(bench->s, m) != STATUS_OK)
            fail_msg("%s", bench_said(bench));
        char *printed = bench_print(m);
        if (!strstr(text, "%q = slice %qkv parts=3\n")) /* this one leaves types out */
            assert_string_equal(printed, text);
        free(printed);
        at = end;
    }
    assert_int_equal(n, 4);
    bench_free(bench);
}

/* Whatever the bytes, the parser ends with a module or a diagnostic. */
static void test_mangled(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (uint32_t round = 0; round < 3000; round++) {
        char text[sizeof everything];
        memcpy(text, everything, sizeof text);
        for (uint32_t k = 0; k < 1 + round % 4; k++) {
            static const char bytes[] = "%$@ \n{}[]()=,:*/+!\"-_0123456789abcxyz.#\\";
            random = random * 6364136223846793005u + 1442695040888963407u;
            text[(random >> 33) % (sizeof text - 1)] = bytes[(random >> 20) % (sizeof bytes - 1)];
        }
        Bench *bench = bench_new();
        IrModule *m = bench_try(bench, text);
        assert_true((m != NULL) == (bench->s->n_errors == 0));
        if (m) {
            char *once = bench_print(m), *twice = bench_print(bench_parse(bench, once));
            assert_string_equal(once, twice);
            ir_verify(bench->s, m);
            free(once);
            free(twice);
        }
        bench_free(bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_records),
        cmocka_unit_test(test_short_forms), cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_errors),      cmocka_unit_test(test_collected),
        cmocka_unit_test(test_reference),  cmocka_unit_test(test_mangled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
