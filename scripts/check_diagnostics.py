#!/usr/bin/env python3
"""Every diagnostic of base/diag.def is emitted somewhere and produced by some test.

A test names what it covers in a line `diag: id, id`. A golden test (tests/**/*.test, *.sir) must
have a check line with each message's words in order; a unit test (tests/unit/*.c) must have the
message's longest piece in its text. What neither can reach is listed below with the reason.

  check_diagnostics.py          checks; exit 1 and a list where something is missing
  check_diagnostics.py --fill   writes what golden tests cover into their empty `diag:` lines
"""

import glob
import os
import re
import sys
import textwrap

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")

# faults of stepc itself, which no input can cause, and what only a broken machine can
NOT_REACHED = {
    "internal": "a fault of stepc",
    "environment": "out of memory",
    "front_batch_size": "a recipe's own check comes first",
    "pass_broke": "a fault of a pass",
    "replay_effect": "the IR's verifier comes first",
    "replay_kind": "the IR's verifier comes first",
    "memory_scattered": "the IR's verifier comes first",
    "facts_level": "the driver asks for facts of planned modules only",
    "backend_no_memory": "a fault of the planner",
    "backend_rows_differ": "a fault of the fuser",
    "backend_no_kernel": "a fault of the op table",
    "backend_llvm": "a fault of the emitter",
    "backend_ptxas": "a fault of the emitter",
    "backend_host_old": "needs a processor without AVX2",
    "driver_not_found": "needs an installation without its models",
    "plan_record": "the plan's hash comes first; tests/fuzz reads plans without one",
    "backend_no_ptxas": "needs the CUDA toolkit's library and no ptxas beside it",
    "cuda_image": "cuda_test.c reads only what the driver says",
    "cuda_library": "needs a machine with CUDA and without cuBLASLt",
    "cuda_symbol": "needs another version of CUDA",
    "cuda_call": "needs a device that fails",
    "cuda_instr": "a fault of the planner",
    "cuda_gemm": "needs a library without an algorithm for a product",
    "cuda_target": "the executable's own plan is for its own runtime",
    "run_target": "the executable's own plan is for its own runtime",
    "run_fault": "what a kernel refuses is refused before the first step",
}

WORDS = {
    "ERROR": "error",
    "WARNING": "warning",
    "NOTE": "note",
    "HINT": "hint",
    "RECORD": "(?:error|record)",
}
CONVERSION = re.compile(r"(%[-.*0-9]*(?:ll|l)?[sducgx])")


def read(path):
    with open(path, errors="replace") as file:
        return file.read()


def rows():
    """id: (severity, format), of every DIAG row."""
    text = read(ROOT + "/base/diag.def")
    row = re.compile(r'^DIAG\((\w+),\s*(\w+),\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\)', re.M)
    piece = re.compile(r'"((?:[^"\\]|\\.)*)"')
    return {
        name: (severity, "".join(piece.findall(text)).encode().decode("unicode_escape"))
        for name, severity, text in row.findall(text)
    }


def literals(fmt):
    return [piece.replace("%%", "%") for piece in CONVERSION.split(fmt.split("\n")[0])[::2]]


def pattern(severity, fmt):
    """What a check line must hold: kind, then the message with anything for its conversions."""
    parts = CONVERSION.split(fmt.split("\n")[0])
    for i, part in enumerate(parts):
        if i % 2 == 0:
            parts[i] = re.escape(part.replace("%%", "%"))
        else:
            parts[i] = ".*?" if part[-1] in "sc" else r"(?:[-+.\da-f]+|\{\{.*?\}\})"
    return re.compile(r"(?:^|: )%s: %s\s*$" % (WORDS[severity], "".join(parts)))


def check_lines(text):
    prefixes = set(re.findall(r"--check-prefix=(\S+)", text)) | {"CHECK"}
    line = re.compile(
        r"^\W*(?:%s)(?:-NEXT|-SAME|-DAG)?: ?(.*)$" % "|".join(re.escape(p) for p in prefixes), re.M
    )
    return [found.rstrip() for found in line.findall(text)]


def golden_tests():
    return [
        p
        for ending in ("test", "sir")
        for p in glob.glob(ROOT + "/tests/**/*." + ending, recursive=True)
    ]


def named(text):
    return [
        name
        for line in re.findall(r"\bdiag: *([\w, ]*\w)", text)
        for name in re.split(r", *", line)
    ]


def check_golden(table, path, covered, faults):
    text = read(path)
    lines = check_lines(text)
    for name in named(text):
        if name not in table:
            faults.append("%s: there is no diagnostic `%s`" % (path, name))
        elif not any(pattern(*table[name]).search(line) for line in lines):
            faults.append(
                "%s: no check line has the words of `%s`: %s" % (path, name, table[name][1])
            )
        covered.add(name)


def unit_says(text, fmt):
    """Three words of the message in a row, or what there are."""
    runs = [piece.split() for piece in literals(fmt) if re.search("[A-Za-z]{2}", piece)]
    threes = [" ".join(r[i : i + 3]) for r in runs for i in range(max(1, len(r) - 2))]
    return not threes or any(three in text for three in threes)


def check_unit(table, path, covered, faults):
    text = re.sub(r'"\s*\n\s*"', "", read(path)).replace('\\"', '"')
    for name in named(text):
        if name not in table:
            faults.append("%s: there is no diagnostic `%s`" % (path, name))
        elif not unit_says(text, table[name][1]):
            faults.append("%s: nothing here says `%s`: %s" % (path, name, table[name][1]))
        covered.add(name)


def emitted():
    words = set()
    for folder in ("base", "ir", "frontend", "passes", "backend", "runtime", "driver"):
        for path in glob.glob("%s/%s/**/*.*" % (ROOT, folder), recursive=True):
            if path.endswith((".c", ".h", ".y", ".l")):
                words |= set(re.findall(r"\w+", read(path)))
    return words


def fill(table):
    for path in golden_tests():
        text = read(path)
        empty = re.search(r"^(.*\bdiag:)[ \t]*$", text, re.M)
        if not empty:
            continue
        found = {best(table, line) for line in check_lines(text)} - {None}
        names = [name for name in table if name in found]
        lines = textwrap.wrap(", ".join(names), 100 - len(empty.group(1)))
        block = "\n".join("%s %s" % (empty.group(1), line.rstrip(",")) for line in lines)
        with open(path, "w") as file:
            file.write(text[: empty.start()] + block + text[empty.end() :])


def best(table, line):
    """The diagnostic whose own words say most of the line."""
    fits = [name for name, row in table.items() if pattern(*row).search(line)]
    return max(fits, key=lambda name: len("".join(literals(table[name][1]))), default=None)


def main():
    table, covered, faults = rows(), set(), []
    if sys.argv[1:] == ["--fill"]:
        return fill(table)
    for path in golden_tests():
        check_golden(table, path, covered, faults)
    for path in glob.glob(ROOT + "/tests/unit/*.c"):
        check_unit(table, path, covered, faults)
    words = emitted()
    for name in table:
        if name not in words:
            faults.append("`%s` is emitted nowhere" % name)
        if name not in covered and name not in NOT_REACHED:
            faults.append("no test produces `%s`: %s" % (name, table[name][1]))
    for name in NOT_REACHED:
        if name not in table or name in covered:
            faults.append("`%s` need not be listed as not reached" % name)
    for fault in faults:
        print(fault.replace(ROOT + "/", ""))
    print(
        "%d diagnostics, %d covered by tests, %d not reached"
        % (len(table), len(covered & set(table)), len(NOT_REACHED))
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
