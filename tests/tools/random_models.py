#!/usr/bin/env python3
"""random_models: random small models under a random recompute policy, fused or not, against
recompute off: bit-identical.

  random_models.py STEPC WORK_DIR COUNT [FIRST_SEED]

Sizes are odd on purpose; layers share K/V, tables are tied, batches are cut into 1 to 4
micro-batches.
"""

import concurrent.futures
import json
import os
import random
import shutil
import subprocess
import sys

import check

ROLES = {
    "gemma4_text": ["pre_norm", "attention", "post_norm", "mlp", "ple"],
    "llama": ["pre_norm", "attention", "mlp"],
    "gpt2": ["pre_norm", "attention", "mlp"],
}


def rope(theta, **more):
    return dict({"rope_type": "default", "rope_theta": theta}, **more)


def config(draw):
    layers, heads = draw.randint(2, 6), draw.choice([1, 2, 4, 6])
    kv = draw.choice([k for k in (1, 2, 3, 6) if heads % k == 0])
    head, hidden = draw.choice([4, 6, 10, 16]), draw.randint(9, 40)
    vocab, ffn = draw.randint(40, 150), draw.randint(7, 60)
    common = {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": head,
        "intermediate_size": ffn,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": draw.random() < 0.5,
    }
    kind = draw.choice(["gemma4_text", "gemma4_text", "llama", "gpt2"])
    if kind == "gpt2":
        return {
            "model_type": kind,
            "vocab_size": vocab,
            "n_embd": heads * head,
            "n_head": heads,
            "n_layer": layers,
            "n_positions": 64,
            "n_inner": ffn,
            "attn_pdrop": draw.choice([0.0, 0.1]),
            "embd_pdrop": draw.choice([0.0, 0.1]),
            "resid_pdrop": draw.choice([0.0, 0.1]),
        }
    if kind == "llama":
        return dict(common, model_type=draw.choice(["llama", "qwen2"]), rope_theta=10000.0)
    types = [draw.choice(["sliding_attention", "full_attention"]) for _ in range(layers)]
    types[-1] = "full_attention"
    shared = 0
    for n in range(1, layers):  # a sharing layer needs an owner of its kind before it
        if all(t in types[: layers - n] for t in types[layers - n :]) and draw.random() < 0.7:
            shared = n
    return dict(
        common,
        model_type=kind,
        layer_types=types,
        num_kv_shared_layers=shared,
        sliding_window=draw.randint(1, 9),
        global_head_dim=draw.choice([head, 2 * head]),
        hidden_size_per_layer_input=draw.choice([0, 3, 8]),
        vocab_size_per_layer_input=vocab,
        use_double_wide_mlp=draw.random() < 0.5,
        final_logit_softcapping=draw.choice([None, 5.0]),
        hidden_activation="gelu_pytorch_tanh",
        pad_token_id=0,
        rope_parameters={
            "sliding_attention": rope(1e4),
            "full_attention": rope(1e6, rope_type="proportional", partial_rotary_factor=0.25),
        },
    )


def variant(draw, model):
    policy = draw.choice(["none", "block", "submodule", "submodule", "selective"])
    sets = ["stepc.recompute.policy=" + policy]
    if policy == "none" or draw.random() < 0.4:
        sets.append("stepc.recompute.pointwise=true")
    if policy == "submodule":
        kind = {"qwen2": "llama"}.get(model["model_type"], model["model_type"])
        roles = [r for r in ROLES[kind] if r != "ple" or model["hidden_size_per_layer_input"]]
        if draw.random() < 0.7:
            sets.append(
                "stepc.recompute.parts=[%s]"
                % ", ".join(draw.sample(roles, draw.randint(1, len(roles))))
            )
    elif policy == "block" and draw.random() < 0.4:
        sets.append("stepc.recompute.keep_last=%d" % draw.randint(0, 2))
    return sets + (["--disable=fuse"] if draw.random() < 0.4 else [])


def command(stepc, folder, out, sets):
    words = [stepc, "build", folder + "/recipe.yaml", "-o", out]
    for s in sets:
        words += [s] if s.startswith("--") else ["--set", s]
    return words


def one(stepc, work, seed):
    draw = random.Random(seed)
    folder = "%s/%d" % (work, seed)
    os.makedirs(folder, exist_ok=True)
    model = config(draw)
    micro, rows = draw.randint(1, 4), draw.randint(1, 2)
    json.dump(model, open(folder + "/config.json", "w"))
    with open(folder + "/recipe.yaml", "w") as file:
        file.write(
            "step_scheduler: {global_batch_size: %d, local_batch_size: %d, max_steps: 3}\n"
            % (micro * rows, rows)
        )
        file.write(
            "model: {pretrained_model_name_or_path: %s, torch_dtype: %s}\n"
            % (folder, draw.choice(["float32", "float32", "bfloat16"]))
        )
        file.write(
            "dataset: {seq_length: %d}\noptimizer: {lr: 1e-2}\nstepc: {target: cpu}\n"
            % draw.randint(2, 33)
        )
        file.write(
            "freeze_config: {freeze_embeddings: %s}\n" % draw.choice(["true", "false", "false"])
        )
    results = []
    for name, sets in (("none", []), ("some", variant(draw, model))):
        path = "%s/%s" % (folder, name)
        for words in (
            command(stepc, folder, path + ".step", sets),
            [
                path + ".step",
                "--log",
                path + ".log",
                "--dump-grads",
                path + ".grads",
                "--threads",
                "1",
            ],
        ):
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode:
                return "seed %d: %s\n%s" % (seed, " ".join(words), done.stderr[-600:])
        os.remove(path + ".step")
        losses = [(s["loss"], s["grad_norm"]) for s in check.read_log(path + ".log")]
        results.append((losses, open(path + ".grads", "rb").read()))
    if results[0] != results[1]:
        return "seed %d differs from recompute off: %s against %s (%s)" % (
            seed,
            results[1][0],
            results[0][0],
            folder,
        )
    shutil.rmtree(folder)
    return None


def main(stepc, work, count, first="0"):
    seeds = range(int(first), int(first) + int(count))
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        faults = [f for f in pool.map(lambda s: one(stepc, os.path.abspath(work), s), seeds) if f]
    for fault in faults[:5]:
        print(fault)
    if faults:
        check.fail("%d of %d random models" % (len(faults), len(seeds)))
    print("ok %d random models" % len(seeds))


if __name__ == "__main__":
    main(*sys.argv[1:])
