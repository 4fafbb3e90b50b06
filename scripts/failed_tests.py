#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The last words of the tests that failed in ctest's last run in BUILD, for the end of a long log:
ctest itself prints a test's output where the test ended, thousands of lines earlier."""
import argparse
import pathlib
import re
import sys

MOST_TESTS = 5
MOST_CHARACTERS = 1500


def outputs(log):
    """(name, output, time) of each test in ctest's LastTest.log."""
    for part in re.split(r"^\d+/\d+ Testing: ", log, flags=re.MULTILINE)[1:]:
        name = part.split("\n", 1)[0]
        said = re.search(r"^Output:\n-+\n(.*)^<end of output>", part, re.DOTALL | re.MULTILINE)
        took = re.search(r"^Test time = +(.*)$", part, re.MULTILINE)
        yield (name, (said.group(1).strip() if said else "") or "(no output)",
               took.group(1) if took else "an unknown time")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path, help="the build folder, such as build/dev")
    folder = parser.parse_args().build / "Testing" / "Temporary"
    if (folder / "LastTest.log.tmp").exists():
        return  # ctest was interrupted: the files are those of an earlier run
    try:
        lines = (folder / "LastTestsFailed.log").read_text(errors="replace").splitlines()
        log = (folder / "LastTest.log").read_text(errors="replace")
    except OSError as error:
        sys.exit(f"failed_tests: {error}")
    failed = {line.split(":", 1)[-1] for line in lines}
    ends = [one for one in outputs(log) if one[0] in failed]
    for name, said, took in ends[:MOST_TESTS]:
        end = said[-MOST_CHARACTERS:]
        print(f"\n{name} failed after {took}:\n{'...' if end != said else ''}{end}")
    if len(ends) > MOST_TESTS:
        print(f"\nand {len(ends) - MOST_TESTS} more failed")


if __name__ == "__main__":
    main()
