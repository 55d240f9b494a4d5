#!/usr/bin/env python3
"""ranks: one fixture on meshes of ranks against one rank, f32, 16 rows of seeded tokens, 8 steps:
losses within 1e-5 on step 1 and 1e-4 on all, norms 1e-4 and 1e-3, gradients within 1e-4 relative
L2, saved weights of the same names. Per mesh: two runs, recompute off and on, and a checkpoint's
way through another mesh are checked where they are asked for.

  ranks.py STEPC FIXTURE SEQ WORK_DIR MESH...
  ranks.py resume STEPC FIXTURE SEQ WORK_DIR MESH...
      two steps on each mesh, each from the checkpoint of the one before, against one rank; and the
      first mesh's own eight steps, interrupted or not: same bits

MESH is RANKS:KEY=VALUE,..., keys of `distributed` without the section, and of: local=N rows per
micro-batch, recompute=POLICY or pointwise, transport=tcp|mpi, twice=1, check=1.
"""

import json
import os
import random
import shutil
import socket
import subprocess
import sys

import check
import make

ROWS = 16
TOOLS = os.path.dirname(os.path.abspath(__file__))
RECIPE = os.path.join(TOOLS, "..", "parity", "Inputs", "fixture.yaml")
MPIRUN = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n"]


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
    def __init__(self, stepc, folder, seq, work):
        os.makedirs(work, exist_ok=True)
        self.stepc, self.folder, self.seq, self.work = stepc, folder, seq, work
        self.batch = work + "/batch.safetensors"
        config = json.load(open(folder + "/config.json"))
        config = config.get("text_config", config)
        make.batch(self.batch, ROWS, int(seq), config["vocab_size"], 7)
        self.at = 0

    def sets(self, local, distributed, recompute):
        recompute = "pointwise=true" if recompute == "pointwise" else "policy=" + recompute
        return [
            "model.pretrained_model_name_or_path=" + self.folder,
            "dataset.seq_length=" + self.seq,
            "step_scheduler.global_batch_size=%d" % ROWS,
            "step_scheduler.local_batch_size=%d" % local,
            "stepc.recompute." + recompute,
            *("distributed.%s=%s" % kv for kv in distributed.items()),
        ]

    def build(self, ranks, local, distributed, recompute):
        return self.build_with(ranks, self.sets(local, distributed, recompute))

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
        name = "%s/%s.%d" % (self.work, os.path.basename(exe), random.randrange(1 << 30))
        shutil.rmtree(name + ".save", ignore_errors=True)
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


def logs_near(name, got_path, want_path):
    got, want = check.read_log(got_path), check.read_log(want_path)
    if len(got) != len(want):
        check.fail("%s: %d steps, not %d" % (name, len(got), len(want)))
    for i, (g, w) in enumerate(zip(got, want)):
        check.near("%s: loss of step %d" % (name, i + 1), g["loss"], w["loss"], 1e-4 if i else 1e-5)
        check.near(
            "%s: norm of step %d" % (name, i + 1),
            g["grad_norm"],
            w["grad_norm"],
            1e-3 if i else 1e-4,
        )
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


def main(stepc, folder, seq, work, *meshes):
    os.makedirs(work, exist_ok=True)
    f = Fixture(stepc, folder, seq, work)
    alone, _ = f.train(f.build(1, 4, {}, "none"), 1, "mpi")
    for mesh in meshes:
        ranks, keys = parse(mesh)
        local, recompute = int(keys.pop("local", 4)), keys.pop("recompute", "none")
        transport, twice, checked = (
            keys.pop("transport", "mpi"),
            keys.pop("twice", ""),
            keys.pop("check", ""),
        )
        exe = f.build(ranks, local, keys, recompute)
        name, out = f.train(exe, ranks, transport)
        logs_near(mesh, name + ".jsonl", alone + ".jsonl")
        check.compare(mesh + ": gradient of", name + ".grads", alone + ".grads", 1e-4)
        check.compare(
            mesh + ": saved",
            name + ".save/model.safetensors",
            alone + ".save/model.safetensors",
            1e-3,
        )
        if twice:
            again, _ = f.train(exe, ranks, "tcp" if transport == "mpi" else "mpi")
            check.same([name + ".jsonl", again + ".jsonl", "--", name + ".grads", again + ".grads"])
        if checked:
            again, _ = f.train(exe, ranks, transport, "--check")
            check.same([name + ".jsonl", again + ".jsonl", "--", name + ".grads", again + ".grads"])
        if recompute != "none":
            off, _ = f.train(f.build(ranks, local, keys, "none"), ranks, transport)
            check.same([name + ".jsonl", off + ".jsonl", "--", name + ".grads", off + ".grads"])
        print("ok " + mesh)
    shutil.rmtree(work)  # a failed run leaves it, to be looked at


if __name__ == "__main__":
    if sys.argv[1] == "resume":
        resume(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
