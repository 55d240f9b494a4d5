#!/usr/bin/env python3
"""ptxas: the assembler takes every kernel of the fixtures and of Gemma4 E4B, without spills.

  ptxas.py STEPC ROOT
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import check

FIXTURES = ("gpt2", "llama3", "mistral", "qwen2", "gemma4_e2b", "gemma4_e4b", "gemma4_31b")


def kernels(stepc, recipe, *sets):
    words = [stepc, "plan", recipe, "--target", "cuda", "--emit", "ptx"]
    for s in sets:
        words += ["--set", s]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        check.fail("%s\n%s" % (" ".join(words), done.stderr[-800:]))
    return done.stdout


def assemble(ptxas, name, ptx, folder):
    path = os.path.join(folder, "step.ptx")
    with open(path, "w") as file:
        file.write(ptx)
    words = [ptxas, "-arch=sm_90", "-v", path, "-o", path + ".cubin"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        check.fail("%s: ptxas refuses the kernels:\n%s" % (name, done.stderr[-800:]))
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill stores", done.stderr)]
    if not spills or max(spills) > 64:
        check.fail("%s: %d entries, %d bytes spilled" % (name, len(spills), max(spills, default=0)))
    registers = max(int(n) for n in re.findall(r"Used (\d+) registers", done.stderr))
    print("%-18s %3d entries, at most %d registers" % (name, len(spills), registers))


def main(stepc, root):
    ptxas = shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")
    if not ptxas:
        print("ok: left out, there is no ptxas")
        return
    recipe, fixtures = root + "/tests/parity/Inputs/fixture.yaml", root + "/tests/fixtures/"
    with tempfile.TemporaryDirectory() as folder:
        for dtype in ("float32", "bfloat16"):
            for model in FIXTURES:
                where = "model.pretrained_model_name_or_path=" + fixtures + model
                ptx = kernels(stepc, recipe, where, "model.torch_dtype=" + dtype,
                              "dataset.seq_length=24")
                assemble(ptxas, model + " " + dtype, ptx, folder)
        ptx = kernels(stepc, root + "/tests/device/full_gemma4_e4b.yaml")
        assemble(ptxas, "gemma4 E4B", ptx, folder)
    print("ok: ptxas takes all")


if __name__ == "__main__":
    main(*sys.argv[1:3])
