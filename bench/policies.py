#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Hit rates of every policy on the traces of bench/traces -> the tables in docs/policies.md.

usage: policies.py MOESTRO DOCUMENT
"""
import csv
import pathlib
import subprocess
import sys

FRACTIONS = ["6.25%", "12.5%", "25%", "50%"]
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
    for trace in sorted(TRACES.glob("*.trace")):
        for held_out, what in ((0, "all tokens"), (50, "second half, the first warms up")):
            lines += ["", f"### {trace.stem}, {what}", "", *table(sweep(moestro, trace, held_out))]
    text = document.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    document.write_text(before + BEGIN + "\n" + "\n".join(lines[1:]) + "\n\n" + END + after)


if __name__ == "__main__":
    main()
