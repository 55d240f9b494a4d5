#!/usr/bin/env python3
"""finite_differences: holds each op's gradient against central differences in f64, through the real
executable.

  finite_differences.py STEPC OPS_DEF MODELS_DIR WORK_DIR

Every differentiable op of the table needs MODELS_DIR/OP.model: a model whose loss is a scalar of
the op's result. For each:
  - gradients of every weight along random directions against (L(w + h v) - L(w - h v)) / 2h;
  - fused against alone, recompute of every block against none: losses and gradients bit-identical;
  - the dump after memplan, read back by `stepc opt`, is printed the same.
"""

import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys

import check
import make

H = 3e-6
BOUND = 2e-7
SEQ = 4

RECIPE = """
step_scheduler: {global_batch_size: 1, local_batch_size: 1, max_steps: 1}
model: {pretrained_model_name_or_path: %s, torch_dtype: float64}
dataset: {seq_length: %d}
optimizer: {_target_: torch.optim.AdamW, lr: 0.0, weight_decay: 0.0}
clip_grad_norm: {max_norm: 0}
stepc: {target: cpu, definition: %s}
"""


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        check.fail("%s\n%s%s" % (" ".join(command), done.stdout[-800:], done.stderr[-800:]))
    return done.stdout


def differentiable_ops(path):
    """Of one rank; messages between stages and their gradients: tests/ranks/pipeline_*."""
    rows = re.findall(r"^OP\((\w+),(.*?)(?=^OP\(|\Z)", open(path).read(), re.S | re.M)
    return [name for name, row in rows if "GRAD(none)" not in row and "IR_COLLECTIVE" not in row]


class Sample:
    def __init__(self, stepc, model, work):
        self.stepc, self.work = stepc, work
        os.makedirs(work, exist_ok=True)
        with open(work + "/config.json", "w") as file:
            json.dump({"model_type": "op"}, file)
        with open(work + "/recipe.yaml", "w") as file:
            file.write(RECIPE % (work, SEQ, model))
        self.batch = work + "/batch"
        make.batch(self.batch, 1, SEQ, 16, 5, "valid=3")

    def build(self, name, *options):
        path = "%s/%s.step" % (self.work, name)
        self.printed = run(self.stepc, "build", self.work + "/recipe.yaml", "-o", path, *options)
        return path

    def step(self, path, *options):
        log = self.work + "/log"
        if os.path.exists(log):
            os.remove(log)
        run(path, "--batch", self.batch, "--log", log, *options)
        return check.read_log(log)[0]["loss"]

    def write(self, folder, tensors):
        os.makedirs(folder, exist_ok=True)
        make.write(
            folder + "/model.safetensors",
            {
                n: ("F64", shape, struct.pack("<%dd" % len(v), *v))
                for n, (shape, v) in tensors.items()
            },
        )


def differences(sample, path, draw):
    sample.step(path, "--save", sample.work + "/w", "--dump-grads", sample.work + "/grads")
    weights = check.read(sample.work + "/w/model.safetensors")
    grads = check.read(sample.work + "/grads")
    scale = max(abs(x) for _, g in grads.values() for x in g)
    worst = 0.0
    for name, (shape, g) in grads.items():
        for _ in range(2):
            v = [draw.choice((-1.0, 1.0)) * draw.uniform(0.5, 1.0) for _ in g]
            losses = []
            for sign in (H, -H):
                moved = dict(weights)
                moved[name] = (shape, [w + sign * d for w, d in zip(weights[name][1], v)])
                sample.write(sample.work + "/moved", moved)
                losses.append(sample.step(path, "--weights", sample.work + "/moved"))
            numeric = (losses[0] - losses[1]) / (2 * H)
            analytic = sum(a * b for a, b in zip(g, v))
            error = abs(numeric - analytic) / max(abs(numeric), abs(analytic), scale * 1e-2)
            worst = max(worst, error)
            if not error <= BOUND:
                check.fail(
                    "d loss / d %s: %.12g by differences, %.12g by autodiff"
                    % (name, numeric, analytic)
                )
    return worst, len(grads)


def identical(sample, paths):
    seen = []
    for path in paths:
        loss = sample.step(path, "--dump-grads", sample.work + "/g")
        seen.append((loss, open(sample.work + "/g", "rb").read()))
    if any(s != seen[0] for s in seen):
        check.fail("fused, alone and recomputed runs differ: losses %s" % [s[0] for s in seen])


def round_trip(sample, text):
    dump = sample.work + "/plan.sir"
    with open(dump, "w") as file:
        file.write(text)
    again = run(sample.stepc, "opt", "--passes=", dump)
    body = text[text.index("\n") + 1 :]  # without the line that names the pass
    if again != body:
        check.fail("the dump after memplan is not read back as it was printed")


def main(stepc, table, models, work):
    models = os.path.abspath(models)
    names = sorted(f[: -len(".model")] for f in os.listdir(models) if f.endswith(".model"))
    missing = [op for op in differentiable_ops(table) if op not in names and op != "cast"]
    if missing:
        check.fail("no sample for %s: add %s/OP.model" % (", ".join(missing), models))
    for name in names:
        draw = random.Random(name)
        sample = Sample(
            stepc, "%s/%s.model" % (models, name), "%s/%s" % (os.path.abspath(work), name)
        )
        fused = sample.build("fused", "--dump-after=memplan")
        dump = sample.printed
        paths = [fused, sample.build("alone", "--disable=fuse")]
        if ' at "' in open("%s/%s.model" % (models, name)).read():  # it has blocks
            paths.append(sample.build("replayed", "--set", "stepc.recompute.policy=block"))
        error, n = differences(sample, fused, draw)
        identical(sample, paths)
        round_trip(sample, dump)
        print("ok %-12s %d weights, worst error %.1e" % (name, n, error))
        shutil.rmtree(sample.work)  # a failed run leaves it, to be looked at


if __name__ == "__main__":
    main(*sys.argv[1:5])
