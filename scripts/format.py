#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Formats our C++ with clang-format, or with --check only reports what it would change."""
import re
import subprocess
import sys

from sources import ROOT, cxx_files

PINNED_MAJOR = 21  # CONTRIBUTING.md names it too; other majors may break lines elsewhere


def main():
    try:
        version = subprocess.run(["clang-format", "--version"], check=True, capture_output=True,
                                 text=True).stdout
    except OSError:
        sys.exit("format: clang-format is not installed (scripts/setup.sh does it)")
    major = int(re.search(r"version (\d+)", version)[1])
    files = [str(p) for p in cxx_files()]
    mode = ["--dry-run", "-Werror"] if "--check" in sys.argv[1:] else ["-i"]
    result = subprocess.run(["clang-format", *mode, *files], capture_output=True, text=True)
    wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", result.stderr, re.M)))
    for path in wrong:
        print(f"{path.removeprefix(str(ROOT) + '/')}: not formatted; run 'make format'")
    if result.returncode != 0 and not wrong:
        print(result.stderr)
    if major != PINNED_MAJOR and (wrong or mode == ["-i"]):
        print(f"format: this is clang-format {major}; the tree is formatted with {PINNED_MAJOR}, "
              "so differences may come from the version alone")
    print(f"format: {len(files)} files, {len(wrong)} to change" if mode != ["-i"]
          else f"format: {len(files)} files formatted")
    return 1 if result.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
