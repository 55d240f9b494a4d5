#!/usr/bin/env python3
"""patch: copies a step executable with one text of its plan changed, and the plan's hash set right.

patch.py FROM TO OLD NEW
    the first OLD behind the plan's head (`head`: the head itself); equally long; \\0 is a zero byte
"""

import os
import struct
import sys

MASK = (1 << 64) - 1
HASH_AT = 24  # in PlanHeader: magic, version, total_bytes, arena_bytes, hash


def mix(x):
    x = (x ^ x >> 32) * 0x9E3779B97F4A7C15 & MASK
    x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9 & MASK
    return x ^ x >> 32


def map_hash(data):
    h = mix(len(data))
    whole = len(data) // 8
    for word in struct.unpack_from("<%dQ" % whole, data):
        h = mix(h ^ word)
    return mix(h ^ int.from_bytes(data[8 * whole :], "little"))


def header_size(plan, want):
    return next(n for n in range(64, 1024, 8) if map_hash(plan[n:]) == want)


def main():
    old, new = (text.encode().replace(b"\\0", b"\0") for text in sys.argv[3:5])
    data = bytearray(open(sys.argv[1], "rb").read())
    head = data.index(b"step\3\0\0\0")
    (total,) = struct.unpack_from("<Q", data, head + 8)
    plan = data[head : head + total]
    size = header_size(plan, struct.unpack_from("<Q", plan, HASH_AT)[0])
    at = 0 if old == b"head" else plan.index(old)
    if old != b"head" and len(old) != len(new):
        sys.exit("patch: `%s` and `%s` differ in length" % (sys.argv[3], sys.argv[4]))
    plan[at : at + len(new)] = new
    struct.pack_into("<Q", plan, HASH_AT, map_hash(plan[size:]))
    data[head : head + total] = plan
    with open(sys.argv[2], "wb") as file:
        file.write(data)
    os.chmod(sys.argv[2], 0o755)


if __name__ == "__main__":
    main()
