#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs test programs of another architecture under qemu-user, once as each of several processors.

ggml and Moestro take the instructions that a processor has, so a test that passes as one may fail as
another. `make test-aarch64` calls this with the unit and exactness suites. Prints the tests that
passed, were skipped and failed, of each processor, and apart from those the tests that fail for what
qemu-user is. Programs are run in shards, so that a long one keeps no processor of this machine idle;
the output of a shard with failures goes beside the program."""
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
TESTS_OF_A_SHARD = 25
# Tests that ask for something that qemu-user does not do.
KNOWN = {
    "keeps no limit of an address space": {
        "TryInChild.LimitsWhatTheChildTakes", "TryInChild.TheLimitOfMemoryIsTheCallers",
        "TemplateProcessTest.WhatTakesAllMemoryFails",
        "TemplateProcessTest.AConversationThatIsTooLargeIsTheRequestsMistake"},
    "passes on no advice about memory": {
        "ContextMemory.LargeBlocksLieInHugePagesWhileItLives",
        "KernelNumaMachine.TouchedPagesKeepTheirBytes", "TableReadsTest.AFaultReadsItsPageAlone",
        "TableReadsTest.RowsComeBeforeTheirNodeAndNothingElse"},
    "has memory of its own in the process": {
        "SystemLimitsOfThisMachine.LargeBlocksAreReturnedAtOnce"},
}


def shards_of(emulator, cpu, program, arguments):
    """In how many parts a program is run."""
    # qemu's processor if none is named lacks what plug-ins of ggml for it need (RETAA).
    listed = subprocess.run([*emulator, program, *arguments, "--gtest_list_tests"], text=True,
                            env={**os.environ, "QEMU_CPU": cpu}, stdout=subprocess.PIPE,
                            check=True).stdout
    tests = sum(line.startswith("  ") for line in listed.splitlines())
    return -(-tests // TESTS_OF_A_SHARD)


def run(emulator, cpu, program, shard, shards, arguments, seconds):
    """(passed, skipped, names of failed tests, seconds) of a shard of a program."""
    start = time.monotonic()
    environment = {**os.environ, "QEMU_CPU": cpu, "GTEST_SHARD_INDEX": str(shard),
                   "GTEST_TOTAL_SHARDS": str(shards)}
    environment.setdefault("OMP_WAIT_POLICY", "passive")
    # For programs that the test starts, which the kernel gives to qemu (run_as_foreign.sh).
    if "-L" in emulator:
        environment["QEMU_LD_PREFIX"] = emulator[emulator.index("-L") + 1]
    # Reports of failures name the program, and the processor.
    log = pathlib.Path(f"{program}.{cpu}.{shard}.log")
    log.unlink(missing_ok=True)
    try:
        ended = subprocess.run([*emulator, program, *arguments], env=environment, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
                               timeout=seconds)
        output, how = ended.stdout, f"ended with {ended.returncode}"
        is_fine, is_whole = ended.returncode == 0, ended.returncode in (0, 1)
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode(errors="replace")
        how, is_fine, is_whole = f"took more than {seconds} s", False, False
    counts = {kind.strip(): int(n) for kind, n in COUNT.findall(output)}
    failed = sorted(set(FAILED.findall(output)))
    if not is_fine:
        log.write_text(output)
        if not failed or not is_whole:
            failed.append(f"{pathlib.Path(program).name} {how}: {output.strip()[-300:]}")
    return counts.get("PASSED", 0), counts.get("SKIPPED", 0), failed, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--emulator", required=True, help="qemu and its arguments, with ; between")
    parser.add_argument("--cpus", required=True, help="processors' names, with , between")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=int, default=3600, help="of a shard, at most")
    parser.add_argument("--filter", default="*", help="which tests, as in --gtest_filter")
    parser.add_argument("programs", nargs="+")
    args = parser.parse_args()

    emulator, arguments = args.emulator.split(";"), [f"--gtest_filter={args.filter}"]
    cpus = args.cpus.split(",")
    shards = []
    for program in args.programs:
        count = shards_of(emulator, cpus[0], program, arguments)
        shards += [(program, shard, count) for shard in range(count)]
    bad = 0
    for cpu in cpus:
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            results = list(pool.map(
                lambda shard, cpu=cpu: run(emulator, cpu, *shard, arguments, args.seconds), shards))
        failed = [test for result in results for test in result[2]]
        known = [f"{test}: qemu {why}" for why, tests in KNOWN.items() for test in failed
                 if test in tests]
        failed = [test for test in failed if not any(test in tests for tests in KNOWN.values())]
        bad += bool(failed)
        print(f"{cpu}: {sum(r[0] for r in results)} passed, {sum(r[1] for r in results)} skipped, "
              f"{len(known)} known to fail, {len(failed)} failed, {time.monotonic() - start:.0f} s",
              flush=True)
        took = {}
        for (program, _, _), result in zip(shards, results):
            took[program] = took.get(program, 0) + result[3]
        longest = sorted(took, key=took.get, reverse=True)[:5]
        print("  longest: " + ", ".join(f"{pathlib.Path(program).name} {took[program]:.0f} s"
                                        for program in longest), flush=True)
        for test in known + failed:
            print(f"  {test}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
