#!/usr/bin/env python3
"""torch_llama: the same step in PyTorch (eager, then compiled): forward, backward, clip at 1.0,
fused AdamW; tokens per second.

torch_llama.py CONFIG.json ROWS SEQ THREADS [eager|compile]...
"""

import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, self.n, self.g, self.d = (
            c["hidden_size"],
            c["num_attention_heads"],
            c["num_key_value_heads"],
            c["head_dim"],
        )
        line = lambda i, o: nn.Linear(i, o, bias=False)
        self.q, self.k, self.v = (
            line(h, self.n * self.d),
            line(h, self.g * self.d),
            line(h, self.g * self.d),
        )
        self.o, self.gate, self.up = (
            line(self.n * self.d, h),
            line(h, c["intermediate_size"]),
            line(h, c["intermediate_size"]),
        )
        self.down, self.n1, self.n2 = (
            line(c["intermediate_size"], h),
            Norm(h, c["rms_norm_eps"]),
            Norm(h, c["rms_norm_eps"]),
        )

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        n = self.n1(x)
        q, k, v = (p(n).view(b, s, -1, self.d).transpose(1, 2) for p in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(
            rope(q, cos, sin), rope(k, cos, sin), v, is_causal=True, enable_gqa=True
        )
        x = x + self.o(a.transpose(1, 2).reshape(b, s, -1))
        n = self.n2(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


class Llama(nn.Module):
    def __init__(self, c, seq):
        super().__init__()
        self.embed = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])
        f = c["rope_theta"] ** (-torch.arange(0, c["head_dim"], 2) / c["head_dim"])
        angle = torch.outer(torch.arange(seq).float(), f)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def measure(config, rows, seq, mode):
    torch.manual_seed(0)
    model = Llama(config, seq)
    step = torch.compile(model) if mode == "compile" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    ids = torch.randint(config["vocab_size"], (rows, seq + 1))
    times = []
    for i in range(8):
        start = time.perf_counter()
        loss = step(ids[:, :-1], ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - start)
    t = statistics.median(times[3:])
    n = sum(p.numel() for p in model.parameters())
    print(
        "torch %s %s: %.1f M parameters, %.0f tokens/s (median of 5 steps, %.3f s)"
        % (torch.__version__, mode, n / 1e6, rows * seq / t, t)
    )


if __name__ == "__main__":
    config = json.load(open(sys.argv[1]))
    torch.set_num_threads(int(sys.argv[4]))
    for mode in sys.argv[5:] or ["eager", "compile"]:
        measure(config, int(sys.argv[2]), int(sys.argv[3]), mode)
