"""The table that a topic stands for, built up to a place: on disk, in a temporary SQLite file, so that its size is no
matter. Keys and values are those that the sink compares.
"""

import json
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from headrace.client.cluster import Cluster
from headrace.client.offsets import bounds
from headrace.connect.sync.feed import Feed
from headrace.connect.sync.keyless import reduce_rows
from headrace.connect.sync.registry import NEED_KEYS
from headrace.connect.sync.settings import SyncSettings
from headrace.stores.derived import Place, ReadableSink, StoredRow, Values, key_text


class SourceRow(NamedTuple):
    """A row as the topic has it: the key's columns, and the values to compare."""

    key: Values
    values: Mapping[str, Any]


class SourceRows:
    """Rows by the text of their key; close it, or use it in a `with` block."""

    def __init__(self, settings: SyncSettings, sink: ReadableSink, connect: Callable[[], Cluster]) -> None:
        self._settings = settings
        self._sink = sink
        self._connect = connect
        self._form = settings.form.opened(connect)
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-verify-")
        self._db = sqlite3.connect(Path(self._folder.name) / "rows.sqlite", isolation_level=None)
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute("CREATE TABLE rows (text TEXT PRIMARY KEY, key TEXT, value TEXT, seen INTEGER) WITHOUT ROWID")
        self._offsets: dict[int, int] = {}
        self.key_names: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()
        self._folder.cleanup()

    def advance(self, place: Place) -> None:
        """Read the topic on, up to this place."""
        settings = self._settings
        with self._connect() as cluster:
            partitions = cluster.partitions(settings.topic)
            for where, held in bounds(cluster, partitions).items():
                self._offsets.setdefault(where.partition, held.start)  # a topic may have grown since the last time
            until = {partition: place.offsets.get(partition, 0) for partition in self._offsets}
            feed = Feed(cluster, settings.topic, self._offsets, self._form, settings.limits, until=until, is_exact=True)
            self._db.execute("BEGIN")
            while not feed.is_at_end:
                gathered = feed.next()
                if gathered is None:
                    continue
                if gathered.clears:
                    self._db.execute("DELETE FROM rows")
                look_up = None if settings.sink in NEED_KEYS else self._look_up
                changes, _ = reduce_rows(gathered.records, self._form, settings.sink, look_up)
                for change in changes:
                    self._put(change.key, change.row, partial=change.partial)
            self._db.execute("COMMIT")
            self._offsets = feed.offsets

    def _look_up(self, keys: Sequence[Values]) -> list[StoredRow]:
        return [StoredRow(text, {}) for text in self.find([key_text(key) for key in keys])]

    def _put(self, key: Values, row: Values | None, *, partial: bool) -> None:
        self.key_names = list(key)
        compared = self._sink.comparable(key, key if row is None else row)
        if row is None:
            self._db.execute("DELETE FROM rows WHERE text = ?", (compared.key,))
            return
        values = dict(compared.values)
        if partial and (before := self.find([compared.key]).get(compared.key)):
            values = {**before.values, **values}
        self._db.execute(
            "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, 0)", (compared.key, json.dumps(dict(key)), json.dumps(values))
        )

    def count(self) -> int:
        (found,) = self._db.execute("SELECT count(*) FROM rows").fetchone()
        return int(found)

    def find(self, texts: Sequence[str]) -> dict[str, SourceRow]:
        """Rows by their keys' texts."""
        found = {}
        for at in range(0, len(texts), 500):
            part = texts[at : at + 500]
            marks = ", ".join("?" * len(part))
            query = f"SELECT text, key, value FROM rows WHERE text IN ({marks})"  # noqa: S608 - question marks alone
            for text, key, value in self._db.execute(query, part):
                found[text] = SourceRow(json.loads(key), json.loads(value))
        return found

    def mark_seen(self, texts: Sequence[str]) -> None:
        """The target has these."""
        self._db.executemany("UPDATE rows SET seen = 1 WHERE text = ?", ((text,) for text in texts))

    def unseen(self) -> Iterator[str]:
        """Keys that the target did not have."""
        for (text,) in self._db.execute("SELECT text FROM rows WHERE seen = 0"):
            yield text
