# SPDX-License-Identifier: MIT
"""One run of a program that prints JSON, from a cold page cache and within a memory limit."""
import json
import os
import pathlib
import resource
import shlex
import subprocess
import sys
import time


def drop_page_cache():
    drop = pathlib.Path("/proc/sys/vm/drop_caches")
    if not drop.exists():
        return
    os.sync()
    try:
        drop.write_text("3")
    except PermissionError:
        pass


def read_into_page_cache(path):
    with open(path, "rb", buffering=0) as file:
        piece = bytearray(1 << 22)
        while file.readinto(piece):
            pass


def _busy_seconds():
    """(of all processors, including time that a virtual machine was not given; of our children)"""
    line = pathlib.Path("/proc/stat").read_text().splitlines()[0]
    user, nice, system, _, _, *rest = map(int, line.split()[1:9])
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ((user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK"),
            children.ru_utime + children.ru_stime)


class Disturbance:
    """`with Disturbance() as d: run(...)`: d.processors is how many others kept busy meanwhile."""
    def __enter__(self):
        self.start, self.before = time.monotonic(), _busy_seconds()
        return self

    def __exit__(self, *_):
        busy, ours = (now - then for now, then in zip(_busy_seconds(), self.before))
        self.processors = max(busy - ours, 0.0) / (time.monotonic() - self.start)


def wait_for_quiet(patience):
    """Until others keep less than a fifth of one processor busy, for `patience` seconds at most."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        with Disturbance() as others:
            time.sleep(2)
        if others.processors < 0.2:
            return


def limited(limit, budget):
    """`limit` is a command that runs another within a size that follows: "memlimit" and "4G"."""
    return [*shlex.split(limit), budget] if limit and budget else []


def attempt(command):
    """(what it printed, "") of a program that did well; (None, why) of one that did not."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.strip() or f"ended with {done.returncode}"
    return json.loads(done.stdout), ""


def run(command):
    result, why = attempt(command)
    if result is None:
        sys.exit(f"{shlex.join(map(str, command))}\n{why}")
    return result
