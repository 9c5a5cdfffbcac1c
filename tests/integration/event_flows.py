"""Flows of events for tests: one in threads, and what readers of its topic see."""

import json
import threading
from collections.abc import Sequence
from typing import Any, Self

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.connect.capture.running import run_captures
from headrace.errors import HeadraceError
from headrace.eventsourcing.event_records import read_copy
from headrace.eventsourcing.flow import from_section
from headrace.eventsourcing.model import NewEvent, StoredEvent, StreamAppend
from headrace.eventsourcing.store import EventStore
from headrace.status import Status
from tests.integration.waiting import wait_until


def append(store: EventStore, stream: str, *numbers: int, **more: Any) -> None:
    events = [NewEvent("counted", json.dumps({"n": n}).encode(), (f"n:{n}", "all"), **more) for n in numbers]
    store.append([StreamAppend(stream, events)], command_id=f"{stream}-{numbers[0]}" if numbers[0] % 2 else "")


def copied(bootstrap: str, topic: str) -> list[StoredEvent]:
    """What a reader of committed records sees, in the topic's order."""
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        if topic not in {each.name for each in cluster.topics()}:
            return []
        held = bounds(cluster, cluster.partitions(topic), committed=True)
        starts = {where: bound.start for where, bound in held.items() if bound.end > bound.start}
        until = {where: held[where].end for where in starts}
        read = read_records(cluster, starts, until=until, options=FetchOptions(committed=True)) if starts else ()
        found = [read_copy(each.record) for group in read for each in group]
    assert None not in found
    return [each for each in found if each is not None]


class Flow:
    """A flow in threads, ended by the end of a `with` block."""

    def __init__(self, name: str, section: dict[str, Any], bootstrap: str) -> None:
        self.status: Status | None = None
        self.failure: HeadraceError | None = None
        self._settings, self._bootstrap = from_section(name, section), parse_bootstrap(bootstrap)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        failures = run_captures([self._settings], self._bootstrap, self._stop, self._show)
        self.failure = failures.get(self._settings.name)

    def _show(self, found: Sequence[Status]) -> None:
        (self.status,) = found

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def wait_for_failure(self) -> str:
        self._thread.join(60)
        return str(self.failure)


def wait_for_copies(bootstrap: str, topic: str, store: EventStore) -> list[StoredEvent]:
    last = store.last_position()
    wait_until(
        lambda: [each.position for each in copied(bootstrap, topic)][-1:] == [last], f"the topic is not at {last}"
    )
    return copied(bootstrap, topic)
