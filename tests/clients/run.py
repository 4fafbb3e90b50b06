#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Clients of others against `moestro serve`: what users have must work with it.

Gets the clients from npm into a folder of its own, starts the server with a model that has a chat
template, runs each client's script against it, lets promtool read the metrics, and stops the server
with SIGTERM. Exit status 1 if anything failed; 77 where node or the packages cannot be had."""
import argparse
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
OLDEST_NODE = 20
SCRIPTS = ["openai.mjs", "openai_forms.mjs", "openai_others.mjs", "ai_sdk.mjs", "anthropic.mjs",
           "ollama.mjs", "agent.mjs"]
PATIENCE = 150  # seconds for one script


class Skip(Exception):
    """Something that the clients need is not there."""


def first_there(*names):
    return next((path for path in map(shutil.which, names) if path), None)


def check_node():
    if not shutil.which("node") or not shutil.which("npm"):
        raise Skip("node or npm is missing; 'scripts/setup.sh clients' installs them")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    found = re.match(r"v(\d+)", version)
    if not found or int(found[1]) < OLDEST_NODE:
        raise Skip(f"node is {version.strip() or 'broken'}; the clients need {OLDEST_NODE} or newer")


def install_packages(folder):
    """Scripts beside their packages: node looks for packages where the script lies."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in [*HERE.glob("*.mjs"), *HERE.glob("package*.json")]:
        shutil.copy(path, folder)
    wanted = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    stamp = folder / "node_modules" / ".moestro"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print("installing the clients from npm", flush=True)
    command = ["npm", "ci", "--ignore-scripts", "--omit=optional", "--prefer-offline",
               "--no-audit", "--no-fund", "--loglevel=error"]
    try:
        run = subprocess.run(command, cwd=folder, timeout=300, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise Skip("npm took longer than 5 minutes") from None
    if run.returncode != 0:
        raise Skip("npm could not install the clients (see above)")
    stamp.write_text(wanted)


class Server:
    """A running `moestro serve`, with a cache of its own."""

    def __init__(self, program, models, log):
        """`models`: the arguments that name them."""
        self.cache = tempfile.TemporaryDirectory(prefix="moestro-clients-")
        self.log = log
        self.process = subprocess.Popen(
            [program, "serve", *models, "--port", "0", "--threads", "1", "--cors",
             "http://friend.example", "--response-store", f"{self.cache.name}/responses"],
            stdout=log.open("w"), stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env={**os.environ, "XDG_CACHE_HOME": self.cache.name})
        self.url = self._wait()

    def _wait(self):
        end = time.monotonic() + 60
        while time.monotonic() < end and self.process.poll() is None:
            found = re.search(r" on (http://[\d.]+:\d+)", self.log.read_text())
            if found:
                self._wait_for_model(found[1], end)
                return found[1]
            time.sleep(0.05)
        self.process.kill()
        sys.exit(f"the server did not start:\n{self.log.read_text()}")

    @staticmethod
    def _wait_for_model(url, end):
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"{url}/health", timeout=5):
                    return
            except OSError:
                time.sleep(0.05)

    def stop(self):
        """The exit status after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "none: killed after 30 s"
        finally:
            self.cache.cleanup()


class Report:
    def __init__(self):
        self.lines = []
        self.failed = False

    def add(self, name, is_good, start, more=""):
        self.failed = self.failed or not is_good
        seconds = time.monotonic() - start
        self.lines.append(f"{'ok  ' if is_good else 'FAIL'} {name} ({seconds:.1f} s){more}")

    def skip(self, name, why):
        self.lines.append(f"skip {name}: {why}")


def run_script(report, name, command, cwd):
    print(f"== {name}", flush=True)
    start = time.monotonic()
    try:
        run = subprocess.run(command, cwd=cwd, timeout=PATIENCE, stdin=subprocess.DEVNULL)
        report.add(name, run.returncode == 0, start)
    except subprocess.TimeoutExpired:
        report.add(name, False, start, f": longer than {PATIENCE} s")


def check_metrics(report, url):
    if not shutil.which("promtool"):
        report.skip("promtool", "it is not installed")
        return
    start = time.monotonic()
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as reply:
        text = reply.read()
    run = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    said = (run.stdout + run.stderr).decode().strip()
    report.add("promtool", run.returncode == 0 and not said, start, f": {said}" if said else "")


def check_all(options, model, server, report):
    folder = options.folder
    for name in SCRIPTS:
        run_script(report, name, ["node", name, server.url], folder)
    browser = os.environ.get("CHROMIUM") or first_there("chromium")
    if browser:
        os.environ["CHROMIUM"] = browser
        run_script(report, "page.mjs", ["node", "page.mjs", server.url, "pictures"], folder)
        run_script(report, "other_pages.mjs", ["node", "other_pages.mjs", server.url], folder)
    else:
        report.skip("page.mjs", "chromium is not installed")
        report.skip("other_pages.mjs", "chromium is not installed")
    if first_there("llama-server"):
        run_script(report, "llama_server.mjs", ["node", "llama_server.mjs", server.url, model],
                   folder)
    else:
        report.skip("llama_server.mjs", "llama-server is not installed")
    check_metrics(report, server.url)


def check_house(options, model, report):
    """The page of a server of two models."""
    if not os.environ.get("CHROMIUM"):
        report.skip("house_page.mjs", "chromium is not installed")
        return
    copies = [options.folder.resolve() / f"{name}.gguf" for name in ("one", "two")]
    for copy in copies:
        shutil.copy(model, copy)
    log = options.folder / "house.log"
    server = Server(options.program, ["--models", ",".join(map(str, copies)), "--ctx", "256"], log)
    try:
        run_script(report, "house_page.mjs", ["node", "house_page.mjs", server.url], options.folder)
        start = time.monotonic()
        status = server.stop()
        report.add("the server of two models ends at SIGTERM", status == 0, start,
                   f": exit status {status}")
    finally:
        server.process.kill()


def check_end(report, server):
    with urllib.request.urlopen(f"{server.url}/state", timeout=10) as reply:
        state = json.load(reply)
    start = time.monotonic()
    status = server.stop()
    report.add("the server ends at SIGTERM", status == 0, start, f": exit status {status}")
    report.add("no request failed in the server", state["failed"] == 0, start,
               f": {state['finished']} finished, {state['cancelled']} left, "
               f"{state['failed']} failed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", required=True, help="moestro")
    parser.add_argument("--chat-model", required=True, help="the tool chat_model")
    parser.add_argument("--demo", required=True, help="the demo model")
    parser.add_argument("--folder", required=True, type=pathlib.Path, help="for packages, logs")
    options = parser.parse_args()
    try:
        check_node()
        install_packages(options.folder)
    except Skip as why:
        print(f"skipped: {why}")
        return SKIPPED
    model = options.folder.resolve() / "chat.gguf"
    subprocess.run([options.chat_model, options.demo, model], check=True)
    report = Report()
    server = Server(options.program, [model], options.folder / "server.log")
    try:
        check_all(options, model, server, report)
        check_end(report, server)
        check_house(options, model, report)
    finally:
        server.process.kill()
    print("== report", *report.lines, sep="\n")
    if report.failed:
        print("== the server said", server.log.read_text()[-4000:], sep="\n")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
