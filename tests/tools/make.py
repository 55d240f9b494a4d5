#!/usr/bin/env python3
"""make: writes small inputs for tests.

make.py batch OUT ROWS SEQ VOCAB SEED [valid=N,N,...] [rows=A:B] [seq=N] [change=I]
    input_ids and targets (valid=: how many targets of each row are not ignored; rows=, seq=: only
    these rows, only the first tokens of each; change=: another token at place I)
make.py bad KIND OUT      a malformed safetensors file
make.py tied KIND FROM OUT   a tied checkpoint with the table, the head, both, both but different,
    or neither
make.py rounded FROM OUT  f32 weights that bf16 holds exactly: rounded to nearest, ties to even
"""

import json
import random
import struct
import sys

from tensors import write


def batch(out, rows, seq, vocab, seed, *options):
    rows, seq, vocab = int(rows), int(seq), int(vocab)
    options = dict(o.split("=") for o in options)
    draw = random.Random(int(seed))
    ids = [[draw.randrange(1, vocab) for _ in range(seq)] for _ in range(rows)]
    targets = [[draw.randrange(1, vocab) for _ in range(seq)] for _ in range(rows)]
    if "valid" in options:
        for row, n in zip(targets, options["valid"].split(",")):
            row[int(n) :] = [-100] * (seq - int(n))
    if "change" in options:
        for row in ids:
            row[int(options["change"])] = 1 + row[int(options["change"])] % (vocab - 1)
    first, last = (int(x) for x in options.get("rows", "0:%d" % rows).split(":"))
    seq = int(options.get("seq", seq))
    pack = lambda table: struct.pack(
        "<%dq" % ((last - first) * seq), *(x for r in table[first:last] for x in r[:seq])
    )
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


def tied(kind, source, out):
    data = open(source, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + n])
    header.pop("__metadata__", None)
    tensors = {
        k: (
            v["dtype"],
            v["shape"],
            data[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]],
        )
        for k, v in header.items()
    }
    table = tensors.pop("model.embed_tokens.weight")
    if kind in ("embed", "both", "differ"):
        tensors["model.embed_tokens.weight"] = table
    if kind in ("head", "both"):
        tensors["lm_head.weight"] = table
    if kind == "differ":
        tensors["lm_head.weight"] = (table[0], table[1], bytes(4) + table[2][4:])
    write(out, tensors)


def rounded(source, out):
    data = bytearray(open(source, "rb").read())
    n = struct.unpack("<Q", data[:8])[0]
    for at in range(8 + n, len(data), 4):
        bits = struct.unpack_from("<I", data, at)[0]
        struct.pack_into("<I", data, at, (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000)
    with open(out, "wb") as file:
        file.write(data)


if __name__ == "__main__":
    {"batch": batch, "bad": bad, "tied": tied, "rounded": rounded}[sys.argv[1]](*sys.argv[2:])
