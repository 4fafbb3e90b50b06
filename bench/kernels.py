#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Weights per second by rows that share them -> a Markdown table.

usage: kernels.py KERNEL_BENCH [TYPE...]

The best of five runs of kernel_bench: GB/s of weights that no cache holds, with 1, 2, 4, 8 and 16
rows. As long as memory sets the pace a row more costs nothing and a line stays level; where the
processor does, twice the rows halve it. "Gflop/s" is what that limit comes to at 16 rows, two for
each weight and row.
"""
import json
import subprocess
import sys

ROWS = (1, 2, 4, 8, 16)


def measured(program, types):
    """{(type, kernel, threads): {rows: run}} and {threads: bytes per second of a plain read}"""
    names = "|".join(types)
    rows = "|".join(map(str, ROWS))
    done = subprocess.run(
        [program, f"--benchmark_filter=^Stream|^({names})/[a-z0-9]+/tokens:({rows})/",
         "--benchmark_format=json", "--benchmark_repetitions=5", "--benchmark_min_time=0.1s",
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
    program, *types = sys.argv[1:]
    types = types or ["q4_0", "q8_0", "q4_K", "q6_K"]
    kernels, stream = measured(program, types)
    print("| type | kernel | threads | " + " | ".join(f"{n} rows" for n in ROWS) +
          " | Gflop/s |")
    print("| --- |" + " --- |" * (len(ROWS) + 3))
    for threads, runs in sorted(stream.items()):
        print(f"| plain read | | {threads} | {best(runs, 'weights/s'):.1f} |" + " |" * 5)
    for (kind, name, threads), by_rows in sorted(kernels.items(),
                                                 key=lambda k: (types.index(k[0][0]), k[0][2])):
        rates = " | ".join(f"{best(by_rows[n], 'weights/s'):.1f}" for n in ROWS)
        print(f"| {kind} | {name} | {threads} | {rates} | {best(by_rows[16], 'flops'):.0f} |")


if __name__ == "__main__":
    main()
