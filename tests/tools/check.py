#!/usr/bin/env python3
"""check: compares what a step executable wrote with a fixture's reference, or bit for bit with
another run.

check.py parity FIXTURE_DIR LOG GRADS SAVE_DIR     the figures that f32 runs must reach
check.py bf16 FIXTURE_DIR LOG GRADS F32_LOG F32_GRADS
    the figures that bf16 runs must reach; F32: a run in f32 from the same rounded weights
check.py same LOG LOG... [-- GRADS GRADS...]       losses, norms and gradients bit-identical
check.py plan JSON EXPR, plan2 JSON JSON EXPR      a Python expression over plan reports p (and q)
check.py tensors FILE EXPR                         the same over a safetensors file: t, name to
                                                   (shape, values)
check.py tensors2 FILE FILE EXPR                   the same over two: a and b
check.py log LOG EXPR, log2 LOG LOG LOG EXPR       the same over the steps of logs: s, or a, b, c
check.py close GRADS GRADS BOUND                   every tensor within BOUND relative L2
check.py add FROM TO NAME SHAPE                    FROM with one more f32 tensor of zeros
"""

import json
import math
import struct
import sys

FORMATS = {"F32": "f", "F64": "d", "I64": "q", "I32": "i"}


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + n])
    header.pop("__metadata__", None)
    out = {}
    for name, t in header.items():
        begin, end = (8 + n + x for x in t["data_offsets"])
        raw = data[begin:end]
        if t["dtype"] == "BF16":
            raw = b"".join(b"\0\0" + raw[i : i + 2] for i in range(0, len(raw), 2))
            values = struct.unpack("<%df" % (len(raw) // 4), raw)
        else:
            form = FORMATS[t["dtype"]]
            values = struct.unpack("<%d%s" % (len(raw) // struct.calcsize(form), form), raw)
        out[name] = (t["shape"], values)
    return out


def read_log(path):
    with open(path) as file:
        return [json.loads(line) for line in file if '"loss"' in line]


def relative_l2(a, b):
    top, bottom = math.dist(a, b), math.hypot(*b)
    return top / bottom if bottom else top


def fail(message):
    print("FAIL " + message, file=sys.stderr)
    sys.exit(1)


def near(what, got, want, bound):
    if got is None or want is None:
        fail("%s: %r, reference %r: not finite" % (what, got, want))
    error = abs(got - want) / abs(want)
    if not error <= bound:
        fail("%s: %r, reference %r: relative error %.2e > %g" % (what, got, want, error, bound))
    return error


def strip(name):
    return name[len("transformer.") :] if name.startswith("transformer.") else name


def compare(what, got_path, want_path, bound):
    got = {strip(k): v for k, v in read(got_path).items()}
    want = {strip(k): v for k, v in read(want_path).items()}
    worst = 0.0
    for name, (shape, values) in sorted(want.items()):
        if name == "lm_head.weight" and name not in got:
            continue  # tied: one of the two names
        if name not in got:
            fail("%s: no tensor %s" % (what, name))
        if got[name][0] != shape:
            fail("%s: %s has shape %s, reference %s" % (what, name, got[name][0], shape))
        error = relative_l2(got[name][1], values)
        worst = max(worst, error)
        if not error <= bound:
            fail("%s: %s: relative L2 error %.2e > %g" % (what, name, error, bound))
    return worst


def parity(fixture, log, grads, save):
    reference = json.load(open(fixture + "/reference.json"))
    steps = read_log(log)
    if len(steps) != len(reference["losses"]):
        fail("%d steps in the log, %d in the reference" % (len(steps), len(reference["losses"])))
    first = near("first loss", steps[0]["loss"], reference["losses"][0], 1e-5)
    loss = max(
        near("loss of step %d" % (i + 1), s["loss"], r, 1e-4)
        for i, (s, r) in enumerate(zip(steps, reference["losses"]))
    )
    norm = max(
        near("norm of step %d" % (i + 1), s["grad_norm"], r, 1e-3)
        for i, (s, r) in enumerate(zip(steps, reference["grad_norms"]))
    )
    grad = compare("gradients", grads, fixture + "/grads.safetensors", 1e-4)
    final = compare(
        "final parameters", save + "/model.safetensors", fixture + "/final.safetensors", 1e-3
    )
    print(
        "ok first loss %.1e, losses %.1e, norms %.1e, gradients %.1e, final %.1e"
        % (first, loss, norm, grad, final)
    )


def bf16(fixture, log, grads, f32_log, f32_grads):
    """The first loss within 1 % of f32 from the same rounded weights, and all gradients as one
    vector within 1.1 times PyTorch's own error in bf16, which was measured the same way."""
    reference = json.load(open(fixture + "/reference.json"))["bf16_torch"]
    first = near("first loss", read_log(log)[0]["loss"], read_log(f32_log)[0]["loss"], 1e-2)
    got, want = read(grads), read(f32_grads)
    if set(got) != set(want):
        fail("gradients of %s" % sorted(set(got) ^ set(want))[:5])
    top = sum((x - y) ** 2 for n in want for x, y in zip(got[n][1], want[n][1]))
    bottom = sum(y * y for n in want for y in want[n][1])
    error, bound = math.sqrt(top / bottom), 1.1 * reference["grad_rel_l2"]
    if not error <= bound:
        fail("gradients: relative error %.3e > %.3e" % (error, bound))
    print("ok first loss %.1e, gradients %.2e of at most %.2e" % (first, error, bound))


def same(arguments):
    split = arguments.index("--") if "--" in arguments else len(arguments)
    logs, grads = arguments[:split], arguments[split + 1 :]
    keys = ("step", "loss", "grad_norm", "num_label_tokens")
    want = [[s[k] for k in keys] for s in read_log(logs[0])]
    if not want:
        fail("%s holds no step" % logs[0])
    for path in logs[1:]:
        got = [[s[k] for k in keys] for s in read_log(path)]
        if got != want:
            fail("%s differs from %s: %s against %s" % (path, logs[0], got, want))
    for path in grads[1:]:
        a, b = open(grads[0], "rb").read(), open(path, "rb").read()
        if a != b:
            x, y = read(grads[0]), read(path)
            names = [n for n in x if x[n] != y.get(n)]
            fail("%s differs from %s in %s" % (path, grads[0], names[:5]))
    print("ok %d logs, %d gradients" % (len(logs), len(grads)))


def ranks(want_path, got_path, first, all_steps, *grads):
    """Losses of ranks against those of one; gradients, where there are, within 1e-4."""
    want, got = read_log(want_path), read_log(got_path)
    if len(want) != len(got):
        fail("%d steps, not %d" % (len(got), len(want)))
    errors = [
        near("loss of step %d" % (i + 1), g["loss"], w["loss"], float(all_steps if i else first))
        for i, (g, w) in enumerate(zip(got, want))
    ]
    worst = compare("gradient of", grads[1], grads[0], 1e-4) if grads else 0
    print(
        "ok first loss %.1e, all %.1e, gradients %.1e; losses %s"
        % (errors[0], max(errors), worst, " ".join("%.4f" % g["loss"] for g in got))
    )


def max_activations(plan):
    return max(r["breakdown"]["activations"] + r["breakdown"]["recompute"] for r in plan["ranks"])


def holds(expression, **names):
    if not eval(expression, dict(names, max_activations=max_activations)):
        fail("does not hold: %s" % expression)
    print("ok " + expression)


def add(source, target, name, shape):
    with open(source, "rb") as file:
        data = file.read()
    n = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + n]), data[8 + n :]
    dims = [int(d) for d in shape.split(",")]
    size = 4 * math.prod(dims)
    header[name] = {"dtype": "F32", "shape": dims, "data_offsets": [len(body), len(body) + size]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(target, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body + bytes(size))


if __name__ == "__main__":
    if sys.argv[1] == "parity":
        parity(*sys.argv[2:6])
    elif sys.argv[1] == "bf16":
        bf16(*sys.argv[2:7])
    elif sys.argv[1] == "same":
        same(sys.argv[2:])
    elif sys.argv[1] == "ranks":
        ranks(*sys.argv[2:])
    elif sys.argv[1] == "plan":
        holds(sys.argv[3], p=json.load(open(sys.argv[2])))
    elif sys.argv[1] == "plan2":
        holds(sys.argv[4], p=json.load(open(sys.argv[2])), q=json.load(open(sys.argv[3])))
    elif sys.argv[1] == "tensors":
        holds(sys.argv[3], t=read(sys.argv[2]))
    elif sys.argv[1] == "tensors2":
        holds(sys.argv[4], a=read(sys.argv[2]), b=read(sys.argv[3]))
    elif sys.argv[1] == "log":
        holds(sys.argv[3], s=read_log(sys.argv[2]))
    elif sys.argv[1] == "log2":
        holds(
            sys.argv[5], a=read_log(sys.argv[2]), b=read_log(sys.argv[3]), c=read_log(sys.argv[4])
        )
    elif sys.argv[1] == "close":
        print("ok %.1e" % compare("tensors", sys.argv[2], sys.argv[3], float(sys.argv[4])))
    elif sys.argv[1] == "add":
        add(*sys.argv[2:6])
    else:
        fail("unknown check " + sys.argv[1])
