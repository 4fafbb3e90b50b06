#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Instructions of kernels for each byte of weights, counted by qemu-user: ggml's and ours.

    cmake --build build/aarch64 --target moestro_multiply_times
    bench/instructions.py build/aarch64-root build/aarch64/tests/moestro_multiply_times [--rows N] [CPU...]

qemu writes a line for each instruction. A run of two multiplications has one more than a run of one,
and nothing else. Speed does not follow from such a count alone: instructions differ in what they cost.
"""
import os
import subprocess
import sys

TYPES = ["q4_0", "q8_0", "q4_K", "q6_K", "mxfp4"]
OURS = {"cortex-a53": "neon", "cortex-a76": "neondot", "neoverse-v1": "neondot", "max": "neondot"}


def run(root, program, cpu, arguments, trace=()):
    """Lines of qemu's trace, and the program's own."""
    process = subprocess.Popen(["setarch", "-R", "qemu-aarch64", *trace, "-L", root, program, *arguments],
                               env={**os.environ, "QEMU_CPU": cpu}, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    count, said = 0, b""
    while line := process.stderr.readline():
        if line.startswith(b"Trace "):
            count += 1
        else:
            said = line
    printed = process.stdout.read().decode()
    if process.wait() != 0:
        sys.exit(f"instructions: {program} {' '.join(arguments)} as {cpu} ended with "
                 f"{process.returncode}; {said.decode(errors='replace').strip()}")
    return count, printed


def instructions(root, program, cpu, kind, kernel, rows):
    """Of one multiplication of so many rows (tokens), for each byte of weights and row."""
    trace = ["-one-insn-per-tb", "-d", "exec,nochain", "-dfilter"]
    known = {"0..1"}
    for _ in range(8):  # code lies at one of a few places
        once, first = run(root, program, cpu, [kind, kernel, "1", rows], [*trace, ",".join(known)])
        twice, second = run(root, program, cpu, [kind, kernel, "2", rows], [*trace, ",".join(known)])
        code = {place for text in (first, second) for place in text.splitlines()[1].split(",")}
        if code <= known:
            return (twice - once) / int(first.split()[0]) / int(rows)
        known |= code
    sys.exit("instructions: code lies elsewhere in each run")


def main():
    root, program, *cpus = sys.argv[1:]
    rows = "1"
    if cpus[:1] == ["--rows"]:
        rows, cpus = cpus[1], cpus[2:]
    print("| processor | type | ggml | file's layout | interleaved |\n| --- | --- | --- | --- | --- |")
    for cpu in cpus or OURS:
        for kind in TYPES:
            theirs = instructions(root, program, cpu, kind, "ggml", rows)
            ours = [instructions(root, program, cpu, kind, OURS[cpu] + way, rows) for way in ("", "+")]
            cells = [f"{n:.2f} ({n / theirs:.2f})" for n in ours]
            print(f"| {cpu} | {kind} | {theirs:.2f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
