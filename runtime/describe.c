#include "runtime/memory.h"
#include "runtime/plan_shapes.h"
#include "runtime/run.h"

static void describe_states(const RtPlan *plan, FILE *out)
{
    static const char *const kinds[] = {"parameters",    "buffers",        "masters",
                                        "first moments", "second moments", "gradient accumulators",
                                        "scalars"};
    char text[32];
    for (uint32_t kind = 0; kind <= PLAN_STATE_SCALAR; kind++) {
        uint64_t n = 0, bytes = 0, trained = 0;
        for (uint64_t i = 0; i < plan->n_states; i++)
            if (plan->states[i].kind == kind) {
                n++;
                bytes += plan->states[i].bytes;
                trained += plan->states[i].trainable != 0;
            }
        if (!n)
            continue;
        fprintf(out, "state | %-24s %6llu tensors %16llu B  %s", kinds[kind], (unsigned long long)n,
                (unsigned long long)bytes, rt_bytes_text(bytes, text));
        if (kind == PLAN_STATE_PARAM)
            fprintf(out, ", %llu trained", (unsigned long long)trained);
        fputc('\n', out);
    }
}

static void describe_inputs(const RtPlan *plan, FILE *out)
{
    for (uint64_t i = 0; i < plan->n_inputs; i++) {
        const PlanInput *input = &plan->inputs[i];
        fprintf(out, "input | %s %s [", rt_plan_string(plan, input->name),
                dtype_name((DType)input->dtype));
        for (uint32_t d = 0; d < input->rank; d++)
            fprintf(out, "%s%lld", d ? ", " : "", (long long)input->dim[d]);
        fprintf(out, "]%s\n", input->eval ? ", evaluation too" : "");
    }
}

static void describe_kernels(const RtPlan *plan, FILE *out)
{
    for (uint32_t kernel = 0; kernel < PLAN_KERNEL_COUNT; kernel++) {
        uint64_t n = 0, replays = 0;
        for (uint64_t i = 0; i < plan->n_instrs; i++)
            if (plan->instrs[i].kernel == kernel) {
                n++;
                replays += plan->instrs[i].replay != 0;
            }
        if (n)
            fprintf(out, "kernel | %-16s %8llu launches, %llu of them replays\n",
                    rt_kernel_shape(kernel)->name, (unsigned long long)n,
                    (unsigned long long)replays);
    }
}

static void outside_line(const char *name, uint64_t bytes, FILE *out)
{
    char text[32];
    fprintf(out, "outside arena | %-32s %16llu B  %s\n", name, (unsigned long long)bytes,
            rt_bytes_text(bytes, text));
}

static void describe_outside(const RtPlan *plan, uint32_t threads, FILE *out)
{
    outside_line("worker scratch", plan->header->thread_scratch_bytes * threads, out);
    outside_line("matrix-product buffers, about", rt_product_buffer_bytes(plan, threads), out);
    for (uint64_t i = 0; i < plan->n_outside; i++)
        outside_line(rt_plan_string(plan, plan->outside[i].name), plan->outside[i].bytes, out);
}

void rt_describe(const RtPlan *plan, uint32_t threads, FILE *out)
{
    const PlanHeader *h = plan->header;
    char text[32];
    fprintf(out, "model | %s\n", rt_plan_string(plan, h->model));
    fprintf(out,
            "step | %lld micro-batches of %lld x %lld tokens | %llu instructions, %llu to evaluate "
            "| %.6g FLOPs\n",
            (long long)h->micro_batches, (long long)h->batch, (long long)h->seq,
            (unsigned long long)plan->n_instrs, (unsigned long long)plan->n_eval_instrs,
            (double)h->flops_per_step);
    fprintf(out, "arena | %llu B  %s\n", (unsigned long long)h->arena_bytes,
            rt_bytes_text(h->arena_bytes, text));
    describe_outside(plan, threads, out);
    describe_states(plan, out);
    describe_inputs(plan, out);
    describe_kernels(plan, out);
    fprintf(out, "settings | %s\n", rt_plan_string(plan, h->settings));
    fprintf(out, "report | %s\n", rt_plan_string(plan, h->report));
}
