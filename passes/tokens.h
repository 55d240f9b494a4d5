/* tokens: sequence parallelism. Where tensor-parallel ranks divide neither heads nor ffn nor
 * vocab, each has an equal run of the micro-batch's tokens, `[(tokens/tp),hidden]`: tokens count
 * row by row through `[batch,seq]`, the last run is padded with zeros. A value is either whole
 * on every rank or divided so; an op that needs it otherwise reads a copy that is gathered, or
 * taken apart. */
#ifndef PASSES_TOKENS_H
#define PASSES_TOKENS_H

#include "passes/pass.h"

/* What an op does with tokens that are divided. */
typedef enum TokensMode {
    TOKENS_NONE, /* none of its operands has them, or it reads them whole */
    TOKENS_KEPT, /* its results have them */
    TOKENS_SUMMED, /* it sums over them: its results are each rank's share */
} TokensMode;

typedef struct Tokens Tokens;

/* NULL where the recipe does not ask for it, or the model has no tokens. */
Tokens *tokens_new(PassContext *c);

/* Before a graph is walked: its parameters are as the graphs before left them. */
void tokens_enter(Tokens *t, IrGraph *g);

/* Gives the op at `*at` its operands as it needs them and its results their types; `*at` moves with
 * the op. `reads_whole`: it must have whole operands in any case. */
TokensMode tokens_prepare(Tokens *t, IrGraph *g, uint32_t *at, bool reads_whole);

/* Has the type all tokens, `[batch,seq,...]`? */
bool tokens_lead(const Tokens *t, IrType type);

/* The sum over tp of what each rank has made of all tokens, divided; `sum`: its type undivided.
 * `re`: what it replays, or NULL. */
IrValue tokens_scatter(Tokens *t, IrBuilder *b, IrValue v, Sym name, Sym re, IrType sum);

#endif
