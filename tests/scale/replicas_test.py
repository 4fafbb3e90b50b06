#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What docs/scale.md promises: two servers of the demo model behind HAProxy, with the settings of
packaging/. Exit status 77 where HAProxy is missing; 1 if anything failed."""
import argparse
import functools
import http.client
import json
import pathlib
import shutil
import subprocess
import sys
import unittest
import urllib.parse

from fleet import Fleet, Replica, ask, begin, with_session, wait_until

SKIPPED = 77
TEXTS = "/v1/completions"
SHORT = {"prompt": "Once upon a time", "max_tokens": 2, "temperature": 0}
WORDS = ("Once upon a time there was a little girl who had a red ball and a dog. They went to the "
         "park every day and played with the ball until the sun went down. ")

options = None
lone = None  # a server that nobody else asks: what it says is right


def long_request(n=8, **more):
    """Some 200 ms of one thread for each of the n answers."""
    return {"prompt": "Once", "max_tokens": 200, "n": n, "seed": 7, "ignore_eos": True, **more}


def texts_of(reply):
    return [choice["text"] for choice in json.loads(reply.text)["choices"]]


@functools.cache
def right_texts(body_as_json):
    return texts_of(ask(lone.port, TEXTS, json.loads(body_as_json)))


def setUpModule():
    global lone
    lone = Replica(options, "lone")
    lone.wait_until_ready()


def tearDownModule():
    lone.close()


class FleetTest(unittest.TestCase):
    flags = {"a": (), "b": ()}

    def setUp(self):
        self.fleet = Fleet(options, self.flags)
        self.addCleanup(lambda: self.fleet.close())

    def home_of(self, session, headers=None):
        """The name of the replica that answers."""
        reply = self.fleet.ask(TEXTS, SHORT, session, headers)
        self.assertEqual(reply.status, 200, reply)
        return json.loads(reply.text)["model"]

    def sessions_of(self, replica, n=1):
        found = [s for s in map("session-{}".format, range(40)) if self.home_of(s) == replica.name]
        self.assertGreaterEqual(len(found), n)
        return found[:n]

    def assert_right(self, reply, body):
        self.assertEqual(reply.status, 200, reply)
        self.assertEqual(texts_of(reply), right_texts(json.dumps(body)))

    def begin_long(self, replica, **more):
        """A request that the replica computes through the proxy."""
        later = self.fleet.ask_later(TEXTS, long_request(**more), self.sessions_of(replica)[0])
        wait_until(replica.is_busy, "the request is computed")
        return later


class Sessions(FleetTest):
    def test_a_session_stays_with_its_replica_and_is_repeated(self):
        names = [f"session-{i}" for i in range(20)]
        homes = {name: self.home_of(name) for name in names}
        self.assertEqual(set(homes.values()), {"a", "b"})
        for name in reversed(names):
            self.assertEqual(self.home_of(name), homes[name])
        for name in ("one", 'with "quotes", 50%41'):
            reply = self.fleet.ask("/v1/models", session=name)
            self.assertEqual(reply.headers["x-session-id"], name)

    def test_without_a_session_the_key_counts_and_then_the_address(self):
        keys = [f"key-{i}" for i in range(20)]
        long_name = "a session that has a long name of its own"
        ways = [lambda key: {"Authorization": f"Bearer {key}"}, lambda key: {"x-api-key": key}]
        for way in ways:
            homes = {key: self.home_of(None, way(key)) for key in keys}
            self.assertEqual(set(homes.values()), {"a", "b"})
            self.assertEqual({key: self.home_of("", way(key)) for key in keys}, homes)
            self.assertEqual(len({self.home_of(long_name, way(key)) for key in keys}), 1)
        self.assertEqual(len({self.home_of(None) for _ in range(6)}), 1)

    def test_odd_names_do_no_harm(self):
        for name in ("x" * 129, "x" * 10_000, "caf\xe9", "a\tb"):
            reply = self.fleet.ask("/v1/models", session=name)
            self.assertEqual(reply.status, 200, name[:9])
            self.assertNotIn("x-session-id", reply.headers)
        reply = self.fleet.ask("/v1/models", session="a%0d%0aX-Admin: 1")
        self.assertEqual(reply.headers["x-session-id"], "a%0d%0aX-Admin: 1")
        self.assertNotIn("x-admin", reply.headers)
        self.assertEqual(self.fleet.ask("/v1/models", session="x" * 17_000).status, 431)

    def test_two_sessions_at_once_are_answered_as_alone(self):
        bodies = [long_request(seed=i) for i in range(4)]
        later = [self.fleet.ask_later(TEXTS, body, f"session-{i}") for i, body in enumerate(bodies)]
        for body, one in zip(bodies, later):
            self.assert_right(one.reply(), body)

    def test_a_stream_comes_as_it_is_written_and_ends_when_its_client_leaves(self):
        connection = begin(self.fleet.port, TEXTS, long_request(n=64, stream=True))
        with connection.getresponse() as reply:
            event = reply.readline()
            self.assertTrue(event.startswith(b"data: "), event)
            busy = [replica for replica in self.fleet.replicas if replica.is_busy()]
            self.assertEqual(len(busy), 1)
        connection.close()
        wait_until(lambda: not busy[0].is_busy(), "the stream has ended")
        self.assertGreater(busy[0].state()["cancelled"], 0)

    def test_a_client_that_leaves_before_its_answer_ends_it(self):
        connection = begin(self.fleet.port, TEXTS, long_request(n=64))
        wait_until(lambda: any(r.is_busy() for r in self.fleet.replicas), "the request is computed")
        connection.close()
        wait_until(lambda: not any(r.is_busy() for r in self.fleet.replicas), "it has ended")
        self.assertGreater(sum(r.state()["cancelled"] for r in self.fleet.replicas), 0)


class Prefixes(unittest.TestCase):
    """Five conversations of six turns each, one turn of each after the other."""

    @staticmethod
    def hit_rate(change):
        fleet = Fleet(options, FleetTest.flags, change)
        try:
            texts = {f"session-{i}": f"{i} " + WORDS for i in range(5)}
            for turn in range(6):
                for session in texts:
                    reply = fleet.ask(TEXTS, {"prompt": texts[session], "max_tokens": 8,
                                              "temperature": 0}, session)
                    texts[session] += f"{texts_of(reply)[0]} Then {turn} more came. "
            cached = fleet.sum_of("moestro_prompt_cached_tokens_total")
            return cached / (cached + fleet.sum_of("moestro_prompt_tokens_total"))
        finally:
            fleet.close()

    def test_affinity_finds_more_of_a_prompt(self):
        def without_affinity(settings):
            line = "  balance hash var(txn.asks)\n  hash-type consistent djb2 avalanche\n"
            self.assertIn(line, settings)
            return settings.replace(line, "  balance roundrobin\n")
        with_it = self.hit_rate(lambda settings: settings)
        without = self.hit_rate(without_affinity)
        print(f"of prompts' tokens were there already: {with_it:.1%} with affinity by session, "
              f"{without:.1%} in turn")
        self.assertGreater(with_it, without + 0.1)


class Killed(FleetTest):
    flags = {"a": ("--drain", "0"), "b": ()}

    def test_no_request_is_lost_that_was_not_streaming(self):
        victim, other = self.fleet.replicas
        sessions = self.sessions_of(victim, 3) + self.sessions_of(other, 3)
        bodies = [long_request(n=2), long_request(n=2, seed=8), long_request(n=2, temperature=0)]
        sent = [(body, self.fleet.ask_later(TEXTS, body, session))
                for session in sessions for body in bodies]
        wait_until(victim.is_busy, "the replica computes")
        victim.kill()
        waiting = sum(not later.is_here() for _, later in sent)
        self.assertGreater(waiting, 1)
        for body, later in sent:
            self.assert_right(later.reply(), body)
        again = int(self.fleet.sent_again())
        print(f"a replica was killed with {waiting} of {len(sent)} requests under way: all were "
              f"answered as by a lone server, {again} by the other replica")
        self.assertGreater(again, 0)

    def test_a_long_prompt_goes_to_the_other_replica(self):
        prompts = [f"{i} " + WORDS * 5 for i in range(32)]
        body = {"prompt": prompts, "max_tokens": 1, "temperature": 0}
        victim = self.fleet.replicas[0]
        later = self.fleet.ask_later(TEXTS, body, self.sessions_of(victim)[0])
        wait_until(victim.is_busy, "the prompts are computed")
        victim.kill()
        self.assertFalse(later.is_here())
        self.assert_right(later.reply(), body)

    def test_a_body_beyond_the_buffer_is_answered_but_not_sent_twice(self):
        victim = self.fleet.replicas[0]
        for size, status in ((2_000_000, 200), (2_200_000, 502)):
            self.assertEqual(self.fleet.ask(TEXTS, {**SHORT, "more": "x" * size}).status, 200)
            later = self.begin_long(victim, more="x" * size)
            victim.kill()
            reply = later.reply()
            self.assertEqual(reply.status, status, reply.text[:200])
            self.assertEqual("error" in json.loads(reply.text), status == 502)
            self.start_again(victim)

    def test_a_stream_that_had_begun_ends_short(self):
        victim = self.fleet.replicas[0]
        headers = with_session(self.sessions_of(victim)[0])
        connection = begin(self.fleet.port, TEXTS, long_request(n=64, stream=True), headers)
        with connection.getresponse() as reply:
            self.assertTrue(reply.readline().startswith(b"data: "))
            victim.kill()
            try:
                rest = reply.read()
            except http.client.IncompleteRead as error:
                rest = error.partial
        connection.close()
        self.assertNotIn(b"[DONE]", rest)

    def test_a_replica_that_comes_back_gets_its_sessions(self):
        victim, other = self.fleet.replicas
        session = self.sessions_of(victim)[0]
        victim.kill()
        self.assertEqual(self.home_of(session), other.name)
        self.start_again(victim)
        self.assertEqual(self.home_of(session), victim.name)

    def test_without_a_replica_clients_are_told_to_ask_again(self):
        later = self.begin_long(self.fleet.replicas[0])
        for replica in self.fleet.replicas:
            replica.kill()
        self.assertEqual(later.reply().status, 503)
        for is_known in (False, True):
            if is_known:
                wait_until(lambda: not self.fleet.up(), "HAProxy knows")
            reply = self.fleet.ask(TEXTS, SHORT)
            self.assertEqual((reply.status, reply.headers["retry-after"]), (503, "2"))
            self.assertIn("message", json.loads(reply.text)["error"])

    def test_what_drain_cuts_short_is_answered_by_the_other(self):
        victim = self.fleet.replicas[0]
        later = self.begin_long(victim)
        victim.terminate()
        self.assert_right(later.reply(), long_request())
        self.assertEqual(victim.exit_status(), 0)

    def start_again(self, replica):
        wait_until(lambda: replica.name not in self.fleet.up(), "HAProxy knows that it is gone")
        replica.start()
        replica.wait_until_ready()
        wait_until(lambda: replica.name in self.fleet.up(), "HAProxy knows that it is back")


# Computes one text and lets no other wait.
ONE_TEXT = ("--parallel", "1", "--queue", "0")


def occupy(test, replica):
    connection = begin(replica.port, TEXTS, long_request(n=128))
    test.addCleanup(connection.close)
    wait_until(replica.is_busy, "the replica computes")


class Full(FleetTest):
    flags = {"a": ONE_TEXT, "b": ()}

    def test_a_full_replica_gives_way(self):
        occupy(self, self.fleet.replicas[0])
        self.assertEqual(ask(self.fleet.replicas[0].port, TEXTS, SHORT).status, 429)
        self.assertEqual({self.home_of(f"session-{i}") for i in range(20)}, {"b"})
        self.assertGreater(self.fleet.sent_again(), 0)


class BothFull(FleetTest):
    flags = {"a": ONE_TEXT, "b": ONE_TEXT}

    def test_clients_are_told_to_ask_again(self):
        for replica in self.fleet.replicas:
            occupy(self, replica)
        reply = self.fleet.ask(TEXTS, SHORT, "mine")
        self.assertEqual((reply.status, reply.headers["retry-after"]), (429, "2"), reply)
        self.assertEqual(reply.headers["x-session-id"], "mine")
        self.assertEqual(json.loads(reply.text)["error"]["code"], "queue_full")


class Draining(FleetTest):
    flags = {"a": ("--drain", "100"), "b": ("--drain", "100")}

    def test_a_replica_ends_its_answers_and_gets_no_others(self):
        leaving, other = self.fleet.replicas
        session = self.sessions_of(leaving)[0]
        later = self.begin_long(leaving, n=20)
        leaving.terminate()
        wait_until(lambda: ask(leaving.port, "/health").status == 503, "the replica drains")
        self.assertEqual(self.home_of(session), other.name)
        self.assertFalse(later.is_here())
        self.assert_right(later.reply(), long_request(n=20))
        self.assertEqual(json.loads(later.reply().text)["model"], leaving.name)
        self.assertEqual(leaving.exit_status(), 0)
        self.assertEqual(self.home_of(session), other.name)

    def test_when_both_do_clients_are_told_to_ask_again(self):
        for replica in self.fleet.replicas:
            connection = begin(replica.port, TEXTS, long_request(n=128))
            self.addCleanup(connection.close)
            wait_until(replica.is_busy, "the replica computes")
            replica.terminate()
            wait_until(lambda port=replica.port: ask(port, "/health").status == 503, "it drains")
        reply = self.fleet.ask(TEXTS, SHORT)
        self.assertEqual((reply.status, reply.headers["retry-after"]), (503, "2"), reply)
        self.assertIn("message", json.loads(reply.text)["error"])
        wait_until(lambda: not self.fleet.up(), "HAProxy knows")
        for replica in self.fleet.replicas:
            self.assertTrue(replica.is_busy(), "the replica has ended before HAProxy knew")


class Metrics(FleetTest):
    def query(self, port, text):
        reply = ask(port, "/api/v1/query?" + urllib.parse.urlencode({"query": text}))
        self.assertEqual(reply.status, 200, reply)
        return {one["metric"]["instance"]: float(one["value"][1])
                for one in json.loads(reply.text)["data"]["result"]}

    def test_prometheus_has_those_of_both_replicas_and_of_haproxy(self):
        if not shutil.which("prometheus"):
            self.skipTest("prometheus is not installed")
        port = self.fleet.start_prometheus()
        replicas = {f"127.0.0.1:{replica.port}" for replica in self.fleet.replicas}
        proxy = f"127.0.0.1:{self.fleet.metrics_port}"
        wait_until(lambda: self.query(port, "up") == dict.fromkeys([*replicas, proxy], 1.0),
                   "Prometheus has read all")
        self.assertEqual(set(self.query(port, "moestro_prompt_cached_tokens_total")), replicas)
        self.assertEqual(set(self.query(port, "haproxy_server_redispatch_warnings_total")), {proxy})


def main():
    global options
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", required=True, help="moestro")
    parser.add_argument("--demo", required=True, help="the demo model")
    parser.add_argument("--folder", required=True, type=pathlib.Path, help="for settings, logs")
    options, rest = parser.parse_known_args()
    if not shutil.which("haproxy"):
        print("skipped: HAProxy is missing; 'scripts/setup.sh device' installs it")
        return SKIPPED
    print(subprocess.run(["haproxy", "-v"], capture_output=True, text=True).stdout.split("\n")[0])
    options.folder.mkdir(parents=True, exist_ok=True)
    result = unittest.main(argv=[sys.argv[0], *rest], exit=False, verbosity=2).result
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
