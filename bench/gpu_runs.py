#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Figures of bench/gpu.py: programs that run within time limits, and a file of their results."""
import fcntl
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import gpu_page

HERE = pathlib.Path(__file__).resolve().parent
LEAST_SECONDS = 12  # left for a figure to be worth a start


class OutOfTime(Exception):
    """The call's minutes are over; what is left is the next call's."""


def written(path, text):
    """A file that is whole or not there."""
    aside = path.with_name(path.name + ".part")
    aside.write_text(text)
    aside.replace(path)


def driver_folders():
    """(Vulkan manifests, library folders) of drivers that lie where no loader looks by itself."""
    if os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ADD_DRIVER_FILES"):
        return [], []
    known = {file.name for folder in ("/usr/share", "/usr/local/share", "/etc")
             for file in pathlib.Path(folder, "vulkan/icd.d").glob("*.json")}
    manifests = [file for file in sorted(pathlib.Path("/usr/local").glob("*/share/vulkan/icd.d/*.json"))
                 if file.name not in known]
    prefixes = sorted({manifest.parents[3] for manifest in manifests})
    return ([str(manifest) for manifest in manifests],
            [str(prefix / lib) for prefix in prefixes for lib in ("lib64", "lib")
             if (prefix / lib).is_dir()])


def text_of(file):
    file.seek(0)
    return file.read().decode(errors="replace")


def lines_of(path):
    try:
        return pathlib.Path(path).read_text().splitlines()
    except OSError:
        return []


def state_of(is_over, process):
    return "timeout" if not is_over else "ok" if process.returncode == 0 else "failed"


class Programs:
    """The programs under test, and the environment in which they find libraries and drivers."""
    def __init__(self, args):
        is_carried = (HERE / "bin/python3").exists()
        build = HERE / "bin" if is_carried else pathlib.Path(args.build).resolve()
        self.moestro = pathlib.Path(args.moestro or build / "moestro").resolve()
        self.peer = build / ("" if is_carried else "bench") / "moestro_llama_peer"
        self.tests = build / ("" if is_carried else "tests") / "moestro_on_device_test"
        # A carried program's loader and ggml's plug-ins are looked for from here.
        self.folder = HERE if is_carried else pathlib.Path.cwd()
        self.plain = dict(os.environ)  # of the system's own programs
        self.env = dict(os.environ)
        if is_carried:
            inherited = self.plain.pop("GPU_LIBRARY_PATH", "")
            self.plain["LD_LIBRARY_PATH"] = inherited
            del self.plain["PYTHONHOME"]
            manifests, libraries = driver_folders()
            self.env = self.plain | {
                "LD_LIBRARY_PATH": ":".join(filter(None, [str(HERE / "lib"), *libraries, inherited]))}
            if manifests:
                self.env["VK_ADD_DRIVER_FILES"] = ":".join(manifests)
        # What drivers and Moestro keep between starts stays between calls.
        for name, folder in (("XDG_CACHE_HOME", "cache"), ("MESA_SHADER_CACHE_DIR", "cache/mesa"),
                             ("__GL_SHADER_DISK_CACHE_PATH", "cache/nvidia")):
            self.env.setdefault(name, str(args.scratch / folder))
            pathlib.Path(self.env[name]).mkdir(parents=True, exist_ok=True)
        self.env.setdefault("__GL_SHADER_DISK_CACHE", "1")
        self.env.setdefault("__GL_SHADER_DISK_CACHE_SKIP_CLEANUP", "1")


def ended(process, seconds):
    """Whether the process ends in time; one that does not is killed with its children. A process that a
    driver holds in the kernel cannot be, and is left behind."""
    try:
        process.wait(seconds)
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            pass


def cores():
    """Physical ones, as far as the kernel shows them."""
    pairs = set()
    for topology in pathlib.Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology"):
        try:
            pairs.add(((topology / "physical_package_id").read_text(), (topology / "core_id").read_text()))
        except OSError:
            pass
    usable = len(os.sched_getaffinity(0))
    return min(len(pairs), usable) if pairs else usable


def available_memory():
    return next((int(line.split()[1]) << 10 for line in lines_of("/proc/meminfo")
                 if line.startswith("MemAvailable")), 0)


class Figures:
    """What is measured, each a process with a time limit; what the file has is not run again."""
    def __init__(self, args):
        self.args = args
        self.programs = Programs(args)
        self.path = args.output.with_name(args.output.name + ".json")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.lock = self.path.with_suffix(".lock").open("w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit(f"gpu.py: another call is writing {self.path}")
        self.all = gpu_page.read(self.path)
        self.measured = set()  # in this call
        self.end = time.monotonic() + 60 * args.minutes
        self.round = 1

    def left(self):
        return self.end - time.monotonic()

    def start(self, command, out, err, env=None):
        return subprocess.Popen([str(word) for word in command], stdout=out, stderr=err,
                                stdin=subprocess.DEVNULL, cwd=self.programs.folder, process_group=0,
                                env=self.programs.env | (env or {}))

    def run(self, command, seconds):
        """(state, stdout, stderr, seconds); a state is "ok", "failed" or "timeout"."""
        started = time.monotonic()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = self.start(command, out, err)
            except OSError as error:
                return "failed", "", str(error), 0.0
            is_over = ended(process, seconds)
            texts = [text_of(file) for file in (out, err)]
        state = state_of(is_over, process)
        if state == "failed" and not "".join(texts).strip():
            texts[1] = f"ended with {process.returncode}"
        return state, *texts, time.monotonic() - started

    def kept(self, name):
        """A figure of this call or, without --again, of an earlier one."""
        key = f"{name}.{self.round}"
        return None if self.args.again and key not in self.measured else self.all.get(key)

    def keep(self, name, **figure):
        key = f"{name}.{self.round}"
        figure = {"name": name, "round": self.round} | figure
        self.all[key] = figure
        self.measured.add(key)
        written(self.path, json.dumps(self.all, indent=1) + "\n")
        print(f"{time.strftime('%H:%M:%S')} {key}: {gpu_page.told(figure)}", flush=True)
        return figure

    def figure(self, name, command, seconds, before=None, wants_json=True):
        """The program's result, or None if it failed or took too long."""
        found = self.kept(name)
        if found is not None:
            return found["result"]
        if before is not None and self.left() > LEAST_SECONDS:
            before()
        limit = seconds * self.args.patience
        if self.left() < min(limit, LEAST_SECONDS):
            raise OutOfTime
        state, out, err, took = self.run(command, min(limit, self.left()))
        if state == "timeout" and took < limit:
            raise OutOfTime  # the end of the call and not the figure's limit
        result = None
        if state == "ok":
            try:
                result = json.loads(out) if wants_json else out
            except ValueError:
                state, err = "failed", "no JSON: " + out[:200]
        return self.keep(name, state=state, seconds=round(took, 2), command=[str(word) for word in command],
                         result=result, error="" if state == "ok" else (err or out)[-2000:])["result"]

    def side_by_side(self, commands, seconds, at_once, env):
        """(name, command) each in a process of its own; a figure's result is what it printed."""
        waiting = [(name, command) for name, command in commands if self.kept(name) is None]
        running = []
        try:
            while waiting or running:
                if self.left() < 3:
                    raise OutOfTime
                while waiting and len(running) < at_once:
                    name, command = waiting.pop(0)
                    out = tempfile.TemporaryFile()
                    process = self.start(command, out, subprocess.STDOUT, env)
                    running.append((name, command, process, out, time.monotonic()))
                for entry in [*running]:
                    name, command, process, out, started = entry
                    took = time.monotonic() - started
                    if process.poll() is None and took < seconds * self.args.patience:
                        continue
                    running.remove(entry)
                    state = state_of(ended(process, 0), process)
                    text = text_of(out)
                    counts = gpu_page.test_counts(text)
                    if state == "ok" and counts["passed"] == 0:
                        state, text = "failed", "no such test"
                    self.keep(name, state=state, seconds=round(took, 2),
                              command=[str(word) for word in command], result=counts,
                              error="" if state == "ok" else text[-3000:])
                time.sleep(0.1)
        finally:
            for _, _, process, *_ in running:
                ended(process, 0)

    def note_machine(self, settings):
        """Facts that no program of ours tells, and settings that all figures share."""
        found = self.kept("machine-facts")
        if found is not None:
            if found["result"]["settings"] != settings:
                sys.exit(f"gpu.py: {self.path} has figures of other settings ({found['result']['settings']}); "
                         "name another file (-o)")
            return
        model = [line.split(":", 1)[1].strip() for line in lines_of("/proc/cpuinfo")
                 if line.startswith("model name")]
        memory = [int(line.split()[1]) for line in lines_of("/proc/meminfo") if line.startswith("MemTotal")]
        facts = {"date": time.strftime("%Y-%m-%d"), "cpu": model[0] if model else platform.machine(),
                 "cores": cores(), "memory_gib": round(memory[0] / 2**20, 1) if memory else 0,
                 "kernel": platform.release(), "settings": settings}
        smi = shutil.which("nvidia-smi")
        if smi is not None:
            query = "name,driver_version,memory.total,pcie.link.gen.max,pcie.link.width.max"
            try:
                facts["nvidia_smi"] = subprocess.run(
                    [smi, "--query-gpu=" + query, "--format=csv,noheader"], capture_output=True, text=True,
                    env=self.programs.plain, timeout=20, check=False).stdout.strip()
            except (OSError, subprocess.TimeoutExpired) as error:
                facts["nvidia_smi"] = str(error)
        self.keep("machine-facts", state="ok", seconds=0.0, result=facts, error="")
