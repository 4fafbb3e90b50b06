#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""EdgeMoE's tables on Switch Transformers' shapes, over throttled disks -> Markdown.

usage: edgemoe.py [-r RUNS] [-n TOKENS] [--experts N]... [--disk NAME=MB/S]... [--budget SIZE]...
                  MOESTRO TRAINED TEXT SCRATCH

TRAINED is what train_switch.py wrote: tiny trained models whose routing stands in for that of
synthetic weights of the published sizes. Paths are learned from TEXT, played is heldout.txt.
SCRATCH takes models (up to 15 GB) and gives them up again. Needs root: a blkio cgroup limits reads.

Rows of the first table add one thing at a time, as the paper's ablation does:
  on demand    F16, a slot for one expert: each is read when its router has chosen it
  bit widths   every expert Q4_0; random weights have no loss to fit widths to
  preloading   from learned paths; four slots, of which one may be filled ahead
  cache        slots for a quarter of the experts, after WARM tokens
The second table is the time of a token within budgets of the whole process, on the last disk.
"""
import argparse
import contextlib
import pathlib
import statistics
import struct
import subprocess

import measure

GROUP = pathlib.Path("/sys/fs/cgroup/blkio/moestro_edgemoe")
WARM = ["--warmup", "96"]  # tokens that fill a cache
FINGERPRINT_AT = 8 + 4 + 4 + 4 * 4 + 4  # of a trace with an encoder and without a little pass
CHECKSUM = 8
TRAINED_ON = 143  # tokens of source and target of 128 tokens of text


@contextlib.contextmanager
def throttled(path, megabytes):
    """Yields a prefix that runs a command with reads of the path's disk limited."""
    device = subprocess.run(["findmnt", "-no", "MAJ:MIN", "-T", path], capture_output=True,
                            text=True, check=True).stdout.strip()
    GROUP.mkdir(exist_ok=True)
    try:
        limit = GROUP / "blkio.throttle.read_bps_device"
        limit.write_text(f"{device} {megabytes * 1000 * 1000}")
        yield ["sh", "-c", f'echo $$ > {GROUP}/cgroup.procs && exec "$@"', "sh"]
    finally:
        GROUP.rmdir()


def of_any_model(path):
    """Takes the model's fingerprint out of a trace, so that it is for every model of the shape."""
    data = bytearray(path.read_bytes()[:-CHECKSUM])
    data[FINGERPRINT_AT:FINGERPRINT_AT + 8] = bytes(8)
    checksum = 0xcbf29ce484222325
    for byte in data:
        checksum = (checksum ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    path.write_bytes(data + struct.pack("<Q", checksum))


class Shape:
    """The files of a number of experts."""
    def __init__(self, args, experts):
        self.args, self.experts = args, experts
        self.scratch = pathlib.Path(args.scratch)
        self.played, self.paths = self.scratch / "played.trace", self.scratch / "learned.paths"
        self.models = {kind: self.scratch / f"base-{experts}-{kind}.gguf" for kind in ("F16", "Q4_0")}

    def __enter__(self):
        run = lambda *words: subprocess.run([self.args.moestro, *map(str, words)], check=True,
                                            capture_output=True)
        tiny, learned = self.scratch / "tiny.gguf", self.scratch / "learned.trace"
        trained = pathlib.Path(self.args.trained)
        run("convert", trained / f"switch-E{self.experts}", "-o", tiny, "--type", "F32", "--force")
        for text, trace in ((self.args.text, learned), (trained / "heldout.txt", self.played)):
            run("trace", tiny, "--text", text, "-c", TRAINED_ON, "-o", trace)
            of_any_model(trace)
        run("profile", "--trace", learned, "-o", self.paths)
        for kind, path in self.models.items():
            run("synth", "--shape", f"switch-base-{self.experts}", "--type", kind, "-o", path,
                "--force")
        self.predicted = self.recall()
        return self

    def recall(self):
        words = [self.args.moestro, "sim", self.played, "--slots", "25%", "--predictor", "paths",
                 "--paths", self.paths]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return next(line.split(":")[1].split(",")[0].strip() for line in said.splitlines()
                    if "predict 1 ahead" in line)

    def __exit__(self, *_):
        for path in self.models.values():
            path.unlink(missing_ok=True)

    def bench(self, prefix, kind, flags):
        """Medians of some runs: seconds a token and of the prompt, hits, peak, bytes a token."""
        runs = []
        for _ in range(self.args.runs):
            measure.drop_page_cache()
            runs.append(measure.run(
                [*prefix, self.args.moestro, "bench", str(self.models[kind]), "--cold", "--json",
                 "-p", "18", "-n", str(self.args.tokens), "-c", "1024", "--routing",
                 str(self.played), *flags]))
        median = lambda key: statistics.median(run[key] for run in runs)
        return {"token": 1.0 / median("decode_tps"), "prompt": median("prefill_seconds"),
                "hits": median("hit_rate"), "peak": median("peak_rss"),
                "read": median("disk_bytes_decode") / self.args.tokens,
                "ahead": median("used_prefetches") / max(median("prefetches"), 1),
                "slots": runs[0]["slots"]}

    def slot_bytes(self, kind):
        expert = 2 * 768 * 3072
        return expert * 2 if kind == "F16" else expert // 32 * 18


def row(cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def ablation(shape, disk, prefix):
    quarter = 12 * shape.experts // 4
    slots = lambda kind, n: str(shape.slot_bytes(kind) * n + 16384 * n)
    paths = ["--predictor", "paths", "--paths", str(shape.paths)]
    rows = [("on demand", "F16", ["--prefetch", "0", "--cache", slots("F16", 1)]),
            ("+ bit widths", "Q4_0", ["--prefetch", "0", "--cache", slots("Q4_0", 1)]),
            ("+ preloading", "Q4_0", [*paths, "--cache", slots("Q4_0", 4)]),
            ("+ cache, edgemoe", "Q4_0", [*paths, *WARM, "--policy", "edgemoe", "--cache",
                                          slots("Q4_0", quarter)]),
            ("+ cache, next-use", "Q4_0", [*paths, *WARM, "--cache", slots("Q4_0", quarter)])]
    first = None
    for name, kind, flags in rows:
        got = shape.bench(prefix, kind, flags)
        first = first or got["token"]
        row([f"base-{shape.experts}", disk, name, str(got["slots"]), f"{1e3 * got['token']:.1f}",
             f"{first / got['token']:.2f}", f"{100 * got['hits']:.0f} %",
             f"{got['read'] / 1e6:.1f}", f"{got['prompt']:.2f}", f"{got['peak'] / 2**20:.0f}"])


def budgets(shape, disk, prefix):
    paths = ["--predictor", "paths", "--paths", str(shape.paths)]
    for kind in ("F16", "Q4_0"):
        whole = shape.models[kind].stat().st_size
        for budget in shape.args.budget:
            size = int(budget[:-1]) * {"M": 2**20, "G": 2**30}[budget[-1]]
            if size > 1.05 * whole:
                continue
            cells = []
            for flags in (["--prefetch", "0"], paths):
                got = shape.bench(prefix, kind, ["--ram", budget, *WARM, *flags])
                cells.append(f"{1e3 * got['token']:.1f} ({100 * got['hits']:.0f} %)")
            row([f"base-{shape.experts}", kind, f"{whole / 2**20:.0f}", disk, budget, *cells,
                 f"{got['peak'] / 2**20:.0f}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-r", "--runs", type=int, default=3)
    parser.add_argument("-n", "--tokens", type=int, default=32)
    parser.add_argument("--experts", type=int, action="append")
    parser.add_argument("--disk", action="append")
    parser.add_argument("--budget", action="append")
    for name in ("moestro", "trained", "text", "scratch"):
        parser.add_argument(name)
    args = parser.parse_args()
    disks = dict(disk.split("=") for disk in args.disk or ["eMMC=200", "SATA=500"])
    for experts in args.experts or [8, 16, 32, 64, 128]:
        with Shape(args, experts) as shape:
            print(f"\nbase-{experts}: paths name {shape.predicted}\n")
            row(["shape", "disk", "", "slots", "ms a token", "times", "hits", "MB a token",
                 "prompt, s", "peak, MiB"])
            row(["---"] * 10)
            for disk, rate in disks.items():
                with throttled(args.scratch, int(rate)) as prefix:
                    ablation(shape, disk, prefix)
            if not args.budget:
                continue
            row(["shape", "type", "file, MiB", "disk", "budget", "cache, ms", "cache and paths, ms",
                 "peak, MiB"])
            row(["---"] * 8)
            disk, rate = list(disks.items())[-1]
            with throttled(args.scratch, int(rate)) as prefix:
                budgets(shape, disk, prefix)


if __name__ == "__main__":
    main()
