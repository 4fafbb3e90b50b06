#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Weights per second by rows that share them -> a Markdown table.

usage: kernels.py [--kernels ggml,avx512vnni] [--threads 1,2] KERNEL_BENCH [TYPE...]

The best of three runs of kernel_bench: GB/s of weights that no cache holds, with 1, 2, 4, 8 and 16
rows. As long as memory sets the pace a row more costs nothing and a line stays level; where the
processor does, twice the rows halve it. "Gflop/s" is what that limit comes to at 16 rows, two for
each weight and row.
"""
import argparse
import json
import subprocess

ROWS = (1, 2, 4, 8, 16)


def measured(args):
    """{(type, kernel, threads): {rows: run}} and {threads: bytes per second of a plain read}"""
    types, names = "|".join(args.types), args.kernels.replace(",", "|")
    rows, threads = "|".join(map(str, ROWS)), args.threads.replace(",", "|")
    done = subprocess.run(
        [args.program, f"--benchmark_filter=^(Stream|({types})/({names})/tokens:({rows}))/"
         f"real_time/threads:({threads})$",
         "--benchmark_format=json", "--benchmark_repetitions=3", "--benchmark_min_time=0.1s",
         "--benchmark_enable_random_interleaving=true"],
        check=True, capture_output=True, text=True)
    kernels, stream = {}, {}
    for run in json.loads(done.stdout)["benchmarks"]:
        if run["run_type"] != "iteration":
            continue
        path = run["run_name"].split("/")
        threads = int(path[-1].removeprefix("threads:"))
        if path[0] == "Stream":
            stream.setdefault(threads, []).append(run)
            continue
        of_kernel = kernels.setdefault((path[0], path[1], threads), {})
        of_kernel.setdefault(int(path[2].removeprefix("tokens:")), []).append(run)
    return kernels, stream


def best(runs, key):
    return max(run[key] for run in runs) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", default="ggml,avx2,avx512vnni")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("program")
    parser.add_argument("types", nargs="*", default=["q4_0", "q8_0", "q4_K", "q6_K"])
    args = parser.parse_args()
    kernels, stream = measured(args)
    print("| type | kernel | threads | " + " | ".join(f"{n} rows" for n in ROWS) +
          " | Gflop/s |")
    print("| --- |" + " --- |" * (len(ROWS) + 3))
    for threads, runs in sorted(stream.items()):
        print(f"| plain read | | {threads} | {best(runs, 'weights/s'):.1f} |" + " |" * 5)
    def place(found):
        (kind, _, threads), _ = found
        return args.types.index(kind), threads

    for (kind, name, threads), by_rows in sorted(kernels.items(), key=place):
        rates = " | ".join(f"{best(by_rows[n], 'weights/s'):.1f}" for n in ROWS)
        print(f"| {kind} | {name} | {threads} | {rates} | {best(by_rows[16], 'flops'):.0f} |")


if __name__ == "__main__":
    main()
