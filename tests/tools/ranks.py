#!/usr/bin/env python3
"""ranks: one fixture on meshes of ranks against one rank, on rows of seeded tokens, 8 steps:
losses, norms, gradients and saved weights within BOUNDS. All runs of one mesh have the same bits,
the saved weights' too: recompute off where it is on, and what the mesh's keys ask for.

  ranks.py STEPC FIXTURE SEQ WORK_DIR MESH...
  ranks.py resume STEPC FIXTURE SEQ WORK_DIR MESH...
      two steps on each mesh, each from the checkpoint of the one before, against one rank; and the
      first mesh's own eight steps, interrupted or not: same bits

MESH is RANKS:KEY=VALUE,..., keys of `distributed` without the section, and of: rows=N (16) of the
batch, local=N per micro-batch, dtype=float32|bfloat16|float64, recompute=POLICY or pointwise,
transport=tcp|mpi, twice=1 (over the other transport), check=1. Meshes that differ only in the last
four are built and run once each, and the first is compared with one rank.
"""

import collections
import json
import os
import shutil
import socket
import subprocess
import sys

import check
import make

ROWS = 16
TOOLS = os.path.dirname(os.path.abspath(__file__))
RECIPE = os.path.join(TOOLS, "..", "parity", "Inputs", "fixture.yaml")
MPIRUN = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "mpirun.sh")]

Bounds = collections.namedtuple("Bounds", "first_loss loss first_norm norm grads saved")
BOUNDS = {
    "float32": Bounds(1e-5, 1e-4, 1e-4, 1e-3, 1e-4, 1e-3),
    "bfloat16": Bounds(1e-3, 1e-2, 1e-2, 1e-1, 2e-2, 1e-2),
    "float64": Bounds(1e-13, 1e-12, 1e-12, 1e-9, 1e-12, 1e-9),  # docs/ranks.md, "Rounding"
}


def finish(words, done):
    if done.returncode:
        check.fail(
            "%s: exit %d\n%s"
            % (" ".join(words), done.returncode, (done.stdout + done.stderr)[-1500:])
        )
    return done.stdout


def run(words):
    return finish(words, subprocess.run(words, capture_output=True, text=True, timeout=300))


def free_port():
    with socket.socket() as at:
        at.bind(("127.0.0.1", 0))
        return str(at.getsockname()[1])


def by_variables(n, words, **more):
    """Ranks started with torchrun's variables; every rank's (status, output)."""
    base = dict(
        os.environ,
        WORLD_SIZE=str(n),
        LOCAL_WORLD_SIZE=str(n),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=free_port(),
        **more
    )
    ranks = [
        subprocess.Popen(
            words,
            env=dict(base, RANK=str(r), LOCAL_RANK=str(r)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for r in range(n)
    ]
    return [
        (p.wait(timeout=300), out) for p, out in ((p, p.communicate(timeout=300)[0]) for p in ranks)
    ]


def launch(n, transport, words):
    if n == 1:
        return run(words)
    if transport == "mpi":
        return run([*MPIRUN, str(n), *words])
    ended = by_variables(n, words)
    if any(status for status, _ in ended):
        check.fail("%s: %s" % (" ".join(words), ended))
    return ended[0][1]


class Fixture:
    def __init__(self, stepc, folder, seq, work, rows=ROWS):
        os.makedirs(work, exist_ok=True)
        self.stepc, self.folder, self.seq, self.work = stepc, folder, seq, work
        self.rows = rows
        self.batch = work + "/batch.safetensors"
        config = json.load(open(folder + "/config.json"))
        config = config.get("text_config", config)
        make.batch(self.batch, rows, int(seq), config["vocab_size"], 7)
        self.at = self.runs = 0

    def sets(self, local, distributed, recompute, dtype="float32"):
        recompute = "pointwise=true" if recompute == "pointwise" else "policy=" + recompute
        return [
            "model.torch_dtype=" + dtype,
            "model.pretrained_model_name_or_path=" + self.folder,
            "dataset.seq_length=" + self.seq,
            "step_scheduler.global_batch_size=%d" % self.rows,
            "step_scheduler.local_batch_size=%d" % local,
            "stepc.recompute." + recompute,
            *("distributed.%s=%s" % kv for kv in distributed.items()),
        ]

    def build(self, ranks, local, distributed, recompute, dtype="float32"):
        return self.build_with(ranks, self.sets(local, distributed, recompute, dtype))

    def build_with(self, ranks, sets):
        self.at += 1
        exe = "%s/%d.step" % (self.work, self.at)
        run(
            [
                self.stepc,
                "build",
                RECIPE,
                *(w for s in sets for w in ("--set", s)),
                "--world",
                str(ranks),
                "-o",
                exe,
            ]
        )
        return exe

    def train(self, exe, ranks, transport, *options):
        self.runs += 1
        name = "%s/%s.%d" % (self.work, os.path.basename(exe), self.runs)
        shutil.rmtree(name + ".save", ignore_errors=True)
        if os.path.exists(name + ".jsonl"):
            os.remove(name + ".jsonl")
        words = [
            exe,
            "--weights",
            self.folder,
            "--batch",
            self.batch,
            "--log",
            name + ".jsonl",
            "--dump-grads",
            name + ".grads",
            "--save",
            name + ".save",
            *options,
        ]
        out = launch(ranks, transport, words)
        return name, out


def logs_near(name, got_path, want_path, bounds=BOUNDS["float32"]):
    got, want = check.read_log(got_path), check.read_log(want_path)
    if len(got) != len(want):
        check.fail("%s: %d steps, not %d" % (name, len(got), len(want)))
    for i, (g, w) in enumerate(zip(got, want)):
        loss, norm = (bounds.loss, bounds.norm) if i else (bounds.first_loss, bounds.first_norm)
        check.near("%s: loss of step %d" % (name, i + 1), g["loss"], w["loss"], loss)
        check.near("%s: norm of step %d" % (name, i + 1), g["grad_norm"], w["grad_norm"], norm)
        if g["num_label_tokens"] != w["num_label_tokens"]:
            check.fail(
                "%s: %d targets, not %d" % (name, g["num_label_tokens"], w["num_label_tokens"])
            )


def parse(mesh):
    ranks, _, text = mesh.partition(":")
    return int(ranks), dict(kv.split("=") for kv in text.split(",") if kv)


def log_of(steps, path):
    with open(path, "w") as out:
        out.writelines(json.dumps(s) + "\n" for s in steps)
    return path


def resume(stepc, folder, seq, work, *meshes):
    os.makedirs(work, exist_ok=True)
    f = Fixture(stepc, folder, seq, work)
    alone, _ = f.train(f.build(1, 4, {}, "none"), 1, "mpi")
    steps, saved = [], None
    for i, mesh in enumerate(meshes):
        ranks, keys = parse(mesh)
        local, recompute = int(keys.pop("local", 4)), keys.pop("recompute", "none")
        exe = f.build(ranks, local, keys, recompute)
        start = ["--resume", saved] if saved else ["--weights", f.folder]
        name = "%s/chain%d" % (work, i)
        words = [
            exe,
            *start,
            "--batch",
            f.batch,
            "--log",
            name + ".jsonl",
            "--steps",
            "2",
            "--save",
            name,
        ]
        shutil.rmtree(name, ignore_errors=True)
        if os.path.exists(name + ".jsonl"):
            os.remove(name + ".jsonl")
        launch(ranks, "mpi", words)
        steps += check.read_log(name + ".jsonl")
        saved = name
        if i == 0:
            rest = f.work + "/rest.jsonl"
            if os.path.exists(rest):
                os.remove(rest)
            launch(
                ranks,
                "mpi",
                [exe, "--resume", saved, "--batch", f.batch, "--log", rest, "--steps", "6"],
            )
            whole, _ = f.train(exe, ranks, "mpi")
            check.same(
                [whole + ".jsonl", log_of(steps + check.read_log(rest), work + "/joined.jsonl")]
            )
    want = check.read_log(alone + ".jsonl")[: len(steps)]
    logs_near(
        "resumed on " + ", ".join(meshes),
        log_of(steps, work + "/chain.jsonl"),
        log_of(want, work + "/want.jsonl"),
    )
    print("ok resumed on " + ", ".join(meshes))


Run = collections.namedtuple("Run", "recompute transport options")


def runs_of(keys):
    """The runs that a mesh asks for; takes their keys out."""
    recompute, transport = keys.pop("recompute", "none"), keys.pop("transport", "mpi")
    runs = [Run(recompute, transport, ())]
    if keys.pop("twice", ""):
        runs.append(Run(recompute, "tcp" if transport == "mpi" else "mpi", ()))
    if keys.pop("check", ""):
        runs.append(Run(recompute, transport, ("--check",)))
    if recompute != "none":
        runs.append(Run("none", "tcp", ()))  # starts sooner
    return runs


def same_bits(name, other):
    check.same([name + ".jsonl", other + ".jsonl", "--", name + ".grads", other + ".grads"])
    weights = [path + ".save/model.safetensors" for path in (name, other)]
    check.same([name + ".jsonl", "--", *weights])


def one_mesh(f, mesh, ranks, keys, runs, alone):
    """The first run against one rank, the others against the first."""
    local, dtype = int(keys.pop("local", 4)), keys.pop("dtype", "float32")
    bounds, built, first = BOUNDS[dtype], {}, None
    for recompute, transport, options in dict.fromkeys(runs):
        if recompute not in built:
            built[recompute] = f.build(ranks, local, keys, recompute, dtype)
        name, _ = f.train(built[recompute], ranks, transport, *options)
        if first:
            same_bits(first, name)
            continue
        first = name
        logs_near(mesh, name + ".jsonl", alone + ".jsonl", bounds)
        check.compare(mesh + ": gradient of", name + ".grads", alone + ".grads", bounds.grads)
        weights = [path + ".save/model.safetensors" for path in (name, alone)]
        check.compare(mesh + ": saved", *weights, bounds.saved)


def main(stepc, folder, seq, work, *meshes):
    """A mesh that fails is said and left, to be looked at."""
    groups, alone, failed = {}, {}, 0
    for mesh in meshes:
        ranks, keys = parse(mesh)
        runs = runs_of(keys)
        groups.setdefault((ranks, tuple(keys.items())), []).append((mesh, runs))
    for at, ((ranks, keys), members) in enumerate(groups.items()):
        keys, names = dict(keys), ", ".join(mesh for mesh, _ in members)
        rows, dtype = int(keys.pop("rows", ROWS)), keys.get("dtype", "float32")
        if (rows, dtype) not in alone:
            f = Fixture(stepc, folder, seq, "%s/%s-%d" % (work, dtype, rows), rows)
            alone[rows, dtype], _ = f.train(f.build(1, 4, {}, "none", dtype), 1, "mpi")
        f = Fixture(stepc, folder, seq, "%s/mesh%d" % (work, at), rows)
        try:
            all_runs = [r for _, runs in members for r in runs]
            one_mesh(f, names, ranks, keys, all_runs, alone[rows, dtype])
        except SystemExit:
            failed += 1
            continue
        shutil.rmtree(f.work)
        print("ok " + names, flush=True)
    if failed:
        check.fail("%d of %d meshes" % (failed, len(groups)))
    shutil.rmtree(work)


if __name__ == "__main__":
    if sys.argv[1] == "resume":
        resume(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
