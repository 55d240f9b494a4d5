#!/usr/bin/env python3
"""ranks_matrix: one fixture on many meshes (ranks.py says what holds on each). By default, meshes
that between them have every legal pair of settings at least once.

  ranks_matrix.py STEPC FIXTURE SEQ WORK_DIR [pipelines | listed | [pipelines] all [PART/PARTS]]
  ranks_matrix.py list FIXTURE [...]      prints the meshes

  pipelines   meshes with stages, else there are none; for pairs, with two or three, and tp and dp
              of two at most
  listed      the meshes of LISTED, whole: with sequence parallelism and without where there is tp,
              under each schedule where there are stages, micro-batches once and twice the stages,
              recompute none and block
  all         all legal meshes, in f64 too; PART/PARTS: every PARTS-th mesh, with all of its runs
"""

import itertools
import json
import sys

import ranks

MOST_RANKS = 8
SETTINGS = {
    "strategy": ["fsdp2", "zero2", "zero1", "ddp"],
    "groups": [1, 2],
    "dp": [2, 1, 4],
    "tp": [1, 2, 4],
    "sequence": [False, True],
    "micro_batches": [1, 2],  # times the stages
    "defer": [False, True],
    "stages": [1],
    "schedule": [None],
    "recompute": ["none", "block", "pointwise"],
    "transport": ["tcp", "mpi"],  # where either will do, the one that starts sooner
}
PIPELINES = dict(
    SETTINGS,
    dp=[1, 2, 4],
    stages=[2, 3, 4],
    schedule=["1f1b", "gpipe", "interleaved_1f1b", "zero_bubble"],
)
FEWER = dict(PIPELINES, dp=[1, 2], tp=[1, 2], stages=[2, 3])  # where not all are asked for
CHUNKS = 2  # of a stage, where stages are interleaved

# What is not said: fsdp2, one of each.
LISTED = [
    {"dp": [2, 4]},
    {"dp": [2, 4], "strategy": ["zero1"]},
    {"dp": [4], "groups": [2]},
    {"tp": [2, 4]},
    {"stages": [2, 3]},
    {"dp": [2], "tp": [2]},
    {"tp": [2], "stages": [2]},
    {"dp": [2], "tp": [2], "stages": [2]},
]
NOT_SAID = dict(
    SETTINGS,
    **{"strategy": ["fsdp2"], "groups": [1], "dp": [1], "tp": [1], "defer": [False]},
    **{"recompute": ["none", "block"], "transport": [None]}
)


def n_ranks(m):
    return m["tp"] * m["dp"] * m["stages"]


def n_rows(m):
    """That stages, dp and micro-batches divide."""
    return 24 if m["stages"] == 3 else ranks.ROWS


def is_legal(m, blocks):
    n = m["micro_batches"] * m["stages"]
    if not 1 < n_ranks(m) <= MOST_RANKS or n_rows(m) % (m["dp"] * n) or m["stages"] > blocks:
        return False
    if m["sequence"] and m["tp"] == 1:
        return False
    if m["dp"] == 1 and (m["strategy"] != "fsdp2" or m["defer"]):
        return False  # nobody to share with: any strategy is the same
    if m["groups"] > 1 and (m["dp"] < 4 or m["strategy"] == "ddp"):
        return False
    if m["schedule"] == "interleaved_1f1b" and m["stages"] * CHUNKS > blocks:
        return False
    return not m["defer"] or (n > 1 and m["strategy"] not in ("ddp", "zero1"))


def legal(settings, blocks):
    meshes = (dict(zip(settings, values)) for values in itertools.product(*settings.values()))
    return [m for m in meshes if is_legal(m, blocks)]


def pairs(m):
    return set(itertools.combinations(m.items(), 2))


def cover(meshes):
    """Those that have all the pairs: each next has most that are left, and few ranks."""
    left = set().union(*map(pairs, meshes))
    chosen = []
    while left:
        best = max(meshes, key=lambda m: (len(pairs(m) & left), -n_ranks(m)))
        chosen.append(best)
        left -= pairs(best)
    return chosen


def text(m, more):
    rows = n_rows(m) // (m["dp"] * m["micro_batches"] * m["stages"])
    if m["stages"] > 1:
        keys = {"pp_size": m["stages"], "pipeline.pp_microbatch_size": rows}
        keys["pipeline.pp_schedule"] = m["schedule"]
    else:
        keys = {"local": rows}
    if n_rows(m) != ranks.ROWS:
        keys["rows"] = n_rows(m)
    keys["strategy"] = m["strategy"]
    if m["groups"] > 1:
        keys["dp_replicate_size"] = m["groups"]
    if m["tp"] > 1:
        keys["tp_size"] = m["tp"]
    if m["sequence"]:
        keys["sequence_parallel"] = "true"
    if m["defer"]:
        keys["defer_fsdp_grad_sync"] = "true"
    keys.update(recompute=m["recompute"], transport=m["transport"])
    keys.update(more)
    return "%d:%s" % (n_ranks(m), ",".join("%s=%s" % kv for kv in keys.items()))


def covering(meshes):
    """Every sixth also runs with --check, every sixth twice, over the other transport."""
    extra = {0: {"check": 1}, 3: {"twice": 1}}
    return [text(m, extra.get(i % 6, {})) for i, m in enumerate(cover(meshes))]


def listed(blocks):
    """Every third mesh over MPI; every fifth run with --check, every fifth twice."""
    meshes = []
    for given in LISTED:
        schedules = PIPELINES["schedule"] if "stages" in given else [None]
        meshes += legal(dict(NOT_SAID, schedule=schedules, **given), blocks)
    out = []
    for i, m in enumerate(meshes):
        m["transport"] = "tcp" if i // len(NOT_SAID["recompute"]) % 3 else "mpi"
        out.append(text(m, {0: {"check": 1}, 2: {"twice": 1}}.get(i % 5, {})))
    return out


def every(meshes):
    """Runs of one mesh stand together. With --check under each transport and policy in turn; in f64
    once."""
    out = []
    for i, m in enumerate(meshes):
        out.append(text(m, {"check": 1} if i % 5 == 0 else {}))
        if (m["recompute"], m["transport"]) == ("none", "mpi"):
            out.append(text(m, {"dtype": "float64"}))
    return out


def texts(folder, *which):
    config = json.load(open(folder + "/config.json"))
    config = config.get("text_config", config)
    blocks = config.get("num_hidden_layers") or config["n_layer"]
    if "listed" in which:
        return listed(blocks)
    if "all" not in which:
        return covering(legal(FEWER if "pipelines" in which else SETTINGS, blocks))
    meshes = legal(PIPELINES if "pipelines" in which else SETTINGS, blocks)
    part, parts = map(int, which[-1].split("/") if "/" in which[-1] else (0, 1))
    runs = len(SETTINGS["recompute"]) * len(SETTINGS["transport"])  # the last two settings
    return every([m for i, m in enumerate(meshes) if i // runs % parts == part])


def main(stepc, folder, seq, work, *which):
    ranks.main(stepc, folder, seq, work, *texts(folder, *which))


if __name__ == "__main__":
    if sys.argv[1] == "list":
        print("\n".join(texts(*sys.argv[2:])))
    else:
        main(*sys.argv[1:])
