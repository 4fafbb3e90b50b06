#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Traces on the machines of bench/machines -> the tables in docs/devices-results.md.

usage: lanes.py MOESTRO DOCUMENT

Nothing is measured here: `moestro sim --machine` prices steps by the costs in those files. Routing
is recorded where bench/traces has it, else that of a small model with synthetic weights and the
real one's layers and experts, on random tokens.
"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"
HERE = pathlib.Path(__file__).parent
Q4_0, Q8_0, BF16 = 4.5 / 8, 8.5 / 8, 2.0  # bytes of a weight
MEASURED = "epyc-genoa-2core-24g-2026-11-22"
VRAM, ROWS = [25, 50, 75], [1, 4, 8, 12]
PROMPT = 1024
DISK_MEMORY, DISK_VRAM = "45%", [25, 50]
TIER_MEMORY = ["6.25%", "25%", "50%", "75%", "100%"]
SMALL = ["--embd", 128, "--ff", 32, "--heads", 4, "--kv-heads", 2, "--head-dim", 32,
         "--vocab-size", 1000, "--context", 4096, "--type", "F16", "--routing", "even"]


class Shape:
    """A model: what a layer weighs, and where its routing is from."""

    def __init__(self, name, embd, ff, attention, shape=None, skew=0.0, trace=None):
        self.name, self.shape, self.skew, self.trace = name, shape, skew, trace
        self.expert_weights = 3 * embd * ff
        self.dense_weights = attention

    def expert_bytes(self, weight=Q4_0):
        return int(self.expert_weights * weight)


# attention: weights of a layer's projections and router.
SHAPES = [
    Shape("Mixtral-8x7B", 4096, 14336, 4096 * (2 * 4096 + 2 * 1024 + 8), "mixtral-8x7b", 0.2),
    Shape("Phi-3.5-MoE", 4096, 6400, 4096 * (2 * 4096 + 2 * 1024 + 16), "phi-3.5-moe", 0.2),
    Shape("OLMoE", 2048, 1024, 2048 * (4 * 2048 + 64), trace=HERE / "traces/olmoe-299.trace"),
    Shape("Qwen3-30B-A3B", 2048, 768, 2048 * (2 * 4096 + 2 * 512 + 128), "qwen3-30b-a3b", 0.6),
]
MACHINES = {  # and how much of the experts memory holds
    "rtx-4090-pcie4": "100%",
    "quadro-rtx-6000-pcie3": "100%",
    "jetson-orin-ssd": "6.25%",
}


def call(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True,
                          text=True).stdout


def record(moestro, shape, folder):
    """A trace of decode tokens, and one of a prompt."""
    model = folder / f"{shape.shape}.gguf"
    call(moestro, "synth", "--shape", shape.shape, *SMALL, "--skew", shape.skew, "-o", model)
    shape.trace = folder / f"{shape.shape}.trace"
    call(moestro, "trace", model, "--random", 480, "-o", shape.trace)
    shape.prompt = folder / f"{shape.shape}-prompt.trace"
    call(moestro, "trace", model, "--random", PROMPT + 1, "--prefill", PROMPT, "-c", PROMPT + 16,
         "-o", shape.prompt)


def simulate(moestro, machine, shape, *flags, weight=Q4_0, dense=Q8_0, held_out=50, trace=None):
    """{(place, rows, device slots): line}"""
    lines = json.loads(call(
        moestro, "sim", trace or shape.trace, "--machine", machine, "--expert-bytes",
        shape.expert_bytes(weight), "--dense-bytes", int(shape.dense_weights * dense),
        "--held-out", held_out, "--json", *flags))
    return {(line["place"], line["rows"], line["device_slots"]): line for line in lines}


def machine_file(name):
    return HERE / "machines" / f"{name}.json"


def markdown(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "| --- |" + " --- |" * (len(head) - 1)
    for cells in rows:
        yield "| " + " | ".join(map(str, cells)) + " |"


def rate(line):
    return line["decode"]["tps"]


def number(value):
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def mode_rows(moestro, machine, memory):
    for shape in SHAPES:
        found = simulate(moestro, machine_file(machine), shape, "--place", "all", "--vram",
                         ",".join(f"{v}%" for v in VRAM), "--rows", ",".join(map(str, ROWS)),
                         "--slots", memory, "--preload")
        sizes = sorted({slots for _, _, slots in found})
        for rows in ROWS:
            cells = []
            for slots in sizes:
                auto, gpu, both, cpu = (rate(found[mode, rows, slots]) for mode in
                                        ("auto", "gpu-centric", "cooperative", "cpu"))
                cells.append(f"**{number(auto)}** {number(gpu)} / {number(both)} / {number(cpu)}")
            yield [shape.name if rows == ROWS[0] else "", rows, *cells]


def tier_rows(moestro):
    """How many times as fast `auto` is with exclusive tiers as with inclusive ones."""
    for machine in MACHINES:
        for memory in TIER_MEMORY:
            cells = []
            for shape in SHAPES:
                speed = {}
                for tiers in ("inclusive", "exclusive"):
                    found = simulate(moestro, machine_file(machine), shape, "--vram", "25%,50%",
                                     "--slots", memory, "--preload", "--tiers", tiers)
                    speed[tiers] = [rate(line) for line in found.values()]
                cells.append(" / ".join(f"{e / i:.2f}" for i, e in
                                        zip(speed["inclusive"], speed["exclusive"])))
            yield [machine if memory == TIER_MEMORY[0] else "", memory, *cells]


def disk_rows(moestro):
    """Steps a second where the disk brings experts, by `auto` and with the CPU alone."""
    for machine in MACHINES:
        for bandwidth in ("2G", ""):
            cells = []
            for shape in SHAPES:
                found = simulate(moestro, machine_file(machine), shape, "--slots", DISK_MEMORY,
                                 "--vram", ",".join(f"{v}%" for v in DISK_VRAM), "--place", "all",
                                 *(["--bandwidth", bandwidth] if bandwidth else []))
                sizes = sorted({slots for _, _, slots in found})
                cpu = rate(found["cpu", 1, sizes[0]])
                ratios = [f"{rate(found['auto', 1, slots]) / cpu:.2f}×" for slots in sizes]
                cells.append(f"{number(cpu)}: " + " / ".join(ratios))
            disk = f"{bandwidth}iB/s" if bandwidth else "its own"
            yield [machine if bandwidth else "", disk, *cells]


def linear_quadro(folder):
    """The Quadro's machine with Twiddler's published costs: linear in rows, and its copies."""
    machine = json.loads(machine_file("quadro-rtx-6000-pcie3").read_text())
    machine["host"]["row_share"] = 1
    machine["copy"]["gb_per_s"] = 5
    path = folder / "quadro-linear.json"
    path.write_text(json.dumps(machine))
    return path


def against_layers(moestro, machine, shape, vram, rows, weight):
    """Rows/s: what the planner does; whole layers on the device, N rows at once and one by one."""
    flags = ["--vram", vram, "--slots", "100%", "--preload"]
    ours = simulate(moestro, machine, shape, *flags, "--rows", rows, "--place", "all",
                    weight=weight)
    layers = simulate(moestro, machine, shape, *flags, "--rows", f"1,{rows}", "--place",
                      "cooperative", "--first", "layers", weight=weight)
    by_mode = {mode: rate(line) for (mode, _, _), line in ours.items()}
    by_rows = {n: rate(line) for (_, n, _), line in layers.items()}
    return by_mode, by_rows[rows], by_rows[1]


def seed_rows(moestro, folder):
    mixtral, phi = SHAPES[0], SHAPES[1]
    desk, quadro = machine_file("rtx-4090-pcie4"), machine_file("quadro-rtx-6000-pcie3")
    linear = linear_quadro(folder)
    cases = [
        ("HOBBIT, Mixtral float16 on an RTX 4090, CPU helping", "1.31", desk, mixtral, "22%", 1),
        ("HOBBIT, Phi float16 on an RTX 4090, CPU helping", "1.42", desk, phi, "22%", 1),
        ("Twiddler, Mixtral BF16, single batch", "1.26", quadro, mixtral, "56", 1),
        *((f"Twiddler, beam search of {n}", "11.57 (mean of 4, 8, 12)", quadro, mixtral, "56", n)
          for n in (4, 8, 12)),
        *((f"the same, Twiddler's own costs, {n}", "", linear, mixtral, "56", n)
          for n in (4, 8, 12)),
    ]
    for what, published, machine, shape, vram, rows in cases:
        modes, together, alone = against_layers(moestro, machine, shape, vram, rows, BF16)
        yield [what, published, number(modes["auto"]), number(together),
               f"{modes['auto'] / together:.2f}×", f"{modes['auto'] / alone:.2f}×",
               f"{modes['auto'] / modes['cooperative']:.2f}×",
               f"{modes['auto'] / modes['gpu-centric']:.2f}×"]


def prompt_rows(moestro, folder):
    mixtral = SHAPES[0]
    machines = [("RTX 4090", machine_file("rtx-4090-pcie4")),
                ("Quadro RTX 6000", machine_file("quadro-rtx-6000-pcie3")),
                ("the same, Twiddler's own costs", linear_quadro(folder))]
    for name, machine in machines:
        found = simulate(moestro, machine, mixtral, "--place", "all", "--vram", "56", "--slots",
                         "100%", "--preload", "--first", "layers", weight=BF16, held_out=0,
                         trace=mixtral.prompt)
        tps = {mode: line["prefill"]["tps"] for (mode, _, _), line in found.items()}
        fixed = max(tps["gpu-centric"], tps["cooperative"], tps["cpu"])
        yield [name, *(number(tps[m]) for m in ("auto", "gpu-centric", "cooperative", "cpu")),
               f"{tps['auto'] / fixed:.2f}×"]


def cpu_rows(moestro):
    for shape in SHAPES:
        cells = []
        for share in VRAM:
            found = simulate(moestro, machine_file("epyc-2core"), shape, "--slots", f"{share}%")
            (line,) = found.values()
            hits = line["decode"]["in_memory"] / line["decode"]["experts"]
            cells.append(f"{number(rate(line))} ({100 * hits:.0f} %)")
        yield [shape.name, *cells]


def check_rows(moestro, folder):
    """What an engine measured on the machine without a device, against the price at its hits."""
    qwen = SHAPES[3]
    model, trace = folder / "narrow.gguf", folder / "narrow.trace"
    narrow = [flag if flag != "even" else "narrow" for flag in SMALL]
    call(moestro, "synth", "--shape", qwen.shape, *narrow, "-o", model)
    call(moestro, "trace", model, "--random", 480, "-o", trace)
    priced = []  # (hits, tok/s)
    for share in range(8, 41):
        (line,) = simulate(moestro, machine_file("epyc-2core"), qwen, "--slots", f"{share}%",
                           dense=Q4_0, trace=trace).values()
        priced.append((line["decode"]["in_memory"] / line["decode"]["experts"], rate(line)))
    (line,) = simulate(moestro, machine_file("epyc-2core"), qwen, "--slots", "100%", "--preload",
                       dense=Q4_0, trace=trace).values()
    priced.append((1.0, rate(line)))
    with open(HERE / "results" / f"{MEASURED}.csv", newline="") as file:
        runs = [row for row in csv.DictReader(file)
                if row["case"] == "decode" and row["engine"] == "moestro"]
    for run in runs:
        hits = float(run["hit_rate"])
        (low, slow), (high, fast) = next(pair for pair in zip(priced, priced[1:])
                                         if pair[0][0] <= hits <= pair[1][0])
        price = slow + (fast - slow) * (hits - low) / (high - low)
        measured = float(run["tps"])
        yield [run["budget"], f"{100 * hits:.1f} %", f"{measured:.2f}", f"{price:.2f}",
               f"{measured / price:.2f}"]


def tables(moestro, folder):
    head = ["shape", "rows", *(f"{v} % of the experts on the device" for v in VRAM)]
    for machine, memory in MACHINES.items():
        name = json.loads(machine_file(machine).read_text())["machine"]
        where = "all experts" if memory == "100%" else f"{memory} of the experts"
        yield from ["", f"### {name}; {where} in memory", ""]
        yield from markdown(head, mode_rows(moestro, machine, memory))
    yield from ["", "### Exclusive tiers over inclusive ones, `auto`, one row; 25 % / 50 % of the "
                "experts on the device", ""]
    yield from markdown(["machine", "experts in memory", *(shape.name for shape in SHAPES)],
                        tier_rows(moestro))
    sizes = " / ".join(f"{v} %" for v in DISK_VRAM)
    yield from ["", f"### Experts on the disk, {DISK_MEMORY} in memory: the CPU alone, `auto` with "
                f"{sizes} on the device", ""]
    yield from markdown(["machine", "disk", *(shape.name for shape in SHAPES)], disk_rows(moestro))
    yield from ["", "### AMD EPYC, 2 cores, no device: memory and disk", ""]
    yield from markdown(["shape", *(f"{v} % of the experts in memory (hits)" for v in VRAM)],
                        cpu_rows(moestro))
    yield from ["", "### The same machine, Qwen3-30B-A3B with narrow routing: measured and priced",
                ""]
    yield from markdown(["budget", "hits, measured", "tok/s, measured", "priced at those hits",
                         "measured / priced"], check_rows(moestro, folder))
    yield from ["", "### Beside the published ratios: decode", ""]
    yield from markdown(["published", "over llama.cpp", "`auto`, rows/s", "whole layers, rows/s",
                         "ratio", "over whole layers, a row at a time", "over `cooperative`",
                         "over `gpu-centric`"], seed_rows(moestro, folder))
    yield from ["", f"### Beside the published ratio: a prompt of {PROMPT} tokens", "",
                "Mixtral in BF16, 56 of 256 experts on the device, the last layers.", ""]
    yield from markdown(["machine", "`auto`, tok/s", "`gpu-centric`", "`cooperative`", "`cpu`",
                         "`auto` over the best of them"], prompt_rows(moestro, folder))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    moestro, document = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for shape in SHAPES:
            if shape.trace is None:
                record(moestro, shape, folder)
        lines = list(tables(moestro, folder))
    text = document.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    document.write_text(before + BEGIN + "\n" + "\n".join(lines[1:]) + "\n\n" + END + after)


if __name__ == "__main__":
    main()
