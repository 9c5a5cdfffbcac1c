"""Streams listed from the events themselves, for a store in a topic: the log has no list of them.

They are counted in a database of SQLite's that is on disk as soon as it is large, and gone thereafter: memory is
bounded however many streams there are.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

from headrace.eventsourcing.model import StoredEvent, StreamInfo
from headrace.eventsourcing.store import OnProgress

_AT_ONCE: Final = 10_000  # streams in memory
_REPORTED: Final = 1_000  # events


def list_streams_in(
    events: Iterable[StoredEvent], after: str, total: int, on_progress: OnProgress | None
) -> Iterator[StreamInfo]:
    """The streams of all of these events with names after a name, in the order of their names."""
    counted = sqlite3.connect("", check_same_thread=False)
    try:
        counted.execute("create table streams (name text primary key, version integer) without rowid")
        versions: dict[str, int] = {}
        for number, event in enumerate(events, 1):
            if event.stream > after:
                versions[event.stream] = event.version
            if len(versions) >= _AT_ONCE:
                _add(counted, versions)
            if on_progress is not None and number % _REPORTED == 0:
                on_progress(number, total)
        _add(counted, versions)
        for row in counted.execute("select name, version from streams order by name"):
            yield StreamInfo(*row)
    finally:
        counted.close()


def _add(counted: sqlite3.Connection, versions: dict[str, int]) -> None:
    with counted:
        counted.executemany("insert or replace into streams values (?, ?)", versions.items())
    versions.clear()
