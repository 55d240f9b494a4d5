#!/usr/bin/env python3
"""tensors: edits safetensors files for tests.

tensors.py edit FROM TO CHANGE...
    drop=NAME, name=OLD:NEW, prefix=TEXT, shape=NAME:4,4, dtype=NAME:I32, nan=NAME (its first
    element), fill=NAME:VALUE, set=NAME:I,INTEGER (element I), add=NAME:2,2
    (f32 zeros), same=NAME:OTHER (other's values)
tensors.py shards FROM DIR CHANGE...
    two shards and an index: drop=NAME (from the index), twice=NAME (in both shards), wrong=NAME
    (listed under the other shard)
"""

import json
import math
import struct
import sys


def read(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + n])
    header.pop("__metadata__", None)
    return {
        name: [
            t["dtype"],
            t["shape"],
            data[8 + n + t["data_offsets"][0] : 8 + n + t["data_offsets"][1]],
        ]
        for name, t in header.items()
    }


def write(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [len(body), len(body) + len(raw)],
        }
        body += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


def edit(tensors, key, value):
    name, _, rest = value.partition(":")
    if key == "drop":
        del tensors[name]
    elif key == "name":
        tensors[rest] = tensors.pop(name)
    elif key == "prefix":
        for old in list(tensors):
            tensors[value + old] = tensors.pop(old)
    elif key == "shape":
        tensors[name][1] = [int(d) for d in rest.split(",")]
    elif key == "dtype":
        tensors[name][0] = rest
    elif key == "nan":
        tensors[name][2] = struct.pack("<f", math.nan) + tensors[name][2][4:]
    elif key == "set":
        raw, (at, number) = tensors[name][2], (int(w) for w in rest.split(","))
        tensors[name][2] = raw[: 4 * at] + struct.pack("<f", number) + raw[4 * at + 4 :]
    elif key == "fill":
        tensors[name][2] = struct.pack("<f", float(rest)) * (len(tensors[name][2]) // 4)
    elif key == "add":
        shape = [int(d) for d in rest.split(",")]
        tensors[name] = ["F32", shape, bytes(4 * math.prod(shape))]
    elif key == "same":
        tensors[name] = list(tensors[rest])
    else:
        sys.exit("tensors: unknown change " + key)


def shards(tensors, folder, changes):
    files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    names = sorted(tensors)
    parts = [{n: tensors[n] for n in names[::2]}, {n: tensors[n] for n in names[1::2]}]
    index = {n: files[i] for i in (0, 1) for n in parts[i]}
    for key, name in changes:
        if key == "drop":
            del index[name]
        elif key == "twice":
            for part in parts:
                part[name] = tensors[name]
        elif key == "wrong":
            index[name] = files[index[name] == files[0]]
    for file, part in zip(files, parts):
        write(folder + "/" + file, part)
    json.dump(
        {"metadata": {}, "weight_map": index}, open(folder + "/model.safetensors.index.json", "w")
    )


if __name__ == "__main__":
    table, changes = read(sys.argv[2]), [c.split("=", 1) for c in sys.argv[4:]]
    if sys.argv[1] == "edit":
        for change in changes:
            edit(table, *change)
        write(sys.argv[3], table)
    else:
        shards(table, sys.argv[3], changes)
