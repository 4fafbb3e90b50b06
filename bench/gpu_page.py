#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The results page of bench/gpu.py from its figures, OUT.json -> OUT.md and OUT.csv.

usage: gpu_page.py OUT
"""
import collections
import csv
import json
import pathlib
import re
import statistics
import sys

SHARES = ("all", "half", "quarter", "tenth")
# Least ratios that are wanted: to llama.cpp's better way, and to the CPU alone.
WANTED_DECODE = {"all": (0.95, 1.5), "half": (1.3, 1.5), "quarter": (1.3, 1.0), "tenth": (1.3, 1.0)}
WANTED_PROMPT = (1.0, 5.0)
WANTED_FIRST_PROMPT = {"all": (0.95, None)}
WANTED_DISK = 1.2
CSV_KEYS = ("prefill_tokens", "prefill_tps", "decode_tokens", "decode_tps", "decode_ms_p10", "decode_ms_p50",
            "percent_of_bound", "percent_of_limit", "hit_rate", "peak_rss", "load_seconds", "ubatch", "cpu_moe",
            "moe_cache", "device_bytes", "device_computed", "device_planned", "device_layers_there")
DRIVER_KEYS = ("graphs_built", "launches", "waits", "writes", "reads", "bytes_there", "bytes_back")


def test_counts(text):
    """Of a GoogleTest program's output."""
    def of(word):
        found = re.findall(rf"\[  {word} +\] (\d+) tests?", text)
        return int(found[-1]) if found else 0
    return {"passed": of("PASSED"), "failed": of("FAILED"), "skipped": of("SKIPPED")}


def told(figure):
    """A figure in a few words, for a person who waits."""
    result = figure.get("result")
    if figure["state"] != "ok":
        lines = figure.get("error", "").strip().splitlines() or [""]
        return f"{figure['state']} after {figure['seconds']:.0f} s: {lines[-1][:160]}"
    if isinstance(result, dict) and "decode_tps" in result:
        return (f"prompt {result['prefill_tps']:.1f}, decode {result['decode_tps']:.2f} tok/s "
                f"({figure['seconds']:.0f} s)")
    if isinstance(result, dict) and "passed" in result:
        return ", ".join(f"{n} {what}" for what, n in result.items() if n) + f" ({figure['seconds']:.0f} s)"
    return f"done ({figure['seconds']:.0f} s)"


def read(path):
    """Figures by name and round, as bench/gpu.py keeps them; none if there is no such file."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        sys.exit(f"{path} cannot be read ({error}); remove it or name another")


class Results:
    """Figures by name, each with the rounds in which it was measured."""
    def __init__(self, figures):
        self.runs = collections.defaultdict(list)
        for figure in figures.values():
            self.runs[figure["name"]].append(figure)

    def one(self, name):
        results = [run["result"] for run in self.runs.get(name, []) if run["result"] is not None]
        return results[0] if results else None

    def median(self, name, key):
        values = [run["result"][key] for run in self.runs.get(name, [])
                  if isinstance(run["result"], dict) and run["result"].get(key)]
        return statistics.median(values) if values else None

    def why_not(self, name):
        """A dash, or what went wrong instead of a figure."""
        states = [run["state"] for run in self.runs.get(name, []) if run["state"] != "ok"]
        return states[0] if states else "–"


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def number(value):
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def shown(results, name, key):
    value = results.median(name, key)
    return results.why_not(name) if value is None else number(value)


def ratio(ours, theirs, wanted=None):
    if not ours or not theirs:
        return "–"
    times = ours / theirs
    if wanted is None:
        return f"{times:.2f}×"
    return f"{times:.2f}× (≥ {wanted:g}, {'reached' if times >= wanted else '**missed**'})"


def better(results, names, key):
    values = [value for value in (results.median(name, key) for name in names) if value]
    return max(values) if values else None


def device_gib(results, name):
    run = results.one(name) or {}
    taken = sum(device.get("bytes", 0) for device in run.get("devices", [])) or run.get("device_bytes", 0)
    return f"{taken / 2**30:.2f}" if taken > 0 else "–"


def machine_text(results):
    facts = results.one("machine-facts") or {}
    devices = (results.one("machine-devices") or {}).get("devices", [])
    gpus = [f"{device['description']} ({device['name']}, {device['memory_total'] / 2**30:.1f} GiB"
            f"{', in software' if device['type'] == 'software' else ''})"
            for device in devices if device["type"] not in ("cpu", "remote")]
    text = (f"{', '.join(gpus) or 'No device'} beside {facts.get('cores', '?')} cores of {facts.get('cpu', '?')}, "
            f"{facts.get('memory_gib', '?')} GiB, Linux {facts.get('kernel', '?')}, {facts.get('date', '?')}.")
    if facts.get("nvidia_smi"):
        text += f" Driver: {facts['nvidia_smi']}."
    versions = {(run["result"]["version"], run["result"]["ggml"]) for runs in results.runs.values() for run in runs
                if isinstance(run["result"], dict) and "ggml" in run["result"]}
    for llama, ggml in sorted(versions):
        text += f" llama.cpp {llama}, ggml {ggml}."
    model = results.one("machine-model") or {}
    if model:
        text += (f"\n\nModel: {model['name']}, {model['file_bytes'] / 2**30:.2f} GiB, {model['layers']} layers, "
                 f"{model['experts_per_layer']} experts of which {model['experts_used']} are used. "
                 "Weights and tokens are random.")
    return text


def check_text(results):
    text = ""
    alone = results.one("check-text-cpu")
    if alone:
        same = {name: results.one(f"check-text-{name}") == alone for name in ("device", "few")}
        text += ("Text of the demo model beside the CPU's alone: with all there "
                 f"{'the same' if same['device'] else '**another**'}, with a quarter of the experts in memory "
                 f"{'the same' if same['few'] else '**another**'}.\n\n")
    rows = []
    for name in sorted(name for name in results.runs if name.startswith("check-test-")):
        run = results.runs[name][-1]
        wanted = run["command"][-1].removeprefix("--gtest_filter=").removesuffix("-Slice*")
        counts = run["result"] or {}
        rows.append([f"`{wanted}`", *(str(counts.get(key, "–")) for key in ("passed", "failed", "skipped")),
                     run["state"], f"{run['seconds']:.0f} s"])
    return text + table(["tests", "passed", "failed", "skipped", "ended", "time"], rows) if rows else text


def decode_text(results):
    cpu = results.median("decode-cpu-moestro", "decode_tps")
    rows = []
    for share in SHARES:
        names = [f"decode-{share}-llama", f"decode-{share}-llama-cache"]
        ours = f"decode-{share}-moestro"
        if not any(name in results.runs for name in (*names, ours)):
            continue
        mine = results.median(ours, "decode_tps")
        beside, alone = WANTED_DECODE[share]
        rows.append([share, *(shown(results, name, "decode_tps") for name in (*names, ours)),
                     ratio(mine, better(results, names, "decode_tps"), beside), ratio(mine, cpu, alone),
                     shown(results, ours, "percent_of_bound"), device_gib(results, names[0]),
                     device_gib(results, ours)])
    if not rows:
        return ""
    return (f"Tokens per second; the CPU alone makes {number(cpu)}.\n\n" +
            table(["experts there", "llama.cpp, `--n-cpu-moe`", "`--moe-cache-mib`", "Moestro", "to the better",
                   "to the CPU alone", "% of the bound", "GiB there, llama.cpp", "Moestro"], rows))


def prompt_names(results):
    """(tokens, prefix of the figures) of each prompt that was measured; the first is decode's."""
    first = next((run["result"]["prefill_tokens"] for name, runs in results.runs.items()
                  if name.startswith("decode-") for run in runs if run["result"]), None)
    found = [(first, "decode")] if first else []
    sizes = {int(name.split("-")[1]) for name in results.runs if name.startswith("prompt-")}
    return found + [(size, f"prompt-{size}") for size in sorted(sizes)]


def prompt_text(results):
    rows = []
    for tokens, prefix in prompt_names(results):
        cpu = results.median(f"{prefix}-cpu-moestro", "prefill_tps")
        for share in SHARES:
            names = [f"{prefix}-{share}-llama", f"{prefix}-{share}-llama-cache"]
            ours = f"{prefix}-{share}-moestro"
            mine = results.median(ours, "prefill_tps")
            beside, alone = (WANTED_FIRST_PROMPT.get(share, (None, None)) if prefix == "decode" else WANTED_PROMPT)
            if ours in results.runs or names[0] in results.runs:
                rows.append([str(tokens), share, *(shown(results, name, "prefill_tps") for name in (names[0], ours)),
                             number(cpu), ratio(mine, better(results, names, "prefill_tps"), beside),
                             ratio(mine, cpu, alone)])
    return table(["prompt", "experts there", "llama.cpp", "Moestro", "Moestro, CPU alone", "to llama.cpp",
                  "to the CPU alone"], rows) if rows else ""


def disk_text(results):
    names = [name for name in results.runs if name.startswith("disk-")]
    base = {key: results.median("disk-none-moestro", key) for key in ("decode_tps", "prefill_tps")}
    rows = []
    for name in sorted(names, key=lambda name: (not name.startswith("disk-none"), name)):
        is_base = name.startswith("disk-none")
        row = [name.removeprefix("disk-").removesuffix("-moestro").replace("-", " ")]
        for key, wanted in (("decode_tps", WANTED_DISK), ("prefill_tps", 1.0)):
            row += [shown(results, name, key),
                    "" if is_base else ratio(results.median(name, key), base[key], wanted)]
        rows.append([*row, shown(results, name, "percent_of_bound")])
    return table(["device", "decode tok/s", "to none", "prompt tok/s", "to none", "% of the bound"], rows) if rows else ""


def missing_text(results):
    lines = [f"* `{name}`, round {run['round']}: {told(run)}\n" for name, runs in sorted(results.runs.items())
             for run in runs if run["state"] != "ok"]
    return "".join(lines)


def page(results):
    sections = [("Bits and tests", check_text), ("Decode", decode_text), ("Prompts", prompt_text),
                ("Experts on the disk", disk_text), ("What failed or took too long", missing_text)]
    most = max((len(runs) for name, runs in results.runs.items() if name.startswith("decode-")), default=1)
    text = "# A GPU beside a CPU\n\n" + machine_text(results) + "\n\n"
    text += (("Single runs" if most == 1 else f"Medians of up to {most} runs") +
             ", each a process of its own, after a warm-up, with all weights in memory or there, but where the disk "
             "is named. Moestro gets the memory on the device that llama.cpp's `--n-cpu-moe` took. llama.cpp "
             "computes prompts in parts of 512 in decode's runs, of 2048 in the longer ones (`-ub`).\n")
    for title, make in sections:
        made = make(results)
        if made:
            text += f"\n## {title}\n\n{made}"
    return text


def csv_rows(results):
    yield ["name", "round", "state", "seconds", *CSV_KEYS, *DRIVER_KEYS]
    for name, runs in sorted(results.runs.items()):
        for run in runs:
            result = run["result"] if isinstance(run["result"], dict) else {}
            if not name.startswith(("decode-", "prompt-", "disk-")):
                continue
            device = (result.get("devices") or [{}])[0]
            row = result if "device_bytes" in result else result | {"device_bytes": device.get("bytes", "")}
            yield [name, run["round"], run["state"], run["seconds"], *(row.get(key, "") for key in CSV_KEYS),
                   *(device.get("driver", {}).get(key, "") for key in DRIVER_KEYS)]


def write(output, figures):
    results = Results(figures)
    for ending, fill in ((".md", lambda file: file.write(page(results))),
                         (".csv", lambda file: csv.writer(file, lineterminator="\n").writerows(csv_rows(results)))):
        aside = output.with_name(output.name + ending + ".part")
        with aside.open("w") as file:
            fill(file)
        aside.replace(output.with_name(output.name + ending))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    output = pathlib.Path(sys.argv[1])
    write(output, read(output.with_name(output.name + ".json")))


if __name__ == "__main__":
    main()
