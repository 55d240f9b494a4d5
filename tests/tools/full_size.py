#!/usr/bin/env python3
"""full_size: plans of the published sizes: their time, memory, packing, coverage and FLOPs.

full_size.py STEPC RECIPE WORK_DIR
"""

import json
import os
import resource
import subprocess
import sys
import time

import check

GIB = 1 << 30
SIZES = {
    "google/gemma-4-E2B-it": 35,
    "google/gemma-4-E4B-it": 42,
    "google/gemma-4-31B-it": 60,
    "meta-llama/Llama-3.2-1B": 16,
    "meta-llama/Meta-Llama-3-8B": 32,
    "mistralai/Mistral-7B-v0.1": 32,
    "Qwen/Qwen2-7B": 28,
    "openai-community/gpt2": 12,
}


def plan(stepc, recipe, model, *sets):
    words = [
        stepc,
        "plan",
        recipe,
        "--json",
        "--set",
        "model.pretrained_model_name_or_path=" + model,
    ]
    for s in sets:
        words += ["--set", s]
    start = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        check.fail("%s\n%s" % (" ".join(words), done.stderr[-800:]))
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if cpu > 2:
        check.fail(
            "%s took %.1f s of one core (%.1f s in all)"
            % (" ".join(words), cpu, time.monotonic() - start)
        )
    if after.ru_maxrss > 1 << 20:
        check.fail("%s took %d MiB" % (" ".join(words), after.ru_maxrss >> 10))
    p = json.loads(done.stdout)
    for rank in p["ranks"]:
        if rank["transient_bytes"] > 1.02 * rank["lower_bound_bytes"]:
            check.fail(
                "%s: %d transient bytes, lower bound %d"
                % (model, rank["transient_bytes"], rank["lower_bound_bytes"])
            )
    return p, cpu


def arena(p):
    return p["ranks"][0]["arena_bytes"]


def expect(what, holds):
    if not holds:
        check.fail(what)


def main(stepc, recipe):
    for model, blocks in SIZES.items():
        seq = "dataset.seq_length=%d" % (1024 if "gpt2" in model else 2048)
        p = {}
        for policy in ("none", "block", "submodule", "selective"):
            p[policy], cpu = plan(stepc, recipe, model, seq, "stepc.recompute.policy=" + policy)
            print(
                "%-28s %-10s %6.2f GiB, saved %9d KiB, %.2f s"
                % (
                    model,
                    policy,
                    arena(p[policy]) / GIB,
                    p[policy]["recompute"]["saved_bytes"] >> 10,
                    cpu,
                )
            )
        r = p["block"]["recompute"]
        expect(
            "%s: %d of %d blocks covered" % (model, r["blocks_covered"], r["blocks_total"]),
            r["blocks_covered"] == r["blocks_total"] == blocks,
        )
        saved = [p[x]["recompute"]["saved_bytes"] for x in ("block", "submodule", "none")]
        expect("%s: saved_bytes %s" % (model, saved), saved[0] < saved[1] < saved[2])
        if "E4B" in model:
            expect(
                "E4B flops %g" % p["none"]["flops_per_step"],
                abs(p["none"]["flops_per_step"] / 5.597e13 - 1) < 0.01,
            )
            expect("E4B none %.2f GiB" % (arena(p["none"]) / GIB), arena(p["none"]) <= 40 * GIB)
            expect(
                "E4B block %.2f GiB" % (arena(p["block"]) / GIB), arena(p["block"]) <= 37.5 * GIB
            )
        if "E4B" in model or "31B" in model:
            eight = [
                arena(
                    plan(
                        stepc,
                        recipe,
                        model,
                        "step_scheduler.global_batch_size=8",
                        "stepc.recompute.policy=" + x,
                    )[0]
                )
                for x in ("block", "submodule", "none")
            ]
            print(
                "%-28s 8 micro-batches: %s GiB"
                % (model, ", ".join("%.2f" % (a / GIB) for a in eight))
            )
            expect("%s, 8 micro-batches: %s" % (model, eight), eight[0] < eight[1] < eight[2])
            expect(
                "%s: none against block %.3f" % (model, eight[2] / eight[0]),
                "31B" in model or eight[2] >= 1.1 * eight[0],
            )
    print("ok %d sizes" % len(SIZES))


if __name__ == "__main__":
    main(*sys.argv[1:3])
