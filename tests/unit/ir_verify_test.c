/* The verifier: a sound module passes, and each kind of fault is told with its graph and op. */
/* diag: ir_bad_record, ir_count_fault, ir_attr_fault, ir_operand_fault, ir_use_fault */
/* diag: ir_type_fault, ir_name_fault, ir_owner_fault, ir_region_split, ir_result_fault */
#include "ir_support.h"

static const char sound[] = "module level=step\n"
                            "axis d = 4\n"
                            "scope @h.0 block def=layer\n"
                            "param $w : f32[d,d] in=@h.0\n"
                            "moment1 $w.exp_avg : f32[d,d] of=$w\n"
                            "moment2 $w.exp_avg_sq : f32[d,d] of=$w\n"
                            "acc $w.acc : f32[d,d] of=$w\n"
                            "scalar $coef : f32[]\n"
                            "scalar $lr : f32[]\n"
                            "scalar $step : i64[]\n"
                            "scalar $sum : f32[]\n"
                            "graph @fwd {\n"
                            "  param %x : f32[2,d]\n"
                            "  file \"m.model\"\n"
                            "  in @h.0\n"
                            "  recompute @h.0 policy=block saves(%b) {\n"
                            "    %a = linear %x, $w : f32[2,d] !3:7\n"
                            "    %b = act %a fn=silu : f32[2,d] !4:7\n"
                            "  }\n"
                            "  %s = sum_rows %b : f32[] !5:7\n"
                            "  accumulate $sum, %s\n"
                            "  result %s\n"
                            "  result %b\n"
                            "}\n"
                            "graph @bwd {\n"
                            "  param %x : f32[2,d]\n"
                            "  param %b : f32[2,d]\n"
                            "  %a.re = linear %x, $w : f32[2,d] re=%a\n"
                            "  %a.grad = act_grad %b, %a.re fn=silu : f32[2,d]\n"
                            "  %w.grad = linear_grad_w %a.grad, %x : f32[d,d] serves=weight\n"
                            "  result %w.grad\n"
                            "}\n"
                            "graph @update {\n"
                            "  param %w.grad : f32[d,d]\n"
                            "  adamw $w, %w.grad, $w.exp_avg, $w.exp_avg_sq, _, $coef, $lr, $step\n"
                            "}\n";

/* `sound` with the first `from` replaced; free() it. */
static char *replaced(const char *from, const char *to)
{
    const char *at = strstr(sound, from);
    if (!at)
        fail_msg("not in the module: %s", from);
    char *text = malloc(sizeof sound + strlen(to) + 1);
    size_t head = (size_t)(at - sound);
    memcpy(text, sound, head);
    strcpy(text + head, to);
    strcat(text + head, at + strlen(from));
    return text;
}

static void test_sound(void **state)
{
    (void)state;
    Bench *bench = bench_new();
    IrModule *m = bench_parse(bench, sound);
    if (ir_verify(bench->s, m) != STATUS_OK)
        fail_msg("%s", bench_said(bench));
    assert_string_equal(bench_said(bench), "");
    bench_free(bench);
}

/* Faults that a text can have although it parses. */
static void test_text_faults(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"level=step", "level=model", "@bwd: `%a.grad = act_grad` cannot stand at level model"},
        {"of=$w\nmoment2", "\nmoment2", "state `w.exp_avg`: it must say which parameter"},
        {"$lr : f32[]", "$lr : f32[] of=$w", "state `lr`: a state of this kind belongs to no"},
        {"$w.acc : f32[d,d] of=$w", "$w.acc : f32[d,3] of=$w",
         "state `w.acc`: its dims are not its parameter's"},
        {"$w.acc : f32[d,d] of=$w", "$w.acc : f32[d,d] of=$sum", "that is no parameter"},
        {"$lr : f32[]", "$lr : f32[] trainable", "only a parameter is trainable"},
        {"scope @h.0 block def=layer", "scope @h.0 part", "scope `h.0`: a part needs a role"},
        {"re=%a\n", "re=%b\n", "`%a.re = linear`: re=%b: its original is another op"},
        {"re=%a\n", "re=%q\n", "re=%q: no op above or in @fwd has that result"},
        {"re=%a\n", "re=%x\n", "re=%x: no op above or in @fwd has that result"},
        {"    %a = linear %x, $w : f32[2,d] !3:7", "    %a = linear %x, $w : f32[2,d] re=%a",
         "@fwd: `%a = linear`: re=%a: no op above"},
        {"  result %b\n", "  result %b\n  result %a\n",
         "@fwd saves `%a`, which @bwd does not take"},
        {"  result %b\n", "", "@bwd: param `%b` is neither a result of @fwd nor an input of @fwd"},
        {"graph @bwd {\n", "graph @bwd {\n  param %s : f64[]\n",
         "@bwd: param `%s` is f64[], but in @fwd it is f32[]"},
        {"graph @update {\n", "graph @update {\n  param %x : bf16[2,d]\n",
         "@update: param `%x` is bf16[2,d], but in @fwd it is f32[2,d]"},
        {"graph @update {\n", "graph @update {\n  param %a : f32[2,d]\n",
         "@update: param `%a` is neither a result of @bwd nor an input of @fwd"},
        {"accumulate $sum, %s", "accumulate %s, %s",
         "`accumulate %s` writes its operand `state`, but `%s` is no state"},
        {"  accumulate $sum, %s", "  accumulate $w.exp_avg, $w.acc",
         "writes `$w.exp_avg`, which does not change in @fwd"},
        {"    %b = act %a fn=silu : f32[2,d] !4:7\n",
         "    %b = act %a fn=silu : f32[2,d] !4:7\n    accumulate $w.acc, $w.acc\n",
         "`accumulate $w.acc`: a replay would repeat its effect"},
        {"  recompute @h.0 policy=block saves(%b) {", "  kernel @k saves(%x) {",
         "@fwd: saved value `x` is not made inside its region"},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Bench *bench = bench_new();
        char *text = replaced(cases[i][0], cases[i][1]);
        IrModule *m = bench_parse(bench, text);
        if (ir_verify(bench->s, m) != STATUS_USER)
            fail_msg("passes: %s", cases[i][1]);
        assert_says(bench, cases[i][2]);
        free(text);
        bench_free(bench);
    }
}

static void test_places(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"param $w : f32[4] at 60\ngraph @g {\n}\n", "state `w`: it lies outside the arena"},
        {"graph @g {\nparam %x : f32[4] at 56\n}\n",
         "@g: the place of `x` is wrong: it lies outside"},
        {"graph @g {\nparam %x : f32[4]\n%y = slice %x : f32[4] view(%x, 0, 4, 4)\n"
         "%z = slice %y : f32[4] view(%y, 0, 4, 4)\n}\n",
         "the place of `z` is wrong: the view's base is itself a view"},
        {"graph @g {\nparam %x : f32[4]\n%y = act %x : f32[4] view(%z, 0, 4, 4)\n"
         "%z = act %x : f32[4] at 0\n}\n",
         "the place of `y` is wrong: the view's base is not defined above"},
        {"graph @g {\nparam %x : f32[4]\n%y = act %x : f32[4] view(%z, 0, 4, 8)\n"
         "%z = concat %x, %y : f32[2*4] view(%x, 0, 8, 8)\n}\n",
         "the place of `y` is wrong: the view's base is itself a view"},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Bench *bench = bench_new();
        char text[512];
        snprintf(text, sizeof text, "module level=planned arena_bytes=64\n%s", cases[i][0]);
        assert_int_equal(ir_verify(bench->s, bench_parse(bench, text)), STATUS_USER);
        assert_says(bench, cases[i][1]);
        bench_free(bench);
    }
}

/* Faults that no text can have: a pass made them. */
typedef void (*Break)(IrModule *m, IrGraph *g);

static IrOp op_of(IrGraph *g, const char *name)
{
    return ir_value(g, ir_value_find(g, sym(g->m->s, name)))->op;
}

static void swap_order(IrModule *m, IrGraph *g)
{
    (void)m;
    IrOp first = g->order.at[0];
    g->order.at[0] = g->order.at[1];
    g->order.at[1] = first;
}

static void repeat_op(IrModule *m, IrGraph *g)
{
    vec_push(m->s->arena, &g->order, g->order.at[0]);
}

static void kill_op(IrModule *m, IrGraph *g)
{
    (void)m;
    ir_op_remove(g, op_of(g, "a"));
}

static void wrong_type(IrModule *m, IrGraph *g)
{
    IrValue a = ir_value_find(g, sym(m->s, "a"));
    ir_value(g, a)->type = ir_type_scalar(m, DTYPE_F32);
}

static void no_type(IrModule *m, IrGraph *g)
{
    ir_value(g, ir_value_find(g, sym(m->s, "a")))->type = (IrType){0};
}

static void drop_operand(IrModule *m, IrGraph *g)
{
    (void)m;
    ir_set_in(g, op_of(g, "a"), 1, (IrValue){0});
}

static void foreign_operand(IrModule *m, IrGraph *g)
{
    (void)m;
    ir_set_in(g, op_of(g, "a"), 0, (IrValue){g->values.n + 7});
}

static void same_name(IrModule *m, IrGraph *g)
{
    ir_value(g, ir_value_find(g, sym(m->s, "a")))->name = sym(m->s, "b");
}

static void wrong_owner(IrModule *m, IrGraph *g)
{
    ir_value(g, ir_value_find(g, sym(m->s, "a")))->op = op_of(g, "b");
}

static void split_region(IrModule *m, IrGraph *g)
{
    (void)m;
    ir_op(g, op_of(g, "s"))->region = ir_op(g, op_of(g, "a"))->region;
    ir_op(g, op_of(g, "b"))->region = (IrRegion){0};
}

static void wrong_word(IrModule *m, IrGraph *g)
{
    ir_attr_at(g, op_of(g, "b"), "fn")->sym = sym(m->s, "sillu");
}

static void wrong_count(IrModule *m, IrGraph *g)
{
    (void)m;
    ir_op(g, op_of(g, "a"))->n_in = 1;
}

static void lost_result(IrModule *m, IrGraph *g)
{
    (void)m;
    g->results.at[0] = (IrValue){g->values.n};
}

static void wrong_kind(IrModule *m, IrGraph *g)
{
    (void)m;
    ir_op(g, op_of(g, "a"))->kind = IR_OP_COUNT;
}

static void wrong_scope(IrModule *m, IrGraph *g)
{
    ir_op(g, op_of(g, "a"))->scope.i = m->scopes.n;
}

static void test_record_faults(void **state)
{
    (void)state;
    static const struct {
        Break with;
        const char *says;
    } cases[] = {
        {swap_order,
         "m.model:4:7: error: @fwd: `%b = act`: its operand `%a` is not defined before"},
        {repeat_op, "m.model:3:7: error: @fwd: an op stands in the order twice"},
        {kill_op, "@fwd: a dead op is in the order"},
        {wrong_type,
         "m.model:3:7: error: @fwd: `%a = linear`: result `y` is f32[] but must be f32[2,d]"},
        {no_type, "@fwd: `%a = linear`: a result has no type"},
        {drop_operand, "@fwd: `%a = linear`: its operand `w` is absent"},
        {foreign_operand, "@fwd: `%a = linear`: its operand `x` is absent"},
        {same_name, "@fwd: value `b` is defined twice"},
        {wrong_owner, "@fwd: `%a = linear`: its result `a` says that another op made it"},
        {split_region, "m.model:5:7: error: @fwd: `%s = sum_rows`: its region is not contiguous"},
        {wrong_word, "@fwd: `%b = act`: attribute `fn` cannot be `sillu`"},
        {wrong_count, "@fwd: `%a = linear`: operands: 3 expected, 1 there"},
        {lost_result, "@fwd: its result `%?` is not defined in it"},
        {wrong_kind, "m.model:3:7: error: @fwd: an op has no kind"},
        {wrong_scope, "@fwd: an op's scope does not exist"},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Bench *bench = bench_new();
        IrModule *m = bench_parse(bench, sound);
        cases[i].with(m, ir_graph_find(m, "fwd"));
        assert_int_equal(ir_verify(bench->s, m), STATUS_USER);
        assert_says(bench, cases[i].says);
        bench_free(bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound),
        cmocka_unit_test(test_text_faults),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_record_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
