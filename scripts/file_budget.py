#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Keeps source files short: 400 lines, more only with a reason below, 600 at the most."""
import sys

from sources import ROOT, cxx_files

BUDGET = 400
HARD = 600

# path: why this file is better long than split
EXCEPTIONS = {}


def main():
    faults = []
    sizes = {}
    for path in cxx_files():
        name = path.relative_to(ROOT).as_posix()
        sizes[name] = len(path.read_text().splitlines())
        limit = HARD if name in EXCEPTIONS else BUDGET
        if sizes[name] > limit:
            faults.append(f"{name}: {sizes[name]} lines, allowed are {limit}")
    for name in EXCEPTIONS:
        if sizes.get(name, 0) <= BUDGET:
            faults.append(f"scripts/file_budget.py: {name} needs no exception (any more)")
    for fault in faults:
        print(fault)
    middle = sorted(sizes.values())[len(sizes) // 2] if sizes else 0
    print(f"file budget: {len(sizes)} files, median {middle} lines, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
