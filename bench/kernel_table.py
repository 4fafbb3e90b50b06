#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How much faster own kernels are than ggml's dot product -> the table of docs/kernels.md.

usage: kernel_table.py [--plug-ins FOLDER] KERNEL_BENCH [TYPE...]

One core; weights that the caches hold; the processor's time, not the clock's, since other programs
may run. For each instruction set ggml's plug-in for processors of its kind stands beside our
kernels, all in turn; of nine rounds the median. Four minutes for all types.
"""
import argparse
import json
import pathlib
import statistics
import subprocess

TYPES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "mxfp4", "q2_K", "q3_K", "q4_K", "q5_K",
         "q6_K", "iq4_xs", "iq3_s", "iq3_xxs", "iq2_s", "iq2_xs", "iq2_xxs")
ROWS = (1, 16)
# our kernel, its heading, ggml's plug-in
SETS = (("avx2", "AVX2", "haswell"), ("avx512vnni", "AVX-512", "zen4"))


def rates(args, kind, kernel, plug_in):
    """{("ggml" | "own" | "interleaved", rows): GB/s of weights}; empty without this plug-in"""
    done = subprocess.run(
        [args.program, f"--matrix={args.matrix}", f"--ggml={plug_in}",
         f"--benchmark_filter=^{kind}/(ggml|{kernel})/"
         f"tokens:({'|'.join(map(str, ROWS))})(/interleaved)?/real_time/threads:1$",
         "--benchmark_format=json", f"--benchmark_repetitions={args.rounds}",
         "--benchmark_min_time=0.05", "--benchmark_enable_random_interleaving=true"],
        stdout=subprocess.PIPE, text=True)
    found = {}
    if done.returncode:  # its words are on stderr
        return found
    for run in json.loads(done.stdout)["benchmarks"]:
        if run["run_type"] != "iteration":
            continue
        _, name, rows, *rest = run["run_name"].split("/")
        if name != "ggml":
            name = "interleaved" if rest[0] == "interleaved" else "own"
        gigabytes = run["weights/s"] * run["real_time"] / run["cpu_time"] / 1e9
        found.setdefault((name, int(rows.removeprefix("tokens:"))), []).append(gigabytes)
    return {key: statistics.median(values) for key, values in found.items()}


def cell(found, rows):
    """GB/s of ggml: of ours, of ours interleaved (both as multiples of ggml's)"""
    names = ("ggml", "own", "interleaved")
    if any((name, rows) not in found for name in names):
        return "-"
    ggml, own, interleaved = (found[name, rows] for name in names)
    digits = 1 if rows == 1 else 2
    return (f"{ggml:.{digits}f}: {own:.{digits}f}, {interleaved:.{digits}f} "
            f"({own / ggml:.1f}, {interleaved / ggml:.1f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plug-ins", type=pathlib.Path, help="ggml's folder of them",
                        default="/usr/lib/x86_64-linux-gnu/ggml/backends0")
    parser.add_argument("--matrix", type=int, default=4, help="MiB of weights")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("program")
    parser.add_argument("types", nargs="*", default=TYPES)
    args = parser.parse_args()
    print("| type | " + " | ".join(f"{n} row{'s' * (n > 1)}, {heading}" for n in ROWS
                                   for _, heading, _ in SETS) + " |")
    print("| --- |" + " --- |" * (len(ROWS) * len(SETS)))
    for kind in args.types:
        found = {kernel: rates(args, kind, kernel, args.plug_ins / f"libggml-cpu-{plug_in}.so")
                 for kernel, _, plug_in in SETS}
        cells = [cell(found[kernel], n) for n in ROWS for kernel, _, _ in SETS]
        print(f"| {kind.upper()} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
