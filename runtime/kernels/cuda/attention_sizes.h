/* attention_sizes: shared memory of the attention kernels in bytes; D: the head size that a kernel
 * is made for. */
#ifndef RUNTIME_KERNELS_CUDA_ATTENTION_SIZES_H
#define RUNTIME_KERNELS_CUDA_ATTENTION_SIZES_H

/* 128 queries; 64 keys and values, two of each */
#define attention_rows_bytes(D) ((128 + 2 * 2 * 64) * ((D) + 8) * 2)

/* queries, probabilities, four pieces of keys or values, one f32 per row and column of warps */
#define attention_wide_rows(D) ((D) == 256 ? 128 : 64)
#define attention_wide_keys(D) ((D) == 256 ? 64 : 128)
#define attention_wide_piece(D) ((D) == 256 ? 64 * (256 + 8) : 128 * (128 + 8))
#define attention_wide_bytes(D)                                                                    \
    ((attention_wide_rows(D) * ((D) + 8) + attention_wide_rows(D) * (attention_wide_keys(D) + 8) + \
      4 * attention_wide_piece(D)) *                                                               \
         2 +                                                                                       \
     (D) / 128 * attention_wide_rows(D) * 4)

/* one or two operands of 128 rows; two of 32 rows, twice; lse and delta of 128 queries, or of 32,
 * twice */
#define attention_grad_bytes(D, two, queries)                                                      \
    ((((two) ? 2 : 1) * 128 + 2 * 2 * 32) * ((D) + 8) * 2 + ((queries) ? 2 * 128 : 2 * 2 * 32) * 4)

/* four stages of two operands of 128 rows and 64 columns; P and dS of a tile; lse and delta,
 * twice */
#define attention_scores_bytes ((4 * 2 * 128 * 72 + 2 * 128 * 136) * 2 + 2 * 2 * 128 * 4)
#define attention_products_bytes (4 * (128 * 72 + 64 * 264) * 2)

/* four (two) stages of keys and values of 128, and 128 queries, at 128 (256) bytes; results;
 * barriers */
#define attention_group_bytes(D) (4 * 2 * 128 * 128 + 128 * 2 * (D) + 128 * 72 * 2 + 2 * 4 * 8)

/* 64 queries and probabilities of 128 keys; four pieces; results; maxima; barriers */
#define attention_group_wide_bytes                                                                 \
    (64 * 1024 + 64 * 256 + 4 * 32768 + 128 * 72 * 2 + 2 * 64 * 4 + (2 + 2 * 4) * 8)

/* four stages of two operands of 64 rows, and two of 128, at 128 bytes; statistics of eight warps,
 * twice; results; barriers */
#define attention_group_grad_bytes                                                                 \
    (4 * 2 * 64 * 128 + 2 * 128 * 128 + 8 * 2 * 64 * 8 + 128 * 72 * 2 + (2 + 2 * 4) * 8 + 8)

/* 32 own rows; 32 (16) of the other side; scores */
#define attention_plain_bytes(D) ((32 + 2 * 32) * ((D) + 4) * 4 + 32 * 33 * 4)
#define attention_grad_plain_bytes(D)                                                              \
    ((2 * 32 + 2 * 16) * ((D) + 4) * 4 + 2 * 32 * 17 * 4 + 2 * 16 * 4)

#endif
