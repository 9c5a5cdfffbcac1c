"""Topics: what is sealed in them becomes unreadable; plain records are deleted by their keys, where compaction does it.

A record is about the subject if the field that `[forgetting]` names for its topic holds it: in the value, in the row
before or after a change, or in the key; the topic's dead letters hold the same. Tombstones are written for such keys,
and compaction is forced by settings of the topic, which are put back. A topic that is not compacted loses single
records by retention alone, and that is reported. A key that is somebody else's by now gets no tombstone.
"""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from headrace.client.admin import alter_configs, configs_of_topics
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.dead_letters import topic_for
from headrace.forgetting.ledger import TOPIC as LEDGER
from headrace.forgetting.ledger import Ledger
from headrace.forgetting.report import Finding, Hit, Outcome
from headrace.forgetting.sealed import key_ids_in
from headrace.forgetting.search import Needles
from headrace.records import Record
from headrace.stack.forgetting.place import Subject

_ALL: Final = FetchOptions(max_wait_ms=100)  # also what was aborted: it is on the disk
_ROWS: Final = ("payload", "before", "after")
# Compact at once, and keep no tombstone; the segment that is written to is closed by the next record after a moment.
_FORCED: Final = {
    "segment.ms": "1000", "min.compaction.lag.ms": "0", "max.compaction.lag.ms": "1", "min.cleanable.dirty.ratio": "0",
}  # fmt: skip
_NOBODYS: Final = b"headrace:forget"  # a key that no record has
_PATIENCE_S: Final = 60.0
_LOOK_S: Final = 1.0


class _Key(NamedTuple):
    partition: int
    key: bytes


class TopicPlace:
    """One topic; `field` names the subject in plain values, if there are such."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        field: str = "",
        ledger: Ledger | None = None,
        *,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._cluster, self._topic, self._field, self._ledger = cluster, topic, field, ledger
        self._patience_s = patience_s
        self._of_others = set[_Key]()  # keys whose newest record, as last read, is somebody else's: it stays
        self.name = f"topic {topic}"

    def _records(self) -> Iterator[tuple[int, Record]]:
        held = bounds(self._cluster, self._cluster.partitions(self._topic))
        starts = {where: bound.start for where, bound in held.items() if bound.start < bound.end}
        ends = {where: bound.end for where, bound in held.items()}
        for found in read_records(self._cluster, starts, until=ends, options=_ALL) if starts else ():
            for where, record in found:
                yield where.partition, record

    def forget(self, subject: Subject, *, dry: bool) -> Iterator[Finding]:
        if not dry:
            self._put_back()
        sealed, plain, keyless = self._count(subject)
        if sealed:
            yield Finding(self.name, "records", Outcome.UNREADABLE, sealed, "the key is destroyed")
        if self._field:
            yield from self._forget_plain(subject, plain, keyless, dry=dry)
        elif not sealed:
            yield Finding(self.name, "records", Outcome.NOTHING)

    def _count(self, subject: Subject) -> tuple[int, dict[_Key, int], int]:
        """Sealed records, plain ones by their keys, and plain ones without a key."""
        sealed, keyless, plain = 0, 0, dict[_Key, int]()
        self._of_others.clear()
        for partition, record in self._records():
            if not subject.key_ids.isdisjoint(key_ids_in(_bytes_of(record))):
                sealed += 1
            elif self._field and record.value is not None and is_about(record, self._field, subject.name):
                if record.key is None:
                    keyless += 1
                else:
                    where = _Key(partition, bytes(record.key))
                    plain[where] = plain.get(where, 0) + 1
                    self._of_others.discard(where)
            elif self._field and record.value is not None and record.key is not None:
                where = _Key(partition, bytes(record.key))
                if where in plain:
                    self._of_others.add(where)
        return sealed, plain, keyless

    def _forget_plain(
        self, subject: Subject, plain: Mapping[_Key, int], keyless: int, *, dry: bool
    ) -> Iterator[Finding]:
        count = sum(plain.values())
        settings = {
            name: one.value or "" for name, one in configs_of_topics(self._cluster, [self._topic])[self._topic].items()
        }
        is_compacted = "compact" in settings.get("cleanup.policy", "")
        kept = _retention(settings)
        if keyless:
            yield Finding(self.name, "plain records", Outcome.FAILED, keyless, f"they have no key; {kept}")
        if count and not is_compacted:
            yield Finding(self.name, "plain records", Outcome.FAILED, count, f"the topic is not compacted; {kept}")
        elif count and dry:
            yield Finding(self.name, "plain records", Outcome.ERASED, count, "by tombstones, and compaction")
        elif count:
            left = self._compact_away(subject, plain)
            if left:
                why = "tombstones are written, and compaction has not come to them: run the command again later"
                yield Finding(self.name, "plain records", Outcome.FOLLOWS, left, why)
            if count > left:
                yield Finding(self.name, "plain records", Outcome.ERASED, count - left, "by compaction")
        if not count and not keyless:
            yield Finding(self.name, "plain records", Outcome.NOTHING)

    # --- compaction

    def _compact_away(self, subject: Subject, plain: Mapping[_Key, int]) -> int:
        """Write tombstones and wait for compaction; how many plain records are left."""
        before = configs_of_topics(self._cluster, [self._topic])[self._topic]
        own = {name: before[name].value if name in before and before[name].is_own else None for name in _FORCED}
        if self._ledger is not None:
            self._ledger.set_note(self._topic, own)
        try:
            alter_configs(self._cluster, self._topic, changes=_FORCED)
            self._write_tombstones(plain)
            until = time.monotonic() + self._patience_s
            while True:
                time.sleep(_LOOK_S)
                _, left, _ = self._count(subject)
                if not left or time.monotonic() > until:
                    return sum(left.values())
                # Another record of each partition closes the segment that the last ones are in.
                self._write_tombstones(dict.fromkeys({where.partition: where for where in left}.values(), 0))
        finally:
            self._restore(own)

    def _write_tombstones(self, plain: Mapping[_Key, int]) -> None:
        writer, now_ms = Writer(self._cluster, self._topic), int(time.time() * 1000)
        for where in plain:
            # What is somebody else's by now replaces what was there by itself, once its segment is closed.
            key = _NOBODYS if where in self._of_others else where.key
            writer.add(NewRecord(key, None, timestamp=now_ms, partition=where.partition))
        writer.flush()

    def _restore(self, own: Mapping[str, str | None]) -> None:
        changes = {name: value for name, value in own.items() if value is not None}
        alter_configs(self._cluster, self._topic, changes=changes, unset=[name for name in own if name not in changes])
        if self._ledger is not None:
            self._ledger.set_note(self._topic, None)

    def _put_back(self) -> None:
        """The settings that one who was killed has left."""
        if self._ledger is not None and (own := self._ledger.notes.get(self._topic)) is not None:
            self._restore(own)

    # --- looking

    def search(self, needles: Needles) -> Iterator[Hit]:
        for partition, record in self._records():
            for number in sorted(needles.find(_bytes_of(record))):
                yield Hit(self.name, f"partition {partition}, offset {record.offset}", number)


def _bytes_of(record: Record) -> bytes:
    headers = (part for header in record.headers for part in (header.key.encode(), bytes(header.value or b"")))
    return b"\0".join([bytes(record.key or b""), bytes(record.value or b""), *headers])


def _retention(settings: Mapping[str, str]) -> str:
    kept_ms = int(settings.get("retention.ms") or -1)
    if kept_ms < 0:
        return "nothing ever deletes them: set retention.ms, or delete the topic"
    return f"retention deletes them after {kept_ms / 86_400_000:g} days"


def is_about(record: Record, field: str, subject: str) -> bool:
    """Whether a plain record names the subject: in its value, a row in it, or its key."""
    return any(_names(_parsed(part), field, subject) for part in (record.value, record.key) if part is not None) or (
        record.key is not None and bytes(record.key) == subject.encode()
    )


def _parsed(data: Any) -> Any:
    try:
        return json.loads(bytes(data))
    except (ValueError, RecursionError):
        return None


def _names(value: Any, field: str, subject: str) -> bool:
    if not isinstance(value, dict):
        return False
    if field in value and not isinstance(value[field], dict | list) and str(value[field]) == subject:
        return True
    return any(_names(value.get(name), field, subject) for name in _ROWS)


def topics_of(cluster: Cluster, fields: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Every topic that may hold what users write, and the field that names the subject in its plain values."""
    of_letters = {topic_for(name, None): field for name, field in fields.items()}
    for topic in sorted(cluster.topics(), key=lambda topic: topic.name):
        name = topic.name
        if name == LEDGER or topic.is_internal:
            continue
        yield name, fields.get(name) or of_letters.get(name, "")
