#!/usr/bin/env python3
"""variants: one fixture under every setting that may not change a bit: losses, norms and gradients
of all 8 steps are equal. On the way: the allocated arena is the planned one, no step behind the
second allocates, and memory that no line lists is within 8 MiB.

  variants.py STEPC RECIPE FIXTURE SEQ WORK_DIR [KEY=VALUE...]
"""

import json
import os
import re
import subprocess
import sys

import check

COUNTER = os.path.abspath(os.environ.get("STEPC_COUNTER", "build/tests/libcount_allocations.so"))


def run(words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        check.fail("%s\n%s" % (" ".join(words), done.stderr[-800:]))
    return done.stdout


def allocations(words, steps, work):
    path = work + "/allocations"
    # OpenBLAS's kernels for AVX-512 pack small operands in the heap: not the runtime's doing
    environment = dict(
        os.environ, LD_PRELOAD=COUNTER, COUNT_ALLOCATIONS=path, OPENBLAS_CORETYPE="Prescott"
    )
    done = subprocess.run(
        [*words, "--steps", str(steps)], capture_output=True, text=True, env=environment
    )
    if done.returncode:
        check.fail("%s\n%s" % (" ".join(words), done.stderr[-800:]))
    return int(open(path).read())


def hold_memory(name, words, work):
    few, many = (allocations(words, n, work) for n in (2, 8))
    if few != many or few == 0:
        check.fail("%s: %d allocations in 2 steps, %d in 8" % (name, few, many))
    listed = re.search(r"^memory \| not listed +(-?\d+) B", run([*words, "--bench", "2"]), re.M)
    if not listed or int(listed[1]) > 8 << 20:
        check.fail("%s: memory that no line lists: %s" % (name, listed and listed[1]))


def main(stepc, recipe, fixture, seq, work, *more):
    os.makedirs(work, exist_ok=True)
    sets = ["model.pretrained_model_name_or_path=" + fixture, "dataset.seq_length=" + seq, *more]
    base = [w for s in sets for w in ("--set", s)]
    plan = json.loads(
        run([stepc, "plan", recipe, *base, "--set", "stepc.recompute.policy=submodule", "--json"])
    )
    roles = sorted(r for r in plan["recompute"]["parts"] if r != "other")
    builds = {"none": [], "alone": ["--disable=fuse"]}
    for policy in ("block", "selective", "submodule"):
        builds[policy] = ["--set", "stepc.recompute.policy=" + policy]
    for role in roles:
        builds["only " + role] = [
            *builds["submodule"],
            "--set",
            "stepc.recompute.parts=[%s]" % role,
        ]
    builds["block, alone"] = [*builds["block"], "--disable=fuse"]
    builds["block but the last"] = [*builds["block"], "--set", "stepc.recompute.keep_last=1"]
    builds["pointwise"] = ["--set", "stepc.recompute.pointwise=true"]
    builds["pointwise, alone"] = [*builds["pointwise"], "--disable=fuse"]
    builds["pointwise and a role"] = [*builds["only " + roles[0]], *builds["pointwise"]]
    logs, grads = [], []
    for i, (name, options) in enumerate(builds.items()):
        exe = "%s/%d.step" % (work, i)
        run([stepc, "build", recipe, *base, *options, "-o", exe])
        runs = [["--threads", "2"]]
        if name in ("none", "block", "pointwise"):
            runs += [["--threads", "2"], ["--threads", "1"], ["--check"]]
        for n, extra in enumerate(runs):
            logs.append("%s/%d.%d.jsonl" % (work, i, n))
            grads.append("%s/%d.%d.grads" % (work, i, n))
            if os.path.exists(logs[-1]):
                os.remove(logs[-1])
            out = run(
                [
                    exe,
                    "--weights",
                    fixture,
                    "--batch",
                    fixture + "/batch.safetensors",
                    "--log",
                    logs[-1],
                    "--dump-grads",
                    grads[-1],
                    *extra,
                ]
            )
            arena = re.search(r"^arena \| (\d+) B .*planned, (\d+) B allocated", out, re.M)
            if not arena or arena[1] != arena[2]:
                check.fail("planned and allocated arena differ: %s" % out[:200])
        if name in ("none", "block", "submodule", "selective", "pointwise"):
            hold_memory(
                name, [exe, "--weights", fixture, "--batch", fixture + "/batch.safetensors"], work
            )
        os.remove(exe)
    check.same([*logs, "--", *grads])


if __name__ == "__main__":
    main(*sys.argv[1:])
