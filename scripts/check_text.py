#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Rules for the text of tracked files: licence line, white space, no notes to self, nothing that holds
on one machine only (absolute paths outside the system's folders, package mirrors), paths in comments and
documents that exist, and no more of three habits of comments than CEILINGS allows."""
import collections
import functools
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

# A token that is a string, a number or a character comes first, so that "//" in it opens no comment.
TOKEN = re.compile(r"""R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|(?<!\w)\.?\d(?:'?[\w.])*"""
                   r"""|'(?:\\.|[^'\\\n])+'|(?P<line>//[^\n]*)|(?P<block>/\*.*?\*/)""", re.DOTALL)

# A file's name with or without folders. Not after <, {, $, * or > (patterns, variables, "<name>_test.cc").
PATH = re.compile(r"(?<![\w/.~$<>{}*-])(?:\.\./|[\w.-]+/)*[\w-]+(?:\.[\w-]+)*"
                  r"\.(?:h|cc|py|sh|md|txt|cmake|js|html|cfg|yml|json|svg|csv|conf)(?![\w/*-])")
SOURCE = {"h", "cc", "py", "md"}  # must exist even when no folder is named
EXAMPLES = {"file_name.cc", "OUT.md"}  # how files of the project, and of users, may be called

# Habits that make a comment a riddle, and how many of them production's comments may have. A commit
# that removes some lowers the figure; none raises it.
HABITS = {
    "begin with What, Of or Who": re.compile(r"^(?:What|Of|Who)\b"),
    "is there, are there for 'exists'": re.compile(r"\b(?:is|are) there\b", re.IGNORECASE),
    "code as a person": re.compile(r"\b(?:wants|knows|says|asks|learns|looks|tells|sees|hears|thinks|forgets"
                                   r"|(?:is|are|was|be|been) told)\b"),
}
CEILINGS = {
    "begin with What, Of or Who": 0,
    "is there, are there for 'exists'": 0,
    "code as a person": 3,
}

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


def cxx_comments(text):
    """(line, text) of each comment; lines below each other in one column are one."""
    found = []
    for match in TOKEN.finditer(text):
        if not match["line"] and not match["block"]:
            continue
        start = text.rfind("\n", 0, match.start()) + 1
        column, line = match.start() - start, text.count("\n", 0, start) + 1
        words = match[0][2:].strip()
        if "SPDX-License-Identifier" in words:
            continue
        alone = not text[start:match.start()].strip()
        if alone and found and found[-1][1:3] == [line - 1, column]:
            found[-1][1] = line
            found[-1][3] += "\n" + words
        else:
            found.append([line, line, column, words])
    return [(first, words) for first, _, _, words in found]


def prose(path, text):
    """(line, text) of the comments of a source, or of all lines of a document."""
    if path.suffix in (".h", ".cc"):
        yield from cxx_comments(text)
    elif path.suffix == ".md":
        yield from enumerate(text.splitlines(), 1)
    elif path.suffix in (".py", ".sh", ".cmake") or path.name in ("CMakeLists.txt", "Makefile"):
        for number, line in enumerate(text.splitlines(), 1):
            if "#" in line:
                yield number, line.split("#", 1)[1]


@functools.cache
def known_names():
    """Names of tracked files and of headers that sources include from elsewhere; folders that hold ours."""
    files = [p.relative_to(ROOT) for p in all_files()]
    names = {p.name for p in files} | EXAMPLES
    for path in files:
        if path.suffix in (".h", ".cc"):
            names |= {h.rsplit("/", 1)[-1] for h in re.findall(r"#include <([^>]+)>", (ROOT / path).read_text())}
    folders = {p.parts[0] for p in files if len(p.parts) > 1}
    return names, folders | {p.parts[1] for p in files if p.parts[0] == "src"}


def path_faults(path, text):
    names, folders = known_names()
    for number, words in prose(path, text):
        for match in PATH.finditer(words):
            named = match[0]
            if "/" not in named:
                is_dead = named.rsplit(".", 1)[1] in SOURCE and named not in names
            else:
                is_ours = named.split("/")[0] in folders | {".."} or named.rsplit(".", 1)[1] in SOURCE
                is_dead = is_ours and not any((base / named).exists()
                                              for base in (ROOT, ROOT / "src", path.parent))
            if is_dead:
                yield f"{number + words.count(chr(10), 0, match.start())}: no file '{named}'"


def habits(files):
    """How many comments of production have each habit."""
    counts = collections.Counter()
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("src/") and re.search(r"(?<!_test)(?<!_testing)\.(?:h|cc)$", name):
            for _, words in cxx_comments(path.read_text()):
                for habit, pattern in HABITS.items():
                    counts[habit] += len(pattern.findall(words))
    return counts


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
    for fault in path_faults(path, text):
        yield f"{name}:{fault}"


def main():
    files = [p for p in all_files() if p.suffix in TEXT or p.name.startswith(".")]
    faults = [fault for path in files for fault in file_faults(path)]
    counts = habits(files)
    faults += [f"comments that {habit}: {counts[habit]}, at most {most} are allowed (CEILINGS)"
               for habit, most in CEILINGS.items() if counts[habit] > most]
    for fault in faults:
        print(fault)
    print("comments: " + "; ".join(f"{habit}: {counts[habit]} of {most}" for habit, most in CEILINGS.items()))
    print(f"text: {len(files)} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
