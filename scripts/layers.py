#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds the includes of src/ to the table in docs/layers.txt; sees direct includes only. Calls that
reach a driver have one home, where their exceptions end."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs/layers.txt"
SRC = ROOT / "src"

# First match wins; the standard library and the system's own headers match none.
FOREIGN = [
    (r"gguf\.h", "gguf"),
    (r"ggml[\w-]*\.h", "ggml"),
    (r"llama[\w-]*\.h|(common|chat|sampling)\.h", "llama"),
    (r"liburing(\.h|/.*)|linux/io_uring\.h", "liburing"),
    (r"nlohmann/.*", "nlohmann"),
    (r"minja/.*", "minja"),
    (r"(spdlog|fmt)/.*", "spdlog"),
    (r"CLI/.*", "cli11"),
    (r"httplib\.h", "httplib"),
    (r"cuda.*|hip/.*|vulkan/.*", "device toolkits"),
]

# ggml's calls that may throw when a device is lost, and owners whose destructors make some.
DRIVER_CALLS = re.compile(
    r"\bggml_backend_(tensor_set|tensor_get|tensor_alloc|buffer_clear|buffer_free|free|synchronize|"
    r"graph_compute|graph_plan|dev_memory|dev_supports_op|dev_host_buffer_type|dev_init|init_by_|"
    r"alloc_|buft_alloc_buffer|load|event_|register_host_buffer)\w*\s*\("
    r"|\bggml_gallocr_(reserve|alloc_graph|free)\w*\s*\("
    r"|\bggml_(backend|backend_buffer|backend_event|gallocr)_ptr\b")
DRIVER_HOME = "device/backend_calls.cc"


def read_table():
    """Returns (allowed: name -> set, forbidden: folder -> set, order: folders lowest first)."""
    allowed, forbidden, order = {}, {}, []
    for number, line in enumerate(TABLE.read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        match = re.fullmatch(r"([\w/.]+)\s*([:!])\s*(.*)", line)
        if not match:
            sys.exit(f"{TABLE}:{number}: neither 'name : ...' nor 'name ! ...'")
        name, kind, rest = match[1], match[2], set(match[3].split())
        if kind == "!":
            forbidden[name] = rest
            continue
        if name in allowed:
            sys.exit(f"{TABLE}:{number}: a second row for {name}")
        allowed[name] = rest
        if "/" not in name:
            order.append(name)
    return allowed, forbidden, order


def table_faults(allowed, order):
    """The table itself: rows that name nothing, and rows that look upwards (so no cycles)."""
    for folder in sorted(p.name for p in SRC.iterdir() if p.is_dir()):
        if folder not in allowed:
            yield f"{TABLE.relative_to(ROOT)}: no row for src/{folder}"
    for name in allowed:
        if not (SRC / name).exists():
            yield f"{TABLE.relative_to(ROOT)}: src/{name} does not exist"
    for place, folder in enumerate(order):
        for upper in allowed[folder] & set(order[place:]):
            yield f"{TABLE.relative_to(ROOT)}: {folder} may not look up to {upper}"


def library_of(header):
    for pattern, library in FOREIGN:
        if re.fullmatch(pattern, header):
            return library
    return None


def include_faults(path, allowed, forbidden, folders):
    name = path.relative_to(SRC).as_posix()
    folder = name.split("/")[0]
    may = allowed.get(folder, set()) | allowed.get(name, set())
    for number, line in enumerate(path.read_text().splitlines(), 1):
        call = DRIVER_CALLS.search(line.split("//")[0])
        if call and name != DRIVER_HOME and not name.endswith("_test.cc"):
            yield f"src/{name}:{number}: {call[0].rstrip('(')} is for src/{DRIVER_HOME} alone"
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        header = match[2]
        where = f"src/{name}:{number}"
        target = library_of(header)
        if match[1] == '"' and target is None:
            if header.startswith("tests/support/") and name.endswith("_test.cc"):
                continue
            target = header.split("/")[0]
            if target not in folders:
                yield f'{where}: "{header}" does not start with a folder of src/'
                continue
        if target and target != folder and target not in may:
            yield f"{where}: {name} may not include {target} ({header})"
        if match[1] == "<" and header in forbidden.get(folder, ()):
            yield f"{where}: {folder}/ may not include <{header}>"


def main():
    allowed, forbidden, order = read_table()
    faults = list(table_faults(allowed, order))
    files = sorted(p for p in SRC.rglob("*") if p.suffix in (".h", ".cc"))
    for path in files:
        faults += include_faults(path, allowed, forbidden, set(order))
    for fault in faults:
        print(fault)
    print(f"layers: {len(files)} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
