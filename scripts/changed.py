# SPDX-License-Identifier: MIT
"""What a branch changed, and which units have to be compiled to see it."""
import os
import pathlib
import re
import subprocess

from sources import ROOT, cxx_files

READERS_OF_A_HEADER = 3


def git(*arguments):
    return subprocess.run(["git", "-c", "safe.directory=*", "-C", str(ROOT), *arguments], check=True,
                          capture_output=True, text=True).stdout


def base():
    """The commit to compare with: $LINT_BASE, else where this branch left main; on main itself the
    first parent, which for a merge is main as it was. None when git cannot tell."""
    if os.environ.get("LINT_BASE"):
        return git("rev-parse", os.environ["LINT_BASE"] + "^{commit}").strip()
    for main in ("origin/HEAD", "origin/main", "main"):
        try:
            left = git("merge-base", "HEAD", main).strip()
            return left if left != git("rev-parse", "HEAD").strip() else git("rev-parse", "HEAD^").strip()
        except (OSError, subprocess.CalledProcessError):
            continue
    return None


def changed_files(commit):
    """Paths that differ between `commit` and the working tree, new files included."""
    names = (git("diff", "--name-only", "-z", commit)
             + git("ls-files", "--others", "--exclude-standard", "-z")).split("\0")
    return {ROOT / name for name in names if name}


def includers():
    """file -> our files that include it, by the text of their #include lines."""
    files = set(cxx_files())
    found = {}
    for path in files:
        for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.M):
            for folder in (ROOT / "src", ROOT, path.parent):
                if folder / name in files:
                    found.setdefault(folder / name, set()).add(path)
                    break
    return found


def readers(header, included_by, units):
    """The few units nearest to a header: its own .cc and test first, then others that include it."""
    found, seen, level = [], {header}, {header}
    while level and len(found) < READERS_OF_A_HEADER:
        level = {path for name in level for path in included_by.get(name, ())} - seen
        seen |= level
        found += sorted(level & units, key=lambda path: (path.stem.removesuffix("_test") != header.stem,
                                                         path))
    return found[:READERS_OF_A_HEADER]


def affected_units(changed, units):
    """Of `units`, those that changed and some that read each header that changed. What another unit
    makes of a header is left to a run over everything."""
    units = set(units)
    included_by = includers()
    headers = [path for path in changed if path.suffix == ".h"]
    return (changed & units).union(*(readers(header, included_by, units) for header in headers))
