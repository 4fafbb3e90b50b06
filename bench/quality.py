#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What cheaper misses cost in quality: `moestro eval` over settings of every lossy knob.

    bench/quality.py MOESTRO MODEL --low FILE [--low FILE ...] --text FILE [--text FILE ...] -o OUT.md

Writes OUT.md, the tables, and OUT.csv, one line for each setting, text and file. score-norm is
measured if `moestro profile` has left MODEL.norms. KL, agreement and bytes per token depend on
tokens, slots and policy alone; speeds do not, and are left to bench/mixed.py."""
import argparse
import csv
import json
import math
import pathlib
import subprocess
import sys
import tempfile

SHARES = (0.95, 0.9, 0.8, 0.7, 0.6)  # of the exact run's bytes, for the comparison of kinds


def settings(low, has_norms):
    """(kind, name, flags) of everything that is measured with one file of low copies, or none."""
    if low is None:
        yield "exact", "exact", []
        for share in (0.05, 0.1, 0.15, 0.2, 0.3):
            yield "drop", f"drop below {share}", ["--drop-below", share]
        for share in (0.02, 0.05, 0.1, 0.2, 0.4):
            yield "prefer residents", f"prefer residents {share}", ["--prefer-resident", share]
        return
    of_low = ["--low", low]
    for t in (0.8, 0.6, 0.4, 0.2, 0.0):
        yield "low copies, score", f"t1 {t}, t2 1", [*of_low, "--t1", t, "--t2", 1.0]
    if has_norms:
        for t in (0.8, 0.6, 0.4, 0.2):
            yield ("low copies, score-norm", f"t1 {t}, t2 1, score-norm",
                   [*of_low, "--t1", t, "--t2", 1.0, "--importance", "score-norm"])
    for t in (0.95, 0.9, 0.8, 0.6):
        yield "skip", f"skip above {t}", [*of_low, "--t1", t, "--t2", t]
    yield "skip, rescaled", "skip above 0.8, rescaled", [*of_low, "--t1", 0.8, "--t2", 0.8,
                                                         "--rescale"]
    for t in (0.8, 0.6, 0.4, 0.2):
        yield "low copies and skip", f"t1 {t}, t2 0.9", [*of_low, "--t1", t, "--t2", 0.9]
    for t in (0.6, 0.4, 0.2):
        for share in (0.05, 0.1, 0.2):
            yield ("low copies and residents", f"t1 {t}, t2 1, residents {share}",
                   [*of_low, "--t1", t, "--t2", 1.0, "--prefer-resident", share])
    yield "upgrades", "t1 0.6, t2 1, upgrades", [*of_low, "--t1", 0.6, "--t2", 1.0, "--upgrade"]


def measure(args, text, reference, flags):
    run = subprocess.run(
        [args.moestro, "eval", args.model, "--text", text, "--tokens", args.tokens, "--cache",
         args.cache, "-t", args.threads, "--against", "exact", "--scratch", args.scratch, "--reference", reference,
         "--json", *map(str, flags)], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"quality.py: {' '.join(map(str, flags))}: {run.stderr.strip()}")
    return json.loads(run.stdout)


def pareto(rows):
    """Names of those that no other one beats in both KL and bytes."""
    return {r["name"] for r in rows if not any(
        o["kl_mean"] <= r["kl_mean"] and o["bytes_per_token"] <= r["bytes_per_token"] and
        (o["kl_mean"], o["bytes_per_token"]) != (r["kl_mean"], r["bytes_per_token"])
        for o in rows)}


def table(rows):
    front = pareto(rows)
    yield ("| setting | KL mean (error) | KL 99.9 % | same first choice | perplexity | "
           "bytes per token | of exact | |")
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for r in rows:
        yield (f"| {r['name']} | {r['kl_mean']:.5f} ({r['kl_se']:.5f}) | {r['kl_p999']:.3f} | "
               f"{100 * r['top1_agreement']:.1f} % | {r['perplexity']:.3f} | "
               f"{r['bytes_per_token'] / 2**20:.2f} MiB | {r['share']:.2f} | "
               f"{'front' if r['name'] in front else ''} |")


def at_share(rows, share):
    """KL where the settings of a kind read this share, between two of them: log KL is linear."""
    known = sorted((r["share"], r["kl_mean"]) for r in rows if r["kl_mean"] > 0)
    for (a, kl_a), (b, kl_b) in zip(known, known[1:]):
        if a <= share <= b and a < b:
            part = (share - a) / (b - a)
            return math.exp((1 - part) * math.log(kl_a) + part * math.log(kl_b))
    return None


def at_equal_bytes(rows):
    kinds = {}
    for r in rows:
        kinds.setdefault((r["low"], r["kind"]), []).append(r)
    yield "| KL where so much of the exact run's bytes is read | " + " | ".join(
        f"{100 * s:.0f} %" for s in SHARES) + " |"
    yield "| --- |" + " --- |" * len(SHARES)
    for (low, kind), of_kind in kinds.items():
        found = [at_share(of_kind, share) for share in SHARES]
        if not any(found):
            continue
        label = f"{low}: {kind}" if low else kind
        yield f"| {label} | " + " | ".join(f"{f:.4f}" if f else "–" for f in found) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("moestro")
    parser.add_argument("model")
    parser.add_argument("--low", action="append", default=[])
    parser.add_argument("--text", action="append", required=True)
    parser.add_argument("--tokens", default="2000")
    parser.add_argument("--cache", default="30%")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--scratch", default=".")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    args = parser.parse_args()
    has_norms = pathlib.Path(args.model + ".norms").exists()
    model = pathlib.Path(args.model).name
    lines = []
    every = []
    for text in args.text:
        with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
            rows = []
            for low in [None, *args.low]:
                for kind, name, flags in settings(low, has_norms):
                    stem = pathlib.Path(low).stem if low else ""
                    r = measure(args, text, f"{folder}/exact", flags)
                    first = rows[0] if rows else r
                    r |= {"model": model, "text": pathlib.Path(text).name, "low": stem,
                          "kind": kind, "name": f"{stem}: {name}" if low else name,
                          "share": r["bytes_per_token"] / first["bytes_per_token"]}
                    rows.append(r)
                    print(r["text"], r["name"], r["kl_mean"], file=sys.stderr)
        every += rows
        lines += [f"## {model}, {pathlib.Path(text).name}", "",
                  f"{args.tokens} tokens, slots for {args.cache} of the experts.", "",
                  *table(rows), "", *at_equal_bytes(rows), ""]
    args.output.write_text("\n".join(lines))
    columns = ["model", "text", "low", "kind", "name", "kl_mean", "kl_se", "kl_p99", "kl_p999",
               "kl_max", "top1_agreement", "delta_p_rms", "perplexity", "perplexity_se", "tokens",
               "bytes_per_token", "share", "hit_rate"]
    with args.output.with_suffix(".csv").open("w", newline="") as out:
        writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(every)


if __name__ == "__main__":
    main()
