#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""isa_symbols.py OBJECT...: no weak symbol is defined by two objects of instruction sets.

Each isa_<set>.cc is compiled with its set's flags. Of a weak symbol (an inline function, a template's
instance) that two objects define, the linker keeps one: a machine of the older set could then run
instructions of the newer one. Objects of other sources are passed over; a build for the portable set
alone has none to compare.
"""
import re
import subprocess
import sys

ISA = re.compile(r"isa_(\w+)\.(?:cc|cpp)\.o$")
WEAK = {"W", "V", "u"}


def weak_symbols(path):
    lines = subprocess.run(["nm", "-C", "--defined-only", path], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    symbols = (line.split(maxsplit=2) for line in lines)
    return {parts[2] for parts in symbols if len(parts) == 3 and parts[1] in WEAK}


def main():
    objects = [(found[1], path) for path in sys.argv[1:] if (found := ISA.search(path))]
    seen, faults = {}, 0
    for name, path in objects:
        for symbol in sorted(weak_symbols(path)):
            if symbol in seen:
                print(f"{symbol}: in isa_{seen[symbol]} and isa_{name}; make it a template over lanes")
                faults += 1
            seen.setdefault(symbol, name)
    print(f"isa symbols: {len(objects)} sets, {len(seen)} weak symbols, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
