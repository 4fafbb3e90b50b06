#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Clients that mix several models of one `moestro serve --models`, whose budget need not hold all.

  house_load.py MOESTRO --models a.gguf,b.gguf,c.gguf --ram 2G [--clients 8] [--seconds 600]
                [--near LOG] [-- FLAGS]

Each answer is compared with that of a server which has the model alone. Prints one JSON object:
answers, those that differ or were lost, refusals, the peak of all processes (proportional set
size, looked at twice a second), and what the house counts of loads, shrinks and ends. Exit code 1
when an answer was wrong or lost, the peak was above --ram, or a process outlived the server.
FLAGS go to every server; `--for NAME:FLAG=VALUE` counts for a model's own server, too.
"""
import argparse
import asyncio
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from serve_load import complete, prompts, quantile, request, until_ready

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
LOOK_SECONDS = 0.5
STAYS = 0.7  # how often a client's next request is for the same model


def bytes_of(text):
    number, unit = re.fullmatch(r"([\d.]+)([KMG]?)(?:i?B)?", text).groups()
    return int(float(number) * UNITS[unit])


def flags_alone(flags, model):
    """The flags of all servers for one that has the model alone."""
    left = iter(flags)
    for flag in left:
        if flag != "--for":
            yield flag
            continue
        name, own = next(left).split(":", 1)
        if name == model:
            yield "--" + own


def start(args, cache, *flags):
    server = subprocess.Popen([args.moestro, "serve", *flags, "--port", "0"],
                              stdout=subprocess.PIPE, text=True,
                              env=os.environ | {"XDG_CACHE_HOME": cache})
    return server, server.stdout.readline().split()[-1]


def stop(server):
    server.send_signal(signal.SIGTERM)
    return server.wait(timeout=60)


def family(pid):
    """The process and all that descend from it."""
    children = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, left = [], [pid]
    while left:
        found.append(left.pop())
        left.extend(children.get(found[-1], []))
    return found


def resident(pids):
    total = 0
    for pid in pids:
        try:
            text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += int(re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE).group(1)) * 1024
    return total


async def answers_alone(args, cache, model, file, wishes, fields):
    server, url = start(args, cache, file, *flags_alone(args.flags, model))
    await until_ready(url)
    answers = [await complete(url, *wish, cache_prompt=False, **fields) for wish in wishes]
    stop(server)
    return answers


async def client(url, number, end, alone, wishes, fields, near, counts):
    rng = random.Random(number)
    model = rng.choice(sorted(alone))
    while time.monotonic() < end:
        if rng.random() > STAYS:
            model = rng.choice(sorted(alone))
        i = rng.randrange(len(wishes))
        began = time.monotonic()
        answer = await complete(url, *wishes[i], model=model, **fields)
        if answer.status in (429, 503):
            counts["refused"] += 1
            await asyncio.sleep(0.2)
            continue
        counts["answers"] += 1
        counts["by_model"][model] = counts["by_model"].get(model, 0) + 1
        if answer.times:
            counts["first_token_s"].append(answer.times[0] - began)
        if not answer.done or answer.error:
            counts["lost"] += 1
            counts["errors"].append(f"{model}: {answer.error}")
        elif answer.text != alone[model][i].text:
            is_tie = near > 0 and answer.differs_at_a_near_tie(alone[model][i], near)
            counts["near_ties" if is_tie else "wrong"] += 1
            if not is_tie:
                counts["errors"].append(f"{model}: {answer.text!r}, alone {alone[model][i].text!r}")


async def look(pid, end, peak, seen):
    while time.monotonic() < end:
        pids = family(pid)
        seen.update(pids)
        peak[0] = max(peak[0], resident(pids))
        await asyncio.sleep(LOOK_SECONDS)


def names_of(models):
    return {pathlib.Path(model).stem: model for model in models.split(",")}


async def mix(args, cache):
    wishes = [(p, random.Random(p).randint(8, 40)) for p in prompts(12, 40, 1)]
    fields = {"logprobs": 2} if args.near else {}
    alone = {name: await answers_alone(args, cache, name, file, wishes, fields)
             for name, file in names_of(args.models).items()}
    server, url = start(args, cache, "--models", args.models, "--ram", args.ram, *args.flags)
    await until_ready(url)
    counts = {"answers": 0, "by_model": {}, "wrong": 0, "near_ties": 0, "lost": 0, "refused": 0,
              "errors": [], "first_token_s": []}
    peak, seen = [0], set()
    end = time.monotonic() + args.seconds
    await asyncio.gather(look(server.pid, end, peak, seen),
                         *(client(url, i, end, alone, wishes, fields, args.near, counts)
                           for i in range(args.clients)))
    _, metrics = await request(url, "/metrics")
    house = {name: float(value) for name, value in
             re.findall(r"^moestro_house_(\w+) ([\d.e+]+)$", metrics, re.MULTILINE)}
    code = stop(server)
    outlived = [pid for pid in seen if pathlib.Path(f"/proc/{pid}").exists()]
    first = counts.pop("first_token_s")
    ram = bytes_of(args.ram)
    return {"clients": args.clients, "seconds": args.seconds, **counts,
            "errors": counts["errors"][:5], "first_token_p50_s": quantile(first, 0.5),
            "first_token_p99_s": quantile(first, 0.99), "ram": ram, "peak": peak[0],
            "house": house, "exit_code": code, "outlived": outlived,
            "ok": counts["answers"] > 0 and counts["wrong"] + counts["lost"] == 0 and
                  peak[0] <= ram and code == 0 and not outlived}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("moestro")
    parser.add_argument("--models", required=True)
    parser.add_argument("--ram", required=True)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--near", type=float, default=0.0,
                        help="answers may differ where two tokens' log probabilities are that near "
                             "(hosted models round by their neighbours)")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:end])
    args.flags = sys.argv[end + 1:]
    with tempfile.TemporaryDirectory() as cache:
        result = asyncio.run(mix(args, cache))
    print(json.dumps(result))
    sys.exit(0 if result["ok"] else 1)


if __name__ == "__main__":
    main()
