#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Hit rates of every policy on the traces of bench/traces -> the tables in docs/policies-results.md and a
drawing of each sweep in the folder policies/ beside it.

usage: policies.py MOESTRO DOCUMENT
"""
import csv
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FRACTIONS = ["6.25%", "12.5%", "25%", "50%"]
DRAWN = "6.25%,8.84%,12.5%,17.7%,25%,35.4%,50%,70.7%,100%"
TUNED = ["hobbit", "next-use", "all"]
BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"
TRACES = pathlib.Path(__file__).parent / "traces"


def sweep(moestro, trace, held_out):
    command = [moestro, "sim", str(trace), "--sweep", "--slots", ",".join(FRACTIONS)]
    if held_out:
        command += ["--held-out", str(held_out)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rates = {}
    for row in csv.DictReader(text.splitlines()):
        rates.setdefault(row["policy"], []).append(100 * float(row["hit_rate"]))
    return rates


def draw(moestro, trace, path):
    command = [moestro, "sim", str(trace), "--sweep", "--slots", DRAWN, "--plot", str(path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def tuned_table(moestro, trace):
    """Held-out hit rates of what was tuned on the first half, beside what needs no tuning."""
    rates, choices = {}, []
    for policy in TUNED:
        command = [moestro, "sim", str(trace), "--slots", ",".join(FRACTIONS), "--tune", policy,
                   "--json"]
        sizes = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        best = [size["tuned"][0] for size in sizes]
        for name in ("lru", "lfu", "lfru"):
            rates[name] = [100 * size["plain_hit_rates"][name] for size in sizes]
        if policy != "all":
            rates[policy] = [100 * size["standard_hit_rate"] for size in best]
        name = "the best of all, tuned" if policy == "all" else f"{policy}, tuned"
        rates[name] = [100 * size["hit_rate"] for size in best]
        choices += [f"{name}: " + "; ".join(f"`{size['choice']}`" for size in best), ""]
        limit = [100 * size["plain_hit_rates"]["belady"] for size in sizes]
    rates["belady"] = limit
    return table(rates) + [""] + choices[:-1]


def replay(moestro, trace, *flags):
    command = [moestro, "sim", str(trace), "--slots", ",".join(FRACTIONS), "--held-out", "50",
               "--json", *flags]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def predictor_table(moestro, trace, folder):
    """Recall by distance; held-out hits of next-use with predictions as hints, and with prefetch."""
    summary = subprocess.run([moestro, "trace", "--summary", str(trace)], check=True,
                             capture_output=True, text=True).stdout
    tokens = int(re.search(r"(\d+) decode", summary)[1])
    paths = f"{folder}/{trace.stem}.paths"
    subprocess.run([moestro, "profile", "--trace", str(trace), "-n", str(tokens // 2), "-o", paths],
                   check=True, capture_output=True)
    predictors = ["frequency", "paths", "oracle"]
    if "ahead" in summary:
        predictors.insert(0, "next-router")

    def rates(rows):
        return " / ".join(f"{100 * row['hit_rate']:.1f}" for row in rows)

    sizes = " / ".join(f.removesuffix("%") for f in FRACTIONS)
    lines = [f"| predictor | recall 1 / 2 / 3 layers ahead | hits with hints alone, {sizes} % | "
             "hits with prefetch that is always in time |", "| --- | --- | --- | --- |",
             f"| none | | {rates(replay(moestro, trace))} | |"]
    for name in predictors:
        flags = ["--predictor", name, *(["--paths", paths] if name == "paths" else [])]
        hints = replay(moestro, trace, *flags, "--prefetch", "0")
        fetched = replay(moestro, trace, *flags, "--prefetch", "3")
        recall = " / ".join(f"{100 * p['recall']:.1f}" for p in fetched[0]["predictions"])
        lines.append(f"| {name} | {recall} | {rates(hints)} | {rates(fetched)} |")
    return lines


def table(rates):
    engine = {name: row for name, row in rates.items() if name != "belady"}
    best = [max(row[i] for row in engine.values()) for i in range(len(FRACTIONS))]
    lines = ["| policy | " + " | ".join(f.replace("%", " %") for f in FRACTIONS) + " |",
             "| --- |" + " --- |" * len(FRACTIONS)]
    for name, row in rates.items():
        cells = [f"**{value:.2f}**" if name in engine and value >= top - 0.005 else f"{value:.2f}"
                 for value, top in zip(row, best)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def main():
    moestro, document = sys.argv[1], pathlib.Path(sys.argv[2])
    lines = []
    pictures = document.parent / "policies"
    pictures.mkdir(exist_ok=True)
    folder = tempfile.mkdtemp()
    for trace in sorted(TRACES.glob("*.trace")):
        for held_out, what in ((0, "all tokens"), (50, "second half, the first warms up")):
            lines += ["", f"### {trace.stem}, {what}", "", *table(sweep(moestro, trace, held_out))]
        draw(moestro, trace, pictures / f"{trace.stem}.svg")
        lines += ["", f"![hits over slots, {trace.stem}, all tokens](policies/{trace.stem}.svg)"]
        lines += ["", f"### {trace.stem}, tuned on the first half, counted on the second", "",
                  *tuned_table(moestro, trace)]
        lines += ["", f"### {trace.stem}, predictors, second half, the first warms up (and teaches "
                  "`paths`)", "", *predictor_table(moestro, trace, folder)]
    shutil.rmtree(folder)
    text = document.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    document.write_text(before + BEGIN + "\n" + "\n".join(lines[1:]) + "\n\n" + END + after)


if __name__ == "__main__":
    main()
