"""Matches go to a topic exactly once, with the whole query killed at random instants; patterns change meanwhile."""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace import Broker
from headrace.cep import Pattern, read_pattern
from tests.integration.operator_streams import START
from tests.integration.pattern_worker import BIG, FOUND, PATTERNS, PAYS, STORED, payments
from tests.reading import read_committed

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]
KILLS = int(os.environ.get("HEADRACE_KILLS", "1"))
ROWS = 900 + 600 * KILLS
PARTITIONS = 2


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    with Broker(tmp_path / "broker") as broker:
        yield broker.bootstrap_servers


class Worker:
    def __init__(self, root: Path, servers: str) -> None:
        self._errors = (root / "worker.err").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.pattern_worker", str(root), servers],
            stdout=subprocess.PIPE, stderr=self._errors, text=True, start_new_session=True,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip

    def lines(self) -> Iterator[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield line.strip()

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # with the JVM and its Python workers
        self.end()

    def end(self) -> int:
        code = self._process.wait(300)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()
        return code


def produce(servers: str, topic: str, *records: tuple[str, Any, int | None, float]) -> None:
    """Records with a key, a value (None: a tombstone), a partition, and the second of their time."""
    producer = Producer({"bootstrap.servers": servers})
    since = round(START.timestamp() * 1000)
    for key, value, partition, second in records:
        text = None if value is None else json.dumps(value)
        where = {} if partition is None else {"partition": partition}
        producer.produce(topic, text, key=key, timestamp=since + round(second * 1000), **where)
    assert producer.flush(30) == 0


def expected(pattern: Pattern, rows: list[dict[str, Any]]) -> Counter[Any]:
    ordered = sorted(rows, key=lambda row: (row["at"], row["_partition"], row["_offset"]))
    matches = pattern.matches(ordered, key="card", time="at", bounded=True)
    return Counter(
        (match.key[0], frozenset((name, event.values["_partition"], event.values["_offset"]) for name, event in match))
        for match in matches
    )


@pytest.mark.long
def test_exactly_once_to_a_topic(tmp_path: Path, servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    topics = [NewTopic(PAYS, PARTITIONS), NewTopic(PATTERNS, 1, config={"cleanup.policy": "compact"})]
    for future in admin.create_topics([*topics, *(NewTopic(name, 1) for name in FOUND.values())]).values():
        future.result()
    produce(servers, PATTERNS, *((name, {"pattern": text}, 0, 0.0) for name, text in STORED.items()))
    offsets = [0] * PARTITIONS
    rows, records = [], []
    for number, pay in enumerate(payments(ROWS)):
        partition = number % PARTITIONS
        row = {
            "card": pay["card"],
            "at": (START + timedelta(seconds=pay["second"])).isoformat(),
            "amount": pay["amount"],
        }
        records.append((pay["card"], row, partition, pay["second"]))
        rows.append({**row, "_partition": partition, "_offset": offsets[partition]})
        offsets[partition] += 1
    produce(servers, PAYS, *records)

    chosen = random.Random(int(os.environ.get("HEADRACE_SEED", "7")))
    for kill in range(KILLS):
        worker = Worker(tmp_path, servers)
        wait = chosen.randint(2, 5)
        for count, line in enumerate(worker.lines(), start=1):
            assert line.startswith("batch"), line
            if count == wait:
                break
        worker.kill()
        if kill == 0:
            produce(servers, PATTERNS, ("goes", None, 0, 0.0), ("stays", {"pattern": STORED["stays"]}, 0, 0.0))
    worker = Worker(tmp_path, servers)
    last = [*worker.lines()][-1:]
    assert worker.end() == 0, last
    assert last == ["finished"]

    def read(topic: str) -> list[dict[str, Any]]:
        return [json.loads(message.value() or b"") for message in read_committed(servers, topic)]

    one = Counter(
        (
            match["card"],
            frozenset((name, part["_partition"], part["_offset"]) for name in ("small", "big") for part in match[name]),
        )
        for match in read(FOUND["one"])
    )
    assert one == expected(BIG, rows)
    assert one.total() > 30
    many: dict[str, Counter[Any]] = {"stays": Counter(), "goes": Counter()}
    for match in read(FOUND["many"]):
        taken = frozenset((part["variable"], part["_partition"], part["_offset"]) for part in match["match_rows"])
        many[match["pattern"]][match["card"], taken] += 1
    # The record that says the same again has changed nothing; what was removed has found part of what it would have.
    assert many["stays"] == expected(read_pattern(STORED["stays"]), rows)
    assert many["goes"] <= expected(read_pattern(STORED["goes"]), rows)
    assert many["stays"].total() > 30
