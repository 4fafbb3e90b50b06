#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A table of n-grams on the disk, in whole runs -> a Markdown table.

usage: table.py [-r RUNS] [-n TOKENS] [-p PROMPT] [--limit PREFIX] [--llama-peer PROGRAM]
                MOESTRO MODEL BUDGET...

RUNS (3) times for every budget, in turn: Moestro decodes TOKENS from cold, evaluates a PROMPT from
cold, and the peer does the same from the mapped file. Page cache dropped before each. Medians.
"wait" is how long the layer with the table waited for rows, by the engine's own counters; a peer
has no such figure, and its page faults are for all of its weights. --limit: a command that runs
another within the budget's memory, "memlimit", without the size; its report gives the peak.
"""
import argparse
import json
import re
import shlex
import statistics
import subprocess
import sys

import measure


def run(args, budget, command):
    """What the program printed, with `peak` of its cgroup where there is one."""
    measure.drop_page_cache()
    done = subprocess.run([*measure.limited(args.limit, budget), *map(str, command)],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(map(str, command))}\n{done.stderr}")
    result = json.loads(done.stdout)
    peak = re.search(r"peak (\d+)", done.stderr)
    result["peak"] = int(peak.group(1)) if peak else result.get("peak_rss", 0)
    return result


def moestro(args, budget, prompt, tokens):
    return run(args, budget, [args.moestro, "bench", "--cold", args.model, "--ram", budget,
                              "-t", args.threads, "-p", prompt, "-n", tokens, "-c", 4096, "--json"])


def peer(args, budget, prompt, tokens):
    return run(args, budget, [args.llama_peer, args.model, "-t", args.threads, "-p", prompt,
                              "-n", tokens, "--seconds", args.seconds, "--finish-first"])


def median(runs, value):
    return statistics.median(value(one) for one in runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-r", "--runs", type=int, default=3)
    parser.add_argument("-n", "--tokens", type=int, default=48)
    parser.add_argument("-p", "--prompt", type=int, default=2048)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--limit", default="")
    parser.add_argument("--llama-peer", default="")
    parser.add_argument("--seconds", type=int, default=60, help="time limit of a peer's phase")
    parser.add_argument("moestro")
    parser.add_argument("model")
    parser.add_argument("budgets", nargs="+")
    args = parser.parse_args()
    print("| budget | program | decode tok/s | rows a token | table's wait a token | prompt s | "
          "table's wait for the prompt | read of the table | peak |")
    print("| --- |" + " --- |" * 8, flush=True)
    for budget in args.budgets:
        ours = {"decode": [], "prompt": []}
        theirs = {"decode": [], "prompt": []}
        for _ in range(args.runs):
            ours["decode"].append(moestro(args, budget, 0, args.tokens))
            ours["prompt"].append(moestro(args, budget, args.prompt, 0))
            if args.llama_peer:
                theirs["decode"].append(peer(args, budget, 0, args.tokens))
                theirs["prompt"].append(peer(args, budget, args.prompt, 0))

        def peak(runs):
            return max(one["peak"] for kind in runs.values() for one in kind) / 2**30

        decode, prompt = ours["decode"], ours["prompt"]
        print(f"| {budget} | Moestro | {median(decode, lambda r: r['decode_tps']):.2f} | "
              f"{median(decode, lambda r: r['table_rows_decode'] / args.tokens):.0f} | "
              f"{median(decode, lambda r: 1e3 * r['table_wait_seconds'] / args.tokens):.3f} ms | "
              f"{median(prompt, lambda r: args.prompt / r['prefill_tps']):.2f} | "
              f"{median(prompt, lambda r: r['table_prefill_wait_seconds']):.3f} s | "
              f"{median(prompt, lambda r: r['table_bytes_prefill']) / 2**20:.0f} MiB | "
              f"{peak(ours):.2f} GiB |", flush=True)
        if args.llama_peer:
            tps = median(theirs["decode"], lambda r: r["decode_tps"])
            seconds = median(theirs["prompt"], lambda r: r["prefill_seconds"])
            stopped = any(r["prefill_stopped_early"] for r in theirs["prompt"])
            print(f"| {budget} | llama.cpp | {tps:.2f} | | | {'> ' if stopped else ''}{seconds:.2f} "
                  f"| | | {peak(theirs):.2f} GiB |", flush=True)


if __name__ == "__main__":
    main()
