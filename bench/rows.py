#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Steps of several rows beside llama.cpp -> OUT.json and OUT.md.

usage: rows.py [-r RUNS] [-p TOKENS] [-n STEPS | --rows ROWS] [--sequences 1,4,8]
               [--limit PREFIX] [--seconds S] [--patience S] [--llama-peer PROGRAM]
               [--common FLAGS] -o OUT MOESTRO MODEL BUDGET...

Decode of independent sequences of random tokens, one row of each in a step, for every budget ("4G",
"all") and number of sequences: RUNS (3) times Moestro and llama.cpp in turn, page cache dropped
before each. STEPS (24) from cold, or after TOKENS (0) of prefill for each sequence. "all": every
expert in memory before the clock starts, and llama.cpp with repacked weights, too; the ratio is
against its better variant. Without --llama-peer it is Moestro alone. --rows: as many steps as make
ROWS rows, however many go together, so that filling the memory weighs the same in all.
llama.cpp stops after S (60) seconds, but not before its first step is through; where that limit
stopped it, one run is enough.
"read" and "union" per row are compared with those of one row at a time: what a row reads should
fall at least as much as the experts that a step needs for it do.
--common: flags of all of Moestro's runs ("--routing T.trace").
--patience: how long a run may wait for other programs to be quiet (0).
--limit: a command that runs another within the budget's memory, "memlimit 4G", without the size.
"at its quickest": the quickest tenth of steps, all alike where every expert is in memory.
"others": processors that other programs kept busy in the worst of a cell's runs.
Cells that OUT.json has are not measured again; OUT.md shows all it has.
"""
import argparse
import json
import pathlib
import shlex
import statistics
import sys

import measure

WARM = ["--warmup", 64]
HEAD = ["budget", "rows per step", "Moestro rows/s", "llama.cpp", "ratio", "read per row",
        "of one row's", "union of experts per row", "of one row's", "of the bound", "hits",
        "peak GiB", "others"]
RESIDENT_HEAD = ["rows per step", "Moestro rows/s", "llama.cpp", "repacked", "ratio",
                 "Moestro at its quickest", "llama.cpp", "repacked", "ratio", "of the bound",
                 "others"]


def work(args, sequences):
    steps = max(args.rows // sequences, 1) if args.rows else args.steps
    return ["-t", args.threads, "-c", args.ctx, "-p", args.prompt, "-n", steps, "--sequences",
            sequences]


def bench(args, budget, sequences):
    memory = ["--preload", *WARM] if budget == "all" else ["--ram", budget]
    limit = "" if budget == "all" else args.limit
    measure.drop_page_cache()
    run = measure.run([*measure.limited(limit, budget), args.moestro, "bench", "--cold", args.model, *memory,
                       *work(args, sequences), "--json", *shlex.split(args.common)])
    run["model"] = pathlib.Path(run["model"]).name
    return run


def bench_llama(args, budget, sequences, variant):
    flags = ["--repack"] if variant == "repacked" else []
    limit = args.limit
    measure.drop_page_cache()
    if budget == "all":
        flags += WARM
        limit = ""
        measure.read_into_page_cache(args.model)
    result, why = measure.attempt(
        [*measure.limited(limit, budget), args.llama_peer, args.model, *work(args, sequences),
         "--seconds", args.seconds, "--finish-first", *flags])
    if result is None:
        print(f"rows.py: llama.cpp, {budget}, {sequences} rows: {why}", file=sys.stderr)
    return result


def cell(args, budget, sequences):
    """All runs of one budget and number of sequences."""
    runs = {"moestro": []}
    if args.llama_peer:
        runs["plain"] = []
    if args.llama_peer and budget == "all":
        runs["repacked"] = []
    disturbed = []
    for _ in range(args.runs):
        for name, done in runs.items():
            if done and (done[-1] is None or done[-1].get("decode_stopped_early")):
                continue
            measure.wait_for_quiet(args.patience)
            with measure.Disturbance() as others:
                done.append(bench(args, budget, sequences) if name == "moestro"
                            else bench_llama(args, budget, sequences, name))
            disturbed.append(round(others.processors, 2))
            tps = done[-1]["decode_tps"] if done[-1] else 0
            print(f"rows.py: {budget}, {sequences} rows, {name}: {tps:.2f} rows/s",
                  file=sys.stderr, flush=True)
    return {"budget": budget, "sequences": sequences, "runs": runs, "disturbed": disturbed}


def median(runs, key):
    return statistics.median(run[key] for run in runs)


def quickest(runs):
    """Rows per second of the quickest tenth of steps, which other programs disturbed least."""
    return 1000 * runs[0]["sequences"] / min(run["decode_ms_p10"] for run in runs)


def speeds(found, rate):
    """[each engine's, and the ratio against the better of llama.cpp's]; "–" for what there is not"""
    of = {name: rate(list(filter(None, runs))) for name, runs in found["runs"].items() if any(runs)}
    # 0: stopped before it decoded anything.
    others = [speed for name, speed in of.items() if name != "moestro" and speed > 0]
    cells = [f"{of[name]:.2f}" if name in of else "–" for name in ("moestro", "plain", "repacked")]
    return [*cells, f"{of['moestro'] / max(others):.2f}×" if others else "–"]


def rate(runs):
    return median(runs, "decode_tps")


def uses_per_row(found):
    run = found["runs"]["moestro"][0]
    return run["expert_uses"] / run["decode_tokens"]


def row(found, one, choices):
    ours = found["runs"]["moestro"]
    moestro, plain, _, ratio = speeds(found, rate)
    read, uses = median(ours, "bytes_per_row"), uses_per_row(found)
    alone = median(one["runs"]["moestro"], "bytes_per_row") if one else 0
    return [found["budget"], found["sequences"], moestro, plain, ratio, f"{read / 2**20:.1f} MiB",
            f"{100 * read / alone:.0f} %" if alone else "–", f"{100 * uses / choices:.0f} %",
            f"{100 * uses / uses_per_row(one):.0f} %" if one else "–",
            f"{median(ours, 'percent_of_bound'):.0f} %", f"{100 * median(ours, 'hit_rate'):.1f} %",
            f"{median(ours, 'peak_rss') / 2**30:.2f}", f"{max(found['disturbed']):.2f}"]


def resident_row(found):
    return [found["sequences"], *speeds(found, rate), *speeds(found, quickest),
            f"{median(found['runs']['moestro'], 'percent_of_bound'):.0f} %",
            f"{max(found['disturbed']):.2f}"]


def markdown(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "| --- |" + " --- |" * (len(head) - 1)
    for cells in rows:
        yield "| " + " | ".join(map(str, cells)) + " |"


def table(cells, choices):
    ones = {found["budget"]: found for found in cells if found["sequences"] == 1}
    limited = [found for found in cells if found["budget"] != "all"]
    if limited:
        yield from markdown(HEAD, (row(f, ones.get(f["budget"]), choices) for f in limited))
    resident = [found for found in cells if found["budget"] == "all"]
    if resident:
        yield from ["", "All experts in memory:", "",
                    *markdown(RESIDENT_HEAD, map(resident_row, resident))]


def order(found):
    budget = found["budget"]
    return budget == "all", len(budget), budget, found["sequences"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-r", "--runs", type=int, default=3)
    parser.add_argument("-p", "--prompt", type=int, default=0)
    parser.add_argument("-n", "--steps", type=int, default=24)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--sequences", default="1,2,4,8,12")
    parser.add_argument("--limit", default="")
    parser.add_argument("--common", default="")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-c", "--ctx", type=int, default=256)
    parser.add_argument("--patience", type=float, default=0)
    parser.add_argument("--llama-peer")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    parser.add_argument("moestro")
    parser.add_argument("model")
    parser.add_argument("budgets", nargs="*")
    args = parser.parse_args()
    stored = args.output.with_suffix(".json")
    cells = json.loads(stored.read_text()) if stored.exists() else []
    known = {(found["budget"], found["sequences"]) for found in cells}
    shape = measure.run([args.moestro, "inspect", args.model, "--json"])
    choices = (shape["layers"] - shape["dense_layers"]) * shape["experts_used"]
    for budget in args.budgets:
        for sequences in map(int, args.sequences.split(",")):
            if (budget, sequences) in known:
                continue
            cells.append(cell(args, budget, sequences))
            cells.sort(key=order)
            stored.write_text(json.dumps(cells, indent=1) + "\n")
            args.output.with_suffix(".md").write_text("\n".join(table(cells, choices)) + "\n")
    print("\n".join(table(cells, choices)))


if __name__ == "__main__":
    main()
