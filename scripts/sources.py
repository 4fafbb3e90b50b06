# SPDX-License-Identifier: MIT
"""Which files are ours: what git tracks or would track; without git, what lies outside build/."""
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def all_files():
    try:
        listed = subprocess.run(
            ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others",
             "--exclude-standard"],
            check=True, capture_output=True).stdout.decode()
        names = {name for name in listed.split("\0") if name}
    except (OSError, subprocess.CalledProcessError):
        names = {p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*") if p.is_file()}
        names = {n for n in names if n.split("/")[0] not in (".git", ".cache")
                 and not n.startswith("build") and "__pycache__" not in n}
    return sorted(ROOT / name for name in names if (ROOT / name).is_file())


def cxx_files():
    return [p for p in all_files() if p.suffix in (".h", ".cc")]
