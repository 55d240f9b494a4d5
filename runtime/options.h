/* options: the command line of a step executable. */
#ifndef RUNTIME_OPTIONS_H
#define RUNTIME_OPTIONS_H

#include "base/session.h"

/* X(name, member, type, argument or NULL, doc): one row each, in the order of --help. */
#define RT_OPTIONS(X)                                                                              \
    X("weights", weights, TEXT, "DIR",                                                             \
      "initial weights, a Hugging Face folder; else from the seed")                                \
    X("batch", batch, TEXT, "F.safetensors", "one global batch, used at every step")               \
    X("data", data, TEXT, "PATH", "training tokens: .bin, .npy or text; else drawn from the seed") \
    X("eval", eval, TEXT, "PATH",                                                                  \
      "tokens or a batch to evaluate on, at the end and as the recipe says")                       \
    X("steps", steps, COUNT, "N",                                                                  \
      "steps to run now; else the recipe's max_steps, less those resumed")                         \
    X("save", save, TEXT, "DIR",                                                                   \
      "where weights and state are saved, at the end and as the recipe says")                      \
    X("resume", resume, TEXT, "DIR", "a folder that --save wrote, to go on from")                  \
    X("log", log, TEXT, "F.jsonl", "one JSON object per step")                                     \
    X("dump-grads", dump_grads, TEXT, "F.safetensors",                                             \
      "gradients of the first step, before clipping")                                              \
    X("dump-values", dump_values, TEXT, "F.safetensors",                                           \
      "values kept at build, of the first step")                                                   \
    X("bench", bench, POSITIVE, "N", "time N steps and report where the time goes")                \
    X("check", check, FLAG, NULL, "fill dead memory with NaN, name the first non-finite value")    \
    X("profile", profile, TEXT, "F.json",                                                          \
      "a trace of a few steps, for Perfetto or chrome://tracing")                                  \
    X("describe", describe, FLAG, NULL, "say what this executable is, and run nothing")            \
    X("threads", threads, POSITIVE, "N", "worker threads; else one per CPU")                       \
    X("tune", tune, TEXT, "FILE", "target cuda: measured algorithms, read and added to")           \
    X("no-graph", no_graph, FLAG, NULL, "target cuda: launch instructions one by one")             \
    X("no-copy-engines", no_copy_engines, FLAG, NULL, "target cuda: exchange over NCCL alone")     \
    X("seed", seed, COUNT, "N",                                                                    \
      "seed of initial weights, masks and drawn tokens; else the recipe's")                        \
    X("help", help, FLAG, NULL, "this text")

typedef struct RtOptions { /* NULL, false, and RT_OPTION_ABSENT where not given */
    const char *weights, *batch, *data, *eval, *save, *resume, *log, *dump_grads, *dump_values,
        *profile, *tune;
    int64_t steps, bench, threads, seed;
    bool check, no_graph, no_copy_engines, describe, help;
} RtOptions;

#define RT_OPTION_ABSENT INT64_MIN

/* A bad command line is one diagnostic and STATUS_USER. */
Status rt_options_parse(Session *s, int argc, char **argv, RtOptions *out_options);
void rt_options_help(FILE *out, const char *program);

#endif
