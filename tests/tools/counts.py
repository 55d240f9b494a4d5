#!/usr/bin/env python3
"""counts: what ranks exchange in a step, as planned (`plan --json`) and as a profiled step of rank
0 did it: the same numbers. And by unit: a block's weights are gathered `gathers=` times per
micro-batch, its gradients scattered once per micro-batch, with defer_fsdp_grad_sync once per step;
frozen units have no scatters; a table that is looked up where its rows live is not gathered.

  counts.py STEPC FIXTURE SEQ WORK_DIR MESH...

MESH is as ranks.py has it, and of: gathers=N, frozen=GLOB, looked_up=NAME.
"""

import collections
import json
import shutil
import sys

import check
import ranks


def planned(stepc, sets, world):
    words = [stepc, "plan", ranks.RECIPE, *(w for s in sets for w in ("--set", s))]
    report = json.loads(ranks.run([*words, "--world", str(world), "--json"]))
    counts = collections.Counter()
    for c in report["collectives"]:
        counts[c["kind"]] += c["count"]
    return counts, report["batch"]["micro_batches"]


def profiled(path):
    """Kind, name without its micro-batch and the block, of each exchange of one step."""
    events = json.load(open(path))["traceEvents"]
    kinds = {"all_gather", "reduce_scatter", "all_reduce"}
    return [
        (e["cat"], e["name"].split(" ")[-1].lstrip("%").split("/", 1)[-1], e["name"].split(" ")[0])
        for e in events
        if e["cat"] in kinds
    ]


def expect(mesh, what, got, want):
    if got != want:
        check.fail("%s: %s: %s, not %s" % (mesh, what, got, want))


def check_units(mesh, events, micro_batches, gathers, deferred, frozen, looked_up):
    count = collections.Counter()
    for kind, name, _ in events:
        what = {"all_gather": "gather", "reduce_scatter": "scatter"}.get(kind)
        for part in (".whole", ".grad"):
            head, found, _ = name.partition(part)
            if what and found and head.startswith(("flat.", "frozen.")):
                count[what, head] += 1
    units = {unit for _, unit in count}
    blocks = sorted(u for u in units if ".layers." in u or ".h." in u)
    if not blocks:
        check.fail("%s: no block is gathered" % mesh)
    for unit in blocks:
        trained = unit.startswith("flat.")
        expect(mesh, "gathers of " + unit, count["gather", unit], gathers * micro_batches)
        scatters = (1 if deferred else micro_batches) if trained else 0
        expect(mesh, "scatters of " + unit, count["scatter", unit], scatters)
    if bool(frozen) != any(u.startswith("frozen.") for u in blocks):
        check.fail("%s: what is frozen is not among %s" % (mesh, blocks))
    if looked_up and any(count["gather", u] for u in units if looked_up in u):
        check.fail("%s: `%s` is gathered" % (mesh, looked_up))


def main(stepc, folder, seq, work, *meshes):
    f = ranks.Fixture(stepc, folder, seq, work)
    for mesh in meshes:
        world, keys = ranks.parse(mesh)
        local, recompute = int(keys.pop("local", 2)), keys.pop("recompute", "none")
        gathers, frozen = int(keys.pop("gathers", 2)), keys.pop("frozen", "")
        looked_up = keys.pop("looked_up", "")
        sets = f.sets(local, keys, recompute) + ["stepc.freeze=" + frozen] * bool(frozen)
        want, micro_batches = planned(stepc, sets, world)
        trace = work + "/trace.json"
        ranks.launch(world, "mpi", [f.build_with(world, sets), "--steps", "1", "--profile", trace])
        events = profiled(trace)
        expect(mesh, "exchanges", collections.Counter(kind for kind, _, _ in events), want)
        if gathers:
            deferred = keys.get("defer_fsdp_grad_sync") == "true"
            check_units(mesh, events, micro_batches, gathers, deferred, frozen, looked_up)
        print("ok %s: %s" % (mesh, dict(sorted(want.items()))))
    shutil.rmtree(work)  # a failed run leaves it, to be looked at


if __name__ == "__main__":
    main(*sys.argv[1:])
