#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Boards with little memory and slow disks: what is promised for them, and what comes in their size.

usage: boards.py plan MOESTRO [--folder FOLDER] [--shapes NAME:TYPE,...]
       boards.py run MOESTRO MODEL RAM GB_PER_S [--tokens N]

plan   Plans published shapes (files whose experts are holes, in FOLDER, removed afterwards) for the
       machines of bench/machines/pi5.json, rk3588.json and orin-nano.json, for boards of 4, 8 and
       16 GB with disks of 0.45, 0.9 and 3 GB/s -> a Markdown table of tokens per second.
run    Plans MODEL and then decodes it here, both in a control group that has RAM (such as 3G) and
       reads no faster than so many GB a second, with a cold page cache -> both beside each other.
       Needs root. The processor is this machine's.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from measure import attempt, drop_page_cache

MACHINES = pathlib.Path(__file__).resolve().parent / "machines"
BOARDS = ("pi5", "rk3588", "orin-nano")
# A board's size, and what a process may take of it beside the system.
SIZES = {"4 GB": "3G", "8 GB": "6800M", "16 GB": "14500M"}
DISKS = (0.45, 0.9, 3)
SHAPES = "mixtral-8x7b:q4_K,qwen3.6-35b-a3b:q4_K,gpt-oss-20b:mxfp4"


def speeds(plan):
    """"1.2 to 2.1", or why there are none."""
    if not plan["fits"]:
        return f"needs {plan['smallest'] / 2**30:.1f} GiB"
    low, high = (plan["chosen"]["decode_tps"][end] for end in ("low", "high"))
    return f"{low:.2g} to {high:.2g}"


def plan_shapes(args):
    folder = pathlib.Path(tempfile.mkdtemp(dir=args.folder))
    print("| model | board | size | " + " | ".join(f"{disk} GB/s" for disk in DISKS) + " |")
    print("| --- | --- | --- |" + " --- |" * len(DISKS))
    for shape in args.shapes.split(","):
        name, _, kind = shape.partition(":")
        model = folder / f"{name}.gguf"
        subprocess.run([args.program, "synth", "--shape", name, "--type", kind, "--sparse", "-o",
                        model], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for board in BOARDS:
            described = json.loads((MACHINES / f"{board}.json").read_text())
            for size, ram in SIZES.items():
                cells = []
                for disk in DISKS:
                    machine = folder / "machine.json"
                    machine.write_text(json.dumps({**described, "disk_gb_per_s": disk}))
                    plan, why = attempt([args.program, "plan", model, "--machine", machine, "--ram",
                                         ram, "--json"])
                    cells.append(speeds(plan) if plan else why)
                print(f"| {name} {kind} | {board} | {size} | " + " | ".join(cells) + " |", flush=True)
        model.unlink()
    (folder / "machine.json").unlink(missing_ok=True)
    folder.rmdir()


class Group:
    """A control group of a size, whose processes read a disk no faster than a rate; v1 and v2."""
    def __init__(self, name, ram, model, bytes_per_second):
        root = pathlib.Path("/sys/fs/cgroup")
        number = os.stat(model).st_dev
        disk = f"{os.major(number)}:{os.minor(number)}"
        rate = int(bytes_per_second)
        if (root / "cgroup.controllers").exists():
            (root / "cgroup.subtree_control").write_text("+memory +io")
            settings = {root / name: {"memory.max": ram, "io.max": f"{disk} rbps={rate}"}}
        else:
            settings = {root / "memory" / name: {"memory.limit_in_bytes": ram},
                        root / "blkio" / name:
                            {"blkio.throttle.read_bps_device": f"{disk} {rate}"}}
        for folder, files in settings.items():
            folder.mkdir(exist_ok=True)
            for file, value in files.items():
                (folder / file).write_text(str(value))
        self.folders = list(settings)

    def command(self, command):
        """The command, started within the group."""
        join = " && ".join(f"echo $$ > {folder}/cgroup.procs" for folder in self.folders)
        return ["sh", "-c", f'{join} && exec "$@"', "sh", *command]

    def remove(self):
        for folder in self.folders:
            folder.rmdir()


def run_here(args):
    group = Group("moestro-board", args.ram, args.model, args.rate * 1e9)
    try:
        drop_page_cache()
        plan, why = attempt(group.command([args.program, "plan", args.model, "--ram", args.ram,
                                           "--measure", "--json"]))
        if plan is None or not plan["fits"]:
            sys.exit(why or f"{args.ram} is too small: {plan['smallest']} bytes are needed")
        drop_page_cache()
        done, why = attempt(group.command([args.program, "bench", args.model, "--ram", args.ram,
                                           "-p", 16, "-n", args.tokens, "--warmup", args.tokens,
                                           "-r", 1, "--json"]))
        if done is None:
            sys.exit(why)
    finally:
        group.remove()
    chosen = plan["chosen"]
    print("| RAM | disk GB/s: allowed, measured | experts in memory | promised tok/s | came |")
    print("| --- | --- | --- | --- | --- |")
    print(f"| {args.ram} | {args.rate}, {plan['machine']['disk_bytes_per_second'] / 1e9:.2f} | "
          f"{100 * chosen['expert_share']:.0f} % | {speeds(plan)} | {done['decode_tps']:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    plan = commands.add_parser("plan")
    plan.add_argument("program")
    plan.add_argument("--folder", default=None)
    plan.add_argument("--shapes", default=SHAPES)
    run = commands.add_parser("run")
    run.add_argument("program")
    run.add_argument("model")
    run.add_argument("ram")
    run.add_argument("rate", type=float)
    run.add_argument("--tokens", type=int, default=64)
    args = parser.parse_args()
    (plan_shapes if args.command == "plan" else run_here)(args)


if __name__ == "__main__":
    main()
