#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the protocols between our threads over all interleavings that C++ allows.

x86 keeps more order between reads and writes than arm64 does, and neither tests on it nor qemu show
a release that is missing. Each *.litmus here is a small program of one protocol, for herd7 (Debian:
herdtools7) and its model of C++'s memory order as repaired in 2017 (rc11.cat), or of arm64's for a
program in its instructions. Lines of its comment:

    source: FILE: CODE      the line of src/ that the program stands for; it must be there
    right NAME: TEXT        what $NAME in the program is
    wrong NAME: TEXT        what it must not be: the same program, weakened
    reaches: CONDITION      an outcome that the right program has, so that it shows something

The right program must keep its condition, and each wrong one must break it or race: a check that
finds nothing would pass anything. Every order other than relaxed in a file that a program quotes
must be quoted by one, so that a new one comes with its model.

Ends with 77 if herd7 is not installed; then only the quotes have been checked."""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Relaxed reads may see writes of the future, as on arm64; rc11.cat alone forbids that.
MODELS = {"C": ("-model", "rc11.cat", "-skipcheck", "no-thin-air"), "AArch64": ()}
FIELD = re.compile(r"^ +(source|right|wrong|reaches)(?: (\w+))?: (.*)$", re.M)
ORDER = re.compile(r"memory_order_(acquire|release|acq_rel|seq_cst|consume)")


def squeezed(code):
    return re.sub(r"\s+", "", code)


class Protocol:
    def __init__(self, path):
        self.path = path
        comment, end, self.code = path.read_text().partition("*)")
        self.language = comment.split()[0]
        if not end or self.language not in MODELS:
            raise ValueError(f"{path.name}: no comment, or no language of {', '.join(MODELS)}")
        self.quotes, self.right, self.wrong, self.reaches = [], {}, [], None
        for kind, name, text in FIELD.findall(comment):
            if kind == "source":
                file, _, quote = text.partition(": ")
                self.quotes.append((file, quote))
            elif kind == "right":
                self.right[name] = text
            elif kind == "wrong":
                self.wrong.append((name, text))
            else:
                self.reaches = text
        if not self.right or not self.wrong or not self.reaches:
            raise ValueError(f"{path.name}: a right, a wrong and a reached outcome are needed")

    def program(self, values):
        if set(values) != set(re.findall(r"\$(\w+)", self.code)):
            raise ValueError(f"{self.path.name}: what is named is not what is used")
        code = re.sub(r"\$(\w+)", lambda name: values[name[1]], self.code)
        return f"{self.language} {self.path.stem}\n{code}"

    def reaching(self):
        code = self.program(self.right)
        return code[:max(code.rfind("\n~exists"), code.rfind("\nforall"))] + \
            f"\nexists ({self.reaches})\n"


def holds(herd, program):
    """Whether a program keeps its condition, and is free of races; herd's words if it says neither."""
    with tempfile.NamedTemporaryFile("w", suffix=".litmus") as file:  # herd7 seeks in it
        file.write(program)
        file.flush()
        ended = subprocess.run([herd, *MODELS[program.split()[0]], file.name], text=True,
                               capture_output=True)
    verdict = re.search(r"^(Ok|No|Undef)$", ended.stdout, re.M)
    if ended.returncode != 0 or ended.stderr.strip() or not verdict:
        raise ValueError(f"herd7: {ended.stderr.strip() or ended.stdout}\n{program}")
    return verdict[1] == "Ok"


def check_program(herd, protocol):
    """(number of wrong programs, faults)."""
    name = protocol.path.name
    faults = []
    if not holds(herd, protocol.program(protocol.right)):
        faults.append(f"{name}: the condition does not hold, or there is a race")
    if not holds(herd, protocol.reaching()):
        faults.append(f"{name}: '{protocol.reaches}' is never reached")
    for which, text in protocol.wrong:
        if holds(herd, protocol.program({**protocol.right, which: text})):
            faults.append(f"{name}: still right with {which} = {text}")
    return len(protocol.wrong), faults


def check_quotes(root, protocols):
    """Faults: quotes that are not in src/, and orders in src/ that no program quotes."""
    faults, quoted = [], {}
    for protocol in protocols:
        for file, quote in protocol.quotes:
            source = root / file
            if not source.is_file() or squeezed(quote) not in squeezed(source.read_text()):
                faults.append(f"{protocol.path.name}: {file} has no '{quote}'")
            quoted.setdefault(file, set()).add(squeezed(quote))
    for file, quotes in quoted.items():
        code = squeezed(re.sub(r"//.*", "", (root / file).read_text())) if (root / file).is_file() else ""
        for quote in sorted(quotes, key=len, reverse=True):
            code = code.replace(quote, "")
        faults += [f"{file}: no program quotes '...{code[max(0, at.start() - 60):at.end()]}'"
                   for at in ORDER.finditer(code)]
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--herd", default=shutil.which("herd7"))
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--models", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    args = parser.parse_args()
    try:
        protocols = [Protocol(path) for path in sorted(args.models.glob("*.litmus"))]
        faults = check_quotes(args.root, protocols)
        n_wrong = 0
        if args.herd:
            with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
                for n, found in pool.map(lambda p: check_program(args.herd, p), protocols):
                    n_wrong += n
                    faults += found
    except ValueError as wrong:
        faults = [str(wrong)]
    for fault in faults:
        print(fault)
    if faults or not protocols:
        return 1
    if not args.herd:
        print("herd7 is not installed ('make setup-memory'): only the quotes have been checked")
        return 77
    print(f"memory order: {len(protocols)} protocols hold, {n_wrong} weakened ones are caught")
    return 0


if __name__ == "__main__":
    sys.exit(main())
