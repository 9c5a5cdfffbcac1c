"""A source that is read step by step, and a runtime around one."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.connect.capture.running import make_runtime
from headrace.connect.capture.settings import from_section
from headrace.connect.change import Change, Event
from headrace.connect.postgres.settings import PostgresSettings
from headrace.connect.postgres.source import PostgresSource
from headrace.connect.runtime import Runtime
from headrace.retry import Backoff
from tests.integration.cdc_postgres_server import CdcPostgres


@dataclass
class Reading:
    """A source and what it has handed out, with the position of the last batch that was acknowledged."""

    source: PostgresSource
    position: dict[str, Any] | None = None
    events: list[Event] = field(default_factory=list)

    def until(self, count: int) -> list[Change]:
        """At least so many changes in all."""
        deadline = time.monotonic() + 30
        while len(self.changes) < count:
            assert time.monotonic() < deadline, self.events
            self.step()
        return self.changes

    def step(self, timeout_s: float = 0.5) -> None:
        batch = self.source.next_batch(timeout_s)
        if batch is not None:
            self.events += batch.events
            self.position = json.loads(json.dumps(batch.position))
            self.source.acknowledge(self.position)

    @property
    def changes(self) -> list[Change]:
        return [event for event in self.events if isinstance(event, Change)]

    @property
    def told(self) -> list[tuple[str, Any]]:
        return [(change.op, change.after[0] if change.after else None) for change in self.changes]


@contextlib.contextmanager
def reading(database: CdcPostgres, position: dict[str, Any] | None = None, **settings: Any) -> Iterator[Reading]:
    source = PostgresSource(PostgresSettings(database.url, slot="s", **settings))
    try:
        source.open(position)
        yield Reading(source, position)
    finally:
        source.close()


def runtime_of(database: CdcPostgres, bootstrap: str) -> Runtime:
    section = {"url": database.url, "slot": "s", "heartbeat_s": 0.3, "prefix": "srv"}
    addresses = parse_bootstrap(bootstrap)
    return make_runtime(from_section("c", section), addresses, Cluster(addresses), backoff=Backoff(0.1, 0.5))


@contextlib.contextmanager
def running(database: CdcPostgres, bootstrap: str) -> Iterator[Runtime]:
    runtime = runtime_of(database, bootstrap)
    thread = threading.Thread(target=runtime.run)
    thread.start()
    try:
        yield runtime
    finally:
        runtime.stop()
        thread.join(30)
        assert not thread.is_alive()
