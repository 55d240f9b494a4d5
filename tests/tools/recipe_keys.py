#!/usr/bin/env python3
"""recipe_keys: every key of a recipe has an effect or is listed as not used.

recipe_keys.py STEPC RECIPE.yaml MODEL_DIR TMP_DIR [KEY...]

Each used key of `stepc explain recipe` is planned with two of its values where it should matter.
What they plan must differ: the step's IR, the report, or the settings in the executable; else the
report must list the key. What a report only repeats of the recipe is no evidence.
"""

import json
import os
import re
import shutil
import subprocess
import sys

STEPC, RECIPE, MODEL, TMP = sys.argv[1:5]
ABSENT = ""  # nothing behind the `=`
FOLDER = os.path.join(TMP, "model")
TP = ["distributed.tp_size=2", "stepc.world_size=2"]
PP = ["distributed.pp_size=2", "stepc.world_size=2"]
DP2 = ["stepc.world_size=2", "step_scheduler.local_batch_size=1"]
DP4 = ["stepc.world_size=4", "step_scheduler.local_batch_size=1"]
SGD = ["optimizer._target_=torch.optim.SGD"]
WSD = ["lr_scheduler.lr_decay_style=WSD", "lr_scheduler.lr_decay_steps=9"]
CHECKPOINTED = ["stepc.recompute.policy=", "distributed.activation_checkpointing=true"]
PARAM_BF16 = ["model.torch_dtype=bf16", "stepc.precision.compute=bf16"]

# key: two values, and what else the recipe says
CASES = {
    "step_scheduler.global_batch_size": (4, 8),
    "step_scheduler.local_batch_size": (1, 2),
    "step_scheduler.max_steps": (3, 4),
    "step_scheduler.num_epochs": (1, 2, "step_scheduler.max_steps="),
    "step_scheduler.ckpt_every_steps": (1, 2),
    "step_scheduler.val_every_steps": (1, 2),
    "seed": (1, 2, "rng.seed="),
    "rng.seed": (1, 2),
    "model.pretrained_model_name_or_path": (MODEL, FOLDER),
    "model._target_": ("a.from_pretrained", "a.from_config",
                       "model.pretrained_model_name_or_path=" + FOLDER),
    "model.torch_dtype": ("f32", "bf16"),
    "model.text_config": ("{num_hidden_layers: 4}", "{num_hidden_layers: 2}"),
    "distributed.dp_size": (1, 2, "stepc.world_size="),
    "distributed.tp_size": (1, 2, "stepc.world_size=2"),
    "distributed.pp_size": (1, 2, "stepc.world_size=2"),
    "distributed.dp_replicate_size": (1, 2, *DP4),
    "distributed.activation_checkpointing": ("false", "true", "stepc.recompute.policy="),
    "distributed.activation_checkpointing_scope": ("language", "[language, vision]", *CHECKPOINTED),
    "distributed.pipeline.pp_schedule": ("gpipe", "1f1b", *PP),
    "distributed.pipeline.pp_microbatch_size": (1, 2, *PP),
    "distributed.strategy": ("ddp", "fsdp2", *DP2),
    "distributed.sequence_parallel": ("false", "true", *TP),
    "distributed.defer_fsdp_grad_sync": ("false", "true", *DP2),
    "dist_env.timeout_minutes": (1, 2, *DP2),
    "loss_fn.ignore_index": (-1, -2),
    "clip_grad_norm.max_norm": (1, 2),
    "freeze_config.freeze_embeddings": ("false", "true"),
    "dataset.seq_length": (16, 32),
    "dataset.max_length": (16, 32, "dataset.seq_length="),
    "dataset.seed": (1, 2),
    "dataset.path": ("a.bin", "b.bin"),
    "dataset.path_or_dataset": ("a", "b"),
    "validation_dataset.path": ("a.bin", "b.bin"),
    "optimizer._target_": ("torch.optim.AdamW", "torch.optim.SGD"),
    "optimizer.lr": (1e-3, 2e-3),
    "optimizer.betas": ("[0.9, 0.99]", "[0.8, 0.99]"),
    "optimizer.eps": (1e-8, 1e-7),
    "optimizer.weight_decay": (0.1, 0.2),
    "optimizer.momentum": (0.5, 0.6, *SGD),
    "optimizer.nesterov": ("false", "true", *SGD, "optimizer.momentum=0.5"),
    "optimizer.param_groups": ("[{match: '*norm*', weight_decay: 0}]",
                               "[{match: '*norm*', weight_decay: 1}]"),
    "lr_scheduler.lr_decay_style": ("cosine", "linear"),
    "lr_scheduler.lr_warmup_steps": (1, 2),
    "lr_scheduler.lr_decay_steps": (8, 9),
    "lr_scheduler.wsd_decay_steps": (1, 2, *WSD),
    "lr_scheduler.lr_wsd_decay_style": ("linear", "cosine", *WSD, "lr_scheduler.wsd_decay_steps=1"),
    "lr_scheduler.init_lr": (0, 1e-4),
    "lr_scheduler.max_lr": (1e-3, 2e-3, "optimizer.lr="),
    "lr_scheduler.min_lr": (0, 1e-4),
    "checkpoint.enabled": ("false", "true"),
    "checkpoint.checkpoint_dir": ("a", "b", "checkpoint.enabled=true"),
    "stepc.target": ("cpu", "cuda"),
    "stepc.recompute.policy": ("none", "block"),
    "stepc.recompute.parts": ("mlp", "attention", "stepc.recompute.policy=submodule"),
    "stepc.recompute.keep_last": (0, 1, "stepc.recompute.policy=block"),
    "stepc.recompute.pointwise": ("false", "true"),
    "stepc.definition": (os.path.join(TMP, "a.model"), os.path.join(TMP, "b.model")),
    "stepc.precision.param": ("f32", "bf16", "model.torch_dtype="),
    "stepc.precision.compute": ("f32", "bf16"),
    "stepc.precision.grad": ("f32", "bf16", *PARAM_BF16),
    "stepc.precision.accumulate": ("f32", "bf16", *PARAM_BF16),
    "stepc.precision.reduce": ("f32", "f64", *DP2),
    "stepc.precision.moments": ("f32", "bf16", *PARAM_BF16),
    "stepc.precision.master": ("none", "f32", *PARAM_BF16),
    "stepc.pipeline.cuts": ("[1]", "[3]", *PP),
    "stepc.pipeline.chunks": (1, 2, *PP, "distributed.pipeline.pp_schedule=interleaved_1f1b"),
    "stepc.world_size": (1, 2),
    "stepc.keep": ("'*o_proj*'", "'*'"),
    "stepc.freeze": ("'*norm*'", "'*mlp*'"),
    "stepc.inputs": ("segments", "keep"),
}

# the first value is well, the second ends the command with this code
CHECKS = {
    "freeze_config.freeze_language_model": ("false", "true", 1),  # nothing to train is left
    "stepc.memory": ("1GiB", "1KiB", 2),
    "stepc.require": ("'world == 1'", "'world == 2'", 2),
}

# the settings and the IR say nothing of these: the executables' own bytes do
CODE = {"stepc.cpu": ("x86-64-v3", "x86-64-v4")}

EXEMPT = {
    "distributed.cp_size": "only 1 is legal; more is an error",
    "distributed.ep_size": "only 1 is legal; more is an error",
    "loss_fn._target_": "all legal names are one loss",
    "peft": "not supported: an error",
    "stepc.recompute.budget": "not supported: an error",
}


def run(command, key, value, rest):
    sets = ["model.pretrained_model_name_or_path=" + MODEL, "stepc.world_size=1"]
    sets += ["step_scheduler.global_batch_size=4", *rest, "%s=%s" % (key, value)]
    line = [STEPC, command[0], RECIPE, *command[1:]]
    for text in sets:
        line += ["--set", text]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def must(command, key, value, rest):
    code, out, err = run(command, key, value, rest)
    if code:
        sys.exit("FAIL %s=%s: exit code %d: %s" % (key, value, code, err))
    return out


def report_of(key, value, rest):
    """The plan's report without what it repeats of the recipe, and its records."""
    report = json.loads(must(["plan", "--json"], key, value, rest))
    for repeated in ("recipe", "pretrained", "target", "mesh", "batch", "precision"):
        del report[repeated]
    del report["recompute"]["policy"]
    return report, [record["message"] for record in report.pop("records")]


def executable(key, value, rest):
    path = os.path.join(TMP, "key.step")
    must(["build", "-o", path], key, value, rest)
    return path


def settings(key, value, rest):
    text = subprocess.run([executable(key, value, rest), "--describe"], capture_output=True,
                          text=True, check=True).stdout
    return re.search(r"^settings \| (.*)$", text, re.M).group(1)


def bytes_of(key, value, rest):
    with open(executable(key, value, rest), "rb") as file:
        return file.read()


def has_effect(key, a, b, *rest):
    (plan_a, records_a), (plan_b, records_b) = report_of(key, a, rest), report_of(key, b, rest)
    if plan_a != plan_b or any(key in message for message in records_b):
        return True
    if must(["plan", "--emit", "ir"], key, a, rest) != must(["plan", "--emit", "ir"], key, b, rest):
        return True
    return settings(key, a, rest) != settings(key, b, rest)


def checks(key, holds, fails, code):
    must(["plan"], key, holds, [])
    return run(["plan"], key, fails, [])[0] == code


def changes_code(key, a, b):
    return bytes_of(key, a, []) == bytes_of(key, a, []) != bytes_of(key, b, [])


def failures(used):
    for key in used:
        if key in EXEMPT:
            continue
        if key in CHECKS:
            ok = checks(key, *CHECKS[key])
        elif key in CODE:
            ok = changes_code(key, *CODE[key])
        elif key in CASES:
            ok = has_effect(key, *CASES[key])
        else:
            ok = False
        if not ok:
            yield key


def not_listed(unused):
    """Keys of the second table that no record names when all of them are given."""
    sets = [key.replace(".*", ".x") + "=1" for key in unused]
    command = ["plan", "--json"] + [word for text in sets for word in ("--set", text)]
    report = json.loads(must(command, "seed", ABSENT, []))
    listed = " ".join(r["message"] for r in report["records"] if r["code"] == "recipe_unused")
    names = set(re.findall(r"[\w.]+", listed))
    return [key for key in unused if key.replace(".*", "") not in names]


def prepare():
    os.makedirs(FOLDER, exist_ok=True)
    shutil.copy(os.path.join(MODEL, "config.json"), FOLDER)
    open(os.path.join(FOLDER, "model.safetensors"), "w").close()
    models = os.path.join(os.path.dirname(__file__), "..", "..", "models")
    with open(os.path.join(models, "llama", "llama.model")) as file:
        text = file.read().replace("../common", os.path.abspath(os.path.join(models, "common")))
    for name, line in (("a", ""), ("b", "\n")):
        with open(os.path.join(TMP, name + ".model"), "w") as file:
            file.write(line + text)


def main():
    prepare()
    page = subprocess.run([STEPC, "explain", "recipe"], capture_output=True, text=True, check=True)
    used, unused = (re.findall(r"^\| `(.*?)`", part, re.M)
                    for part in page.stdout.split("accepted and not used"))
    stale = (set(CASES) | set(CHECKS) | set(CODE) | set(EXEMPT)) - set(used)
    bad = list(failures(sys.argv[5:] or used)) + sorted(stale)
    bad += not_listed(unused) if len(sys.argv) == 5 else []
    for key in bad:
        print("FAIL %s: no effect, and no record names it (or the test has no case for it)" % key)
    print("%d keys, %d not used" % (len(used), len(unused)))
    sys.exit(1 if bad else 0)


main()
