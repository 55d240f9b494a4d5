#!/usr/bin/env python3
"""full_size_ranks: plans of the published sizes for more than one rank: their time, packing, memory
and the order of the policies.

full_size_ranks.py STEPC RECIPE
"""

import sys

from full_size import GIB, arena, expect, plan

E4B, M31B = "google/gemma-4-E4B-it", "google/gemma-4-31B-it"


def policies(stepc, recipe, model, *sets):
    """The arena under each policy, smallest first."""
    sizes = []
    for policy in ("block", "submodule", "none"):
        p, cpu = plan(stepc, recipe, model, *sets, "stepc.recompute.policy=" + policy)
        sizes.append(arena(p))
        rank = p["ranks"][0]
        print("%-22s %-9s %6.2f GiB, %.2f s" % (model, policy, sizes[-1] / GIB, cpu))
        expect(
            "%s, %s: gathered %s" % (model, policy, rank["gathered_peak_bytes"]),
            rank["gathered_peak_bytes"] <= 2 * rank["gathered_unit_bytes"],
        )
    expect("%s: %s" % (model, sizes), sizes[0] < sizes[1] < sizes[2])
    return sizes


def main(stepc, recipe):
    batch = ["step_scheduler.global_batch_size=8", "step_scheduler.local_batch_size=1"]
    sizes = policies(stepc, recipe, E4B, *batch, "stepc.world_size=2")
    expect("E4B on two ranks: %.2f GiB" % (sizes[0] / GIB), sizes[0] <= 24.5 * GIB)
    policies(stepc, recipe, M31B, *batch, "stepc.world_size=8")
    tp = ["stepc.world_size=8", "distributed.tp_size=4"]
    plain = policies(stepc, recipe, M31B, *batch, *tp)
    divided = policies(stepc, recipe, M31B, *batch, *tp, "distributed.sequence_parallel=true")
    expect(
        "31B with divided tokens: %s, without: %s" % (divided, plain),
        all(a < b for a, b in zip(divided, plain)),
    )
    print("ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
