#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs test programs of another architecture under qemu-user, once as each of several processors.

ggml and Moestro take the instructions that a processor has, so a test that passes as one may fail as
another. `make test-aarch64` calls this with the unit and exactness suites. Prints the tests that
passed, were skipped and failed, of each processor; the output of a program with failures goes beside
the program."""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

COUNT = re.compile(r"^\[  (PASSED |SKIPPED)\s+\] (\d+) test", re.M)
FAILED = re.compile(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", re.M)


def run(emulator, cpu, program, arguments, seconds):
    """(passed, skipped, names of failed tests) of a program."""
    environment = {**os.environ, "QEMU_CPU": cpu}
    environment.setdefault("OMP_WAIT_POLICY", "passive")
    # For programs that the test starts, which the kernel gives to qemu (run_as_foreign.sh).
    if "-L" in emulator:
        environment["QEMU_LD_PREFIX"] = emulator[emulator.index("-L") + 1]
    # Reports of failures name the program, and the processor.
    log = pathlib.Path(f"{program}.{cpu}.log")
    log.unlink(missing_ok=True)
    try:
        ended = subprocess.run([*emulator, program, *arguments], env=environment, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
                               timeout=seconds)
        output, how = ended.stdout, f"ended with {ended.returncode}"
        is_fine = ended.returncode == 0
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode(errors="replace")
        how, is_fine = f"took more than {seconds} s", False
    counts = {kind.strip(): int(n) for kind, n in COUNT.findall(output)}
    failed = sorted(set(FAILED.findall(output)))
    if not is_fine:
        log.write_text(output)
        failed = failed or [f"{pathlib.Path(program).name} {how}: {output.strip()[-300:]}"]
    return counts.get("PASSED", 0), counts.get("SKIPPED", 0), failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--emulator", required=True, help="qemu and its arguments, with ; between")
    parser.add_argument("--cpus", required=True, help="processors' names, with , between")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=int, default=3600, help="of a program, at most")
    parser.add_argument("--filter", default="*", help="which tests, as in --gtest_filter")
    parser.add_argument("programs", nargs="+")
    args = parser.parse_args()

    bad = 0
    for cpu in args.cpus.split(","):
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            results = list(pool.map(
                lambda program, cpu=cpu: run(args.emulator.split(";"), cpu, program,
                                             [f"--gtest_filter={args.filter}"], args.seconds),
                args.programs))
        failed = [test for result in results for test in result[2]]
        bad += bool(failed)
        print(f"{cpu}: {sum(r[0] for r in results)} passed, {sum(r[1] for r in results)} skipped, "
              f"{len(failed)} failed, {time.monotonic() - start:.0f} s", flush=True)
        for test in failed:
            print(f"  {test}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
