#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Perplexity by `moestro eval` and by llama-perplexity on the same file and text.

usage: perplexity.py [-c CTX] [--chunks N] [-t THREADS] [--tolerance X] MOESTRO MODEL TEXT

llama-perplexity is in Debian's llama.cpp-tools-extra; LLAMA_PERPLEXITY names another. It scores the
second half of each window, so `eval` gets --score-from CTX/2. The text must not spell control
tokens: `eval` reads them as such, llama-perplexity does not.

How far apart they may be: the order of additions differs, and what that does to a token's logits
is at most X of their standard deviation s (0.06 for 8-bit activations, 0.0005 for F32;
tests/engine/parity_test.cc derives both). These errors have no common sign, so the mean over n tokens is
off by X * s / sqrt(n), and three times that is allowed; llama-perplexity's four decimals come on
top. Exit code 1 if they are farther apart.
"""
import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr.strip()}")
    return done.stdout, done.stderr


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("moestro")
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("-c", "--ctx", type=int, default=256)
    parser.add_argument("--chunks", type=int, default=16)
    parser.add_argument("-t", "--threads", type=int, default=1)
    parser.add_argument("--tolerance", type=float, default=0.06)
    args = parser.parse_args()

    common = ["-c", str(args.ctx), "-t", str(args.threads)]
    first = args.ctx // 2
    tokens = args.chunks * (args.ctx - 1 - first)
    out, _ = run([args.moestro, "eval", args.model, "--text", args.text, "--score-from", str(first),
                  "--tokens", str(tokens), "--json", *common])
    ours = json.loads(out)
    program = os.environ.get("LLAMA_PERPLEXITY", "llama-perplexity")
    out, err = run([program, "-m", args.model, "-f", args.text, "--chunks", str(args.chunks),
                    *common])
    theirs = float(re.search(r"Final estimate: PPL = ([0-9.]+)", out + err).group(1))
    out, _ = run([args.moestro, "logits", args.model, "--tokens", "1,2,3", "--all", "--json"])
    spread = statistics.pstdev(json.loads(out)["logits"])

    allowed = 3.0 * args.tolerance * spread / math.sqrt(tokens) + 5e-5 / theirs
    apart = abs(math.log(ours["perplexity"] / theirs))
    print(f"tokens           {ours['tokens']} in {ours['windows']} windows of {args.ctx}")
    print(f"moestro eval     {ours['perplexity']:.4f}")
    print(f"llama-perplexity {theirs:.4f}")
    print(f"apart            {100 * apart:.4f} %, allowed are {100 * allowed:.4f} %")
    return 0 if apart <= allowed and ours["tokens"] == tokens else 1


if __name__ == "__main__":
    sys.exit(main())
