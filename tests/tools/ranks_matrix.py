#!/usr/bin/env python3
"""ranks_matrix: one fixture on meshes that between them have every legal pair of settings at least
once (ranks.py says what holds on each), or on all legal meshes.

  ranks_matrix.py STEPC FIXTURE SEQ WORK_DIR [all]
  ranks_matrix.py list [all]      prints the meshes
"""

import itertools
import sys

import ranks

MOST_RANKS = 8
SETTINGS = {
    "strategy": ["fsdp2", "zero2", "zero1", "ddp"],
    "groups": [1, 2],
    "dp": [2, 1, 4],
    "tp": [1, 2, 4],
    "sequence": [False, True],
    "recompute": ["none", "block", "pointwise"],
    "micro_batches": [1, 2],
    "defer": [False, True],
    "transport": ["mpi", "tcp"],
}
NAMES = list(SETTINGS)


def is_legal(m):
    if m["tp"] * m["dp"] > MOST_RANKS or m["tp"] * m["dp"] == 1:
        return False
    if m["sequence"] and m["tp"] == 1:
        return False
    if m["dp"] == 1 and (m["strategy"] != "fsdp2" or m["defer"]):
        return False  # nobody to share with: any strategy is the same
    if m["groups"] > 1 and (m["dp"] < 4 or m["strategy"] == "ddp"):
        return False
    return not m["defer"] or (m["micro_batches"] > 1 and m["strategy"] not in ("ddp", "zero1"))


def legal():
    meshes = (dict(zip(NAMES, values)) for values in itertools.product(*SETTINGS.values()))
    return [m for m in meshes if is_legal(m)]


def pairs(m):
    return set(itertools.combinations([(name, m[name]) for name in NAMES], 2))


def cover(meshes):
    """Those that have all the pairs: each next has most that are left, and few ranks."""
    left = set().union(*map(pairs, meshes))
    chosen = []
    while left:
        best = max(meshes, key=lambda m: (len(pairs(m) & left), -m["tp"] * m["dp"]))
        chosen.append(best)
        left -= pairs(best)
    return chosen


def text(m, more):
    keys = {"local": ranks.ROWS // (m["dp"] * m["micro_batches"]), "recompute": m["recompute"]}
    keys["strategy"] = m["strategy"]
    keys["transport"] = m["transport"]
    if m["groups"] > 1:
        keys["dp_replicate_size"] = m["groups"]
    if m["tp"] > 1:
        keys["tp_size"] = m["tp"]
    if m["sequence"]:
        keys["sequence_parallel"] = "true"
    if m["defer"]:
        keys["defer_fsdp_grad_sync"] = "true"
    keys.update(more)
    return "%d:%s" % (m["tp"] * m["dp"], ",".join("%s=%s" % kv for kv in keys.items()))


def texts(every):
    """Every fourth also runs with --check, every fourth twice, over the other transport."""
    extra = [{"check": 1}, {}, {"twice": 1}, {}]
    chosen = legal() if every else cover(legal())
    return [text(m, extra[i % 4]) for i, m in enumerate(chosen)]


def main(stepc, folder, seq, work, every=""):
    ranks.main(stepc, folder, seq, work, *texts(every == "all"))


if __name__ == "__main__":
    if sys.argv[1] == "list":
        print("\n".join(texts(sys.argv[2:] == ["all"])))
    else:
        main(*sys.argv[1:])
