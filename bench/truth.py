#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `moestro sim` predicts of runs that were measured -> a Markdown table.

usage: truth.py [-r RUNS] [-n TOKENS] [-t THREADS] [--limit PREFIX] [--keep FOLDER]
                MOESTRO MODEL BUDGET...

RUNS (3) times for every budget, from a cold page cache: `moestro bench --record` decodes from cold,
measures afterwards what decode costs here, and keeps both as a trace; `moestro sim` replays that
trace with the slots, policy and predictor of the run. Ratio: predicted tokens per second to
measured ones, of each run and of the medians. --limit: a command that runs another within the
budget's memory, "memlimit", without the size. --routing: as `moestro bench`.
"""
import argparse
import pathlib
import statistics
import tempfile

import measure


def one(args, budget, trace):
    measure.drop_page_cache()
    routing = ["--routing", args.routing] if args.routing else []
    run = measure.run([*measure.limited(args.limit, budget), args.moestro, "bench", "--cold", args.model,
                       "--ram", budget, "-t", args.threads, "-p", "0", "-n", args.tokens,
                       *routing, "--record", trace, "--json"])
    (again,) = measure.run([args.moestro, "sim", trace, "--recorded-slots", "--policy",
                            run["policy"], "--predictor", "next-router", "--json"])
    # The same replay as the run's own.
    assert abs(again["decode_tps"] - run["sim_tps"]) < 1e-6 * run["sim_tps"], (again, run["sim_tps"])
    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-r", "--runs", type=int, default=3)
    parser.add_argument("-n", "--tokens", type=int, default=48)
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("--limit", default="")
    parser.add_argument("--routing", default="")
    parser.add_argument("--keep", help="where traces stay")
    parser.add_argument("moestro")
    parser.add_argument("model")
    parser.add_argument("budgets", nargs="+")
    args = parser.parse_args()
    print("| budget | measured tok/s | predicted | ratio of each | of the medians | hits | "
          "predicted | ms a token, resident | first two uses | disk GB/s after ms | waiting layer ms | depth | beside |")
    print("| --- |" + " --- |" * 12, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for budget in args.budgets:
            runs = [one(args, budget, pathlib.Path(args.keep or folder) / f"{budget}-{i}.trace")
                    for i in range(args.runs)]

            def each(key, form):
                return ", ".join(form.format(run[key]) for run in runs)

            def median(key):
                return statistics.median(run[key] for run in runs)

            ratio = median("sim_tps") / median("decode_tps")
            print(f"| {budget} | {each('decode_tps', '{:.2f}')} | {each('sim_tps', '{:.2f}')} | "
                  f"{each('sim_ratio', '{:.3f}')} | {ratio:.3f} | "
                  f"{100 * median('hit_rate'):.1f} % | {100 * median('sim_hit_rate'):.1f} % | "
                  f"{1e3 * median('cost_compute_seconds'):.1f} | {median('cost_first_use'):.2f}, "
                  f"{median('cost_second_use'):.2f} | "
                  f"{median('cost_bandwidth') / 1e9:.2f}, "
                  f"{1e3 * median('cost_read_latency'):.2f} | "
                  f"{1e3 * median('cost_layer_wait'):.2f} | {median('io_depth'):.0f} | "
                  f"{median('cost_compute_beside'):.2f}, {median('cost_read_beside'):.2f} |",
                  flush=True)


if __name__ == "__main__":
    main()
