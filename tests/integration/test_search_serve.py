"""`headrace search serve` as a process: among others' large questions, topics made again, and a broker that dies."""

import http.client
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import delete_topics, ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.writer import NewRecord, Writer
from headrace.searches import http as search_http
from headrace.searches import standing
from headrace.searches.hits import SearchHit, write_hit
from headrace.searches.http import SearchServer
from headrace.status import SEARCHES, read_statuses
from tests.integration.cli_runs import COMMAND
from tests.integration.waiting import wait_until
from tests.ports import free_port

CROWD = 4_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Broker(durability="os") as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as made:
        yield made


class Served:
    """The command at work."""

    def __init__(self, bootstrap: str, *options: str) -> None:
        command = [*COMMAND, "search", "serve", "--json", "--port", "0", "--bootstrap", bootstrap, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        said = json.loads(self.process.stdout.readline())
        self.port, self.url = said["port"], said["url"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(30) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        connection.request(method, path, None if body is None else json.dumps(body).encode())
        answer = connection.getresponse()
        said = json.loads(answer.read())
        connection.close()
        return answer.status, said


class Listener:
    """Reads server-sent events until the server ends them."""

    def __init__(self, port: int, path: str = "/hits", last: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._connection.request("GET", path, headers={"last-event-id": last} if last else {})
        self._answer = self._connection.getresponse()
        self.status = self._answer.status
        self.last = last

    def next(self) -> tuple[str, Any]:
        fields: dict[str, str] = {}
        while line := self._answer.readline().decode():
            if line == "\n" and "event" in fields:
                self.last = fields.get("id", self.last)
                return fields["event"], json.loads(fields["data"])
            name, colon, value = line.rstrip("\n").partition(": ")
            if colon and name:
                fields[name] = value
        return "end", None

    def queries(self, count: int) -> list[str]:
        found: list[str] = []
        while len(found) < count:
            kind, said = self.next()
            assert kind in ("hit", "live", "problem"), (kind, said)
            found += [said["query"]] if kind == "hit" else []
        return found

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


def write(cluster: Cluster, topic: str, *queries: str) -> None:
    ensure_topic(cluster, topic)
    writer = Writer(cluster, topic)
    for offset, query in enumerate(queries):
        key, value, _ = write_hit(SearchHit(query, 1, "", (), 1.0, (), "listings", 0, offset, 1, None, 0))
        writer.add(NewRecord(key, value, int(time.time() * 1000), partition=0))
    writer.flush()


def store_crowd(cluster: Cluster, topic: str) -> None:
    ensure_topic(cluster, topic, configs={"cleanup.policy": "compact"})
    writer = Writer(cluster, topic)
    for number in range(CROWD):
        writer.add(NewRecord(b"q%d" % number, b'{"query":"title:bike"}', int(time.time() * 1000), partition=0))
    writer.flush()


def test_one_who_asks_for_much_holds_up_nobody(cluster: Cluster) -> None:
    store_crowd(cluster, "crowd")
    with Served(str(cluster), "--queries", "crowd") as server:
        assert server.ask("POST", "/percolate?limit=1", {"title": "bike"})[1]["total"] == CROWD
        much: list[Any] = []
        thread = threading.Thread(
            target=lambda: much.append(server.ask("POST", "/percolate?limit=2", [{"title": "a bike"}] * 150))
        )
        thread.start()
        others = 0
        while not much:
            status, said = server.ask("POST", "/percolate", {"title": "a car"})
            assert (status, said["total"]) == (200, 0)
            others += 1
        thread.join()
        assert others > 10, "they are answered in between"
        ((status, said),) = much
        assert status == 200
        assert {(each["total"], len(each["hits"]), each["queries_offset"]) for each in said["documents"]} == {
            (CROWD, 2, CROWD)
        }
        assert said["queries_offset"] == CROWD
        assert said["documents"][149]["hits"][0]["highlights"] == [
            {"field": "title", "text": "a bike", "marks": [[2, 6]]}
        ]


def test_hits_of_a_topic_that_was_made_again_come_from_its_first_on(cluster: Cluster) -> None:
    write(cluster, "again", *(f"old{number}" for number in range(40)))
    with Served(str(cluster), "--hits", "again") as server:
        listener = Listener(server.port)
        assert listener.next()[0] == "live"
        write(cluster, "again", "one more")
        assert listener.queries(1) == ["one more"]
        before = listener.last
        delete_topics(cluster, ["again"])

        def is_gone() -> bool:
            try:
                cluster.topic("again", refresh=True)
            except ClientError:
                return True
            return False

        wait_until(is_gone, "it is deleted")
        wanted = [f"new{number}" for number in range(60)]
        write(cluster, "again", *wanted)
        assert listener.queries(60) == wanted, "though the old one was longer for a while"
        assert listener.last.startswith("0-60~")
        # The new one is longer than the place in the old one: what it has before is new all the same.
        back = Listener(server.port, last=before)
        assert back.queries(60) == wanted
        there = Listener(server.port, last=listener.last)
        assert there.next()[0] == "live"
        for each in (listener, back, there):
            each.close()


def test_a_broker_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    port = free_port()
    broker = Broker(tmp_path, own_process=True, listen=f"127.0.0.1:{port}").start()
    servers = broker.bootstrap_servers
    with Cluster(parse_bootstrap(servers)) as cluster:
        write(cluster, "hits", "one")
        store_crowd(cluster, "searches")
    with Served(servers, "--hits", "hits") as server:
        listener = Listener(server.port)
        assert listener.next()[0] == "live"
        first = listener.last
        assert server.ask("POST", "/percolate?limit=1", {"title": "bike"})[1]["total"] == CROWD
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)
        broker.stop()
        status, said = server.ask("POST", "/percolate", {"title": "bike"})
        assert status == 503, said
        assert server.ask("GET", "/readyz")[0] == 503
        assert server.ask("GET", "/healthz")[0] == 200
        # What came since cannot be read: nobody is told that it is live, with a place behind what it did not get.
        before = first.replace("0-1~", "0-0~")
        back = Listener(server.port, last=before)
        assert back.next()[0] == "problem"
        assert back.last == before
        with (
            Broker(tmp_path, own_process=True, listen=f"127.0.0.1:{port}"),
            Cluster(parse_bootstrap(servers)) as cluster,
        ):
            write(cluster, "hits", "two")
            assert listener.queries(1) == ["two"]
            assert back.queries(2) == ["one", "two"]
            back.close()
            listener.close()

            def status_now() -> str:
                found = read_statuses(cluster, SEARCHES)
                return found[f"http.{server.port}"].state if f"http.{server.port}" in found else "none"

            assert server.ask("POST", "/percolate?limit=1", {"title": "bike"})[1]["total"] == CROWD
            wait_until(lambda: status_now() == "running", "it says how it is")
            server.process.terminate()
            assert server.process.wait(30) == 0
            assert status_now() == "none", "and that it is no more"
    broker.stop()


def test_an_answer_and_the_number_of_listeners_have_an_upper_bound(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_crowd(cluster, "bounded")
    write(cluster, "bounded.hits", "one")
    monkeypatch.setattr(search_http, "_MOST_LISTENERS", 2)
    monkeypatch.setattr(standing, "MOST_ANSWER_BYTES", 100_000)
    monkeypatch.setattr(search_http, "MOST_ANSWER_BYTES", 100_000)
    with SearchServer(parse_bootstrap(str(cluster)), "bounded", "bounded.hits", port=0) as server:
        ask = Served.ask
        served: Any = server
        status, said = ask(served, "POST", "/percolate?limit=4000", {"title": "bike"})
        assert (status, "smaller limit" in said["error"]) == (400, True)
        assert ask(served, "POST", "/percolate?limit=100", [{"title": "bike"}] * 50)[0] == 400
        assert ask(served, "POST", "/percolate?limit=2", {"title": "bike"})[0] == 200
        listening = [Listener(server.port), Listener(server.port)]
        assert [each.next()[0] for each in listening] == ["live", "live"]
        assert ask(served, "GET", "/hits") == (503, {"error": "2 listen already: try again later"})
        listening[0].close()

        def has_room() -> bool:
            listening.append(Listener(server.port))
            return listening[-1].status == 200

        wait_until(has_room, "one has left")
        for each in listening[1:]:
            each.close()
