#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What large and hostile bodies cost `moestro serve`, by kind and size.

  bodies.py kinds MOESTRO MODEL [--sizes 1,4,16] [--only NAME,...] [-- FLAGS]
      one body after another: status, seconds, the server's processor seconds, how much its memory
      grew at most, and the longest that a small request waited beside it
  bodies.py lanes MOESTRO MODEL [--seconds 30] [-- FLAGS]
      bodies of 16 MB and of 256 KB of all kinds at once: memory, and how long the small ones take
  bodies.py term MOESTRO MODEL [--drain 1] [-- FLAGS]
      SIGTERM while a body of 16 MB is prepared: seconds until the server has ended

MODEL needs a chat template: tests/clients/chat_model.cc makes one of the demo model. `kinds` prints
a table in Markdown, the others one JSON object; exit code 1 when a body broke a promise of
docs/server.md.
"""
import argparse
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

MB = 1_000_000
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HELLO = [{"role": "user", "content": "hello"}]


def chat(**fields):
    return CHAT, {"messages": HELLO, "max_tokens": 1} | fields


def text(**fields):
    return TEXT, {"prompt": "hello", "max_tokens": 1} | fields


def fill(size, make):
    """As many of make(i) as take `size` bytes."""
    items, used, i = [], 0, 0
    while used < size:
        items.append(make(i))
        used += len(json.dumps(items[-1])) + 2
        i += 1
    return items


def tool(name, parameters=None):
    return {"type": "function", "function": {"name": name} | (
        {"parameters": parameters} if parameters is not None else {})}


def answer_schema(schema):
    return chat(response_format={"type": "json_schema",
                                 "json_schema": {"name": "x", "schema": schema}})


def described(pairs):
    return {"type": "object", "properties": dict(pairs)}


def nested(depth, leaf):
    for _ in range(depth):
        leaf = {"type": "object", "properties": {"a": leaf}, "required": ["a"]}
    return leaf


def many_schemas(size, make):
    """Each as large as a schema may be, in tools of their own."""
    each = 200_000
    return chat(tools=[tool(f"t{i}", make(min(each, size))) for i in range(max(1, size // each))])


def string_enum(size):
    return {"type": "string", "enum": fill(size, lambda i: f"v{i}")}


def keys(size):
    return dict(fill(size, lambda i: (f"k{i}", i)))


def required(size):
    names = fill(size // 2, lambda i: f"n{i}")
    return {"type": "object", "properties": {n: {} for n in names}, "required": names}


def references(size):
    chain = fill(size, lambda i: (f"d{i}", {"$ref": f"#/$defs/d{i + 1}"}))
    return {"$ref": "#/$defs/d0", "$defs": dict(chain) | {f"d{len(chain)}": {"type": "string"}}}


def pattern(size):
    return described(fill(size, lambda i: (f"p{i}", {
        "type": "string", "pattern": "^((([a-z]{1,64}){1,64}){1,64}[^\\u0400-\\u04ff]{9,999})$"})))


def classes(size):
    wide = "[" + "".join(chr(0x3400 + 2 * i) for i in range(1300)) + "]"
    return described(fill(size, lambda i: (f"p{i}", {"type": "string", "pattern": wide})))


KINDS = {
    "tools of short names": lambda n: chat(tools=fill(n, lambda i: tool(f"f{i}"))),
    "tools named in Chinese": lambda n: chat(tools=fill(n, lambda i: tool(
        "".join(chr(0x4e00 + i // 300 ** k % 300) for k in range(3))))),
    "tools with parameters": lambda n: chat(tools=fill(n, lambda i: tool(
        f"f{i}", described([("a", {"type": "string"}), ("b", {"type": "integer"})])))),
    "one tool of many properties": lambda n: chat(tools=[tool("f", described(
        fill(n, lambda i: (f"p{i}", {"type": "string"}))))]),
    "a tool's enum": lambda n: chat(tools=[tool("f", described([("e", string_enum(n))]))]),
    "tools of 200 KB of required names": lambda n: many_schemas(n, required),
    "tools of 200 KB of patterns": lambda n: many_schemas(n, pattern),
    "tools of 200 KB of classes": lambda n: many_schemas(n, classes),
    "tools of one name of 200 KB": lambda n: many_schemas(n, lambda m: described([("é" * (m // 6), {})])),
    "an answer's enum": lambda n: answer_schema(string_enum(n)),
    "an answer's properties": lambda n: answer_schema(described(
        fill(n, lambda i: (f"p{i}", {"type": "integer"})))),
    "schemas in each other": lambda n: answer_schema(described(
        fill(n, lambda i: (f"p{i}", nested(12, {"type": "string"}))))),
    "references": lambda n: answer_schema(references(n)),
    "cases of anyOf": lambda n: answer_schema({"anyOf": fill(n, lambda i: {"const": i})}),
    "many short messages": lambda n: chat(messages=fill(n, lambda i: {
        "role": "assistant" if i % 2 else "user", "content": "hi"})),
    "a message of one word": lambda n: chat(messages=[{"role": "user", "content": "a" * n}]),
    "a message of words": lambda n: chat(messages=[{"role": "user", "content": "hello there " * (n // 12)}]),
    "a call of many arguments": lambda n: chat(messages=HELLO + [{
        "role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {
            "name": "f", "arguments": json.dumps(keys(n))}}]},
        {"role": "tool", "tool_call_id": "c", "content": "1"}]),
    "calls of empty lists": lambda n: chat(messages=HELLO + [{
        "role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {
            "name": "f", "arguments": '{"a":[' + "[]," * (n // 3) + "0]}"}}]}]),
    "a template's arguments": lambda n: chat(chat_template_kwargs=keys(n)),
    "stop words": lambda n: text(stop=fill(n, lambda i: f"w{i}")),
    "logit_bias": lambda n: text(logit_bias=dict(fill(n, lambda i: (str(i).zfill(9)[-9:], 1)))),
    "biases beside a grammar": lambda n: text(
        grammar='root ::= "b"', logit_bias={str(i % 4096).zfill(4 + i // 4096): 1.0
                                             for i in range(min(n // 20, 200_000))}),
    "prompts": lambda n: text(prompt=["hello " * (n // 256 // 6)] * 256),
    "prompts of a long look back": lambda n: text(prompt=["hi"] * 60, repeat_last_n=1 << 20,
                                                    repeat_penalty=1.1, dry_multiplier=1,
                                                    user="x" * n),
    "a prompt of tokens": lambda n: text(prompt=fill(n, lambda i: i % 4000)),
    "a grammar": lambda n: text(grammar='root ::= "a"' + ' | "ab"' * (n // 7)),
    "values in values": lambda n: chat(metadata=["[]"] * 0, user=[[[]]] * (n // 7)),
}


class Server:
    def __init__(self, args, flags=()):
        self.cache = tempfile.TemporaryDirectory(dir=args.cache_dir)
        self.process = subprocess.Popen(
            [args.moestro, "serve", args.model, "--port", "0", "-t", "1", "--cache", "25%",
             *args.flags, *flags],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=os.environ | {"XDG_CACHE_HOME": self.cache.name})
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])
        while self.ask("/health", None, 60)[0] != 200:
            time.sleep(0.1)

    def ask(self, path, body, timeout):
        """(status, reply's text); status None: no reply in time."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            method = "GET" if body is None else "POST"
            connection.request(method, path, body, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        except (OSError, http.client.HTTPException):
            return None, ""
        finally:
            connection.close()

    def warm_up(self, timeout):
        """Keys and values of all texts that may run, which belong to the engine's memory."""
        bodies = [json.dumps({"prompt": f"{i} " + "hello there " * 1500, "max_tokens": 1}) for i in range(8)]
        threads = [threading.Thread(target=self.ask, args=(TEXT, body, timeout)) for body in bodies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def status(self, key):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(key)) * 1024

    def forget_peak(self):
        with open(f"/proc/{self.process.pid}/clear_refs", "w", encoding="ascii") as file:
            file.write("5")

    def cpu(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self, most):
        """Seconds from SIGTERM to the end; None: it had to be killed."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(most)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None
        finally:
            self.process.stdout.close()
            self.cache.cleanup()
        return time.monotonic() - began


class Beside:
    """Small requests, one after another; how long the slowest took."""

    BODY = json.dumps({"messages": HELLO, "max_tokens": 1, "cache_prompt": False})

    def __init__(self, server, timeout):
        self.server, self.timeout = server, timeout
        self.longest, self.count, self.failed, self.over = 0.0, 0, 0, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.over.is_set():
            began = time.monotonic()
            status, _ = self.server.ask(CHAT, self.BODY, self.timeout)
            self.longest = max(self.longest, time.monotonic() - began)
            self.count += 1
            self.failed += status != 200
            self.over.wait(0.02)

    def stop(self):
        self.over.set()
        self.thread.join()


def encoded(kind, size):
    path, body = KINDS[kind](size)
    return path, json.dumps(body, ensure_ascii=False).encode()


def run_kind(server, kind, size, args):
    path, body = encoded(kind, size)
    server.forget_peak()
    before, cpu = server.status("VmRSS"), server.cpu()
    beside = Beside(server, args.limit)
    began = time.monotonic()
    status, reply = server.ask(path, body, args.limit)
    seconds = time.monotonic() - began
    beside.stop()
    try:
        why = json.loads(reply)["error"]["message"][:60] if status != 200 else ""
    except (json.JSONDecodeError, KeyError, TypeError):
        why = reply[:60]
    return {"kind": kind, "mb": size / MB, "status": status, "seconds": seconds,
            "cpu": server.cpu() - cpu, "grew": (server.status("VmHWM") - before) / MB,
            "beside": beside.longest, "failed": beside.failed, "why": why}


def kinds(args):
    names = args.only.split(",") if args.only else list(KINDS)
    server, ok = Server(args), True
    server.warm_up(args.limit)
    print("| body | MB | status | seconds | processor | memory grew | beside it | |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        for size in args.sizes.split(","):
            row = run_kind(server, name, int(float(size) * MB), args)
            died = server.process.poll() is not None
            ok = ok and row["status"] is not None and not died
            print(f"| {name} | {row['mb']:g} | {row['status']} | {row['seconds']:.2f} | {row['cpu']:.2f} | "
                  f"{row['grew']:.0f} MB | {row['beside']:.2f} s | {row['why']} |", flush=True)
            if row["status"] is None or died:
                server.end(2)
                server = Server(args)
                server.warm_up(args.limit)
    return {"ended_s": server.end(30)}, ok


def lanes(args):
    server = Server(args)
    bodies = {size: [encoded(kind, size) for kind in KINDS] for size in (16 * MB, 200_000)}
    server.warm_up(args.limit)
    server.forget_peak()
    before, end = server.status("VmRSS"), time.monotonic() + args.seconds
    statuses, times = {}, {16 * MB: [], 200_000: []}

    def client(size, seed):
        rng = random.Random(seed)
        while time.monotonic() < end:
            began = time.monotonic()
            status, _ = server.ask(*rng.choice(bodies[size]), args.limit)
            times[size].append(time.monotonic() - began)
            statuses[f"{size}: {status}"] = statuses.get(f"{size}: {status}", 0) + 1

    threads = [threading.Thread(target=client, args=(size, seed)) for seed in range(3)
               for size in bodies]
    beside = Beside(server, args.limit)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    beside.stop()
    grew = (server.status("VmHWM") - before) / MB
    longest = {f"{size}_longest_s": max(values, default=0) for size, values in times.items()}
    ended = server.end(30)
    return {"statuses": statuses, "grew_mb": grew, "hello_longest_s": beside.longest,
            "hello": beside.count, "hello_failed": beside.failed, "ended_s": ended} | longest, (
                beside.failed == 0 and ended is not None and grew < 134)


def term(args):
    """Each kind of 16 MB, cut off in its preparation."""
    worst = {}
    for name in args.only.split(",") if args.only else KINDS:
        path, body = encoded(name, 16 * MB)
        server = Server(args, ("--drain", str(args.drain)))
        thread = threading.Thread(target=server.ask, args=(path, body, args.limit))
        thread.start()
        time.sleep(0.3)
        worst[name] = server.end(args.drain + 30)
        thread.join()
    late = {k: v for k, v in worst.items() if v is None or v > args.drain + 2}
    return {"drain_s": args.drain, "longest_s": max(v or 99 for v in worst.values()), "late": late}, not late


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for work in (kinds, lanes, term):
        command = commands.add_parser(work.__name__)
        command.add_argument("moestro")
        command.add_argument("model")
        command.add_argument("--sizes", default="1,4,16")
        command.add_argument("--only", default="")
        command.add_argument("--limit", type=float, default=60)
        command.add_argument("--seconds", type=float, default=30)
        command.add_argument("--drain", type=float, default=1)
        command.add_argument("--cache-dir", default=None)
        command.set_defaults(work=work)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:end])
    args.flags = sys.argv[end + 1:]
    result, ok = args.work(args)
    print(json.dumps(result))
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
