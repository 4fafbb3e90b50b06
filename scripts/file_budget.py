#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Keeps classes and files short: 600 lines for a class over all its files (its body and its members'
definitions, so that no class is cut only to look smaller), 600 for a file."""
import collections
import re
import sys

from sources import ROOT, cxx_files

CLASS = 600
FILE = 600
# class: why it is longer for now
EXCEPTIONS = {}

BODY = re.compile(r"(?:template <[^>]*> )?(?:class|struct) (?:\[\[\w+\]\] )?((?:\w+::)*\w+)\b[^;]*\{")
# A definition at the beginning of a line; in its first line, or the second, stands Class::Member(.
MEMBER = re.compile(r"(?:^|[\s&*>])((?:\w+::)*[A-Z]\w*)::(?:~?\w+|operator[^(]+)\(")


def class_lines(lines):
    """(class, lines) of each body and each member's definition."""
    at = 0
    while at < len(lines):
        head = lines[at]
        body = BODY.match(head)
        member = None
        if head and not head[0].isspace() and not head.startswith(("#", "/", "}")):
            member = MEMBER.search(" ".join(lines[at:at + 2]).split("{")[0])
        if not body and not member:
            at += 1
            continue
        end = at
        if not head.rstrip().endswith(("};", "}")):
            while end < len(lines) and lines[end] not in ("};", "}") and not (
                    member and not body and lines[end].endswith(";") and "{" not in
                    "".join(lines[at:end + 1])):
                end += 1
        yield (body or member)[1], end - at + 1
        at = end + 1


def main():
    faults = []
    sizes = {}
    classes = collections.Counter()
    homes = collections.defaultdict(set)
    for path in cxx_files():
        name = path.relative_to(ROOT).as_posix()
        lines = path.read_text().splitlines()
        sizes[name] = len(lines)
        if sizes[name] > FILE:
            faults.append(f"{name}: {sizes[name]} lines, allowed are {FILE}")
        if not path.stem.endswith(("_test", "_testing")):
            for of, count in class_lines(lines):
                classes[of] += count
                homes[of].add(name)
    for of, count in classes.items():
        if count > CLASS and of not in EXCEPTIONS:
            faults.append(f"{of}: {count} lines in {len(homes[of])} files, allowed are {CLASS}")
    for of in EXCEPTIONS:
        if classes[of] <= CLASS:
            faults.append(f"scripts/file_budget.py: {of} needs no exception (any more)")
    if "--classes" in sys.argv:
        for of, count in classes.most_common(20):
            print(f"{count:5} lines, {len(homes[of])} files  {of}")
    for fault in faults:
        print(fault)
    middle = sorted(sizes.values())[len(sizes) // 2] if sizes else 0
    print(f"budget: {len(sizes)} files, median {middle} lines; "
          f"{len(classes)} classes, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
