#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Rules for the text of tracked files: licence line, white space, no notes to self, and nothing that
holds on one machine only (absolute paths outside the system's folders, package mirrors)."""
import re
import sys

from sources import ROOT, all_files

TEXT = {".h", ".cc", ".py", ".sh", ".cmake", ".md", ".txt", ".json", ".supp", ".csv", ".svg", ""}
NEEDS_LICENCE = {".h", ".cc", ".py", ".sh"}
LICENCE = "SPDX-License-Identifier: MIT"

# "no", "nowhere": how tests name files that do not exist.
SYSTEM_FOLDERS = "usr|etc|proc|sys|dev|bin|sbin|lib|lib64|var|run|tmp|no|nowhere"
# Of addresses that our server answers.
SERVED = "api|chat|completions|messages|models|responses|slots|v1"
# A path from the root whose first folder is not the system's. Not after a word, a variable or a
# bracket (relative paths, URLs, globs), nor in a literal glued to a macro (DIR "/models/x").
FOREIGN_PATH = re.compile(rf"(?<![\w$)}}\]>*.:/~-])(?<![A-Z] \")/(?!(?:{SYSTEM_FOLDERS}|{SERVED})\b)[a-z]+/[\w.-]")
TEMP_PATH = re.compile(r"/tmp/[a-z]")
HOST = re.compile(r"\b(?:[a-z0-9-]+\.)+(?:org|com|io|net)\b")
SVG_NAMESPACE = "www.w3." + "org/2000/svg"  # a name, not a place to go to
MIRROR = re.compile(r"\b(?:deb|ftp|mirrors?|snapshot|security|registry|proxy|pypi|files|packages)\."
                    r"(?:[a-z0-9-]+\.)+[a-z]{2,}\b")
NOTE = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX)\b")


WIDTH = 100  # of Markdown, tables and measured results excepted; clang-format keeps to it in C++


def line_faults(name, suffix, line):
    is_prose = suffix == ".md" and not name.startswith("bench/results/")
    if is_prose and len(line) > WIDTH and not line.startswith("|"):
        yield f"more than {WIDTH} columns"
    if line.rstrip() != line:
        yield "white space at the end"
    if re.match(r" *\t", line) and name != "Makefile":
        yield "indented by a tab"
    if NOTE.search(line):
        yield "a note to self; open an issue"
    if name != ".gitignore" and FOREIGN_PATH.search(line):
        yield "an absolute path of one machine"
    if suffix != ".md" and TEMP_PATH.search(line):
        yield "a fixed name under the temporary folder; ask the system for one"
    if MIRROR.search(line):
        yield "a package mirror's name"
    elif (suffix not in (".md", ".svg") and name != "LICENSE"
          and HOST.search(line.replace(SVG_NAMESPACE, ""))):
        yield "a host name"


def file_faults(path):
    name = path.relative_to(ROOT).as_posix()
    data = path.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        yield f"{name}: not UTF-8"
        return
    if b"\r" in data:
        yield f"{name}: carriage return"
    if text and not text.endswith("\n"):
        yield f"{name}: no newline at the end"
    lines = text.splitlines()
    if path.suffix in NEEDS_LICENCE and not any(LICENCE in line for line in lines[:3]):
        yield f"{name}: no '{LICENCE}' in the first lines"
    for number, line in enumerate(lines, 1):
        for fault in line_faults(name, path.suffix, line):
            yield f"{name}:{number}: {fault}"


def main():
    files = [p for p in all_files() if p.suffix in TEXT or p.name.startswith(".")]
    faults = [fault for path in files for fault in file_faults(path)]
    for fault in faults:
        print(fault)
    print(f"text: {len(files)} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
