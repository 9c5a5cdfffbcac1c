"""A topic of changes read back: the replica it makes, and the process that writes it."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.connect.table import UNAVAILABLE_TEXT

PATIENCE_S = 120.0
Records = list[tuple[dict[str, Any] | None, dict[str, Any] | None]]


class CdcWorker:
    """The connector's process and what it has said."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.cdc_postgres_worker", json.dumps(told)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def has_said(self, event: str) -> bool:
        return any(f'"event": "{event}"' in line for line in list(self.lines))

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def end(self) -> None:
        """Leave nothing running, however the test ended."""
        if self.is_running:
            self.kill()

    def _end(self, with_signal: signal.Signals) -> None:
        self._process.send_signal(with_signal)
        self._process.wait(30)
        self._thread.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


def read_topic(bootstrap: str, topic: str) -> Records:
    """Every committed record of a topic: key and value."""
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        if topic not in {found.name for found in cluster.topics()}:
            return []
        held = {
            partition: bound
            for partition, bound in bounds(cluster, cluster.partitions(topic), committed=True).items()
            if bound.end > bound.start
        }
        starts = {partition: bound.start for partition, bound in held.items()}
        until = {partition: bound.end for partition, bound in held.items()}
        return [
            (_loaded(record.key), _loaded(record.value))
            for read in read_records(cluster, starts, until=until, options=FetchOptions(committed=True))
            for _, record in read
        ]


def _loaded(text: bytes | None) -> dict[str, Any] | None:
    return None if text is None else json.loads(text)


def replica_of(records: Records) -> dict[Any, dict[str, Any]]:
    """The table that a reader of the topic has, by id; what was not sent again is taken from what was there.

    A row that moves to another key takes with it what was not sent again: its delete stands just before its create.
    """
    rows: dict[Any, dict[str, Any]] = {}
    moved: dict[str, Any] = {}
    for key, value in records:
        assert key is not None
        if value is None:
            moved = rows.pop(key["id"], moved)
        elif value["op"] == "t":
            rows.clear()
        elif value["op"] == "d":
            moved = rows.pop(key["id"], {})
        else:
            old = rows.get(key["id"], moved)
            rows[key["id"]] = {
                name: old.get(name) if written == UNAVAILABLE_TEXT else written
                for name, written in value["after"].items()
            }
    return rows


def wait_for(what: Callable[[], bool], why: Callable[[], str] = lambda: "") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, why()
        time.sleep(0.1)
