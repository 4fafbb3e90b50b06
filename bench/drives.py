#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prefetch on disks of 0.5 to 14 GB/s, by the simulator -> a Markdown table.

usage: drives.py MOESTRO [BEFORE]

BEFORE: the program of another commit, for a ratio. Nothing is measured here: `moestro sim` replays
routing against a pretend disk and processor. Routing is that of small models with random weights,
as lanes.py has them. Tokens per second without prefetch, with next-router, and with
a predictor that is always right.
"""
import json
import pathlib
import sys
import tempfile

import lanes

RATES = [0.5e9, 2e9, 7e9, 14e9]
# name, share of the experts that memory holds, milliseconds of a token with all of them resident
CASES = [
    ("Qwen3-30B-A3B", "20%", 60), ("Qwen3-30B-A3B", "20%", 20),
    ("Qwen3-30B-A3B", "50%", 60), ("Qwen3-30B-A3B", "50%", 20),
    ("Mixtral-8x7B", "25%", 300), ("Mixtral-8x7B", "25%", 80),
    ("Mixtral-8x7B", "60%", 300), ("Mixtral-8x7B", "60%", 80),
]


def speed(program, shape, slots, rate, compute, predictor):
    line = json.loads(lanes.call(
        program, "sim", shape.trace, "--slots", slots, "--bandwidth", int(rate), "--compute",
        compute, "--predictor", predictor, "--expert-bytes", shape.expert_bytes(), "--json"))
    return line[0]["decode_tps"]


def rows(programs, shapes):
    for name, slots, compute in CASES:
        for rate in RATES:
            now, *before = [[speed(p, shapes[name], slots, rate, compute, predictor)
                             for predictor in ("none", "next-router", "oracle")] for p in programs]
            cells = [name, slots, f"{compute} ms", f"{rate / 1e9:g} GB/s", *map(lanes.number, now)]
            for other in before:
                cells += [f"{a / b:.3f}" for a, b in zip(now[1:], other[1:])]
            yield cells


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    head = ["shape", "slots", "compute", "disk", "none", "next-router", "always right"]
    if len(sys.argv) == 3:
        head += ["next-router, against before", "always right, against before"]
    shapes = {shape.name: shape for shape in lanes.SHAPES if shape.shape}
    with tempfile.TemporaryDirectory() as folder:
        for shape in shapes.values():
            lanes.record(sys.argv[1], shape, pathlib.Path(folder))
        for line in lanes.markdown(head, rows(sys.argv[1:], shapes)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
