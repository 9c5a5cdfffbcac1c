"""Derived systems: what they were given sealed is unreadable; those that open values rewrite the rows themselves.

Whoever keeps a system in step rewrites its rows, for nobody else may write there, and says so in the ledger. Here that
is waited for, if it runs.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from headrace.client.cluster import Cluster
from headrace.clock import SystemClock
from headrace.connect.sync.registry import make_sink
from headrace.connect.sync.settings import SECTION, from_section
from headrace.connect.sync.status import status_of
from headrace.forgetting.errors import ForgettingError
from headrace.forgetting.ledger import Ledger
from headrace.forgetting.report import Finding, Hit, Outcome
from headrace.forgetting.sealed import key_ids_in
from headrace.forgetting.search import Needles
from headrace.stack.forgetting.place import Subject
from headrace.status import RUNNING
from headrace.stores.derived import ReadableSink
from headrace.stores.values import encode_compact

_LOOK_S: Final = 0.2
# What a store keeps of a row that was overwritten, until it cleans up.
_KEEPS: Final = {
    "delta": "older versions of the table hold what was there: VACUUM it",
    "opensearch": "until segments are merged, the index's files hold what was there",
    "tantivy": "until segments are merged, the index's files hold what was there",
    "postgres": "until VACUUM, and in its write-ahead log, the database holds what was there",
    "mariadb": "its binary log holds what was there until it is purged",
    "sqlite": "until VACUUM, free pages of the file hold what was there",
    "duckdb": "until a checkpoint, the file holds what was there",
    "redis": "its append-only file holds what was there until it is rewritten",
}


class DerivedPlace:
    def __init__(
        self,
        name: str,
        values: Mapping[str, Any],
        cluster: Cluster,
        bootstrap: str,
        ledger: Ledger,
        patience_s: float,
    ) -> None:
        self._settings = from_section(name, values)
        self._cluster, self._ledger, self._patience_s = cluster, ledger, patience_s
        self._sink = make_sink(self._settings, bootstrap)
        self._part = f"{SECTION}.{name}"
        self.name = f"derived system {name} ({self._settings.sink})"

    def _rows(self) -> Iterator[tuple[str, bytes]]:
        if not isinstance(self._sink, ReadableSink):
            raise ForgettingError(f"a {self._settings.sink} cannot be read back: what it was sent is beyond reach")
        for chunk in self._sink.scan():
            for row in chunk:
                yield row.key, encode_compact(dict(row.values)).encode()

    def forget(self, subject: Subject, *, dry: bool) -> Iterator[Finding]:
        if self._settings.open:
            yield self._followed(subject, dry=dry)
            return
        if not isinstance(self._sink, ReadableSink):
            yield Finding(self.name, "rows", Outcome.UNREADABLE, 0, "it is given what is sealed as it is")
            return
        count = sum(1 for _, row in self._rows() if not subject.key_ids.isdisjoint(key_ids_in(row)))
        outcome = Outcome.UNREADABLE if count else Outcome.NOTHING
        yield Finding(self.name, "rows", outcome, count, "the key is destroyed" if count else "")

    def _followed(self, subject: Subject, *, dry: bool) -> Finding:
        keeps = _KEEPS.get(self._settings.sink, "")
        if self._sink.every_change:
            return Finding(self.name, "rows", Outcome.FAILED, 0, "what was opened and sent on is beyond reach")
        if dry:
            return Finding(self.name, "rows", Outcome.REWRITTEN, 0, keeps)
        ledger, until = self._ledger, time.monotonic() + self._patience_s
        while True:
            ledger.read()
            done = [ledger.done.get((key_id, self._part)) for key_id in subject.key_ids]
            rows = [each for each in done if each is not None]
            if len(rows) == len(done):
                left = sum(ledger.left.get((key_id, self._part), 0) for key_id in subject.key_ids)
                if left:
                    why = "rows without a key are not found again: fill it anew with headrace sync rebuild"
                    return Finding(self.name, "rows", Outcome.FAILED, left, why)
                return Finding(self.name, "rows", Outcome.REWRITTEN, sum(rows), keeps)
            state = status_of(self._cluster, self._settings, SystemClock().now_ms()).state
            if state != RUNNING or time.monotonic() > until:
                why = f"it is {state}: it rewrites its rows when it runs" if state != RUNNING else "it has not yet"
                return Finding(self.name, "rows", Outcome.FOLLOWS, 0, why)
            time.sleep(_LOOK_S)

    def search(self, needles: Needles) -> Iterator[Hit]:
        for key, row in self._rows():
            for number in sorted(needles.find(row)):
                yield Hit(
                    self.name, f"row {key}" if not needles.find(key.encode()) else "a row whose key it is", number
                )
