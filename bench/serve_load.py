#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Load and faults for `moestro serve`, from outside, with nothing but Python's own library.

  serve_load.py load URL [--clients 8] [--seconds 600]   answers under load equal those alone
  serve_load.py vanish URL [--clients 100]               clients that leave while prompts are computed
  serve_load.py half URL [--connections 100]             half-sent requests beside a working client
  serve_load.py slow URL                                 a client that reads slowly beside a quick one
  serve_load.py gap URL [--words 3000]                   a text's tokens beside another's long prompt
  serve_load.py memory URL [--seconds 60]                load beside everything that takes memory;
                                                         start the server in a cgroup of its --ram
  serve_load.py prefix MOESTRO MODEL [--tokens 4000] [-- FLAGS]
                                                         first token cold, warm, after a restart

Each prints one JSON object; exit code 1 when an answer was lost or mixed up.
"""
import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse


async def request(url, path, body=None, on_event=None, leave=None):
    """Returns (status, body text). `on_event` sees each event of a stream; `leave` is awaited and
    then the connection is dropped."""
    parts = urllib.parse.urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        data = json.dumps(body).encode() if body is not None else b""
        method = "POST" if body is not None else "GET"
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n"
                     f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode())
        writer.write(data)
        await writer.drain()
        if leave is not None:
            await leave
            return None, ""
        status = int((await reader.readline()).split()[1])
        chunked = False
        while (line := await reader.readline()) not in (b"\r\n", b""):
            chunked = chunked or line.lower().startswith(b"transfer-encoding: chunked")
        if not chunked:
            text = (await reader.read()).decode()
            for event in text.split("\n\n") if on_event else ():
                if event.startswith("data: "):
                    on_event(event[6:])
            return status, text
        text = b""
        while (size := int(await reader.readline() or b"0", 16)) > 0:
            text += await reader.readexactly(size)
            await reader.readline()
            while (end := text.find(b"\n\n")) >= 0:
                event, text = text[:end].decode(), text[end + 2:]
                if on_event and event.startswith("data: "):
                    on_event(event[6:])
        return status, ""
    finally:
        writer.close()


class Answer:
    """A streamed completion: its text, when its tokens came, how it ended."""

    def __init__(self):
        self.text, self.times, self.done, self.error, self.timings = "", [], False, None, {}
        self.status = None
        self.tokens = []  # (text, how much likelier than the next token), with logprobs

    def see(self, event):
        if event == "[DONE]":
            self.done = True
            return
        chunk = json.loads(event)
        if "error" in chunk:
            self.error = chunk["error"]
            return
        self.timings = chunk.get("timings", self.timings)
        for choice in chunk["choices"]:
            if choice["text"]:
                self.text += choice["text"]
                self.times.append(time.monotonic())
            for top in (choice.get("logprobs") or {}).get("top_logprobs", []):
                best, *others = sorted(top.values(), reverse=True)
                self.tokens.append((max(top, key=top.get), best - others[0] if others else 1e9))

    def differs_at_a_near_tie(self, alone, near):
        """The first other token was nearly as likely alone: rounding may decide there."""
        for (token, _), (other, gap) in zip(self.tokens, alone.tokens):
            if token != other:
                return gap < near
        return False


async def complete(url, prompt, tokens, **fields):
    answer = Answer()
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True} | fields
    answer.status, text = await request(url, "/v1/completions", body, answer.see)
    if answer.status != 200:
        answer.error = text or answer.status
    return answer


def quantile(values, q):
    values = sorted(values)
    return values[min(int(q * len(values)), len(values) - 1)] if values else None


WORDS = ("the dog cat bird tree house sun moon boy girl ran saw had big small red happy sad "
         "and then they went home to play with").split()


def prompts(n, words, seed):
    rng = random.Random(seed)
    return ["Once upon a time " + " ".join(rng.choice(WORDS) for _ in range(rng.randint(3, words)))
            for _ in range(n)]


async def run_clients(url, clients, seconds, wishes, alone, near=0.0):
    end = time.monotonic() + seconds
    counts = {"answers": 0, "tokens": 0, "cached": 0, "wrong": 0, "near_ties": 0, "lost": 0,
              "refused": 0}
    gaps = []

    async def client(number):
        rng = random.Random(number)
        while time.monotonic() < end:
            i = rng.randrange(len(wishes))
            answer = await complete(url, *wishes[i], **({"logprobs": 2} if near else {}))
            if answer.status in (429, 503):
                counts["refused"] += 1
                await asyncio.sleep(0.1)
                continue
            counts["answers"] += 1
            counts["tokens"] += len(answer.times)
            counts["cached"] += answer.timings.get("cache_n") or 0
            gaps.extend(b - a for a, b in zip(answer.times, answer.times[1:]))
            if not answer.done or answer.error:
                counts["lost"] += 1
            elif answer.text != alone[i].text:
                is_tie = answer.differs_at_a_near_tie(alone[i], near)
                counts["near_ties" if is_tie else "wrong"] += 1

    began = time.monotonic()
    await asyncio.gather(*(client(i) for i in range(clients)))
    counts["tokens_per_second"] = counts["tokens"] / (time.monotonic() - began)
    gaps = gaps or [float("nan")]
    counts["gap_p50_ms"] = quantile(gaps, 0.5) * 1e3
    counts["gap_p99_ms"] = quantile(gaps, 0.99) * 1e3
    counts["gap_longest_ms"] = max(gaps) * 1e3
    return counts


async def load(args):
    wishes = [(p, random.Random(p).randint(8, 80)) for p in prompts(24, 60, 1)]
    fields = {"logprobs": 2} if args.near else {}
    alone = [await complete(args.url, *wish, cache_prompt=False, **fields) for wish in wishes]
    one = await run_clients(args.url, 1, min(args.seconds, 30), wishes, alone, args.near)
    many = await run_clients(args.url, args.clients, args.seconds, wishes, alone, args.near)
    return {"clients": args.clients, "seconds": args.seconds, "one": one, "many": many,
            "ok": many["wrong"] + many["lost"] + one["wrong"] + one["lost"] == 0}


async def slots_busy(url):
    _, text = await request(url, "/slots")
    return sum(slot["is_processing"] for slot in json.loads(text))


async def vanish(args):
    times = []
    for i in range(args.clients):
        prompt = " ".join(prompts(1, 10, i)) + " hello there" * args.words
        task = asyncio.create_task(request(args.url, "/v1/completions",
                                           {"prompt": prompt, "max_tokens": 50, "stream": True},
                                           leave=asyncio.sleep(0.05 + 0.01 * (i % 30))))
        await task
        began = time.monotonic()
        while await slots_busy(args.url):
            await asyncio.sleep(0.01)
        times.append(time.monotonic() - began)
    return {"clients": args.clients, "p50_s": quantile(times, 0.5), "p99_s": quantile(times, 0.99),
            "longest_s": max(times), "ok": max(times) < 1.0}


async def half(args):
    parts = urllib.parse.urlsplit(args.url)
    alone = await complete(args.url, "Once upon a time", 40)
    slow = []
    for _ in range(args.connections):
        connection = await asyncio.open_connection(parts.hostname, parts.port)
        connection[1].write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Le")
        slow.append(connection)
    began = time.monotonic()
    beside = await complete(args.url, "Once upon a time", 40)
    seconds = time.monotonic() - began
    for _, writer in slow:
        writer.close()
    return {"connections": args.connections, "seconds": seconds,
            "ok": beside.done and beside.text == alone.text}


async def slow(args):
    parts = urllib.parse.urlsplit(args.url)
    alone = await complete(args.url, "Once upon a time", 60)
    body = json.dumps({"prompt": "Once upon a time", "max_tokens": 150, "stream": True,
                       "ignore_eos": True}).encode()
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
                 .encode() + body)
    await reader.read(10)  # and no more
    began = time.monotonic()
    quick = await complete(args.url, "Once upon a time", 60)
    seconds = time.monotonic() - began
    writer.close()
    return {"seconds": seconds, "ok": quick.done and quick.text == alone.text}


async def gap(args):
    answer = Answer()
    body = {"prompt": "Once upon a time", "max_tokens": 2000, "temperature": 0, "stream": True,
            "ignore_eos": True}
    text = asyncio.create_task(request(args.url, "/v1/completions", body, answer.see))
    while len(answer.times) < 100:
        await asyncio.sleep(0.01)
    began = time.monotonic()
    other = await complete(args.url, "hello there " * args.words, 1)
    ended = time.monotonic()
    still_wrote = not text.done()
    text.cancel()
    gaps = [(b, b - a) for a, b in zip(answer.times, answer.times[1:])]
    alone = [d for at, d in gaps if at < began]
    beside = [d for at, d in gaps if began <= at <= ended]
    return {"prompt_s": ended - began, "tokens_beside": len(beside),
            "alone_p50_ms": quantile(alone, 0.5) * 1e3, "alone_longest_ms": max(alone) * 1e3,
            "beside_p50_ms": quantile(beside, 0.5) * 1e3, "beside_p99_ms": quantile(beside, 0.99) * 1e3,
            "beside_longest_ms": max(beside) * 1e3,
            "ok": still_wrote and other.done and not other.error}


def schema(depth):
    if depth == 0:
        return {"type": "string", "pattern": "^[a-z]{1,20}$"}
    names = [f"k{depth}_{i}" for i in range(6)]
    return {"type": "object", "properties": {name: schema(depth - 1) for name in names},
            "required": names}


# Each ends its own text, by time or by memory.
HOSTILE = ('root ::= "a" root "b"? | "c"', 'root ::= "qz" ("a"?){1,1000}',
           'root ::= "a" root t | "a" root u | "a" root v | "b"\nt ::= "c"\nu ::= "c"\nv ::= "c"')


def greedy_bodies():
    """What takes the most memory for its kind."""
    base = {"prompt": "Once upon a time", "max_tokens": 120}
    for depth in (1, 2, 3):
        yield base | {"response_format": {"type": "json_schema", "json_schema": {
            "name": "x", "schema": schema(depth)}}}
    for text in HOSTILE:
        yield base | {"grammar": text, "logit_bias": {"97": 5}}
    yield base | {"logprobs": 20, "stream": True}
    yield base | {"prompt": "hello there " * 2_600_000}
    yield base | {"prompt": [1] * 250_000}
    yield base | {"prompt": [[1] * 4000] * 3}
    yield base | {"prompt": ["hello " * 500] * 12}


async def greedy_client(url, number, end, statuses):
    rng = random.Random(number)
    bodies = list(greedy_bodies())
    while time.monotonic() < end:
        try:
            status, _ = await request(url, "/v1/completions", rng.choice(bodies))
        except (OSError, IndexError, asyncio.IncompleteReadError):
            status = "broken off"
        statuses[status] = statuses.get(status, 0) + 1


async def hold(url, bytes_each, seconds):
    """A body that never ends."""
    parts = urllib.parse.urlsplit(url)
    _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 33000000\r\n\r\n"
                     .encode() + b"x" * bytes_each)
        await writer.drain()
        await asyncio.sleep(seconds)
    except OSError:
        pass  # refused or given up, as it should be
    finally:
        writer.close()


async def memory(args):
    wishes = [(p, random.Random(p).randint(8, 80)) for p in prompts(24, 60, 1)]
    alone = [(await complete(args.url, *wish, cache_prompt=False)).text for wish in wishes]
    end = time.monotonic() + args.seconds
    statuses = {}
    held = [hold(args.url, 60_000, args.seconds / 2) for _ in range(args.connections)]
    greedy = [greedy_client(args.url, i, end, statuses) for i in range(8)]
    many, *_ = await asyncio.gather(run_clients(args.url, 8, args.seconds, wishes, alone), *held,
                                    *greedy)
    status, _ = await request(args.url, "/health")
    return {"seconds": args.seconds, "many": many, "greedy": {str(k): n for k, n in statuses.items()},
            "ok": many["wrong"] + many["lost"] == 0 and status == 200}


def start(args, cache):
    server = subprocess.Popen([args.moestro, "serve", args.model, "--port", "0", *args.flags],
                              stdout=subprocess.PIPE, text=True,
                              env=os.environ | {"XDG_CACHE_HOME": cache})
    url = server.stdout.readline().split()[-1]
    return server, url


async def until_ready(url):
    while True:
        status, _ = await request(url, "/health")
        if status == 200:
            return
        await asyncio.sleep(0.2)


async def first_token(url, tokens, last):
    body = {"prompt": tokens + [last], "max_tokens": 2, "temperature": 0, "stream": True}
    answer = Answer()
    began = time.monotonic()
    await request(url, "/v1/completions", body, answer.see)
    if not answer.done or answer.error:
        sys.exit(f"no answer: {answer.error}")
    return answer.timings["prompt_ms"] / 1e3, answer.timings["cache_n"], time.monotonic() - began


async def prefix(args):
    rng = random.Random(1)
    tokens = [rng.randint(100, 3000) for _ in range(args.tokens)]
    with tempfile.TemporaryDirectory(dir=args.cache_dir) as cache:
        server, url = start(args, cache)
        await until_ready(url)
        cold, _, _ = await first_token(url, tokens, 101)
        warm, cached, _ = await first_token(url, tokens, 102)
        server.send_signal(signal.SIGTERM)
        code = server.wait()
        server, url = start(args, cache)
        await until_ready(url)
        again, restored, _ = await first_token(url, tokens, 103)
        server.send_signal(signal.SIGTERM)
        server.wait()
    return {"tokens": args.tokens, "cold_s": cold, "warm_s": warm, "warm_cached": cached,
            "after_restart_s": again, "restored": restored, "exit_code": code,
            "warm_times": cold / warm, "restart_times": cold / again, "ok": code == 0}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, work in (("load", load), ("vanish", vanish), ("half", half), ("slow", slow),
                       ("gap", gap), ("memory", memory)):
        command = commands.add_parser(name)
        command.add_argument("url")
        command.set_defaults(work=work)
        command.add_argument("--clients", type=int, default=8 if name == "load" else 100)
        command.add_argument("--seconds", type=float, default=600)
        command.add_argument("--connections", type=int, default=100)
        command.add_argument("--words", type=int, default=3000)
        command.add_argument("--near", type=float, default=0.0,
                             help="load: answers may differ where two tokens' log probabilities "
                                  "are that near (libllama's attention rounds by its neighbours)")
    command = commands.add_parser("prefix")
    command.add_argument("moestro")
    command.add_argument("model")
    command.add_argument("--tokens", type=int, default=4000)
    command.add_argument("--cache-dir", default=None)
    command.set_defaults(work=prefix)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:end])
    args.flags = sys.argv[end + 1:]
    result = asyncio.run(args.work(args))
    print(json.dumps(result))
    sys.exit(0 if result["ok"] else 1)


if __name__ == "__main__":
    main()
