"""Records and position to the broker, in one transaction: all of it or nothing.

One instance writes under a transactional id. Whoever begins under the same id later takes it over: what was open is
aborted, and the earlier instance is refused at its next step, which it takes as `TakenOver`.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.client.admin import alter_configs, describe_configs, ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import Refused, VersionNotSpoken
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.transactions import Transaction, Transactions
from headrace.client.writer import send
from headrace.connect.change import Position
from headrace.connect.envelope import EVERY_PARTITION, Headers, OutRecord
from headrace.connect.errors import ConnectError, DeliveryExpired, TakenOver
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.records.batch import MAGIC, TRANSACTIONAL, BatchHeader, assemble
from headrace.records.compression import Codec, compress
from headrace.records.partitioning import partition_of_key
from headrace.records.record import write_varint
from headrace.telemetry.logs import get_logger

Entry = tuple[bytes | None, bytes | None, int, Headers]  # key, value, timestamp, headers


def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


_TABLE = [_varint(value) for value in range(1 << 14)]
_NULL = _varint(-1)


def _size(value: int) -> bytes:
    return _TABLE[value] if value < 16384 else _varint(value)


def _headers(headers: Headers) -> bytes:
    parts = [_size(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += [_size(len(encoded)), encoded, _size(len(value)), value]
    return b"".join(parts)


def build(
    entries: Sequence[Entry],
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    codec: Codec = Codec.NONE,
    is_transactional: bool = True,
) -> bytes:
    """One batch of these records, of a producer that is idempotent at least."""
    base = entries[0][2]
    newest = base
    table = _TABLE
    last_time, delta = base, b"\x00"
    out: list[bytes] = []
    push = out.append
    for index, (key, value, timestamp, headers) in enumerate(entries):
        if timestamp != last_time:
            last_time, delta = timestamp, _varint(timestamp - base)
            newest = max(newest, timestamp)
        key_size = _NULL if key is None else table[len(key)] if len(key) < 16384 else _varint(len(key))
        value_size = _NULL if value is None else table[len(value)] if len(value) < 16384 else _varint(len(value))
        body = b"".join(
            (
                b"\x00",
                delta,
                table[index] if index < 16384 else _varint(index),
                key_size,
                key or b"",
                value_size,
                value or b"",
                _headers(headers) if headers else b"\x00",
            )
        )
        push(_size(len(body)))
        push(body)
    header = BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=int(codec) | (TRANSACTIONAL if is_transactional else 0),
        last_offset_delta=len(entries) - 1,
        base_timestamp=base,
        max_timestamp=newest,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(entries),
    )
    return assemble(header, compress(codec, b"".join(out)))


OFFSETS_TOPIC: Final = "__headrace_connect_offsets"
_COMMITTED: Final = FetchOptions(committed=True)


def position_key(connector: str) -> bytes:
    return json.dumps({"connector": connector}).encode()


def position_value(position: Position) -> bytes:
    return json.dumps(position, separators=(",", ":")).encode()


def ensure_offsets_topic(cluster: Cluster) -> None:
    ensure_topic(cluster, OFFSETS_TOPIC, partitions=1, configs={"cleanup.policy": "compact"})


def read_position(cluster: Cluster, connector: str) -> Position | None:
    """A connector's last committed position; None if it has none."""
    key = position_key(connector)
    found = read_committed(cluster, OFFSETS_TOPIC, lambda one: one == key).get(key)
    if found is None:
        return None
    position: Position = json.loads(found)
    return position


def read_committed(cluster: Cluster, topic: str, is_wanted: Callable[[bytes], bool]) -> dict[bytes, bytes]:
    """The last committed value of each key that is wanted; a key whose last record has no value is not among them.

    The topic is read to its very end and not only as far as everything is decided: another one's open transaction may
    stand before this one's position, and is waited for.
    """
    held = bounds(cluster, cluster.partitions(topic))
    starts = {partition: bound.start for partition, bound in held.items() if bound.end > bound.start}
    until = {partition: bound.end for partition, bound in held.items() if bound.end > bound.start}
    found: dict[bytes, bytes] = {}
    for read in read_records(cluster, starts, until=until, options=_COMMITTED):
        for _, record in read:
            if record.key is None or not is_wanted(record.key):
                continue
            if record.value is None:
                found.pop(record.key, None)
            else:
                found[record.key] = record.value
    return found


log = get_logger(__name__)
_SEQUENCE_MASK: Final = 2**31 - 1
_BATCH_BYTES: Final = 4 * 1024 * 1024  # at most; each is a round trip, and an fsync at the broker
_SAFE_BATCH_BYTES: Final = 768 * 1024  # where a topic does not tell what it takes: it is 1 MiB by default
_FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
_KEEP_ALL: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
_LARGEST_RECORD_BYTES: Final = 64 * 1024 * 1024  # a row may hold far more than Kafka's usual megabyte


@dataclass(frozen=True, slots=True)
class TopicSettings:
    partitions: int = 1
    configs: tuple[tuple[str, str], ...] = (
        ("cleanup.policy", "compact"),
        ("max.message.bytes", str(_LARGEST_RECORD_BYTES)),
    )
    codec: Codec = Codec.NONE


class BatchLimits:
    """How much a batch for each topic may hold; a single record may be larger, and the broker decides."""

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}

    def of(self, cluster: Cluster, topic: str) -> int:
        found = self._bytes.get(topic)
        if found is None:
            found = _SAFE_BATCH_BYTES
            with contextlib.suppress(Refused, VersionNotSpoken):  # it may be kept secret
                told = {config.name: config.value for config in describe_configs(cluster, topic)}
                found = min(_BATCH_BYTES, int(told.get("max.message.bytes") or 0) * 7 // 8 or _SAFE_BATCH_BYTES)
            self._bytes[topic] = found
        return found


class Sender:
    """Records of several partitions in one transaction after another, under one transactional id; for one thread."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        owner: str,
        *,
        codec: Codec = Codec.NONE,
        timeout_ms: int = 60_000,
    ) -> None:
        """`owner` is what an error calls whoever writes under this id."""
        self._cluster = cluster
        self._id = transactional_id
        self._owner = owner
        self._codec = codec
        self._timeout_ms = timeout_ms
        self._transactions = Transactions(cluster)
        self._open: Transaction | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._limits = BatchLimits()

    def begin(self) -> None:
        """Take the id over from whoever wrote under it before; what that one had open is aborted."""
        self._open = self._transactions.begin(self._id, self._timeout_ms)
        self._sequences.clear()

    def commit(self, gathered: dict[TopicPartition, list[Entry]]) -> dict[TopicPartition, list[tuple[int, int]]]:
        """Write all of it, or nothing; durable when this returns: of each batch, its first offset and its size."""
        transaction = self._open
        assert transaction is not None
        begun = time.monotonic()
        try:
            self._transactions.add(transaction, gathered)
            written = self._send(transaction, gathered)
            if not self._transactions.commit(transaction):
                raise self._lost(begun)
            return written
        except Refused as refusal:
            if refusal.code in _FENCED:
                raise self._lost(begun) from refusal
            raise

    def abort(self) -> None:
        """Give up what is open; what was written of it is never seen."""
        if self._open is not None:
            self._transactions.abort(self._open)

    def _lost(self, begun: float) -> ConnectError:
        """Why the broker takes no more in this transaction: it ran out of time, or another instance has begun."""
        if (time.monotonic() - begun) * 1000 >= self._timeout_ms:
            return DeliveryExpired(self._timeout_ms)
        return TakenOver(self._owner)

    def _send(
        self, transaction: Transaction, gathered: dict[TopicPartition, list[Entry]]
    ) -> dict[TopicPartition, list[tuple[int, int]]]:
        """Each partition's records in batches that a topic takes, one batch of each partition at a time."""
        written: dict[TopicPartition, list[tuple[int, int]]] = {where: [] for where in gathered}
        places = dict.fromkeys(gathered, 0)
        while places:
            batches: dict[TopicPartition, bytes] = {}
            counts: dict[TopicPartition, int] = {}
            for where, start in list(places.items()):
                entries = gathered[where]
                end = end_of_batch(entries, start, self._limits.of(self._cluster, where.topic))
                chosen = entries[start:end]
                batches[where] = build(
                    chosen,
                    producer_id=transaction.producer_id,
                    producer_epoch=transaction.epoch,
                    base_sequence=self._sequences.get(where, 0),
                    codec=self._codec,
                )
                counts[where] = len(chosen)
                if end == len(entries):
                    del places[where]
                else:
                    places[where] = end
            found = send(self._cluster, batches, transactional_id=transaction.transactional_id)
            for where, count in counts.items():
                written[where].append((found[where].base_offset, count))
                self._sequences[where] = self._sequences.get(where, 0) + count & _SEQUENCE_MASK
        return written


class Delivery:
    """Writes for one connector; one thread uses it at a time."""

    def __init__(
        self, cluster: Cluster, connector: str, topics: TopicSettings, *, transaction_timeout_ms: int = 60_000
    ) -> None:
        self._cluster = cluster
        self._connector = connector
        self._topics = topics
        transactional_id = f"headrace-connect-{connector}"
        self._sender = Sender(
            cluster, transactional_id, connector, codec=topics.codec, timeout_ms=transaction_timeout_ms
        )
        self._partitions: dict[str, int] = {}
        self._bags: set[str] = set()  # topics that take records without a key

    def begin(self) -> Position | None:
        """Take the connector over from whoever wrote for it before; its position."""
        ensure_offsets_topic(self._cluster)
        self._sender.begin()
        return read_position(self._cluster, self._connector)

    @property
    def written_topics(self) -> tuple[str, ...]:
        return tuple(sorted(self._partitions))

    def prepare(self, topics: Mapping[str, bool]) -> None:
        """Make topics before their first record, so that a reader can begin; each with whether records have a key."""
        for topic, has_key in topics.items():
            self._partitions_of(topic, has_key=has_key)

    def deliver(self, records: Iterable[OutRecord], position: Position, now_ms: int) -> int:
        """Write records and position; how many records it was. They are durable when this returns."""
        gathered = self._gathered(records)
        where = TopicPartition(OFFSETS_TOPIC, 0)
        gathered[where] = [(position_key(self._connector), position_value(position), now_ms, ())]
        self._sender.commit(gathered)
        return sum(map(len, gathered.values())) - 1

    def _gathered(self, records: Iterable[OutRecord]) -> dict[TopicPartition, list[Entry]]:
        lists: dict[str, list[list[Entry]]] = {}
        for topic, key, value, timestamp_ms, headers, partition in records:
            of_topic = lists.get(topic)
            if of_topic is None:
                of_topic = lists[topic] = [[] for _ in range(self._partitions_of(topic, has_key=key is not None))]
            if key is None and topic not in self._bags:
                self._let_in_bags(topic)
            if len(of_topic) == 1:
                of_topic[0].append((key, value, timestamp_ms, headers))
            elif partition == EVERY_PARTITION:
                for one in of_topic:
                    one.append((key, value, timestamp_ms, headers))
            else:
                chosen = 0 if key is None else partition_of_key(key, len(of_topic))
                of_topic[chosen].append((key, value, timestamp_ms, headers))
        return {
            TopicPartition(topic, index): entries
            for topic, of_topic in lists.items()
            for index, entries in enumerate(of_topic)
            if entries
        }

    def _partitions_of(self, topic: str, *, has_key: bool) -> int:
        count = self._partitions.get(topic)
        if count is None:
            configs = dict(self._topics.configs)
            if not has_key and configs.get("cleanup.policy") == "compact":
                # What has no key cannot be compacted; every record counts, so none goes by its age or size either.
                del configs["cleanup.policy"]
                configs = _KEEP_ALL | configs
            ensure_topic(self._cluster, topic, partitions=self._topics.partitions, configs=configs)
            count = self._partitions[topic] = len(self._cluster.topic(topic).partitions)
        return count

    def _let_in_bags(self, topic: str) -> None:
        """Have a topic take records without a key: its table may have had one when the topic was made."""
        with contextlib.suppress(Refused, VersionNotSpoken):  # then the broker says so when they come
            held = {config.name: config.value for config in describe_configs(self._cluster, topic)}
            if "compact" in (held.get("cleanup.policy") or ""):
                alter_configs(self._cluster, topic, changes={"cleanup.policy": "delete", **_KEEP_ALL})
                log.warning("topic is not compacted any more, its records have no key", topic=topic)
        self._bags.add(topic)

    def abort(self) -> None:
        """Give up what is open; what was written of it is never seen."""
        self._sender.abort()


def end_of_batch(entries: list[Entry], start: int, limit_bytes: int) -> int:
    """The place behind the last record that fits into one batch with the one at `start`."""
    size = 0
    for index in range(start, len(entries)):
        key, value, _, headers = entries[index]
        size += 32 + len(key or b"") + len(value or b"")
        if headers:
            size += sum(len(name) + len(content) + 8 for name, content in headers)
        if size > limit_bytes and index > start:
            return index
    return len(entries)
