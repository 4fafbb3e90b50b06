#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds the includes of src/ to the table in docs/layers.txt; sees direct includes only. Calls that
reach a driver have one home, where their exceptions end. No two headers define one type name, and
helpers for tests are called *_testing.h."""
import pathlib
import re
import sys

from sources import ROOT, cxx_files

TABLE = ROOT / "docs/layers.txt"
SRC = ROOT / "src"

# First match wins; the standard library and the system's own headers match none.
FOREIGN = [
    (r"gguf\.h", "gguf"),
    (r"ggml[\w-]*\.h", "ggml"),
    (r"llama[\w-]*\.h|(common|chat|sampling)\.h", "llama"),
    (r"liburing(\.h|/.*)|linux/io_uring\.h", "liburing"),
    (r"nlohmann/.*", "nlohmann"),
    (r"(spdlog|fmt)/.*", "spdlog"),
    (r"CLI/.*", "cli11"),
    (r"curl/.*", "curl"),
    (r"openssl/.*", "openssl"),
    (r"cuda.*|hip/.*|vulkan/.*", "device toolkits"),
]

# ggml's calls that may throw when a device is lost, and owners whose destructors make some.
DRIVER_CALLS = re.compile(
    r"\bggml_backend_(tensor_set|tensor_get|tensor_alloc|buffer_clear|buffer_free|free|synchronize|"
    r"graph_compute|graph_plan|dev_memory|dev_supports_op|dev_host_buffer_type|dev_init|init_by_|"
    r"alloc_|buft_alloc_buffer|load|event_|register_host_buffer)\w*\s*\("
    r"|\bggml_gallocr_(reserve|alloc_graph|free)\w*\s*\("
    r"|\bggml_(backend|backend_buffer|backend_event|gallocr)_ptr\b")
DRIVER_HOME = "compute/backend_calls.cc"


ROW = re.compile(r"([\w/.]+)\s*([:!=]|\blinks\b)\s*(.*)")


class Table:
    """docs/layers.txt."""

    def __init__(self):
        self.allowed = {}    # folder or file -> folders and libraries
        self.forbidden = {}  # folder -> standard headers
        self.alike = {}      # source without suffix -> the folder whose rules hold for it
        self.links = []      # (folder, the one that it reaches whole)
        self.order = []      # folders, lowest first
        for number, line in enumerate(TABLE.read_text().splitlines(), 1):
            line = line.split("#")[0].strip()
            match = ROW.fullmatch(line)
            if match:
                self.add(number, match[1], match[2], match[3].split())
            elif line:
                sys.exit(f"{TABLE}:{number}: none of the rows that its beginning names")

    def add(self, number, name, kind, rest):
        if kind == "!":
            self.forbidden[name] = set(rest)
        elif kind == "=":
            self.alike[name] = rest[0]
        elif kind == "links":
            self.links.append((name, rest[0]))
        elif name in self.allowed:
            sys.exit(f"{TABLE}:{number}: a second row for {name}")
        else:
            self.allowed[name] = set(rest)
            if "/" not in name:
                self.order.append(name)

    def faults(self):
        """The table itself: rows that name nothing, and rows that look upwards (so no cycles)."""
        at = TABLE.relative_to(ROOT)
        for folder in sorted(p.name for p in SRC.iterdir() if p.is_dir()):
            if folder not in self.allowed:
                yield f"{at}: no row for src/{folder}"
        for name in self.allowed:
            if not (SRC / name).exists():
                yield f"{at}: src/{name} does not exist"
        for name in self.alike:
            if not (SRC / f"{name}.h").exists():
                yield f"{at}: src/{name}.h does not exist"
        for place, folder in enumerate(self.order):
            for upper in self.allowed[folder] & set(self.order[place:]):
                yield f"{at}: {folder} may not look up to {upper}"

    def rules(self, name):
        """(what the file may include, standard headers it must not)."""
        like = self.alike.get(name.rsplit(".", 1)[0].removesuffix("_test"))
        if like:
            return self.allowed[like] | {like}, self.forbidden[like]
        folder = name.split("/")[0]
        return (self.allowed.get(folder, set()) | self.allowed.get(name, set()) | {folder},
                self.forbidden.get(folder, set()))


def library_of(header):
    for pattern, library in FOREIGN:
        if re.fullmatch(pattern, header):
            return library
    return None


INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


def include_faults(path, table):
    name = path.relative_to(SRC).as_posix()
    stem = name.rsplit(".", 1)[0].removesuffix("_test")
    may, barred = table.rules(name)
    for number, line in enumerate(path.read_text().splitlines(), 1):
        call = DRIVER_CALLS.search(line.split("//")[0])
        is_definition = line.startswith('extern "C"')
        if call and not is_definition and name != DRIVER_HOME and not name.endswith("_test.cc"):
            yield f"src/{name}:{number}: {call[0].rstrip('(')} is for src/{DRIVER_HOME} alone"
        match = INCLUDE.match(line)
        if not match:
            continue
        header = match[2]
        where = f"src/{name}:{number}"
        target = library_of(header)
        if match[1] == '"' and target is None:
            if header.startswith("tests/support/") and name.endswith("_test.cc"):
                continue
            target = header.split("/")[0]
            if target not in table.order:
                yield f'{where}: "{header}" does not start with a folder of src/'
                continue
            if stem in table.alike:
                target = table.alike.get(header.removesuffix(".h"), target)
        if target and target not in may and header != f"{stem}.h":
            yield f"{where}: {name} may not include {target} ({header})"
        if match[1] == "<" and header in barred:
            yield f"{where}: {name} may not include <{header}>"


def ours(path):
    """What a file includes of ours, in order."""
    matches = (INCLUDE.match(line) for line in path.read_text().splitlines())
    return [m[2] for m in matches if m and m[1] == '"']


def reach_faults(user, used, files):
    """Sources of `used` that `user` does not reach: by includes, and from a header to the sources
    of its folder that include it, of which one defines what it declares."""
    includes = {p.relative_to(SRC).as_posix(): ours(p) for p in files if not is_for_tests(p)}
    sources = {}
    for name, headers in includes.items():
        for header in headers if name.endswith(".cc") else ():
            if pathlib.PurePath(header).parent == pathlib.PurePath(name).parent:
                sources.setdefault(header, []).append(name)
    seen = {name for name in includes if name.startswith(f"{user}/")}
    ahead = list(seen)
    while ahead:
        name = ahead.pop()
        for other in includes.get(name, []) + sources.get(name, []):
            if other not in seen:
                seen.add(other)
                ahead.append(other)
    for name in sorted(includes):
        if name.startswith(f"{used}/") and name not in seen:
            yield f"src/{name}: {user} does not link it"


def is_for_tests(path):
    return path.stem.endswith(("_test", "_testing")) or (ROOT / "tests") in path.parents


TYPE = re.compile(r"(?:template <[^>]*> )?(?:class|struct|enum class|enum) (?:\[\[\w+\]\] )?"
                  r"(\w+)(?: final)?(?: : [^;{]*)?(?: \{.*)?")


def type_faults(files):
    """Headers that define one type name: one linker name for two types."""
    homes = {}
    for path in files:
        if path.suffix != ".h":
            continue
        for line in path.read_text().splitlines():
            match = TYPE.fullmatch(line)
            if match and not line.endswith(";"):
                homes.setdefault(match[1], []).append(path.relative_to(ROOT).as_posix())
    for name, paths in sorted(homes.items()):
        if len(paths) > 1:
            yield f"{' and '.join(paths)}: each defines {name}"


def helper_faults(files):
    """Headers for tests alone are called *_testing.h."""
    users = {}
    for path in files:
        for header in ours(path):
            users.setdefault(header, []).append(path)
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        if path.suffix != ".h" or name.startswith("bench/"):
            continue
        by = users.get(name.removeprefix("src/"), [])
        is_helper = name.startswith("tests/") or (by and all(is_for_tests(p) for p in by))
        if is_helper != path.stem.endswith("_testing"):
            yield f"{name}: helpers for tests, and only they, are called *_testing.h"


def main():
    table = Table()
    faults = list(table.faults())
    files = sorted(p for p in SRC.rglob("*") if p.suffix in (".h", ".cc"))
    for path in files:
        faults += include_faults(path, table)
    for user, used in table.links:
        faults += reach_faults(user, used, files)
    everything = cxx_files()
    faults += type_faults(everything)
    faults += helper_faults(everything)
    for fault in faults:
        print(fault)
    print(f"layers: {len(files)} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
