#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What cheaper misses cost in quality: `moestro eval` over settings of every lossy knob.

    bench/quality.py MOESTRO MODEL --low FILE [--low FILE ...] --text FILE [--text FILE ...] -o OUT.md

KL, agreement and bytes per token depend on tokens, slots and policy alone; speeds do not, and are
left to bench/compare.sh."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

THRESHOLDS = [(0.2, 0.9), (0.4, 0.9), (0.6, 0.9), (0.8, 0.9), (0.4, 1.0), (0.6, 1.0), (0.0, 1.0)]


def settings(low, has_norms):
    """(name, flags) of everything that is measured with one file of low copies, or with none."""
    if low is None:
        yield "exact", []
        for share in (0.05, 0.1, 0.15, 0.2):
            yield f"drop below {share}", ["--drop-below", share]
        for share in (0.02, 0.05, 0.1, 0.2):
            yield f"prefer residents {share}", ["--prefer-resident", share]
        return
    for t1, t2 in THRESHOLDS:
        yield f"t1 {t1}, t2 {t2}", ["--low", low, "--t1", t1, "--t2", t2]
    for t in (0.8, 0.9):
        yield f"skip above {t}", ["--low", low, "--t1", t, "--t2", t]
    yield "skip above 0.8, rescaled", ["--low", low, "--t1", 0.8, "--t2", 0.8, "--rescale"]
    yield "t1 0.6, t2 0.9, upgrades", ["--low", low, "--upgrade"]
    yield "t1 0.6, t2 0.9, residents 0.05", ["--low", low, "--prefer-resident", 0.05]
    if has_norms:
        for t1, t2 in THRESHOLDS[:4]:
            yield (f"t1 {t1}, t2 {t2}, score-norm",
                   ["--low", low, "--t1", t1, "--t2", t2, "--importance", "score-norm"])


def measure(args, text, reference, flags):
    run = subprocess.run(
        [args.moestro, "eval", args.model, "--text", text, "--tokens", args.tokens, "--cache",
         args.cache, "--against", "exact", "--scratch", args.scratch, "--reference", reference,
         "--json", *map(str, flags)], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"quality.py: {' '.join(map(str, flags))}: {run.stderr.strip()}")
    return json.loads(run.stdout)


def pareto(rows):
    """Names of those that no other one beats in both KL and bytes."""
    return {name for name, r in rows if not any(
        o["kl_mean"] <= r["kl_mean"] and o["bytes_per_token"] <= r["bytes_per_token"] and
        (o["kl_mean"], o["bytes_per_token"]) != (r["kl_mean"], r["bytes_per_token"])
        for _, o in rows)}


def table(rows):
    front = pareto(rows)
    exact = dict(rows)["exact"]["bytes_per_token"]
    yield "| setting | KL mean (error) | KL 99.9 % | same first choice | perplexity | bytes per token | of exact | |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for name, r in rows:
        yield (f"| {name} | {r['kl_mean']:.5f} ({r['kl_se']:.5f}) | {r['kl_p999']:.3f} | "
               f"{100 * r['top1_agreement']:.1f} % | {r['perplexity']:.3f} | "
               f"{r['bytes_per_token'] / 2**20:.2f} MiB | {r['bytes_per_token'] / exact:.2f} | "
               f"{'front' if name in front else ''} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("moestro")
    parser.add_argument("model")
    parser.add_argument("--low", action="append", default=[])
    parser.add_argument("--text", action="append", required=True)
    parser.add_argument("--tokens", default="2000")
    parser.add_argument("--cache", default="30%")
    parser.add_argument("--scratch", default=".")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    args = parser.parse_args()
    has_norms = pathlib.Path(args.model + ".norms").exists()
    lines = []
    for text in args.text:
        with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
            rows = []
            for low in [None, *args.low]:
                for name, flags in settings(low, has_norms):
                    label = f"{pathlib.Path(low).stem}: {name}" if low else name
                    rows.append((label, measure(args, text, f"{folder}/exact", flags)))
                    print(label, rows[-1][1]["kl_mean"], file=sys.stderr)
        lines += [f"## {pathlib.Path(args.model).name}, {pathlib.Path(text).name}", "",
                  f"{args.tokens} tokens, slots for {args.cache} of the experts.", "", *table(rows), ""]
    args.output.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
