"""A target compared with the log: key by key, up to the place that the target says it holds.

The log is built into a table up to that place, and the target is read in chunks beside it. A target that goes on
changing meanwhile is no trouble: what differs is looked at again, with the log read on to where the target has come,
until nothing moves any more or the difference stays.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from headrace.client.cluster import Cluster
from headrace.connect.sync.places import checked_place
from headrace.connect.sync.settings import SyncSettings
from headrace.connect.sync.source_rows import SourceRow, SourceRows
from headrace.stores.derived import ReadableSink, Sink, StoredRow, Values
from headrace.stores.errors import SinkRefused

_ROUNDS: Final = 10
_MOST_CANDIDATES: Final = 100_000  # beyond this the target is simply wrong, and is told so without a second look
_CHUNK_KEYS: Final = 500


class Kind(StrEnum):
    """How a row differs."""

    MISSING = "missing"  # in the log, not in the target
    EXTRA = "extra"  # in the target, not in the log
    DIFFERENT = "different"


class Difference(NamedTuple):
    """One row; `columns` are those that differ."""

    key: str
    kind: Kind
    columns: tuple[str, ...] = ()


@dataclass(slots=True)
class Report:
    """What a comparison found; the checksums are over all rows, in any order, and equal if nothing differs."""

    source_rows: int = 0
    target_rows: int = 0
    source_checksum: int = 0
    target_checksum: int = 0
    differences: list[Difference] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return not self.differences


def verify(settings: SyncSettings, sink: Sink | ReadableSink, connect: Callable[[], Cluster]) -> Report:
    """Compare a sink's target with its topic; a target that `is_whole` has no columns besides those of the topic."""
    if not isinstance(sink, ReadableSink):
        raise SinkRefused(f"a {settings.sink} cannot be read back, so {settings.name!r} cannot be verified")
    place = sink.place()
    if place is None:
        raise SinkRefused(
            f"{settings.name!r} holds no place in the log yet: run headrace sync run {settings.name} first"
        )
    with connect() as cluster:
        checked_place(cluster, settings.topic, settings.name, sink, place)
    with SourceRows(settings, sink, connect) as source:
        source.advance(place)
        report, found = _compare(sink, source)
        for _ in range(_ROUNDS):
            if not found or len(found) > _MOST_CANDIDATES:
                break
            now = sink.place()
            if now is None or now == place:
                break
            place = now
            source.advance(place)
            found = _look_again(sink, source, found)
        report.differences = sorted(found.values())
        return report


def _compare(sink: ReadableSink, source: SourceRows) -> tuple[Report, dict[str, Difference]]:
    report = Report(source_rows=source.count())
    is_whole = bool(getattr(sink, "is_whole", False))
    found: dict[str, Difference] = {}
    for chunk in sink.scan():
        known = source.find([row.key for row in chunk])
        report.target_rows += len(chunk)
        source.mark_seen(list(known))
        for row in chunk:
            difference = difference_of(row.key, known.get(row.key), row, is_whole=is_whole)
            if row.key in known:
                values = known[row.key].values
                report.source_checksum ^= checksum(row.key, values)
                report.target_checksum ^= checksum(row.key, {name: row.values.get(name) for name in values})
            else:
                report.target_checksum ^= checksum(row.key, row.values)
            if difference is not None:
                found[row.key] = difference
    forgets = bool(getattr(sink, "forgets", False))
    for text in source.unseen():
        known_row = source.find([text])[text]
        report.source_checksum ^= checksum(text, known_row.values)
        difference = None if forgets else difference_of(text, known_row, None)
        if difference is not None:
            found[text] = difference
    return report, found


def _look_again(sink: ReadableSink, source: SourceRows, found: Mapping[str, Difference]) -> dict[str, Difference]:
    still: dict[str, Difference] = {}
    if not source.key_names:  # the log has no row that would tell the key's columns
        return dict(found)
    texts = list(found)
    is_whole = bool(getattr(sink, "is_whole", False))
    step = int(getattr(sink, "keys_at_once", _CHUNK_KEYS))
    for at in range(0, len(texts), step):
        part = texts[at : at + step]
        known = source.find(part)
        keys = [known[text].key if text in known else _key_of(text, source.key_names) for text in part]
        there = {row.key: row for row in sink.look_up(keys)}
        for text in part:
            difference = difference_of(text, known.get(text), there.get(text), is_whole=is_whole)
            if difference is not None and not (difference.kind is Kind.MISSING and getattr(sink, "forgets", False)):
                still[text] = difference
    return still


def _key_of(text: str, names: list[str]) -> Values:
    """The key behind a text, for a row that the log does not have."""
    if len(names) == 1:
        return {names[0]: text}
    return dict(zip(sorted(names), json.loads(text), strict=True))


def difference_of(
    key: str, source: SourceRow | None, target: StoredRow | None, *, is_whole: bool = False
) -> Difference | None:
    """How a row differs; columns that the log does not have are the target's own, unless that `is_whole`."""
    if source is None:
        return Difference(key, Kind.EXTRA) if target is not None else None
    if target is None:
        # Redis has no hash without a field, which is what a row of nulls alone would be.
        is_nothing = all(value is None for value in source.values.values())
        return None if is_nothing else Difference(key, Kind.MISSING)
    columns = tuple(name for name, value in source.values.items() if target.values.get(name) != value)
    if is_whole:  # a column that the log does not have yet is null there
        columns += tuple(
            name for name, value in target.values.items() if value is not None and name not in source.values
        )
    return Difference(key, Kind.DIFFERENT, columns) if columns else None


def checksum(key: str, values: Mapping[str, Any]) -> int:
    """Of one row; those of a table are joined by exclusive or."""
    text = json.dumps([key, sorted((name, value) for name, value in values.items())], default=str)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
