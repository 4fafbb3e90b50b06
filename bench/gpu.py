#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a GPU is worth here: bits, tests and speed beside llama.cpp of the same packages.

usage: gpu.py [OPTION...] [PART...]     parts: check decode prompt disk page; all is every one (default)

check   does it compute right: the demo model's text with and without the device, tests of devices
decode  tokens per second with all, half, a quarter and a tenth of the experts there, beside llama.cpp
        with equal memory (--n-cpu-moe, --moe-cache-mib) and beside the CPU alone; prompts of 512
prompt  prompts of 2048 and 8192 tokens, likewise
disk    experts on the disk: a budget of 8 GiB, a device with none, 4 and 8 GiB
page    the results page from what was measured, RESULTS.md and RESULTS.csv; written after each part

Every figure has a time limit and is kept in RESULTS.json at once; what is there is not measured again
(--again does), and what the time (--minutes) does not suffice for is left to the next call, on another
machine of the kind too if RESULTS.json is brought there. Figures come in order of importance, and in
rounds: medians are those of the rounds that are there. The model, of Qwen3-30B-A3B's shape, is made by
'moestro synth' in --scratch, which is to be on a disk.
"""
import argparse
import collections
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

import gpu_page
import gpu_runs
import measure

SHARES = {"all": 1.0, "half": 0.5, "quarter": 0.25, "tenth": 0.1}
SHAPE = ["--shape", "qwen3-30b-a3b", "--type", "Q4_0", "--vocab-size", "32000"]
# Every width an eighth, and fewer layers, experts and tokens: for a device in software.
SMALL_SHAPE = ["--shape", "qwen3-30b-a3b", "--type", "Q4_0", "--layers", "8", "--experts", "32",
               "--embd", "256", "--ff", "96", "--heads", "8", "--head-dim", "64", "--kv-heads", "1",
               "--vocab-size", "4096"]
Sizes = collections.namedtuple("Sizes", "shape prompts tokens warmup")
FULL = Sizes(SHAPE, (512, 2048, 8192), 128, 512)
SMALL = Sizes(SMALL_SHAPE, (32, 64, 128), 16, 32)
# A budget and devices for experts on the disk; of a model that such a budget holds, as many percent.
LARGE_FILE = 10 << 30
DISK = (["--ram", "8G"], {"4 GiB": "4G", "8 GiB": "8G"})
SMALL_DISK = (["--cache", "50%"], {"25 percent": 0.25, "50 percent": 0.5})

# Tests of bits and tolerances that are quick on a GPU; --tests takes other filters.
TESTS = [
    "DeviceTest.EveryModeIsAsOnTheCpu*", "DeviceTest.EqualPlansGiveEqualBits*",
    "DeviceDenseTest.EveryModeIsAsOnTheCpu*", "DeviceDenseTest.EqualRunsGiveEqualBits",
    "DeviceDenseTest.AToken*", "DeviceDenseTest.WhereScoresTie*", "DeviceDenseTest.LayersThat*",
    "DeviceAgreement.*", "DeviceAttention.*", "DeviceWithMatrixCores.*", "Cover/DeviceTypes.*",
    "Cover/DeviceFamilies.*", "Cover/DeviceParityOfChoices.*", "Cover/DeviceParityOfWidths.*",
    "DeviceBiasTest.EveryActivation*",
]


class Bench(gpu_runs.Figures):
    """Figures of one model on one machine."""
    def __init__(self, args):
        super().__init__(args)
        self.sizes = SMALL if args.small else FULL
        name = "small" if args.small else "qwen3-30b-a3b-q4_0"
        self.model = args.model or args.scratch / f"{name}-{args.routing}.gguf"
        self.fast = self.making = None

    def devices(self):
        found = self.once("machine-devices", [self.programs.moestro, "devices", "--json"])
        return [device for device in found["devices"] if device["type"] not in ("cpu", "remote")]

    def device(self):
        """What --device gets: auto takes GPUs, and never a device in software."""
        if self.args.device:
            return self.args.device
        found = self.devices()
        if not found:
            sys.exit(f"gpu.py: Moestro finds no device here; see machine-doctor in {self.path}")
        return "auto" if any(device["type"] != "software" for device in found) else found[0]["name"]

    def once(self, name, command):
        """A figure that all rounds share and nothing goes on without."""
        now, self.round = self.round, 1
        try:
            result = self.figure(name, command, 60)
        finally:
            self.round = now
        if result is None:
            sys.exit(f"gpu.py: {name} failed: {self.all[name + '.1']['error']}")
        return result

    def begin_model(self):
        """Starts the program that makes the model, unless it is there."""
        if self.making is None and not self.model.exists():
            aside = self.model.with_name(self.model.name + ".part")
            command = [self.programs.moestro, "synth", *self.sizes.shape, "--routing", self.args.routing,
                       "--force", "-o", aside]
            self.making = self.start(command, subprocess.DEVNULL, subprocess.DEVNULL), aside

    def facts(self):
        """Of the model, which is there then."""
        self.begin_model()
        if self.making is not None:
            process, aside = self.making
            if not gpu_runs.ended(process, max(self.left(), 1)):
                raise gpu_runs.OutOfTime
            if process.returncode != 0:
                sys.exit(f"gpu.py: no model could be made in {self.args.scratch}; has the disk room for it?")
            aside.replace(self.model)
            self.making = None
        return self.once("machine-model", [self.programs.moestro, "inspect", self.model, "--json"])

    def in_memory(self, name):
        """The model where every start finds it in memory: a copy in a file system in memory, or the file
        in the page cache where that has no room. As it is for a figure that is there already."""
        if self.kept(name) is not None:
            return self.model
        if self.fast is None:
            size = self.facts()["file_bytes"]
            shared = pathlib.Path("/dev/shm")
            has_room = shared.is_dir() and shutil.disk_usage(shared).free > size + (1 << 30)
            if has_room and gpu_runs.available_memory() > 3 * size + (4 << 30):
                self.fast = pathlib.Path(tempfile.mkdtemp(prefix="moestro-gpu-", dir=shared)) / self.model.name
                shutil.copyfile(self.model, self.fast)
            else:
                self.fast = self.model
                measure.read_into_page_cache(self.model)
        return self.fast

    def close(self):
        """Takes away what only this call needs."""
        if self.fast not in (None, self.model):
            shutil.rmtree(self.fast.parent, ignore_errors=True)
        if self.making is not None:
            process, aside = self.making
            gpu_runs.ended(process, 0)
            aside.unlink(missing_ok=True)

    def vram(self, share):
        """Bytes on a device for a share of the experts beside the dense part, keys, values and work."""
        model = self.facts()
        whole = max(fit["vram"] for fit in model["device_fits"])
        return int(whole - (1 - share) * model["expert_bytes"])


def moestro(bench, name, model, prompt, tokens, extra, before=None):
    threads = ["-t", bench.args.threads] if bench.args.threads else []
    command = [*shlex.split(bench.args.under), bench.programs.moestro, "bench", model, "--cold", "--json",
               "-p", prompt, "-n", tokens, "-c", max(1024, prompt + tokens), *threads, *extra]
    return bench.figure(name, command, 120, before)


def in_memory(bench, name, prompt, tokens, extra):
    return moestro(bench, name, bench.in_memory(name), prompt, tokens,
                   ["--preload", "--warmup", bench.sizes.warmup, *extra])


def llama(bench, name, prompt, tokens, extra):
    threads = bench.args.threads or gpu_runs.cores()
    command = [*shlex.split(bench.args.under), bench.programs.peer, bench.in_memory(name), "-p", prompt,
               "-n", tokens, "-t", threads, "--warmup", bench.sizes.warmup, "-c", max(1024, prompt + tokens),
               "--gpu-layers", 999, *extra]
    return bench.figure(name, command, 90)


def layers_there(bench, share):
    """As many layers' experts as the share holds: (those that stay in memory, MiB of those that are there)."""
    model = bench.facts()
    there = int(model["layers"] * share + 1e-6)
    return model["layers"] - there, model["expert_bytes"] * there // model["layers"] >> 20


def equal_memory(bench, share, run):
    """--vram of a share: what llama.cpp took of the device, unless its driver's figure is senseless."""
    if share == 1.0:
        return []
    reckoned = bench.vram(share)
    taken = (run or {}).get("device_bytes", 0)
    return ["--vram", taken if share * bench.facts()["expert_bytes"] < taken < 1.6 * reckoned else reckoned]


# --- parts ----------------------------------------------------------------------------------------------


def check_text(bench):
    """The demo model's text, most likely tokens alone: on the CPU, all there, and a quarter there."""
    story = [bench.programs.moestro, "run", "-p", "Once upon a time", "-n", 96, "--temp", 0]
    device = ["--device", bench.device()]
    for name, extra in (("cpu", ["--device", "cpu"]), ("device", device), ("few", [*device, "--cache", "25%"])):
        bench.figure(f"check-text-{name}", [*story, *extra], 60, wants_json=False)


def check_tests(bench):
    env = {"MOESTRO_TEST_DEVICE": "1"}
    if "GGML_BACKEND_PATH" not in os.environ:
        env["GGML_VK_VISIBLE_DEVICES"] = "0,0"  # one GPU as two
    if any(device["type"] != "software" for device in bench.devices()):
        env["MOESTRO_TEST_MATRIX_CORES"] = "1"
    commands = [(f"check-test-{i:02}", [bench.programs.tests, f"--gtest_filter={wanted}-Slice*"])
                for i, wanted in enumerate(bench.args.tests or TESTS)]
    bench.side_by_side(commands, 90, max(1, gpu_runs.cores() // 2), env)


def check(bench):
    if bench.round > 1:
        return
    bench.begin_model()  # meanwhile
    bench.figure("machine-doctor", [bench.programs.moestro, "doctor", "--json"], 60)
    check_text(bench)
    check_tests(bench)


def decode(bench):
    bench.facts()
    prompt, tokens = bench.sizes.prompts[0], bench.sizes.tokens
    device = ["--device", bench.device()]
    in_memory(bench, "decode-cpu-moestro", prompt, tokens, ["--device", "cpu"])
    for share_name, share in SHARES.items():
        stay, cache = layers_there(bench, share)
        run = llama(bench, f"decode-{share_name}-llama", prompt, tokens, ["--cpu-moe", stay] if stay else [])
        in_memory(bench, f"decode-{share_name}-moestro", prompt, tokens,
                  [*device, *equal_memory(bench, share, run)])
        if stay:
            llama(bench, f"decode-{share_name}-llama-cache", prompt, tokens,
                  ["--cpu-moe", bench.facts()["layers"], "--moe-cache", max(cache, 1)])


def prompt(bench):
    bench.facts()
    device = ["--device", bench.device()]
    for size in bench.sizes.prompts[1:]:
        for share_name, share in SHARES.items():
            stay, _ = layers_there(bench, share)
            run = llama(bench, f"prompt-{size}-{share_name}-llama", size, 4,
                        ["--ubatch", 2048, *(["--cpu-moe", stay] if stay else [])])
            in_memory(bench, f"prompt-{size}-{share_name}-moestro", size, 4,
                      [*device, *equal_memory(bench, share, run)])
        in_memory(bench, f"prompt-{size}-cpu-moestro", size, 4, ["--device", "cpu"])


def disk(bench):
    is_large = bench.facts()["file_bytes"] > LARGE_FILE
    budget, devices = DISK if is_large else SMALL_DISK
    runs = [("none", ["--device", "cpu"])]
    for label, size in devices.items():
        vram = size if isinstance(size, str) else bench.vram(size)
        runs.append((label.replace(" ", "-"), ["--device", bench.device(), "--vram", vram]))
    for label, extra in runs:
        moestro(bench, f"disk-{label}-moestro", bench.model, bench.sizes.prompts[0], bench.sizes.tokens // 2,
                [*budget, *extra], measure.drop_page_cache if is_large else None)


PARTS = {"check": check, "decode": decode, "disk": disk, "prompt": prompt}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("-o", "--output", default="gpu-results", help="results, without an ending")
    parser.add_argument("--scratch", default="gpu-scratch", help="folder of the model and of caches")
    parser.add_argument("--minutes", type=float, default=9.5, help="time of this call (9.5)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each figure, if the time suffices (3)")
    parser.add_argument("--patience", type=float, default=1.0, help="factor on all time limits of figures")
    parser.add_argument("--again", action="store_true", help="measure what is there, too")
    parser.add_argument("--small", action="store_true", help="small shapes and prompts, for a software device")
    parser.add_argument("--routing", default="narrow", help="of the synthetic model: narrow or even")
    parser.add_argument("--model", help="a file in place of the synthetic one")
    parser.add_argument("--device", help="as of moestro (auto, or the first device in software)")
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("--tests", nargs="*", help="filters of tests in place of the usual ones")
    parser.add_argument("--under", default="", help="a command that runs the measured ones: 'numactl -N 0'")
    parser.add_argument("--build", default="build/gpu", help="folder of the programs, outside a prepared folder")
    parser.add_argument("--moestro", help="the program, if it lies elsewhere")
    args = parser.parse_args()
    known = [*PARTS, "page"]
    unknown = [part for part in args.parts if part not in (*known, "all")]
    if unknown:
        parser.error(f"no part is called '{unknown[0]}'; parts are {', '.join(known)} and all")
    if not args.parts or "all" in args.parts:
        args.parts = known
    start = pathlib.Path(os.environ.get("GPU_STARTED_IN", "."))
    args.output = (start / args.output).resolve()
    args.scratch = (start / args.scratch).resolve()
    args.model = args.model and (start / args.model).resolve()
    args.scratch.mkdir(parents=True, exist_ok=True)
    return args


def interrupted(*_):
    raise KeyboardInterrupt


def main():
    args = arguments()
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, interrupted)
    bench = Bench(args)
    ends = "nothing is left to measure"
    try:
        bench.note_machine({"small": args.small, "routing": args.routing, "model": str(args.model or "")})
        for bench.round in range(1, args.rounds + 1):
            for name, part in PARTS.items():
                if name in args.parts:
                    part(bench)
    except gpu_runs.OutOfTime:
        ends = f"the {args.minutes:g} minutes are over; the same command goes on"
    except KeyboardInterrupt:
        ends = "interrupted; the same command goes on"
    finally:
        bench.close()
        gpu_page.write(args.output, bench.all)
    print(f"{len(bench.measured)} figures in this call; {ends}: {args.output}.md", flush=True)
    return 130 if ends.startswith("interrupted") else 0


if __name__ == "__main__":
    sys.exit(main())
