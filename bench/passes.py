#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fewer experts first, and drafts, against plain decode -> OUT.json and OUT.md.

usage: passes.py [-r RUNS] [-n TOKENS] [--draft-tokens TOKENS] [--limit PREFIX] [--budget 4G]
                 [--shares 0,0.11,0.21,1] [--drafts little:4,ngram:4] [--acceptance 0,0.5,0.8,1]
                 [--common FLAGS] -o OUT MOESTRO MODEL

RUNS (3) rounds, in each of which every setting runs once, page cache dropped before. Tokens are
random, so nothing can be sure of them or guess them: how many tokens are decoded again is forced
(--gamma-quantile), and so is how many drafts are right (--draft-acceptance); what both cost is
measured. "predicted" is MoBiLE's 1 / (T_l/T + r T_b/T) with this table's own times.
"""
import argparse
import json
import pathlib
import shlex
import statistics

import measure

HEAD_LITTLE = ["decoded again", "tok/s", "against plain", "predicted", "little pass", "again",
               "foreseen", "of absent experts"]
HEAD_DRAFT = ["drafts", "right, forced", "tok/s", "against plain", "drafted", "taken", "steps"]


def settings(args):
    """name -> (tokens, flags); the plain ones are what the others are compared with."""
    found = {}
    if args.shares:
        found["plain"] = (args.n, [])
    for share in filter(None, args.shares.split(",")):
        found[f"little {share}"] = (args.n, ["--little", args.little, "--gamma-quantile", share])
    if args.drafts:
        found["plain, long"] = (args.draft_tokens, [])
    for draft in filter(None, args.drafts.split(",")):
        for right in args.acceptance.split(","):
            found[f"draft {draft} {right}"] = (
                args.draft_tokens, ["--draft", draft, "--draft-acceptance", right])
    return found


def measured(args):
    runs = {}
    for _ in range(args.runs):
        for name, (tokens, flags) in settings(args).items():
            measure.drop_page_cache()
            with measure.Disturbance() as others:
                run = measure.run([*measure.limited(args.limit, args.budget), args.moestro, "bench", "--cold",
                                   args.model, "--ram", args.budget, "-t", args.threads, "-p", 0,
                                   "-n", tokens, "-c", 2048, "--json", *flags,
                                   *shlex.split(args.common)])
            run["others"] = others.processors
            runs.setdefault(name, []).append(run)
            print(f"{name}: {run['decode_tps']:.2f} tok/s", flush=True)
    return runs


def median(runs, key):
    return statistics.median(run[key] for run in runs)


def rows_of_little(runs):
    plain = 1 / median(runs["plain"], "decode_tps")
    for name, found in runs.items():
        if not name.startswith("little"):
            continue
        ratio, little, again = (median(found, key) for key in (
            "fallback_ratio", "little_step_seconds", "again_step_seconds"))
        tps = median(found, "decode_tps")
        yield [f"{100 * ratio:.0f} %", f"{tps:.2f}", f"{tps * plain:.2f}×",
               f"{plain / (little + ratio * again):.2f}×", f"{1000 * little:.0f} ms",
               f"{1000 * again:.0f} ms", f"{100 * median(found, 'foreseen_recall'):.0f} %",
               f"{100 * median(found, 'foreseen_absent_precision'):.0f} %"]


def rows_of_drafts(runs):
    plain = median(runs["plain, long"], "decode_tps")
    for name, found in runs.items():
        if not name.startswith("draft"):
            continue
        _, draft, right = name.split()
        tps = median(found, "decode_tps")
        yield [draft, right, f"{tps:.2f}", f"{tps / plain:.3f}×",
               *(f"{median(found, key):.0f}" for key in (
                   "drafted_tokens", "accepted_tokens", "draft_steps"))]


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def report(args, runs):
    text = ""
    for name in ("plain", "plain, long"):
        if name in runs:
            text += (f"{name}: {median(runs[name], 'decode_tps'):.2f} tok/s of "
                     f"{runs[name][0]['decode_tokens']} tokens, "
                     f"{100 * median(runs[name], 'hit_rate'):.0f} % hits\n\n")
    if args.shares:
        text += table(HEAD_LITTLE, rows_of_little(runs)) + "\n"
    if args.drafts:
        text += table(HEAD_DRAFT, rows_of_drafts(runs)) + "\n"
    others = max(run["others"] for found in runs.values() for run in found)
    return text + f"Other programs kept at most {others:.2f} processors busy during a run.\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-r", "--runs", type=int, default=3)
    parser.add_argument("-n", type=int, default=96)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--draft-tokens", type=int, default=512)
    parser.add_argument("--limit", default="")
    parser.add_argument("--budget", default="4G")
    parser.add_argument("--little", default="half")
    parser.add_argument("--shares", default="0,0.11,0.21,1")
    parser.add_argument("--drafts", default="little:4,ngram:4")
    parser.add_argument("--acceptance", default="0,0.5,0.8,1")
    parser.add_argument("--common", default="")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("moestro")
    parser.add_argument("model")
    args = parser.parse_args()
    runs = measured(args)
    pathlib.Path(args.output + ".json").write_text(json.dumps(runs, indent=1) + "\n")
    pathlib.Path(args.output + ".md").write_text(report(args, runs))


if __name__ == "__main__":
    main()
