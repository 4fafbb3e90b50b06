#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What 'make test' runs and what it runs with SLICE=1 to 5 is all there is; no test is in two slices.

usage: slices_test.py SOURCE BUILD"""
import re
import shlex
import subprocess
import sys

source, build = sys.argv[1:]


def chosen(slice_name):
    """Names of the tests that 'make test SLICE=...' runs."""
    shown = subprocess.run(["make", "-n", "-C", source, "test", "SETUP=", "JOBS=1",
                            f"SLICE={slice_name}"], check=True, text=True, capture_output=True)
    lines = [line for line in shown.stdout.splitlines() if line.lstrip("@").startswith("ctest ")]
    assert len(lines) == 1, shown.stdout
    words = shlex.split(lines[0].split(" ||")[0])
    assert words[1] == "--preset" and words[3:5] == ["-j", "1"], words
    listed = subprocess.run([words[0], "-N", *words[5:]], cwd=build, check=True, text=True,
                            capture_output=True)
    names = re.findall(r"^ *Test +#[0-9]+: (.*)$", listed.stdout, re.MULTILINE)
    assert len(names) == len(set(names)), slice_name
    return set(names)


everything = chosen("all")
always = chosen("none")
slices = [chosen(number) - always for number in range(1, 6)]
assert always and all(slices), (len(always), [len(names) for names in slices])
assert always.union(*slices) == everything, everything - always.union(*slices)
assert len(always) + sum(map(len, slices)) == len(everything), "a test is in two slices"
for number, names in enumerate(slices, 1):
    assert all(name.startswith(f"Slice{number}/") for name in names), number
# A name that no slice has is always run.
assert not any(name.startswith("Slice") for name in always), "a slice that nothing runs"
refused = subprocess.run(["make", "-n", "-C", source, "test", "SETUP=", "SLICE=6"], text=True,
                         capture_output=True)
assert refused.returncode != 0 and "SLICE is none, all or a number" in refused.stderr, refused
print(f"{len(everything)} tests; 'make test' runs {len(always)}, slices add "
      f"{', '.join(str(len(names)) for names in slices)}")
