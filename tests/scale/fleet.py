# SPDX-License-Identifier: MIT
"""Replicas of `moestro serve`, HAProxy and Prometheus on free ports of loopback. The settings of
the latter two are those of packaging/ with other ports."""
import collections
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

PACKAGING = pathlib.Path(__file__).resolve().parents[2] / "packaging"
PATIENCE = 120  # seconds for what ends in a few on a quiet machine

Reply = collections.namedtuple("Reply", "status headers text")


def wait_until(is_so, what):
    end = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > end:
            raise AssertionError(f"waited {PATIENCE} s until {what}")
        time.sleep(0.02)


def ports_below_the_kernels_own():
    """Free ports that the kernel gives nobody who asks for any: a replica's stays its own while it
    starts, and while it is gone for a moment. Each comes once."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = list(range(max(first - 10_000, 1024), first) or range(20_000, 30_000))
    random.shuffle(candidates)
    for port in candidates:
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port


PORTS = ports_below_the_kernels_own()


def with_ports(settings, ports):
    """`settings` with other ports on loopback. Each port must be there."""
    for old, new in ports.items():
        address = re.compile(rf"127\.0\.0\.1:{old}\b")
        assert len(address.findall(settings)) == 1, f"127.0.0.1:{old} in {settings}"
        settings = address.sub(f"127.0.0.1:{new}", settings)
    return settings


def begin(port, path, body=None, headers=None):
    """The connection on which a request has been sent."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    method = "GET" if body is None else "POST"
    data = None if body is None else json.dumps(body)
    connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
    return connection


def ask(port, path, body=None, headers=None):
    connection = begin(port, path, body, headers)
    reply = connection.getresponse()
    names = {name.lower(): value for name, value in reply.getheaders()}
    text = reply.read().decode()
    connection.close()
    return Reply(reply.status, names, text)


def is_ok(port, path):
    try:
        return ask(port, path).status == 200
    except OSError:
        return False


class Later:
    """A request in a thread of its own."""

    def __init__(self, *request):
        self._reply = None
        self._thread = threading.Thread(target=self._ask, args=request, daemon=True)
        self._thread.start()

    def _ask(self, *request):
        try:
            self._reply = ask(*request)
        except (OSError, http.client.HTTPException) as error:
            self._reply = Reply(0, {}, repr(error))

    def is_here(self):
        return not self._thread.is_alive()

    def reply(self):
        self._thread.join(PATIENCE)
        assert self._reply, "no reply came"
        return self._reply


class Replica:
    """`moestro serve`, with a cache of its own. Its answers say its name as the model's."""

    def __init__(self, options, name, flags=()):
        self.name = name
        self.port = next(PORTS)
        self._cache = tempfile.TemporaryDirectory(prefix="moestro-scale-")
        self._command = [options.program, "serve", options.demo, "--port", str(self.port),
                         "--threads", "1", "--alias", name, *flags]
        self._log = (options.folder / f"replica-{name}.log").open("w")
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            self._command, stdout=self._log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env={**os.environ, "XDG_CACHE_HOME": self._cache.name})

    def wait_until_ready(self):
        def is_ready():
            assert self.process.poll() is None, \
                f"replica {self.name} has ended with {self.process.returncode}: {self.said()}"
            return is_ok(self.port, "/health")
        wait_until(is_ready, f"replica {self.name} is ready")

    def said(self):
        """The end of its log."""
        return pathlib.Path(self._log.name).read_text(errors="replace")[-500:]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def exit_status(self):
        return self.process.wait(timeout=PATIENCE)

    def close(self):
        self.kill()
        self._log.close()
        self._cache.cleanup()

    def state(self):
        return json.loads(ask(self.port, "/state").text)

    def is_busy(self):
        return any(place["is_processing"] for place in self.state()["slots"])


def counter(text, name):
    """The sum of a metric's samples."""
    lines = [line for line in text.splitlines() if re.match(rf"{name}[ {{]", line)]
    assert lines, f"no {name}"
    return sum(float(line.split()[-1]) for line in lines)


class Fleet:
    """Replicas behind HAProxy. `flags`: of each replica, by its name. `change` gets HAProxy's
    settings and gives others."""

    def __init__(self, options, flags, change=lambda settings: settings):
        self._parts = []
        self._folder = options.folder
        self.replicas = []
        try:
            for name, its_flags in flags.items():
                self.replicas.append(Replica(options, name, its_flags))
            for replica in self.replicas:
                replica.wait_until_ready()
            self._start_proxy(change)
        except BaseException:
            self.close()
            raise

    def _start_proxy(self, change):
        self.port = next(PORTS)
        self.metrics_port = next(PORTS)
        settings = self._folder / "haproxy.cfg"
        settings.write_text(change(with_ports((PACKAGING / "haproxy.cfg").read_text(), {
            8080: self.port, 8081: self.replicas[0].port, 8082: self.replicas[1].port,
            8404: self.metrics_port})))
        self._run("haproxy", "-f", settings)
        wait_until(lambda: is_ok(self.metrics_port, "/metrics"), "HAProxy listens")
        wait_until(lambda: self.up() == {"a", "b"}, "HAProxy knows both replicas")

    def start_prometheus(self):
        port = next(PORTS)
        settings = self._folder / "prometheus.yml"
        settings.write_text("global: {scrape_interval: 1s}\n" + with_ports(
            (PACKAGING / "prometheus.yml").read_text(), {
                8081: self.replicas[0].port, 8082: self.replicas[1].port,
                8404: self.metrics_port}))
        data = self._folder / "prometheus"
        shutil.rmtree(data, ignore_errors=True)
        self._run("prometheus", f"--config.file={settings}", f"--storage.tsdb.path={data}",
                  f"--web.listen-address=127.0.0.1:{port}")
        wait_until(lambda: is_ok(port, "/-/ready"), "Prometheus is ready")
        return port

    def _run(self, *command):
        log = (self._folder / f"{command[0]}.log").open("w")
        self._parts.append((subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT,
                                             stdin=subprocess.DEVNULL), log))

    def close(self):
        for process, log in self._parts:
            process.kill()
            process.wait()
            log.close()
        for replica in self.replicas:
            replica.close()

    def ask(self, path, body=None, session=None, headers=None):
        return ask(self.port, path, body, {**with_session(session), **(headers or {})})

    def ask_later(self, path, body, session):
        return Later(self.port, path, body, with_session(session))

    def sent_again(self):
        """How often HAProxy sent a request to the other replica."""
        return counter(self.proxy_metrics(), "haproxy_backend_redispatch_warnings_total")

    def proxy_metrics(self):
        return ask(self.metrics_port, "/metrics").text

    def up(self):
        """The names of the replicas that HAProxy sends requests to."""
        return set(re.findall(r'^haproxy_server_status\{[^}]*server="(\w)",state="UP"\} 1$',
                              self.proxy_metrics(), re.MULTILINE))

    def sum_of(self, name):
        return sum(counter(ask(replica.port, "/metrics").text, name) for replica in self.replicas)


def with_session(session):
    return {} if session is None else {"X-Session-Id": session}
