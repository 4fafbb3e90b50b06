#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Raw runs of compare.sh -> medians as CSV and as a Markdown table.

usage: summarise.py RAW_FOLDER --targets FILE --csv FILE --markdown FILE
"""
import argparse
import csv
import json
import pathlib
import statistics

GIB = 1 << 30
ENGINES = {"moestro": "Moestro", "llama-plain": "llama.cpp", "llama-repacked": "llama.cpp repacked"}
COLUMNS = [
    "case", "budget", "engine", "status", "runs", "tokens", "tps", "tps_min", "tps_max", "is_upper_limit",
    "peak_bytes", "hit_rate", "disk_bytes", "disk_bandwidth", "bound_tps", "percent_of_bound",
    "limit_tps", "percent_of_limit", "ratio",
    "wanted_tps", "wanted_percent_of_bound", "wanted_ratio",
    "machine", "date", "commit", "model", "threads",
]
WANTED = {"wanted_tps": "tps", "wanted_percent_of_bound": "percent_of_bound", "wanted_ratio": "ratio"}


def read_meta(raw):
    lines = (raw / "meta.tsv").read_text().splitlines()
    return dict(line.split("\t", 1) for line in lines)


def read_runs(raw):
    """One dict per run, in the order in which they were made; "result" is the program's JSON."""
    runs = []
    for line in (raw / "runs.tsv").read_text().splitlines():
        case, budget, engine, round_, status, peak = line.split("\t")
        run = {"case": case, "budget": budget, "engine": engine, "status": status, "peak": int(peak), "result": {}}
        if status == "ok":
            text = (raw / f"{case}-{budget}-{engine}-{round_}.json").read_text()
            try:
                run["result"] = json.loads(text)
            except json.JSONDecodeError:
                run["status"] = "failed"
        runs.append(run)
    return runs


def median(runs, key):
    values = [run["result"][key] for run in runs if run["result"].get(key) is not None]
    return statistics.median(values) if values else None


def rate(run, asked):
    """Tokens per second; of a phase stopped before its first batch was through, the most it can have been."""
    case, result = run["case"], run["result"]
    if result[f"{case}_tokens"] > 0:
        return result[f"{case}_tps"], False
    batch = asked["prefill"] if case == "prefill" else 1
    return batch / max(result[f"{case}_seconds"], 1e-9), True


def summarise_group(runs, asked):
    """Runs of one case, budget and engine -> a row."""
    row = {key: runs[0][key] for key in ("case", "budget", "engine")}
    good = [run for run in runs if run["status"] == "ok"]
    row["runs"] = len(runs)
    row["status"] = "ok" if len(good) == len(runs) else next(r["status"] for r in runs if r["status"] != "ok")
    row["peak_bytes"] = max(run["peak"] for run in runs)
    if not good:
        return row
    case = row["case"]
    rates = [rate(run, asked) for run in good]
    row["tps"] = statistics.median(value for value, _ in rates)
    row["tps_min"] = min(value for value, _ in rates)
    row["tps_max"] = max(value for value, _ in rates)
    row["is_upper_limit"] = int(any(is_limit for _, is_limit in rates))
    row["tokens"] = median(good, f"{case}_tokens")
    row["disk_bytes"] = median(good, f"disk_bytes_{case}")
    row["disk_bandwidth"] = median(good, "disk_bandwidth_probe")
    if case == "decode":
        for key in ("hit_rate", "bound_tps", "percent_of_bound", "limit_tps", "percent_of_limit"):
            row[key] = median(good, key)
    return row


def expert_bytes(runs):
    """What all experts take on disk; reads beyond that are not the bound's but the engine's own doing."""
    slots = median(runs, "slots")
    return median(runs, "slot_bytes") / slots * median(runs, "experts") if slots else float("inf")


def add_prefill_bound(rows, runs):
    """max(bytes of the experts needed / probed bandwidth, time with all resident), as tokens per second."""
    mine = {row["budget"]: row for row in rows if row["case"] == "prefill" and row["engine"] == "moestro"}
    resident = mine.get("all", {})
    for budget, row in mine.items():
        if budget == "all" or not row.get("tps") or not resident.get("tps") or not row.get("disk_bandwidth"):
            continue
        these = [r for r in runs if (r["case"], r["budget"], r["engine"]) == ("prefill", budget, "moestro")]
        needed = min(row["disk_bytes"], expert_bytes(these))
        seconds = max(needed / row["disk_bandwidth"], row["tokens"] / resident["tps"])
        row["bound_tps"] = row["tokens"] / seconds
        row["percent_of_bound"] = 100 * row["tps"] / row["bound_tps"]


def add_ratios(rows):
    """Against the better llama.cpp variant in the same case and budget."""
    for row in rows:
        if row["engine"] != "moestro" or not row.get("tps"):
            continue
        others = [other["tps"] for other in rows
                  if other["engine"] != "moestro" and other.get("tps")
                  and (other["case"], other["budget"]) == (row["case"], row["budget"])]
        if others:
            row["ratio"] = row["tps"] / max(others)


def add_targets(rows, path, meta):
    size = round(int(meta["model_bytes"]) / GIB, 1)
    with open(path, newline="") as file:
        for target in csv.DictReader(file):
            if abs(float(target["model_gib"]) - size) > 0.05 or target["threads"] != meta["threads"]:
                continue
            for row in rows:
                if (row["engine"], row["case"], row["budget"]) == ("moestro", target["case"], target["budget"]):
                    row.update({column: target[key] for column, key in WANTED.items()})


def summarise(runs, meta, targets):
    groups = {}
    for run in runs:
        groups.setdefault((run["case"], run["budget"], run["engine"]), []).append(run)
    asked = {"prefill": int(meta["prefill_tokens"]), "decode": int(meta["decode_tokens"])}
    rows = [summarise_group(group, asked) for group in groups.values()]
    rows.sort(key=lambda row: (row["case"], row["budget"] == "all"))
    add_prefill_bound(rows, runs)
    add_ratios(rows)
    add_targets(rows, targets, meta)
    for row in rows:
        row.update({key: meta[key] for key in ("machine", "date", "commit", "model", "threads")})
    return rows


def number(value, digits=2):
    return "" if value in (None, "") else f"{float(value):.{digits}f}"


def against(row, key, unit, digits):
    """A figure next to the one that was asked for: `5.31 (>= 5.0, missed)`."""
    value, wanted = row.get(key), row.get(f"wanted_{key}")
    if value in (None, ""):
        return "–" + (f" (≥ {wanted}{unit})" if wanted else "")
    text = f"{float(value):.{digits}f}{unit}"
    if not wanted:
        return text
    return f"{text} (≥ {wanted}{unit}, {'reached' if float(value) >= float(wanted) else 'missed'})"


def speed(row):
    if row is None or row["status"] == "killed":
        return "–" if row is None else "killed"
    if not row.get("tps"):
        return row["status"]
    text = ("< " if row.get("is_upper_limit") else "") + number(row["tps"])
    return text if row["status"] == "ok" else f"{text} ({row['status']})"


def markdown_rows(rows):
    by_key = {(row["case"], row["budget"], row["engine"]): row for row in rows}
    for case, budget in dict.fromkeys((row["case"], row["budget"]) for row in rows):
        mine, plain, repacked = (by_key.get((case, budget, engine)) for engine in ENGINES)
        if mine is None:
            continue
        hits = "" if mine.get("hit_rate") is None else f"{100 * mine['hit_rate']:.1f} %"
        wanted = mine.get("wanted_tps")
        yield [case, budget, against(mine, "tps", "", 2) if wanted else speed(mine), speed(plain), speed(repacked),
               against(mine, "ratio", "×", 2), against(mine, "percent_of_bound", " %", 1),
               against(mine, "percent_of_limit", " %", 1), hits,
               number(mine["peak_bytes"] / GIB)]


HEAD = ["", "budget", "Moestro tok/s", "llama.cpp", "llama.cpp repacked", "against the better",
        "percent of the bound", "percent of the limit", "hits", "peak GiB"]


def routing_fact(meta):
    if meta.get("routing"):
        return (f"Experts are those of `{meta['routing']}`, recorded from a trained model, in place of the routers'; "
                "llama.cpp cannot follow it.")
    return ("A file from `moestro synth` has synthetic weights with *narrow* routing, unless it was made with "
            "`--routing even`: deeper layers keep to few experts. A trained model's hit rates are others.")


def depth_facts(meta, runs):
    if meta.get("depth", "0") == "0":
        return []
    evaluated = any(run["result"].get("depth_evaluated") for run in runs)
    return [f"* Before the first token stand {meta['depth']} positions with made-up keys and values"
            + ("; llama.cpp evaluated random tokens for them." if evaluated else ".")]


def facts(meta, rows, runs):
    bandwidth = [run["result"]["disk_bandwidth_probe"] for run in runs
                 if run["result"].get("disk_bandwidth_probe")]
    llama = next((run["result"] for run in runs if run["result"].get("engine") == "llama.cpp"), {})
    disk = f"{statistics.median(bandwidth) / GIB:.2f} GiB/s by the probe" if bandwidth else "not probed"
    return [
        f"* Machine: {meta['cpu']}, {meta['cores']} cores, {meta['memory_gib']} GiB, Linux {meta['kernel']}; "
        f"disk {disk} ({meta['file_system']}); memory cgroup {meta['cgroup']}.",
        f"* Moestro at {meta['commit']}; llama.cpp {llama.get('version', 'unknown')} on ggml "
        f"{llama.get('ggml', 'unknown')}; {meta['threads']} threads and a context of {meta['context']} tokens each.",
        f"* Model: `{meta['model']}`, {int(meta['model_bytes']) / GIB:.1f} GiB; tokens are random, the same for both. "
        + routing_fact(meta),
        *depth_facts(meta, runs),
        f"* Medians of {meta['rounds']} interleaved runs, page cache "
        + ("dropped before each" if meta["cache_dropped"] == "1" else "NOT dropped: a trial, not a measurement")
        + f"; decode: {meta['decode_tokens']} tokens from cold; prefill: {meta['prefill_tokens']} tokens. "
        "`all`: no limit, every expert in memory before the clock starts.",
        f"* llama.cpp: weights mapped from the file, or repacked into anonymous memory. Each of its phases ends after "
        f"{meta['llama_seconds']} s at the latest; the rate is that of the tokens done until then, and `<` where not "
        "even one batch was.",
    ]


def write_markdown(path, meta, rows, runs):
    lines = [f"# {meta['machine']}, {meta['date']}", "", *facts(meta, rows, runs), ""]
    lines += ["| " + " | ".join(HEAD) + " |", "| " + " | ".join("---" for _ in HEAD) + " |"]
    lines += ["| " + " | ".join(cells) + " |" for cells in markdown_rows(rows)]
    path.write_text("\n".join(lines) + "\n")


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("raw", type=pathlib.Path)
    parser.add_argument("--targets", type=pathlib.Path, required=True)
    parser.add_argument("--csv", type=pathlib.Path, required=True)
    parser.add_argument("--markdown", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    meta, runs = read_meta(arguments.raw), read_runs(arguments.raw)
    if not runs:
        raise SystemExit(f"summarise.py: {arguments.raw} holds no runs")
    rows = summarise(runs, meta, arguments.targets)
    write_csv(arguments.csv, rows)
    write_markdown(arguments.markdown, meta, rows, runs)


if __name__ == "__main__":
    main()
