"""Writes the seeds of the fuzz targets, one folder each, from the repository's own files and what stepc makes of them.

usage: make_corpus.py STEPC OUT
"""

import glob
import json
import os
import re
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
    found = [p for pattern in patterns for p in glob.glob(os.path.join(ROOT, pattern), recursive=True)]
    return sorted(os.path.relpath(p, ROOT) for p in found)


def definition(path):
    """A definition with its includes in their places."""
    lines = []
    for line in read(path).splitlines(keepends=True):
        if line.startswith(b"include "):
            line = definition(os.path.join(os.path.dirname(path), line.split(b'"')[1].decode()))
        lines.append(line)
    return b"".join(lines)


FIXTURES = {"gpt2": "gpt2", "llama3": "llama", "qwen2": "llama", "gemma4_e2b": "gemma4", "gemma4_31b": "gemma4"}


def config(name):
    return f"tests/fixtures/{name}/config.json"


def models():
    for name, family in FIXTURES.items():
        put("model", name, definition(f"models/{family}/{family}.model") + b"\0" + read(config(name)))
    for path in files("tests/ops/*.model", "tests/cases/Inputs/*.model"):
        text = definition(path)
        kind = re.search(rb'for "([^"]+)"', text).group(1).decode()
        plain = json.dumps({"model_type": kind}).encode()
        put("model", path, text + b"\0" + (read("tests/cases/Inputs/one/config.json") if kind == "llama" else plain))


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
        table = json.loads(data[8:8 + header])
        few = sorted((k for k in table if k != "__metadata__"), key=lambda k: table[k]["data_offsets"])[:3]
        end = table[few[-1]]["data_offsets"][1]
        if end < 1 << 14:
            text = json.dumps({k: table[k] for k in few}).encode()
            put("tensors", path + ".few", struct.pack("<Q", len(text)) + text + data[8 + header:8 + header + end])


def stepc(*args):
    return subprocess.run([STEPC, *args], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def compiled():
    """IR at every level, and the plans that executables carry."""
    recipe = "tests/cases/Inputs/t0.yaml"
    for name in ("fixtures/gpt2", "cases/Inputs/one", "cases/Inputs/dropout"):
        for policy in ("none", "block", "submodule"):
            out = os.path.join(OUT, "seed.step")
            sets = ["--set", f"model.pretrained_model_name_or_path={os.path.join(ROOT, 'tests', name)}",
                    "--set", f"stepc.recompute.policy={policy}"]
            for level in ("canon", "recompute", "autodiff", "optimizer", "fuse", "memplan"):
                text = stepc("plan", recipe, *sets, f"--dump-after={level}")
                put("ir", f"{name}.{policy}.{level}.sir", text[:text.rindex(b"\n}\n") + 3])  # the report follows
            stepc("build", recipe, *sets, "-o", out)
            with open(out, "rb") as f:
                data = f.read()
            os.remove(out)
            at = data.find(b"step\x01\0\0\0")
            while at >= 0:
                length = struct.unpack_from("<Q", data, at + 8)[0]
                if 0 < length < len(data) - at:
                    put("plan", f"{name}.{policy}", data[at:at + length])
                at = data.find(b"step\x01\0\0\0", at + 1)


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


for make in (models, configs, recipes, tensors, compiled, dictionaries):
    make()
for target in ("model", "config", "recipe", "tensors", "ir", "plan"):
    n = len(os.listdir(os.path.join(OUT, target)))
    assert n >= 3, f"{target}: {n} seeds"
    print(f"{target}: {n} seeds")
