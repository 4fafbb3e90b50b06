#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Decode with prefetch off and on, in turn, for several budgets -> a Markdown table.

usage: prefetch.py [-r RUNS] [-n TOKENS] [--limit PREFIX] [--predictor NAME]... MOESTRO MODEL BUDGET...

RUNS (5) times for every budget: one run without prefetch and one with each predictor, page cache
dropped before each, so that whatever else the machine does falls on all of them. Medians; "paired"
is the median over the rounds of on/off, which a slow disk or neighbour in one round disturbs least.
--limit: a command that runs another within the budget's memory, "memlimit 4G", without the size.
"""
import argparse
import statistics

import measure


def bench(args, budget, predictor):
    cache = ["--cache", args.cache] if args.cache else []
    measure.drop_page_cache()
    return measure.run([*measure.limited(args.limit, budget), args.moestro, "bench", "--cold", args.model,
                        "--ram", budget, "-p", "0", "-n", args.tokens, "-c", "1024",
                        "--predictor", predictor, "--json", *cache])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-r", "--runs", type=int, default=5)
    parser.add_argument("-n", "--tokens", type=int, default=48)
    parser.add_argument("--limit", default="")
    parser.add_argument("--cache", default="", help="fixes the slots instead, for small models")
    parser.add_argument("--predictor", action="append")
    parser.add_argument("moestro")
    parser.add_argument("model")
    parser.add_argument("budgets", nargs="+")
    args = parser.parse_args()
    predictors = args.predictor or ["next-router"]
    print("| budget | predictor | tok/s off | tok/s on | on/off | paired | % of bound off | on | "
          "needed / fetched ahead | late |")
    print("| --- |" + " --- |" * 9, flush=True)
    for budget in args.budgets:
        runs = {name: [] for name in ["none", *predictors]}
        for _ in range(args.runs):
            for name, results in runs.items():
                results.append(bench(args, budget, name))

        def median(name, key):
            return statistics.median(run[key] for run in runs[name])

        off = median("none", "decode_tps")
        for name in predictors:
            on = median(name, "decode_tps")
            paired = statistics.median(a["decode_tps"] / b["decode_tps"]
                                       for a, b in zip(runs[name], runs["none"]))
            hashes = {run["logits_hash"] for results in runs.values() for run in results}
            assert len(hashes) == 1, "prefetch changed the logits"
            print(f"| {args.cache or budget} | {name} | {off:.2f} | {on:.2f} | {on / off:.3f} | "
                  f"{paired:.3f} | {median('none', 'percent_of_bound'):.0f} | "
                  f"{median(name, 'percent_of_bound'):.0f} | "
                  f"{median(name, 'used_prefetches'):.0f} / {median(name, 'prefetches'):.0f} | "
                  f"{median(name, 'late'):.0f} |", flush=True)


if __name__ == "__main__":
    main()
