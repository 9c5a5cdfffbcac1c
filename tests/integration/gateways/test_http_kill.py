"""Kills in the middle: what had its 200 is there, a request with a key is there once, listeners go on without a gap."""

import json
import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.client.address import parse_bootstrap
from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from tests.integration.cli_runs import COMMAND
from tests.integration.gateways.http_gateway import Client, Events, GatewayProcess
from tests.integration.gateways.running import values_of, wait_for
from tests.ports import free_port


class BrokerProcess:
    """A broker that can be killed and started again."""

    def __init__(self, folder: Path, port: int) -> None:
        self.bootstrap = f"127.0.0.1:{port}"
        self._command = [*COMMAND, "broker", "start", "--data-dir", str(folder), "--listen", self.bootstrap]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def answers() -> bool:
            try:
                with Cluster(parse_bootstrap(self.bootstrap)) as cluster:
                    cluster.brokers()
            except Exception:
                return False
            return True

        wait_for(answers, "the broker answers")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path / "data", free_port())
    with Cluster(parse_bootstrap(made.bootstrap)) as cluster:
        ensure_topic(cluster, "t", partitions=2)
    yield made
    made.kill()


@pytest.fixture
def gateway(broker: BrokerProcess) -> Iterator[GatewayProcess]:
    made = GatewayProcess(broker.bootstrap, free_port(), "--timeout-s", "5")
    yield made
    made.end()


class Producing:
    """A program that produces numbers, each until it has its 200; with a key of its own, or without."""

    def __init__(self, client: Client, first: int, *, with_keys: bool) -> None:
        self.acknowledged: list[int] = []
        self._client, self._next, self._with_keys = client, first, with_keys
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            headers = {"idempotency_key": f"k{self._next}"} if self._with_keys else {}
            while True:  # until it is there, also when it is told to stop
                try:
                    answer = self._client.produce("t", [{"key": str(self._next), "value": self._next}], **headers)
                except OSError:
                    time.sleep(0.05)
                    continue
                if answer.status == 200:
                    break
                assert answer.status in (503, 409, 500), answer
                assert answer.status != 503 or int(answer.headers["retry-after"]) >= 1
                time.sleep(0.05)
            self.acknowledged.append(self._next)
            self._next += 1

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def wait_until_they_go_on(programs: list[Producing]) -> None:
    before = [len(each.acknowledged) for each in programs]
    wait_for(
        lambda: all(len(each.acknowledged) > was + 5 for each, was in zip(programs, before, strict=True)),
        "both programs go on",
        60,
    )


def listen(client: Client, wanted: "threading.Event", found: list[Any]) -> None:
    """Server-sent events until it is told to stop, with the last id after each break."""
    last = ""
    while not wanted.is_set():
        try:
            headers = {"last_event_id": last} if last else {}
            events = Events(client, "/events/t?from=earliest&heartbeat=1", timeout_s=5, **headers)
            while not wanted.is_set():
                kind, told = events.next()
                if kind == "end":
                    break
                last = events.last
                assert kind in ("record", "live", "heartbeat", "problem"), (kind, told)
                if kind == "record":
                    found.append(told["value"])
            events.close()
        except (OSError, AssertionError, json.JSONDecodeError, ValueError):
            time.sleep(0.05)


@pytest.mark.parametrize("victim", ["gateway", "broker"])
def test_nothing_acknowledged_is_lost_and_no_key_written_twice(
    broker: BrokerProcess, gateway: GatewayProcess, victim: str
) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", "7"))
    print("HEADRACE_SEED", seed)
    pauses = random.Random(seed)
    heard: list[int] = []
    over = threading.Event()
    listener = threading.Thread(target=listen, args=(gateway.client, over, heard), daemon=True)
    listener.start()
    programs = [Producing(gateway.client, 0, with_keys=True), Producing(gateway.client, 1_000_000, with_keys=False)]
    try:
        for _ in range(2):
            wait_until_they_go_on(programs)
            time.sleep(pauses.random() * 0.2)
            dying: Any = gateway if victim == "gateway" else broker
            dying.kill()
            dying.start()
        wait_until_they_go_on(programs)
    finally:
        for each in programs:
            each.stop()
    there = Counter(int(value) for value in values_of(broker.bootstrap, "t"))
    for each in programs:
        assert not [number for number in each.acknowledged if not there[number]], "acknowledged, and lost"
    keyed = {number: count for number, count in there.items() if number < 1_000_000}
    assert set(keyed.values()) == {1}, "each key once"
    wait_for(lambda: len(heard) >= sum(there.values()), "the listener has heard everything", 30)
    over.set()
    listener.join(20)
    assert Counter(heard) == there, "heard each record once, through every break"


def test_the_broker_is_away_from_the_start(tmp_path: Path) -> None:
    port = free_port()
    gateway = GatewayProcess(f"127.0.0.1:{port}", free_port(), "--timeout-s", "1")
    try:
        for path in ("/produce/t", "/topics/t"):
            away = gateway.client.ask("POST", path, {"value": 1},
                                      content_type="application/json")  # fmt: skip
            assert (away.status, "retry-after" in away.headers) == (503, True), away
        assert gateway.client.ask("GET", "/readyz").status == 503
        assert gateway.client.ask("GET", "/healthz").status == 200
        broker = BrokerProcess(tmp_path / "data", port)
        try:
            with Cluster(parse_bootstrap(broker.bootstrap)) as cluster:
                ensure_topic(cluster, "t")
            wait_for(lambda: gateway.client.produce("t", {"value": 1}).status == 200, "it is written")
            assert values_of(broker.bootstrap, "t") == [b"1"]
        finally:
            broker.kill()
        gone = gateway.client.produce("t", {"value": 2})
        assert gone.status == 503
    finally:
        assert gateway.end() == 0
