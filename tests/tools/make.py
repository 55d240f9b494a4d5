#!/usr/bin/env python3
"""make: writes small inputs for tests.

  make.py batch OUT ROWS SEQ VOCAB SEED [valid=N,N,...] [rows=A:B]
      input_ids and targets (valid=: how many targets of each row are not ignored; rows=: only these rows of the batch)
  make.py bad KIND OUT      a malformed safetensors file
"""
import json
import random
import struct
import sys


def write(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


def batch(out, rows, seq, vocab, seed, *options):
    rows, seq, vocab = int(rows), int(seq), int(vocab)
    options = dict(o.split("=") for o in options)
    draw = random.Random(int(seed))
    ids = [[draw.randrange(1, vocab) for _ in range(seq)] for _ in range(rows)]
    targets = [[draw.randrange(1, vocab) for _ in range(seq)] for _ in range(rows)]
    if "valid" in options:
        for row, n in zip(targets, options["valid"].split(",")):
            row[int(n):] = [-100] * (seq - int(n))
    first, last = (int(x) for x in options.get("rows", "0:%d" % rows).split(":"))
    pack = lambda table: struct.pack("<%dq" % ((last - first) * seq), *(x for r in table[first:last] for x in r))
    shape = [last - first, seq]
    write(out, {"input_ids": ("I64", shape, pack(ids)), "targets": ("I64", shape, pack(targets))})


def bad(kind, out):
    ids = struct.pack("<64q", *range(64))
    entry = {"dtype": "I64", "shape": [2, 32], "data_offsets": [0, 512]}
    header = {"input_ids": dict(entry), "targets": dict(entry, data_offsets=[512, 1024])}
    if kind == "overlap":
        header["targets"]["data_offsets"] = [256, 768]
    elif kind == "range":
        header["targets"]["data_offsets"] = [1024, 1536]
    elif kind == "dtype":
        header["targets"]["dtype"] = "F7"
    elif kind == "shape":
        header["targets"]["shape"] = [2, 31]
    text = json.dumps(header).encode()
    if kind == "duplicate":
        text = text.replace(b'"targets"', b'"input_ids"')
    length = len(text)
    if kind == "length":
        length = 1 << 40
    with open(out, "wb") as file:
        file.write(struct.pack("<Q", length) + text + ids + ids)


if __name__ == "__main__":
    {"batch": batch, "bad": bad}[sys.argv[1]](*sys.argv[2:])
