#include "runtime/plan_map.h"

#include "base/diag.h"
#include "base/dtype.h"
#include "runtime/abi/workspace.h"
#include "runtime/plan_shapes.h"

typedef struct Reader {
    Session *s;
    const unsigned char *bytes;
    uint64_t n_bytes;
    uint64_t n_native;
    RtPlan *plan;
} Reader;

static Status bad(Reader *r, const char *what)
{
    diag(r->s, no_span, plan_bad, what);
    return STATUS_ENV;
}

static Status bad_record(Reader *r, const char *record, uint64_t index, const char *what)
{
    diag(r->s, no_span, plan_record, record, (unsigned long long)index, what);
    return STATUS_ENV;
}

/* -- the pieces that records are made of -- */

static bool is_string(const Reader *r, uint32_t at)
{
    return at < r->plan->n_strings;
}

static bool is_range(uint64_t first, uint64_t n, uint64_t of)
{
    return n <= of && first <= of - n;
}

static bool in_arena(const Reader *r, uint64_t offset, uint64_t bytes)
{
    return is_range(offset, bytes, r->plan->header->arena_bytes);
}

/* Elements from the first to the last one that the tensor touches; 0 if its form is impossible. */
static uint64_t tensor_extent(const PlanTensor *t)
{
    if (t->numel < 1 || t->run < 1 || t->pitch < t->run)
        return 0;
    int64_t rows = rt_size_mul((t->numel - 1) / t->run, t->pitch);
    int64_t rest = (t->numel - 1) % t->run + 1;
    return rows > INT64_MAX - rest ? 0 : (uint64_t)(rows + rest);
}

static const char *tensor_fault(const Reader *r, const PlanTensor *t)
{
    if (t->dtype >= DTYPE_COUNT)
        return "its dtype does not exist";
    if (!is_string(r, t->name))
        return "its name lies outside the strings";
    if (t->offset == PLAN_ABSENT)
        return NULL;
    uint64_t size = dtype_bytes((DType)t->dtype), extent = tensor_extent(t);
    if (!extent)
        return "its elements have an impossible layout";
    if (t->offset % size)
        return "it is not aligned to its elements";
    if (extent > UINT64_MAX / size || !in_arena(r, t->offset, extent * size))
        return "it ends outside the arena";
    return NULL;
}

/* Bytes of a dense tensor of these dims; UINT64_MAX if they are impossible. */
static uint64_t dims_bytes(uint32_t dtype, uint32_t rank, const int64_t *dim)
{
    if (rank > PLAN_MAX_RANK || dtype >= DTYPE_COUNT)
        return UINT64_MAX;
    int64_t numel = 1;
    for (uint32_t i = 0; i < rank; i++)
        numel = dim[i] < 1 ? INT64_MAX : rt_size_mul(numel, dim[i]);
    int64_t bytes = rt_size_mul(numel, dtype_bytes((DType)dtype));
    return bytes == INT64_MAX ? UINT64_MAX : (uint64_t)bytes;
}

/* -- records -- */

static uint64_t mesh_size(const PlanMesh *m, uint32_t axes)
{
    const struct {
        uint32_t axis, n;
    } sizes[] = {{PLAN_AXIS_TP, m->tp},
                 {PLAN_AXIS_DP, m->dp},
                 {PLAN_AXIS_DPR, m->dpr},
                 {PLAN_AXIS_PP, m->pp}};
    uint64_t size = 1;
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (axes & sizes[i].axis && sizes[i].n)
            size *= sizes[i].n <= PLAN_MOST_RANKS ? sizes[i].n : PLAN_MOST_RANKS + 1;
    return size;
}

static uint64_t members(const Reader *r, const PlanComm *comm)
{
    if (comm->stages)
        return (uint64_t)__builtin_popcountll(comm->stages) *
               mesh_size(&r->plan->header->mesh, comm->axes & ~(uint32_t)PLAN_AXIS_PP);
    return comm->group ? comm->group : mesh_size(&r->plan->header->mesh, comm->axes);
}

/* A kernel's communicator exists, and has as many members as the kernel counts on. */
static const char *comm_fault(const Reader *r, uint32_t kernel, const PlanParam *p)
{
#define COMM(kernel, ranks) [PLAN_KERNEL_##kernel] = {1 + PLAN_##kernel##_comm, ranks}
    static const struct {
        uint32_t comm, ranks; /* 1 + the parameter's index; 0: none */
    } at[PLAN_KERNEL_COUNT] = {
        COMM(all_gather, 1 + PLAN_all_gather_ranks),
        COMM(reduce_scatter, 1 + PLAN_reduce_scatter_ranks),
        COMM(all_reduce, 1 + PLAN_all_reduce_ranks),
        COMM(take_part, 1 + PLAN_take_part_ranks),
        COMM(send, 1 + PLAN_send_ranks),
        COMM(recv, 1 + PLAN_recv_ranks),
        COMM(embed_part, 0),
        COMM(embed_part_grad, 0),
        COMM(lm_loss_part, 0),
        COMM(lm_loss_part_grad, 0),
        COMM(norm_sq, 0),
        COMM(adamw, 0),
        COMM(sgd, 0),
    };
#undef COMM
    const PlanHeader *h = r->plan->header;
    if (!at[kernel].comm)
        return NULL;
    int64_t comm = p[at[kernel].comm - 1].i;
    bool one = !comm && mesh_size(&h->mesh, UINT32_MAX) == 1 && !at[kernel].ranks;
    if (!one && (comm < 0 || (uint64_t)comm >= r->plan->n_comms))
        return "its communicator does not exist";
    if (at[kernel].ranks &&
        (uint64_t)p[at[kernel].ranks - 1].i != members(r, &r->plan->comms[comm]))
        return "its communicator has another number of members";
    return NULL;
}

/* An update goes over all of a weight, or over the rank's part of it. */
static const char *parts_fault(const Reader *r, const PlanInstr *instr, const PlanTensor *t,
                               const PlanParam *p)
{
    bool adamw = instr->kernel == PLAN_KERNEL_adamw;
    if (!adamw && instr->kernel != PLAN_KERNEL_sgd)
        return NULL;
    int64_t whole = adamw ? t[PLAN_T_adamw_w].numel : t[PLAN_T_sgd_w].numel,
            part = adamw ? t[PLAN_T_adamw_g].numel : t[PLAN_T_sgd_g].numel,
            comm = adamw ? p[PLAN_adamw_comm].i : p[PLAN_sgd_comm].i;
    if (whole == part)
        return NULL;
    if ((uint64_t)comm >= r->plan->n_comms ||
        whole != rt_size_mul((int64_t)members(r, &r->plan->comms[comm]), part))
        return "its weight has not as many parts as there are ranks";
    return NULL;
}

static const char *comm_record_fault(const Reader *r, const PlanComm *comm)
{
    uint64_t n = mesh_size(&r->plan->header->mesh, comm->axes);
    if (!is_string(r, comm->name))
        return "its name lies outside the strings";
    if (comm->axes & ~(uint32_t)(PLAN_AXIS_TP | PLAN_AXIS_DP | PLAN_AXIS_DPR | PLAN_AXIS_PP))
        return "an axis of it does not exist";
    uint32_t pp = r->plan->header->mesh.pp, stage = r->plan->header->stage;
    if (comm->stages && (!(comm->axes & PLAN_AXIS_PP) || comm->group || stage > 63 ||
                         (pp < 64 && comm->stages >> pp) || !(comm->stages >> stage & 1)))
        return "its stages do not exist, or this one is not among them";
    return comm->group && n % comm->group ? "its groups do not divide its members" : NULL;
}

static const char *split_fault(const PlanPiece *piece)
{
    if (piece->split == PLAN_WHOLE)
        return NULL;
    if (piece->split >= piece->rank || piece->outer < 1 || piece->parts < 1 || piece->chunk < 1 ||
        piece->inner < 1)
        return "the dim that it divides does not exist";
    int64_t dim = piece->dim[piece->split];
    int64_t covered = rt_size_mul(rt_size_mul(piece->outer, piece->parts),
                                  rt_size_mul(piece->chunk, piece->inner));
    return covered == dim || (piece->outer == 1 && covered > dim)
               ? NULL
               : "its parts are not the whole dim";
}

static const char *narrow_fault(const PlanPiece *piece)
{
    if (piece->narrow == PLAN_WHOLE)
        return NULL;
    if (piece->narrow >= piece->rank || piece->split != PLAN_WHOLE || piece->narrow_size < 1 ||
        piece->narrow_begin < 0 || piece->narrow_size > piece->dim[piece->narrow] ||
        piece->narrow_begin > piece->dim[piece->narrow] - piece->narrow_size)
        return "the run of a dim that it has does not exist";
    return NULL;
}

static const char *piece_fault(const Reader *r, const PlanPiece *piece)
{
    const RtPlan *plan = r->plan;
    if (!is_string(r, piece->name) || !is_string(r, piece->file))
        return "its name lies outside the strings";
    if (piece->state >= plan->n_states || (piece > plan->pieces && piece[-1].state > piece->state))
        return "its state does not exist, or the pieces are not in their states' order";
    const PlanState *state = &plan->states[piece->state];
    if (piece->flat & ~(uint32_t)(PLAN_AXIS_DP | PLAN_AXIS_DPR) || piece->kind > PLAN_STATE_BUFFER)
        return "its kind or axes do not exist";
    int64_t parts = (int64_t)mesh_size(&plan->header->mesh, piece->flat), local = 1;
    int64_t whole = rt_size_mul((int64_t)(state->bytes / dtype_bytes((DType)state->dtype)), parts);
    if (dims_bytes(state->dtype, piece->rank, piece->dim) == UINT64_MAX)
        return "its dims are impossible";
    const char *fault = split_fault(piece);
    fault = fault ? fault : narrow_fault(piece);
    if (fault)
        return fault;
    for (uint32_t i = 0; i < piece->rank; i++)
        local = rt_size_mul(local, i == piece->split    ? piece->outer * piece->chunk * piece->inner
                                   : i == piece->narrow ? piece->narrow_size
                                                        : piece->dim[i]);
    if (local != piece->numel || piece->begin < 0 || piece->begin > whole - local)
        return "it ends outside its state";
    return NULL;
}

static const char *instr_fault(const Reader *r, const PlanInstr *instr)
{
    const RtPlan *plan = r->plan;
    if (instr->kernel >= PLAN_KERNEL_COUNT)
        return "its kernel does not exist";
    const RtKernelShape *shape = rt_kernel_shape(instr->kernel);
    bool fused = instr->kernel == PLAN_KERNEL_fused;
    if (fused && instr->code >= r->n_native)
        return "its native code does not exist";
    if (!is_range(instr->first_tensor, instr->n_tensors, plan->n_tensors))
        return "its tensors lie outside the table";
    if (!is_range(instr->first_param, instr->n_params, plan->n_params))
        return "its parameters lie outside the table";
    if (!is_range(instr->first_death, instr->n_deaths, plan->n_deaths))
        return "its deaths lie outside the table";
    if (instr->n_tensors < shape->n_tensors ||
        (!shape->variadic && instr->n_tensors > shape->n_tensors))
        return "it has not as many tensors as its kernel";
    if (!fused && instr->n_params != shape->n_params)
        return "it has not as many parameters as its kernel";
    if (!is_string(r, instr->name) || !is_string(r, instr->file))
        return "its name lies outside the strings";
    if (instr->phase > PLAN_EVAL)
        return "its phase does not exist";
    if (instr->instance >= (uint64_t)plan->header->micro_batches)
        return "its micro-batch does not exist";
    if (instr->workspace == PLAN_ABSENT ? instr->workspace_bytes != 0
                                        : !in_arena(r, instr->workspace, instr->workspace_bytes))
        return "its workspace ends outside the arena";
    if (instr->workspace != PLAN_ABSENT && instr->workspace % 8)
        return "its workspace is not aligned";
    const PlanTensor *tensors = plan->tensors + instr->first_tensor;
    const PlanParam *params = plan->params + instr->first_param;
    PlanTarget target = (PlanTarget)plan->header->target;
    const char *wrong = comm_fault(r, instr->kernel, params);
    wrong = wrong ? wrong : parts_fault(r, instr, tensors, params);
    if (wrong)
        return wrong;
    const char *fault = rt_plan_shape_fault(target, instr, tensors, params);
    if (fault || fused || target == PLAN_TARGET_CUDA)
        return fault;
    if (plan->header->thread_scratch_bytes <
        plan_scratch_bytes((PlanKernel)instr->kernel, params, tensors))
        return "its kernel needs more scratch than the workers have";
    return NULL;
}

static const char *death_fault(const Reader *r, const PlanRange *death)
{
    if (death->dtype >= DTYPE_COUNT || !is_string(r, death->name))
        return "its dtype or name does not exist";
    return in_arena(r, death->offset, death->bytes) ? NULL : "it ends outside the arena";
}

static const char *state_fault(const Reader *r, const PlanState *state)
{
    if (!is_string(r, state->name) || !is_string(r, state->file))
        return "its name lies outside the strings";
    if (state->kind > PLAN_STATE_SCALAR)
        return "its kind does not exist";
    if (state->of >= r->plan->n_states)
        return "its parameter does not exist";
    uint64_t bytes = dims_bytes(state->dtype, state->rank, state->dim);
    if (bytes == UINT64_MAX || bytes != state->bytes)
        return "its size is not what its dims say";
    if (state->offset % dtype_bytes((DType)state->dtype))
        return "it is not aligned to its elements";
    return in_arena(r, state->offset, bytes) ? NULL : "it ends outside the arena";
}

static const char *input_fault(const Reader *r, const PlanInput *input)
{
    if (!is_string(r, input->name))
        return "its name lies outside the strings";
    if (input->dtype != DTYPE_I32)
        return "its dtype is not i32";
    uint64_t bytes = dims_bytes(input->dtype, input->rank, input->dim), total;
    if (bytes == UINT64_MAX || input->stride_bytes < bytes || input->stride_bytes % 4 ||
        input->offset % 4)
        return "its pieces have an impossible layout";
    if (__builtin_mul_overflow((uint64_t)(r->plan->header->micro_batches - 1),
                               (uint64_t)input->stride_bytes, &total) ||
        __builtin_add_overflow(total, bytes, &total) || !in_arena(r, input->offset, total))
        return "it ends outside the arena";
    return NULL;
}

static const char *dense_fault(const Reader *r, const PlanTensor *t, uint32_t rank,
                               const int64_t *dim)
{
    const char *fault = tensor_fault(r, t);
    if (fault)
        return fault;
    if (t->offset == PLAN_ABSENT)
        return "it is not in the arena";
    uint64_t bytes = dims_bytes(t->dtype, rank, dim);
    if (bytes == UINT64_MAX || bytes != (uint64_t)t->numel * dtype_bytes((DType)t->dtype))
        return "its size is not what its dims say";
    return NULL;
}

static const char *grad_fault(const Reader *r, const PlanGrad *grad)
{
    if (grad->state >= r->plan->n_states)
        return "its parameter does not exist";
    if (grad->layout >= r->plan->n_states)
        return "the state whose layout it has does not exist";
    const PlanState *layout = &r->plan->states[grad->layout];
    return dense_fault(r, &grad->tensor, layout->rank, layout->dim);
}

/* -- the header and its tables -- */

static Status map_table(Reader *r, const char *name, const PlanTable *table, uint64_t record_bytes,
                        const void **out_records, uint64_t *out_n)
{
    bool aligned = record_bytes == 1 || table->offset % 8 == 0;
    *out_records = NULL;
    *out_n = 0;
    if (!table->count && !table->offset)
        return STATUS_OK; /* none, and no place for it */
    if (!aligned || table->offset < sizeof(PlanHeader) || table->offset > r->n_bytes ||
        table->count > (r->n_bytes - table->offset) / record_bytes) {
        diag(r->s, no_span, plan_record, name, 0ull, "the table lies outside the plan");
        return STATUS_ENV;
    }
    *out_records = r->bytes + table->offset;
    *out_n = table->count;
    return STATUS_OK;
}

#define MAP_TABLE(r, T, field)                                                                     \
    do {                                                                                           \
        const void *records_;                                                                      \
        TRY(map_table(r, #field, &(r)->plan->header->field, sizeof(T), &records_,                  \
                      &(r)->plan->n_##field));                                                     \
        (r)->plan->field = records_;                                                               \
    } while (0)

static Status map_header(Reader *r)
{
    if (r->n_bytes < sizeof(PlanHeader))
        return bad(r, "it is shorter than its header");
    if ((uintptr_t)r->bytes % 8)
        return bad(r, "it is not aligned in memory");
    const PlanHeader *header = (const void *)r->bytes;
    r->plan->header = header;
    if (header->magic != PLAN_MAGIC)
        return bad(r, "it does not begin as a plan");
    if (header->version != PLAN_VERSION)
        return bad(r, "its version is another than this runtime's");
    if (header->total_bytes != r->n_bytes)
        return bad(r, "its length is not what its header says");
    if (header->hash != map_hash(r->bytes + sizeof *header, r->n_bytes - sizeof *header, 0))
        return bad(r, "its bytes do not have the hash that its header says");
    return STATUS_OK;
}

static Status map_tables(Reader *r)
{
    MAP_TABLE(r, char, strings);
    MAP_TABLE(r, PlanInstr, instrs);
    MAP_TABLE(r, PlanInstr, eval_instrs);
    MAP_TABLE(r, PlanTensor, tensors);
    MAP_TABLE(r, PlanParam, params);
    MAP_TABLE(r, PlanRange, deaths);
    MAP_TABLE(r, PlanState, states);
    MAP_TABLE(r, PlanInput, inputs);
    MAP_TABLE(r, PlanKept, kept);
    MAP_TABLE(r, PlanGrad, grads);
    MAP_TABLE(r, PlanOutside, outside);
    MAP_TABLE(r, PlanComm, comms);
    MAP_TABLE(r, PlanPiece, pieces);
    const RtPlan *plan = r->plan;
    if (!plan->n_strings || plan->n_strings > UINT32_MAX || plan->strings[0] ||
        plan->strings[plan->n_strings - 1])
        return bad(r, "its strings are not terminated");
    return STATUS_OK;
}

static Status check_scalars(Reader *r)
{
    const PlanScalars *s = &r->plan->header->scalars;
    const struct {
        const char *name;
        uint64_t offset, bytes;
    } scalars[] = {
        {"lr", s->lr, 4},           {"step", s->step, 8},         {"seed", s->seed, 8},
        {"count", s->count, 8},     {"inverse", s->inverse, 4},   {"loss_sum", s->loss_sum, 8},
        {"loss", s->loss, 8},       {"norm", s->norm, 8},         {"coef", s->coef, 4},
        {"skipped", s->skipped, 8}, {"eval_sum", s->eval_sum, 8}, {"sample0", s->sample0, 8},
    };
    for (uint64_t i = 0; i < sizeof scalars / sizeof *scalars; i++)
        if (scalars[i].offset != PLAN_ABSENT && (scalars[i].offset % scalars[i].bytes ||
                                                 !in_arena(r, scalars[i].offset, scalars[i].bytes)))
            return bad_record(r, "scalar", i, "it ends outside the arena");
    return STATUS_OK;
}

static Status check_header(Reader *r)
{
    const PlanHeader *h = r->plan->header;
    if (h->micro_batches < 1 || h->batch < 1 || h->seq < 1 || h->micro_batches > UINT32_MAX ||
        rt_size_mul(h->micro_batches, rt_size_mul(h->batch, h->seq)) == INT64_MAX)
        return bad(r, "its batch has an impossible size");
    if (h->arena_bytes > (uint64_t)1 << 48 || h->thread_scratch_bytes > (uint64_t)1 << 40)
        return bad(r, "its arena or its workers' scratch has an impossible size");
    if (h->target > PLAN_TARGET_CUDA)
        return bad(r, "its target does not exist");
    if (mesh_size(&h->mesh, UINT32_MAX) > PLAN_MOST_RANKS)
        return bad(r, "its mesh has too many ranks");
    if (h->stage && h->stage >= h->mesh.pp)
        return bad(r, "its stage does not exist");
    if (h->library_workspace_bytes &&
        (h->library_workspace % 256 ||
         !in_arena(r, h->library_workspace, h->library_workspace_bytes)))
        return bad(r, "its workspace for libraries ends outside the arena");
    if (!is_string(r, h->model) || !is_string(r, h->model_config) || !is_string(r, h->settings) ||
        !is_string(r, h->report))
        return bad(r, "a string of its header lies outside the strings");
    return check_scalars(r);
}

static Status check_instrs(Reader *r, const char *table, const PlanInstr *instrs, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        const char *fault = instr_fault(r, &instrs[i]);
        if (fault)
            return bad_record(r, table, i, fault);
    }
    return STATUS_OK;
}

#define CHECK_EACH(r, table, what, fault_of)                                                       \
    for (uint64_t i_ = 0; i_ < (r)->plan->n_##table; i_++) {                                       \
        const char *fault_ = fault_of((r), &(r)->plan->table[i_]);                                 \
        if (fault_)                                                                                \
            return bad_record((r), what, i_, fault_);                                              \
    }

static const char *kept_fault(const Reader *r, const PlanKept *kept)
{
    return dense_fault(r, &kept->tensor, kept->rank, kept->dim);
}

static const char *outside_fault(const Reader *r, const PlanOutside *outside)
{
    return is_string(r, outside->name) ? NULL : "its name lies outside the strings";
}

static Status check_records(Reader *r)
{
    CHECK_EACH(r, tensors, "tensor", tensor_fault);
    CHECK_EACH(r, deaths, "death", death_fault);
    CHECK_EACH(r, states, "state", state_fault);
    CHECK_EACH(r, comms, "communicator", comm_record_fault);
    CHECK_EACH(r, pieces, "piece", piece_fault);
    CHECK_EACH(r, inputs, "input", input_fault);
    CHECK_EACH(r, kept, "kept value", kept_fault);
    CHECK_EACH(r, grads, "gradient", grad_fault);
    CHECK_EACH(r, outside, "line of memory outside the arena", outside_fault);
    TRY(check_instrs(r, "instruction", r->plan->instrs, r->plan->n_instrs));
    return check_instrs(r, "instruction of the evaluation", r->plan->eval_instrs,
                        r->plan->n_eval_instrs);
}

Status rt_plan_map(Session *s, const void *bytes, uint64_t n_bytes, uint64_t n_native_kernels,
                   RtPlan *out_plan)
{
    *out_plan = (RtPlan){.all = out_plan, .n_all = 1};
    Reader r = {s, bytes, n_bytes, n_native_kernels, out_plan};
    TRY(map_header(&r));
    TRY(map_tables(&r));
    TRY(check_header(&r));
    return check_records(&r);
}

/* -- the plans of a program -- */

static Status bad_program(Session *s, const char *what)
{
    diag(s, no_span, plan_bad, what);
    return STATUS_ENV;
}

static uint64_t plan_bytes_at(const StepProgram *program, uint64_t at)
{
    const PlanHeader *header = (const void *)((const char *)program->plan + at);
    uint64_t left = program->plan_bytes - at;
    bool whole = left >= sizeof *header && header->total_bytes >= sizeof *header &&
                 header->total_bytes < left && header->total_bytes % 8 == 0;
    return whole ? header->total_bytes : left;
}

static bool same_mesh(const PlanMesh *a, const PlanMesh *b)
{
    return a->tp == b->tp && a->dp == b->dp && a->dpr == b->dpr && a->pp == b->pp;
}

Status rt_plans_map(Session *s, const StepProgram *program, const RtPlan **out_plans)
{
    uint32_t n = 1;
    uint64_t at = 0;
    if (program->plan_bytes >= sizeof(PlanHeader)) {
        const PlanHeader *first = program->plan;
        n = first->mesh.pp > 1 ? first->mesh.pp : 1;
    }
    if (n > program->plan_bytes / sizeof(PlanHeader) + 1)
        return bad_program(s, "it has fewer plans than stages");
    RtPlan *plans = ARENA_ARRAY(s->arena, RtPlan, n);
    for (uint32_t i = 0; i < n; i++) {
        if (i && at == program->plan_bytes)
            return bad_program(s, "it has fewer plans than stages");
        uint64_t bytes =
            n > 1 ? plan_bytes_at(program, at) : program->plan_bytes;
        TRY(rt_plan_map(s, (const char *)program->plan + at, bytes, program->n_kernels, &plans[i]));
        plans[i].all = plans;
        plans[i].n_all = n;
        at += bytes;
        if (n > 1 && (plans[i].header->stage != i ||
                      !same_mesh(&plans[i].header->mesh, &plans[0].header->mesh)))
            return bad_program(s, "its stages do not belong together");
    }
    if (at != program->plan_bytes)
        return bad_program(s, "it has more plans than stages");
    *out_plans = plans;
    return STATUS_OK;
}

uint64_t rt_plans_hash(const RtPlan *plans)
{
    uint64_t hash = plans[0].header->hash;
    for (uint32_t i = 1; i < plans[0].n_all; i++)
        hash = map_hash(&plans[i].header->hash, sizeof hash, hash);
    return hash;
}
