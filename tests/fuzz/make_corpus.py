"""Writes the seeds of the fuzz targets, one folder each, from the repository's own files and from
what stepc makes of them.

usage: make_corpus.py STEPC OUT
"""

import glob
import json
import os
import re
import shutil
import struct
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
STEPC, OUT = sys.argv[1], sys.argv[2]


def read(path):
    with open(os.path.join(ROOT, path), "rb") as f:
        return f.read()


def put(target, name, data):
    os.makedirs(os.path.join(OUT, target), exist_ok=True)
    with open(os.path.join(OUT, target, name.replace("/", "_")), "wb") as f:
        f.write(data)


def files(*patterns):
    found = []
    for pattern in patterns:
        found += glob.glob(os.path.join(ROOT, pattern), recursive=True)
    return sorted(os.path.relpath(path, ROOT) for path in found)


def definition(path):
    """A definition with its includes in their places."""
    lines = []
    for line in read(path).splitlines(keepends=True):
        if line.startswith(b"include "):
            line = definition(os.path.join(os.path.dirname(path), line.split(b'"')[1].decode()))
        lines.append(line)
    return b"".join(lines)


FIXTURES = {
    "gpt2": "gpt2",
    "llama3": "llama",
    "qwen2": "llama",
    "gemma4_e2b": "gemma4",
    "gemma4_31b": "gemma4",
}


def config(name):
    return f"tests/fixtures/{name}/config.json"


def models():
    for name, family in FIXTURES.items():
        text = definition(f"models/{family}/{family}.model")
        put("model", name, text + b"\0" + read(config(name)))
    for path in files("tests/ops/*.model", "tests/cases/Inputs/*.model"):
        text = definition(path)
        kind = re.search(rb'for "([^"]+)"', text).group(1).decode()
        keys = json.dumps({"model_type": kind}).encode()
        if kind == "llama":
            keys = read("tests/cases/Inputs/one/config.json")
        put("model", path, text + b"\0" + keys)


def configs():
    for path in files("models/gemma4/**/*.json", "tests/fixtures/gemma4*/config.json"):
        put("config", path, read(path))


def recipes():
    for path in files("models/**/*.yaml", "tests/**/*.yaml"):
        put("recipe", path, read(path))


def tensors():
    for path in files("tests/fixtures/*/*.safetensors"):
        data = read(path)
        header = struct.unpack("<Q", data[:8])[0]
        if len(data) < 1 << 18:
            put("tensors", path, data)
        # the header with its first tensors alone, so that small changes keep it whole
        table = json.loads(data[8 : 8 + header])
        table.pop("__metadata__", None)
        few = sorted(table, key=lambda name: table[name]["data_offsets"])[:3]
        end = table[few[-1]]["data_offsets"][1]
        if end < 1 << 14:
            text = json.dumps({k: table[k] for k in few}).encode()
            text = struct.pack("<Q", len(text)) + text
            put("tensors", path + ".few", text + data[8 + header : 8 + header + end])


def stepc(*args):
    return subprocess.run([STEPC, *args], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


LEVELS = ("canon", "recompute", "autodiff", "optimizer", "fuse", "memplan")
T0 = "tests/cases/Inputs/t0.yaml"


def sets(**keys):
    words = []
    for key, value in keys.items():
        words += ["--set", f"{key.replace('__', '.')}={value}"]
    return words


def dumps(name, *options, levels=LEVELS):
    """IR as it stands behind a pass; the report follows it."""
    for level in levels:
        text = stepc("plan", T0, *options, f"--dump-after={level}")
        put("ir", f"{name}.{level}.sir", text[: text.rindex(b"\n}\n") + 3])


def modules():
    one = os.path.join(ROOT, "tests/cases/Inputs/one")
    for policy in ("none", "block", "submodule"):
        dumps(
            f"one.{policy}",
            *sets(model__pretrained_model_name_or_path=one, stepc__recompute__policy=policy),
        )
    config = os.path.join(OUT, "op", "config.json")
    put("op", "config.json", b'{"model_type": "op"}')
    for path in files("tests/ops/*.model"):
        dumps(
            os.path.basename(path),
            *sets(
                model__pretrained_model_name_or_path=config,
                model__torch_dtype="float64",
                stepc__definition=os.path.join(ROOT, path),
            ),
            levels=("canon", "memplan"),
        )
    shutil.rmtree(os.path.dirname(config))


def plans():
    """What executables carry: it begins with PLAN_MAGIC, PLAN_VERSION, and its length."""
    out = os.path.join(OUT, "seed.step")
    for name, policy in (
        ("cases/Inputs/one", "none"),
        ("cases/Inputs/one", "block"),
        ("cases/Inputs/dropout", "submodule"),
        ("fixtures/gpt2", "none"),
    ):
        folder = os.path.join(ROOT, "tests", name)
        stepc(
            "build",
            T0,
            "-o",
            out,
            *sets(model__pretrained_model_name_or_path=folder, stepc__recompute__policy=policy),
        )
        with open(out, "rb") as f:
            data = f.read()
        os.remove(out)
        for found in re.finditer(rb"step[\x01-\xff]\0\0\0", data):
            length = struct.unpack_from("<Q", data, found.start() + 8)[0]
            if 0 < length < len(data) - found.start():
                put("plan", f"{name}.{policy}", data[found.start() : found.start() + length])


def words(target, path, pattern):
    """What a text is made of, for libFuzzer's -dict."""
    found = sorted(set(re.findall(pattern, read(path).decode())))
    assert len(found) > 10, path
    with open(os.path.join(OUT, target + ".dict"), "w") as f:
        f.writelines(f'"{word}"\n' for word in found)


def dictionaries():
    words("model", "frontend/model_lexer.l", r"(?m)^\"(\w+)\" ")
    words("ir", "ir/ops.def", r"(?m)^OP\((\w+)")
    words("recipe", "frontend/recipe_keys.def", r"\b(\w+)[.\"]")
    words("config", "models/gemma4/gemma4.model", r"\b(\w{5,})\b")


for make in (models, configs, recipes, tensors, modules, plans, dictionaries):
    make()
for target in ("model", "config", "recipe", "tensors", "ir", "plan"):
    n = len(os.listdir(os.path.join(OUT, target)))
    assert n >= 3, f"{target}: {n} seeds"
    print(f"{target}: {n} seeds")
