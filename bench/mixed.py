#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Decode exactly and with cheaper misses, in turn, for several budgets -> a Markdown table.

usage: mixed.py [-r RUNS] [-n TOKENS] [--limit PREFIX] [--common FLAGS] [--resident]
                --setting "NAME: FLAGS" [--setting ...] MOESTRO MODEL BUDGET...

RUNS (3) times for every budget: one exact run and one of each setting, page cache dropped before
each. Medians; "speed" is the median over the rounds of setting/exact. "allowed" is what the bytes
that a setting saves would make of it if the disk were all that took time: bytes of the exact run
over bytes of the setting; "reached" is speed / allowed. Bytes are those that were really read.
--common: flags of all runs, the exact one's too ("--routing T.trace"). --resident: one more run
with all experts in memory, without a limit.
--limit: a command that runs another within the budget's memory, "memlimit 4G", without the size.
"""
import argparse
import shlex
import statistics
import sys

import measure


def bench(args, budget, flags):
    memory = ["--ram", budget] if budget else ["--preload", "--warmup", "16"]
    measure.drop_page_cache()
    return measure.run([*measure.limited(args.limit, budget), args.moestro, "bench", "--cold", args.model,
                        *memory, "-p", "0", "-n", args.tokens, "-c", "1024", "--json",
                        *shlex.split(args.common), *shlex.split(flags)])


def per_token(run):
    return run["disk_bytes_decode"] / run["decode_tokens"]


def share(run, key, of):
    return f"{100 * run[key] / run[of]:.0f} %" if run[of] else "–"


def row(budget, name, runs, exact):
    def median(key):
        return statistics.median(run[key] for run in runs)

    speed = statistics.median(a["decode_tps"] / b["decode_tps"] for a, b in zip(runs, exact))
    allowed = statistics.median(per_token(b) / per_token(a) if per_token(a) else float("inf")
                                for a, b in zip(runs, exact))
    last = runs[-1]
    lost = " / ".join(share(last, key, "missing") for key in ("low", "skipped", "dropped"))
    print(f"| {budget} | {name} | {median('decode_tps'):.2f} | {speed:.2f} | "
          f"{per_token(last) / 2**20:.0f} MiB | {allowed:.2f} | {100 * speed / allowed:.0f} % | "
          f"{100 * median('hit_rate'):.1f} % | {lost} | {last['replaced']} | "
          f"{median('percent_of_bound'):.0f} % | {last['peak_rss'] / 2**30:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-r", "--runs", type=int, default=3)
    parser.add_argument("-n", "--tokens", type=int, default=48)
    parser.add_argument("--limit", default="")
    parser.add_argument("--common", default="")
    parser.add_argument("--resident", action="store_true")
    parser.add_argument("--setting", action="append", default=[])
    parser.add_argument("moestro")
    parser.add_argument("model")
    parser.add_argument("budgets", nargs="+")
    args = parser.parse_args()
    settings = {"exact": ""}
    for setting in args.setting:
        name, colon, flags = setting.partition(":")
        if not colon:
            sys.exit(f"mixed.py: '{setting}' is not 'NAME: FLAGS'")
        settings[name.strip()] = flags
    print("| budget | setting | tok/s | speed | read per token | allowed | reached | hits | "
          "of misses low / skipped / dropped | replaced | of the bound | peak GiB |")
    print("| --- |" + " --- |" * 11, flush=True)
    for budget in args.budgets:
        runs = {name: [] for name in settings}
        for _ in range(args.runs):
            for name, flags in settings.items():
                runs[name].append(bench(args, budget, flags))
        for name in settings:
            row(budget, name, runs[name], runs["exact"])
    if args.resident:
        run = bench(args, "", "")
        print(f"\nAll experts in memory: {run['decode_tps']:.2f} tok/s")


if __name__ == "__main__":
    main()
