#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs test programs once with each of ggml's CPU plug-ins that this machine can execute.

ggml picks the plug-in with the highest score and machines differ, so a test that passes with one
may fail with another. `make test-variants` calls this with the programs that compute with ggml; they
take the plug-in from MOESTRO_TEST_GGML_CPU (tests/support/cpu_variant_main.cc)."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

SCORE = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).ggml_backend_score())"


def score(plug_in):
    """What ggml would rate it here; 0: this machine cannot run it."""
    # In a process of its own: a library's initialisers may use instructions that do not exist here.
    run = subprocess.run([sys.executable, "-c", SCORE, str(plug_in)], capture_output=True, text=True)
    return int(run.stdout) if run.returncode == 0 else 0


def failures(program, plug_in, arguments):
    """Names of the tests that failed; the way it ended if it ended otherwise."""
    environment = {**os.environ, "MOESTRO_TEST_GGML_CPU": str(plug_in)}
    environment.setdefault("OMP_WAIT_POLICY", "passive")
    run = subprocess.run([program, "--gtest_brief=1", *arguments], env=environment,
                         capture_output=True, text=True, errors="replace")
    failed = sorted(set(re.findall(r"^\[  FAILED  \] ([\w/.]+)", run.stdout, re.M)) - {""})
    if run.returncode and not failed:
        failed = [f"{program} ended with {run.returncode}: {run.stderr.strip()[-300:]}"]
    if failed:
        (pathlib.Path(program).parent / f"{plug_in.stem}.log").write_text(run.stdout + run.stderr)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plug-ins", type=pathlib.Path, required=True, help="ggml's folder of them")
    parser.add_argument("--only", help="one variant, such as haswell")
    parser.add_argument("--filter", default="*", help="which tests, as in --gtest_filter")
    parser.add_argument("programs", nargs="+")
    args = parser.parse_args()

    found = {p.stem.removeprefix("libggml-cpu-"): p for p in args.plug_ins.glob("libggml-cpu-*.so")}
    scores = {name: score(path) for name, path in found.items()}
    usable = sorted((name for name in found if scores[name] > 0), key=lambda name: scores[name])
    if args.only:
        usable = [name for name in usable if name == args.only]
    if not usable:
        print(f"variants: none of {len(found)} plug-ins in '{args.plug_ins}' can be used here")
        return 1
    bad = 0
    for name in usable:
        start = time.monotonic()
        failed = [test for program in args.programs
                  for test in failures(program, found[name], [f"--gtest_filter={args.filter}"])]
        bad += bool(failed)
        print(f"variants: {name:15} {len(failed)} failures, {time.monotonic() - start:.0f} s",
              flush=True)
        for test in failed:
            print(f"  {test}", flush=True)
    unusable = sorted(name for name in found if scores[name] == 0)
    print(f"variants: {len(usable)} run, {bad} with failures, this machine cannot run: "
          f"{' '.join(unusable) or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
