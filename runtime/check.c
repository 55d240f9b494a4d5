#include "runtime/check.h"

#include <stdlib.h>

#include "base/diag.h"
#include "base/dtype.h"
#include "runtime/plan_shapes.h"

/* All bits set are a NaN in every float type and -1 in every signed one, which is neither an id nor
 * an ignored target. */
enum { POISON = 0xff };

/* -- non-finite values: an exponent of ones -- */

#define HAS_ONES(name, T, mask)                                                                    \
    static bool name(const void *base, int64_t n)                                                  \
    {                                                                                              \
        const T *at = base;                                                                        \
        unsigned found = 0;                                                                        \
        for (int64_t i = 0; i < n; i++)                                                            \
            found |= (at[i] & (mask)) == (mask);                                                   \
        return found;                                                                              \
    }
HAS_ONES(has_ones_f64, uint64_t, 0x7ff0000000000000u)
HAS_ONES(has_ones_f32, uint32_t, 0x7f800000u)
HAS_ONES(has_ones_bf16, uint16_t, 0x7f80u)
HAS_ONES(has_ones_f16, uint16_t, 0x7c00u)
#undef HAS_ONES

static bool has_ones(uint32_t dtype, const void *base, int64_t n)
{
    switch (dtype) {
    case DTYPE_F64:
        return has_ones_f64(base, n);
    case DTYPE_F32:
        return has_ones_f32(base, n);
    case DTYPE_BF16:
        return has_ones_bf16(base, n);
    case DTYPE_F16:
        return has_ones_f16(base, n);
    default:
        return false;
    }
}

bool rt_tensor_has_nonfinite(const PlanTensor *tensor, const void *base)
{
    const unsigned char *at = base;
    int64_t size = dtype_bytes((DType)tensor->dtype);
    for (int64_t done = 0; done < tensor->numel; done += tensor->run, at += tensor->pitch * size) {
        int64_t n = tensor->numel - done < tensor->run ? tensor->numel - done : tensor->run;
        if (has_ones(tensor->dtype, at, n))
            return true;
    }
    return false;
}

/* -- before the first step -- */

typedef struct Piece {
    uint64_t offset, end;
} Piece;

static int by_offset(const void *a, const void *b)
{
    uint64_t x = ((const Piece *)a)->offset, y = ((const Piece *)b)->offset;
    return x < y ? -1 : x > y;
}

static uint64_t input_bytes(const RtPlan *plan, const PlanInput *input)
{
    return (uint64_t)plan->header->micro_batches * input->stride_bytes;
}

static uint32_t kept_pieces(const RtPlan *plan, Piece *pieces)
{
    const PlanScalars *s = &plan->header->scalars;
    const uint64_t scalars[] = {s->lr,   s->step, s->seed, s->count,   s->inverse,  s->loss_sum,
                                s->loss, s->norm, s->coef, s->skipped, s->eval_sum, s->sample0};
    uint32_t n = 0;
    for (uint64_t i = 0; i < plan->n_states; i++)
        pieces[n++] =
            (Piece){plan->states[i].offset, plan->states[i].offset + plan->states[i].bytes};
    for (uint64_t i = 0; i < plan->n_inputs; i++)
        pieces[n++] = (Piece){plan->inputs[i].offset,
                              plan->inputs[i].offset + input_bytes(plan, &plan->inputs[i])};
    for (uint64_t i = 0; i < sizeof scalars / sizeof *scalars; i++)
        if (scalars[i] != PLAN_ABSENT)
            pieces[n++] = (Piece){scalars[i], scalars[i] + 8};
    return n;
}

void rt_check_poison(const RtCheck *check)
{
    const RtPlan *plan = check->plan;
    Piece *pieces = ARENA_ARRAY(check->s->arena, Piece, plan->n_states + plan->n_inputs + 12);
    uint32_t n = kept_pieces(plan, pieces);
    qsort(pieces, n, sizeof *pieces, by_offset);
    uint64_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (pieces[i].offset > at)
            memset(check->arena->base + at, POISON, pieces[i].offset - at);
        if (pieces[i].end > at)
            at = pieces[i].end;
    }
    if (at < check->arena->bytes)
        memset(check->arena->base + at, POISON, check->arena->bytes - at);
}

void rt_check_states(RtCheck *check)
{
    const RtPlan *plan = check->plan;
    for (uint64_t i = 0; i < plan->n_states; i++) {
        const PlanState *state = &plan->states[i];
        int64_t numel = (int64_t)(state->bytes / dtype_bytes((DType)state->dtype));
        if (state->kind == PLAN_STATE_SCALAR || state->kind == PLAN_STATE_ACC ||
            !has_ones(state->dtype, check->arena->base + state->offset, numel))
            continue;
        diag(check->s, no_span, check_state, rt_plan_string(plan, state->name));
        rt_world_say(check->world);
        check->found = true;
    }
}

/* -- after each instruction -- */

#define R(tensor) (1u << (PLAN_T_##tensor))

uint32_t rt_check_results(uint32_t kernel)
{
    static const uint32_t results[PLAN_KERNEL_COUNT] = {
        [PLAN_KERNEL_fused] = UINT32_MAX,
        [PLAN_KERNEL_gemm] = R(gemm_c),
        [PLAN_KERNEL_embed] = R(embed_y),
        [PLAN_KERNEL_embed_grad] = R(embed_grad_dtable),
        [PLAN_KERNEL_rope_table] = R(rope_table_cos) | R(rope_table_sin),
        [PLAN_KERNEL_attention] = R(attention_o), /* lse of a row that sees no key is no number */
        [PLAN_KERNEL_attention_grad] =
            R(attention_grad_dq) | R(attention_grad_dk) | R(attention_grad_dv),
        [PLAN_KERNEL_lm_loss] = R(lm_loss_loss) | R(lm_loss_lse),
        [PLAN_KERNEL_lm_loss_grad] = R(lm_loss_grad_dh) | R(lm_loss_grad_dw),
        [PLAN_KERNEL_lm_loss_with_grad] =
            R(lm_loss_with_grad_loss) | R(lm_loss_with_grad_dh) | R(lm_loss_with_grad_dw),
        [PLAN_KERNEL_concat] = R(concat_y),
        [PLAN_KERNEL_count_targets] = R(count_targets_inverse),
        [PLAN_KERNEL_accumulate] = R(accumulate_state),
        [PLAN_KERNEL_norm_sq] = R(norm_sq_y),
        [PLAN_KERNEL_grad_norm] = R(grad_norm_norm) | R(grad_norm_coef),
        [PLAN_KERNEL_loss_mean] = R(loss_mean_loss),
        [PLAN_KERNEL_invert_count] = R(invert_count_inverse),
        [PLAN_KERNEL_sum_scalars] = R(sum_scalars_y),
        [PLAN_KERNEL_embed_part] = R(embed_part_y),
        [PLAN_KERNEL_embed_part_grad] = R(embed_part_grad_dtable),
        [PLAN_KERNEL_lm_loss_part] = R(lm_loss_part_part),
        [PLAN_KERNEL_lm_loss_join] = R(lm_loss_join_loss) | R(lm_loss_join_lse),
        [PLAN_KERNEL_lm_loss_part_grad] = R(lm_loss_part_grad_dh) | R(lm_loss_part_grad_dw),
        [PLAN_KERNEL_adamw] = R(adamw_w) | R(adamw_m) | R(adamw_v) | R(adamw_master),
        [PLAN_KERNEL_all_gather] = R(all_gather_y),
        [PLAN_KERNEL_reduce_scatter] = R(reduce_scatter_y),
        [PLAN_KERNEL_all_reduce] = R(all_reduce_y),
        [PLAN_KERNEL_take_part] = R(take_part_y),
        [PLAN_KERNEL_recv] = R(recv_y),
        [PLAN_KERNEL_flat_pack] = R(flat_pack_y),
        [PLAN_KERNEL_sgd] = R(sgd_w) | R(sgd_m) | R(sgd_master),
    };
    return results[kernel];
}

static void find_nonfinite(RtCheck *check, uint64_t i)
{
    const RtPlan *plan = check->plan;
    const PlanInstr *instr = &check->exec->instrs[i];
    const RtCall *call = &check->exec->calls[i];
    uint32_t results = rt_check_results(instr->kernel);
    for (uint32_t t = 0; t < instr->n_tensors && !check->found; t++) {
        if (!(results == UINT32_MAX || (t < 32 && results >> t & 1)) || !call->at[t] ||
            !rt_tensor_has_nonfinite(&call->tensor[t], call->at[t]))
            continue;
        check->found = true;
        diag(check->s, no_span, check_value, (long long)check->step,
             rt_plan_string(plan, instr->name), rt_kernel_shape(instr->kernel)->name,
             rt_plan_string(plan, call->tensor[t].name), rt_plan_file(plan, instr->file),
             instr->line);
        rt_world_say(check->world);
    }
}

void rt_check_after(void *context, uint64_t i)
{
    RtCheck *check = context;
    const PlanInstr *instr = &check->exec->instrs[i];
    if (!check->found)
        find_nonfinite(check, i);
    for (uint32_t d = 0; d < instr->n_deaths; d++) {
        const PlanRange *death = &check->plan->deaths[instr->first_death + d];
        memset(check->arena->base + death->offset, POISON, death->bytes);
    }
    if (instr->workspace_bytes)
        memset(check->arena->base + instr->workspace, POISON, instr->workspace_bytes);
}
