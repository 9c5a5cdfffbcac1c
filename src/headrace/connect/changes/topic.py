"""Changes of a topic: each record is one.

A record whose value is a change envelope, as captures and Debezium write it, is that change. Of any other the value is
the row: created, or in a compacted topic put in the place of whatever its key had; a record without a value deletes.
The tombstone behind a delete of a capture is of the same delete and not told again.

Order is that of each partition; across partitions what came together is by time. A token holds an offset for each
partition and the topic's id, so a topic that was deleted and made again is another one.

A compacted topic forgets deletes some time after they were written (`delete.retention.ms`). So it is noted when a place
was the end of the topic: whatever is behind it was written since, and is whole for so long. Who is further behind may
have missed a delete, and is told so.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from headrace.client.address import parse_bootstrap
from headrace.client.admin import configs_of_topics
from headrace.client.cluster import Cluster, is_passing
from headrace.client.errors import (
    ClientError,
    LostConnection,
    OffsetOutOfRange,
    TopicReplaced,
    UnknownPartition,
    UnknownTopic,
)
from headrace.client.fetch import FetchOptions, check_id
from headrace.client.offsets import bounds
from headrace.client.reader import ReadRecord, read_records
from headrace.client.security import settings_from
from headrace.connect.change import OPERATIONS, Position
from headrace.connect.changes.row_change import Mark, Marks, RowChange
from headrace.connect.changes.stream import Portion
from headrace.connect.changes.token import Base, Token
from headrace.connect.errors import BadToken, InvalidConnectSetting, PositionLost, SourceRefused, SourceUnavailable
from headrace.connect.sync.decoding import JSON, RecordFormat
from headrace.connect.sync.meanings import UnreadableRecord
from headrace.model import TopicPartition
from headrace.records import Record

AUTO, ENVELOPE, PLAIN = "auto", "envelope", "plain"
_OPTIONS: Final = FetchOptions(
    max_wait_ms=200, committed=True, max_bytes=2 * 1024 * 1024, partition_max_bytes=512 * 1024
)
_PORTION: Final = 1024  # records
_GROWTH_EVERY_S: Final = 5.0
_AGE_EVERY_S: Final = 60.0
_SHORTEST_KEPT_MS: Final = 30_000  # while it is read: cleaners go over a delete twice before it is gone
_ANEW: Final = "begin anew without resume, and with snapshot=True for what the topic holds now"
_ADDRESS: Final = "write kafka://host:9092/topic"


def parse_topic_url(url: str) -> tuple[str, str]:
    """Bootstrap addresses and topic."""
    parts = urlsplit(url)
    topic = unquote(parts.path.strip("/"))
    if "@" in parts.netloc:
        raise InvalidConnectSetting("url", "kafka://…@…", "name user and password in connection={…}, by Kafka's names")
    if not parts.netloc or not topic or "/" in topic or parts.query:
        raise InvalidConnectSetting("url", url, _ADDRESS)
    return parts.netloc, topic


@dataclass(frozen=True, slots=True)
class RecordReader:
    """From a record to the change it says. Pure."""

    topic: str
    is_compacted: bool = False
    value: str = AUTO
    form: RecordFormat = RecordFormat()  # noqa: RUF009 - it is frozen

    def change_in(self, record: Record, *, is_read: bool = False) -> RowChange:
        """What a record says; `is_read` if it was there when a snapshot began."""
        key = self._key(record.key)
        ts_us = record.timestamp * 1000
        if record.value is None:
            return RowChange("d", self.topic, key, None, None, None, ts_us)
        read = self._parsed(record.value)
        if self.value != PLAIN and is_envelope(read):
            return self._of_envelope(read, key, ts_us)
        row = read if isinstance(read, dict) else {"value": read}
        op = "r" if is_read else "u" if self.is_compacted and record.key is not None else "c"
        return RowChange(op, self.topic, key, None, row, None, ts_us)

    def _of_envelope(self, read: Mapping[str, Any], key: dict[str, Any] | None, ts_us: int) -> RowChange:
        source = read.get("source") if isinstance(read.get("source"), dict) else {}
        assert isinstance(source, dict)
        parts = [source.get("schema") or source.get("db"), source.get("table")]
        table = ".".join(str(part) for part in parts if part) if source.get("table") else self.topic
        times = (source.get("ts_us"), _times(source.get("ts_ms")), _times(read.get("ts_ms")))
        ts_us = next((one for one in times if isinstance(one, int)), ts_us)
        transaction = read.get("transaction")
        found = transaction.get("id") if isinstance(transaction, dict) else None
        if found is None:
            found = source.get("gtid") or source.get("txId")
        before, after = (row if isinstance(row, dict) else None for row in (read.get("before"), read.get("after")))
        return RowChange(read["op"], table, key, before, after, None if found is None else str(found), ts_us)

    def _parsed(self, value: bytes) -> Any:
        try:
            return self.form.parsed(value, "value")
        except UnreadableRecord:
            return _text(value)

    def _key(self, key: bytes | None) -> dict[str, Any] | None:
        if key is None:
            return None
        try:
            read = self.form.parsed(key, "key")
        except UnreadableRecord:
            read = _text(key)
        return read if isinstance(read, dict) and read else {"key": read}


def is_envelope(read: Any) -> bool:
    """Whether a value is a change envelope and no row that has a column `op`."""
    return (
        isinstance(read, dict)
        and read.get("op") in OPERATIONS
        and ("after" in read or "before" in read or read["op"] in ("t", "m"))
        and ("source" in read or "ts_ms" in read)
    )


def _times(value: Any) -> int | None:
    return value * 1000 if isinstance(value, int) else None


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


class TopicReader:
    can_reopen = True

    def __init__(
        self,
        url: str,
        tables: Sequence[str],
        marks: Marks,
        *,
        snapshot: bool,
        connection: Mapping[str, str] | None = None,
        value: str = AUTO,
        format: str = JSON,  # noqa: A002 - its name everywhere
        registry: str = "",
    ) -> None:
        if value not in (AUTO, ENVELOPE, PLAIN):
            raise InvalidConnectSetting("value", value, f"choose {AUTO}, {ENVELOPE} or {PLAIN}")
        self.marks = marks
        bootstrap, self._topic = parse_topic_url(url)
        self._tables = frozenset(tables)
        self._is_snapshot = snapshot
        self._addresses, self._settings = parse_bootstrap(bootstrap), settings_from(connection or {})
        self._form = RecordFormat(format=format, registry=registry)
        self._value = value
        self._cluster: Cluster | None = None
        self._reading: Iterator[list[ReadRecord]] | None = None
        self._fetched: list[ReadRecord] = []  # and not handed on, the last one first
        self._offsets: dict[int, int] = {}
        self._ends: dict[int, int] = {}  # up to where records are of the snapshot
        self._deleted: dict[
            int, bytes
        ] = {}  # digests of keys, by partition, of deletes behind which a tombstone may come
        self._reached: dict[TopicPartition, int] = {}
        self._looked_at = self._based_at = 0.0
        self._kept_ms: int | None = None  # how long a compacted topic keeps deletes
        self._whole_ms = 0  # what is behind the offsets was written since
        self._resumed_ms = 0  # the same, as a token says it
        self._then: tuple[int, dict[int, int]] = (0, {})  # when it was looked last, and the ends that there were

    @property
    def _of(self) -> dict[str, Any]:
        return {"source": "topic", "topic": self._topic, "tables": sorted(self._tables)}

    def check(self, token: Token) -> None:
        token.check(self._of)

    # --- beginning

    def open(self, token: Token | None) -> Mark:
        self._cluster = cluster = Cluster(self._addresses, self._settings)
        try:
            self._begin(cluster, token)
        except UnknownTopic as error:
            raise SourceRefused(str(error)) from error
        except ClientError as error:
            raise _translated(error) from error
        self._looked_at = self._based_at = time.monotonic()
        self._base = self._new_base()
        return Mark(self.marks, self._base, [])

    def _begin(self, cluster: Cluster, token: Token | None) -> None:
        partitions = cluster.partitions(self._topic)
        self._id = cluster.topic(self._topic).id_text
        configs = configs_of_topics(cluster, [self._topic], skip_refused=True).get(self._topic, {})
        policy = configs.get("cleanup.policy")
        is_compacted = policy is not None and "compact" in str(policy.value)
        self._form = self._form.opened(lambda: Cluster(self._addresses, self._settings))
        self._reader = RecordReader(self._topic, is_compacted, self._value, self._form)
        kept = configs.get("delete.retention.ms")
        self._kept_ms = int(str(kept.value)) if is_compacted and kept and str(kept.value).isdecimal() else None
        self._whole_ms = _now_ms()
        held = bounds(cluster, partitions, committed=True)
        self._then = self._whole_ms, {where.partition: bound.end for where, bound in held.items()}
        if token is not None:
            self._resume(token)
            for where, bound in held.items():
                offset = self._offsets.setdefault(where.partition, bound.start)  # one that was added since
                if offset > bound.end:
                    raise PositionLost(f"{where} ends at offset {bound.end}, before the token's offset {offset}", _ANEW)
                if offset < bound.start:
                    raise PositionLost(
                        f"{where} begins at {bound.start} now, behind the token's offset {offset}", _ANEW
                    )
            if any(self._offsets[where.partition] < bound.end for where, bound in held.items()):
                self._whole_ms = self._resumed_ms
                self._refuse_old("the token is", self._kept_ms)
            return
        self._ends = {where.partition: bound.end for where, bound in held.items()} if self._is_snapshot else {}
        self._offsets = {
            where.partition: bound.start if self._is_snapshot else bound.end for where, bound in held.items()
        }
        self._deleted = {}

    def _resume(self, token: Token) -> None:
        position = token.base.position
        try:
            self._resumed_ms = int(position.get("at_ms", 0))
            topic_id = str(position["id"])
            self._offsets = {int(partition): int(offset) for partition, offset in position["offsets"].items()}
            self._ends = {int(partition): int(end) for partition, end in position["ends"].items()}
            self._deleted = {int(partition): bytes.fromhex(key) for partition, key in position["deleted"].items()}
            for partition, offset, deleted in token.tail:
                self._offsets[int(partition)] = int(offset)
                self._deleted.pop(int(partition), None)
                if deleted:
                    self._deleted[int(partition)] = bytes.fromhex(deleted)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise BadToken("what is in it makes no sense", "pass it as it was given") from error
        if topic_id and self._id and topic_id != self._id:
            raise PositionLost(
                f"topic {self._topic!r} was deleted and made again: its id was {topic_id} and is {self._id}", _ANEW
            )

    def _refuse_old(self, what: str, kept_ms: int | None) -> None:
        age_ms = _now_ms() - self._whole_ms
        if kept_ms is not None and age_ms > kept_ms:
            raise PositionLost(
                f"{what} {age_ms // 1000} s behind, and topic {self._topic!r} forgets deletes after "
                f"{kept_ms // 1000} s (delete.retention.ms), so some may be missing",
                _ANEW,
            )

    def _look_at_ends(self, cluster: Cluster) -> None:
        """Once all is read that was there at the last look, what is behind is younger than that."""
        then_ms, ends = self._then
        if self._kept_ms is not None and all(self._offsets.get(partition, 0) >= end for partition, end in ends.items()):
            self._whole_ms = then_ms
            now_ms = _now_ms()
            held = bounds(cluster, cluster.partitions(self._topic), committed=True)
            self._then = now_ms, {where.partition: bound.end for where, bound in held.items()}

    def reopen(self) -> None:
        """The client finds its brokers again by itself; what is on its way is asked for anew."""
        assert self._cluster is not None
        self._cluster.close()
        self._reading = None
        self._reached = {}
        try:
            self._check_topic(self._cluster)
        except ClientError as error:
            raise _translated(error) from error

    def _check_topic(self, cluster: Cluster) -> list[TopicPartition]:
        cluster.forget(self._topic)
        partitions = cluster.partitions(self._topic)
        check_id(cluster.topic(self._topic), self._id)
        return list(partitions)

    def _new_base(self) -> Base:
        self._based_at = time.monotonic()
        position: Position = {
            "id": self._id,
            "offsets": {str(partition): offset for partition, offset in sorted(self._offsets.items())},
            "ends": {
                str(partition): end for partition, end in self._ends.items() if self._offsets.get(partition, 0) < end
            },
            "deleted": {str(partition): digest.hex() for partition, digest in self._deleted.items()},
            "at_ms": self._whole_ms,
        }
        return Base(self._of, position)

    # --- records

    def next(self, timeout_s: float) -> Portion | None:  # noqa: ARG002 - a fetch waits as long as its options say
        try:
            return self._next()
        except ClientError as error:
            raise _translated(error) from error

    def _next(self) -> Portion | None:
        assert self._cluster is not None
        now = time.monotonic()
        if now - self._looked_at >= _GROWTH_EVERY_S:
            self._looked_at = now
            self._grow(self._cluster)
            self._look_at_ends(self._cluster)
        if self._reading is None:
            starts = {TopicPartition(self._topic, partition): offset for partition, offset in self._offsets.items()}
            ids = {self._topic: self._id} if self._id else None
            self._reached = {}
            self._fetched = []
            self._reading = read_records(
                self._cluster, starts, options=_OPTIONS, ids=ids, reached=self._reached
            )  # fmt: skip
        if not self._fetched:
            try:
                self._fetched = next(self._reading)
            except BaseException:
                self._reading = None  # what raised gives nothing more
                raise
            self._fetched.reverse()
            if self._fetched and self._kept_ms is not None:
                self._refuse_old("what is read is", max(self._kept_ms, _SHORTEST_KEPT_MS))
        records = [self._fetched.pop() for _ in range(min(len(self._fetched), _PORTION))]
        reached = {where.partition: record.offset + 1 for where, record in records}
        if not self._fetched:  # and behind what nobody sees
            reached = {where.partition: offset for where, offset in self._reached.items()}
        if not records and reached == self._offsets and now - self._based_at < _AGE_EVERY_S:
            return None
        changes = list(self._changes(records))
        self._offsets |= reached
        self._base = self._new_base()
        return Portion(changes, Mark(self.marks, self._base, []))

    def _grow(self, cluster: Cluster) -> None:
        there = self._check_topic(cluster)
        new = [where for where in there if where.partition not in self._offsets]
        if new:
            for where, bound in bounds(cluster, new).items():
                self._offsets[where.partition] = bound.start  # what is in it was written while we read
            self._reading = None

    def _changes(self, records: Sequence[ReadRecord]) -> Iterator[RowChange]:
        reader, base = self._reader, self._base
        steps = _Steps()
        for where, record in records:
            partition = where.partition
            deleted = self._deleted.pop(partition, None)
            is_tombstone = record.value is None and deleted is not None and _digest(record.key) == deleted
            change = reader.change_in(record, is_read=record.offset < self._ends.get(partition, 0))
            if change.op == "d" and record.value is not None and record.key is not None:
                self._deleted[partition] = _digest(record.key)  # behind the delete of a capture its tombstone may come
            mark = steps.add(self.marks, base, partition, record.offset + 1, self._deleted.get(partition))
            if not is_tombstone and (not self._tables or change.table in self._tables):
                yield replace(change, mark=mark)

    def acknowledge(self, position: Position) -> None:
        """A topic keeps its records by its own rules."""

    def keep_alive(self) -> None:
        """Nobody is waiting for us."""

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()


class _Steps:
    """Where each record of a portion leaves its partition."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, int, str]] = []
        self._summed = 0
        self._sum: dict[int, tuple[int, str]] = {}

    def add(self, marks: Marks, base: Base, partition: int, offset: int, deleted: bytes | None) -> Mark:
        self._steps.append((partition, offset, "" if deleted is None else deleted.hex()))
        count = len(self._steps)
        return Mark(marks, base, lambda: self._behind(count))

    def _behind(self, count: int) -> list[Any]:
        """What the first so many steps come to; mostly they are asked for one after the other."""
        begun, found = (self._summed, self._sum) if self._summed <= count else (0, {})
        for partition, offset, deleted in self._steps[begun:count]:
            found[partition] = (offset, deleted)
        self._summed, self._sum = count, found
        return [[partition, offset, deleted] for partition, (offset, deleted) in found.items()]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _digest(key: bytes | None) -> bytes:
    """Enough of a key to know it again."""
    return sha256(key or b"").digest()[:12]


def _translated(error: ClientError) -> Exception:
    if isinstance(error, TopicReplaced | OffsetOutOfRange | UnknownTopic | UnknownPartition):
        return PositionLost(str(error), _ANEW)
    may_pass = is_passing(error) or isinstance(error, LostConnection)
    return SourceUnavailable(str(error)) if may_pass else SourceRefused(str(error))
