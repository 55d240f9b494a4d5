/* data: what a step reads, row by row, copied into the arena's input pieces.
 *
 * A run's samples are counted from 0; a step takes micro_batches * batch of them on each rank,
 * row r of micro-batch m on rank d being sample position + (d * micro_batches + m) * batch + r.
 * Where a sample comes from:
 *   batch file    row (sample mod rows) of a .safetensors file that holds one global batch
 *   token stream  window w = sample mod windows, tokens [w * seq, w * seq + seq]: windows follow
 *                 each other, share one token (so that each token but the first is a target
 *                 once), and begin again at the first; what is left behind the last is not read
 *   token rows    (2-D .npy) row (sample mod rows), seq + 1 tokens, or seq with the last position
 *                 ignored
 *   mock          tokens drawn from the seed, the sample's number and the place in it
 * Eval reads each sample once, header.batch of them a call, and fills up the last batch with
 * ignored rows. */
#ifndef RUNTIME_DATA_H
#define RUNTIME_DATA_H

#include "base/session.h"
#include "runtime/plan_map.h"

typedef struct RtData RtData;

typedef struct RtDataOptions {
    const char *batch;    /* --batch F.safetensors */
    const char *path;     /* --data, --eval: tokens (.bin, .npy), plain text as bytes, or for eval a
                           * .safetensors file; with neither path: mock */
    uint64_t seed;        /* mock */
    /* that share a step's rows: this one has the rank-th part; n_ranks 0: 1 */
    uint32_t n_ranks, rank;
    bool eval;            /* fills micro-batch 0's pieces only */
    const int64_t *ignore_index; /* of labels and targets in batch files; NULL: -100 */
    int64_t vocab;        /* ids are below it; 0: what the plan's own tables hold */
} RtDataOptions;

/* Checks the file against the plan (rows, seq, dtypes; of batch files every id). */
Status rt_data_open(Session *s, const RtPlan *plan, const RtDataOptions *options,
                    RtData **out_data);
void rt_data_close(RtData *data);

/* The next batch into the arena; allocates nothing unless it fails. An id outside the vocabulary is
 * STATUS_USER. */
Status rt_data_next(RtData *data, unsigned char *arena);

uint64_t rt_data_position(const RtData *data); /* samples taken so far: what a checkpoint keeps */
void rt_data_seek(RtData *data, uint64_t position);
uint64_t rt_data_samples(const RtData *data); /* in one pass over the data; 0: endless (mock) */
uint64_t rt_data_batches(const RtData *data); /* of them, whole; for eval, the last filled up */
uint64_t rt_data_seed(const RtData *data);
const char *rt_data_kind(const RtData *data); /* "file" or "mock" */
int64_t rt_data_targets(const RtData *data);  /* targets of the last batch that are not ignored */

#endif
