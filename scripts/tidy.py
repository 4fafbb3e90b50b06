#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs clang-tidy over our translation units, in parallel, and remembers clean ones.

With --changed only over what this branch touched: sources that changed, and for each header that
changed three of the units that include it (scripts/changed.py).

A unit is skipped only if nothing that went into it has changed: its compile command, .clang-tidy,
clang-tidy itself, our files it includes (by content) and the system's (by size and time). The
memory lies beside the compile commands, so a fresh checkout checks everything."""
import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import shlex
import subprocess
import sys
import time

import changed
from sources import ROOT

# A change of these may turn any unit's verdict.
SETTINGS = {ROOT / ".clang-tidy", ROOT / "scripts/tidy.py"}


def digest(data):
    return hashlib.sha256(data).hexdigest()


class Fingerprints:
    """What a file looked like; each file is read once per run."""

    def __init__(self):
        self.known = {}

    def __call__(self, path):
        if path not in self.known:
            self.known[path] = self.look(pathlib.Path(path))
        return self.known[path]

    @staticmethod
    def look(path):
        try:
            if path.is_relative_to(ROOT):
                return digest(path.read_bytes())
            stat = path.stat()
            return f"{stat.st_size} {stat.st_mtime_ns}"
        except OSError:
            return None


def compile_arguments(entry):
    """The compile command without launcher, object file and dependency output."""
    words = entry.get("arguments") or shlex.split(entry["command"])
    while words and pathlib.Path(words[0]).name in ("ccache", "sccache"):
        words = words[1:]
    kept = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in ("-o", "-MF", "-MT", "-MQ"):
            skip = True
        elif word not in ("-c", "-MD", "-MMD"):
            kept.append(word)
    return kept


def included_files(entry):
    made = subprocess.run(compile_arguments(entry) + ["-M"], cwd=entry["directory"],
                          capture_output=True, text=True)
    if made.returncode:
        return None
    words = made.stdout.replace("\\\n", " ").split()
    return sorted({str((pathlib.Path(entry["directory"]) / word).resolve()) for word in words[1:]})


class Unit:
    def __init__(self, entry, settings, memory):
        self.entry = entry
        self.source = pathlib.Path(entry["directory"], entry["file"]).resolve()
        # Path analysis costs as much as all other checks together; in tests and benchmarks, which
        # simply run, it has only complained about the macros of their libraries.
        # So it has in cli/flags.cc, the one unit that sees CLI11's code.
        simple = (not self.source.is_relative_to(ROOT / "src") or self.source.stem.endswith("_test")
                  or self.source == ROOT / "src/cli/flags.cc")
        self.options = ["--checks=-clang-analyzer-*"] if simple else []
        self.key = digest("\n".join([settings, *self.options, *compile_arguments(entry)]).encode())
        self.note = memory / (digest(str(self.source).encode())[:24] + ".json")

    def is_known_clean(self, fingerprint):
        try:
            note = json.loads(self.note.read_text())
        except (OSError, ValueError):
            return False
        return note["key"] == self.key and all(
            fingerprint(path) == seen for path, seen in note["files"].items())

    def check(self, build, fingerprint):
        """Returns clang-tidy's complaints; empty when clean."""
        files = included_files(self.entry)
        seen = {path: fingerprint(path) for path in files} if files else None
        run = subprocess.run(["clang-tidy", "-p", str(build), "--quiet", *self.options,
                              str(self.source)], capture_output=True, text=True)
        if run.returncode:
            return run.stdout + "".join(line for line in run.stderr.splitlines(keepends=True)
                                        if "error" in line)
        if seen:
            self.note.write_text(json.dumps({"key": self.key, "files": seen}))
        return ""


def our_units(build, settings, memory, only):
    entries = json.loads((build / "compile_commands.json").read_text())
    units = {}
    for entry in entries:
        unit = Unit(entry, settings, memory)
        ours = unit.source.is_relative_to(ROOT) and not unit.source.is_relative_to(ROOT / "build")
        name = unit.source.relative_to(ROOT).as_posix() if ours else ""
        if ours and (not only or any(name.startswith(prefix) for prefix in only)):
            units[unit.source] = unit
    return [units[source] for source in sorted(units)]


def only_changed(units):
    """Those of `units` that this branch may have changed, and what that was judged by."""
    commit = changed.base()
    if commit is None:
        return units, "everything, since git does not say what changed"
    files = changed.changed_files(commit)
    if files & SETTINGS:
        return units, "everything, since what it is judged by changed"
    wanted = changed.affected_units(files, [unit.source for unit in units])
    return [unit for unit in units if unit.source in wanted], f"changed since {commit[:10]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("-j", "--jobs", type=int, default=1)
    parser.add_argument("--changed", action="store_true", help="only what this branch changed")
    parser.add_argument("--slowest", action="store_true", help="list the ten slowest units")
    parser.add_argument("only", nargs="*", help="path prefixes, such as src/store")
    args = parser.parse_args()

    start = time.monotonic()
    build = args.build.resolve()
    version = subprocess.run(["clang-tidy", "--version"], check=True, capture_output=True,
                             text=True).stdout
    settings = version + (ROOT / ".clang-tidy").read_text()
    memory = build / "tidy"
    memory.mkdir(exist_ok=True)
    fingerprint = Fingerprints()
    units = our_units(build, settings, memory, args.only)
    scope = "everything"
    if args.changed:
        units, scope = only_changed(units)
    todo = [unit for unit in units if not unit.is_known_clean(fingerprint)]
    bad, seconds = 0, {}

    def work(unit):
        began = time.monotonic()
        complaints = unit.check(build, fingerprint)
        return unit, complaints, time.monotonic() - began

    with concurrent.futures.ThreadPoolExecutor(max(1, args.jobs)) as pool:
        for unit, complaints, spent in pool.map(work, todo):
            seconds[unit.source] = spent
            if complaints:
                bad += 1
                print(complaints.replace(f"{ROOT}/", ""), flush=True)
    if args.slowest:
        for source, spent in sorted(seconds.items(), key=lambda item: -item[1])[:10]:
            print(f"tidy: {spent:5.1f} s  {source.relative_to(ROOT)}")
    print(f"tidy: {scope}: {len(units)} units, {len(todo)} checked, {bad} with findings, "
          f"{time.monotonic() - start:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
