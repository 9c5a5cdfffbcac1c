"""The events and the patterns of the comparison of patterns, as each side has them; made from one seed.

An event is `{"id", "k", "x", "ts"}`: x is anything from 0 to 999, and an event of each key comes once a second on
average, however many keys there are. So the patterns have the same to do for each event, and what differs with the
keys is how many partial matches are kept. A key is in one partition, and a partition is in the order of time.

The last record of each partition is a `flush`, hours later: it moves every watermark past the last window, and no
pattern finds it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer
from numpy.typing import NDArray

from headrace.cep.pattern import Pattern

PARTITIONS = 2
SCHEMA = "id BIGINT, k BIGINT, x BIGINT, ts BIGINT"
FLUSH = -1
_FLUSH_AFTER_MS = 3_600_000
_SPAN_START_MS = 1_767_225_600_000  # the first of January 2026
_IN_FLIGHT = 100  # how many events another may be late by: a share of the events, not of their time
_SEED = 20260301
_COMPRESSION = "lz4"

# A match is its key, the ids of its first and last event, and how many it has; each makes a number.
FACTORS, PRIME = (3, 5, 7, 11), 1_000_003


@dataclass(frozen=True)
class Question:
    """One pattern; Flink's is in `peers/flink/Throughput.java`."""

    title: str
    ours: Pattern
    epl: str


_FEW, _MANY = "x < 100", "x >= 900"
_UP = "COUNT(up.*) = 1 OR x > LAST(up.x, 1)"

QUESTIONS = {
    "relaxed": Question(
        "two steps, relaxed, within 5 s",
        Pattern.begin("a", _FEW).followed_by("b", _MANY).within("5 seconds"),
        "select a.k as k, a.id as begin_id, b.id as end_id, 2 as size "
        f"from pattern [every a=E({_FEW}) -> b=E({_MANY}, k = a.k) where timer:within(5 sec)]",
    ),
    "rising": Question(
        "three rises or more, then a fall",
        Pattern.begin("up", _UP)
        .times_or_more(3)
        .consecutive()
        .greedy()
        .next("down", "x <= LAST(up.x)")
        .within("60 seconds")
        .skip_past_last(),
        "select * from E match_recognize (partition by k "
        "measures s.k as k, s.id as begin_id, d.id as end_id, count(u.id) + 2 as size "
        "pattern (s u{2,} d) define u as u.x > prev(u.x), d as d.x <= prev(d.x))",
    ),
    "absence": Question(
        "one, and not the other for 5 s",
        Pattern.begin("a", _FEW).not_followed_by("b", _MANY).within("5 seconds"),
        "select a.k as k, a.id as begin_id, a.id as end_id, 1 as size "
        f"from pattern [every a=E({_FEW}) -> (timer:interval(5 sec) and not E({_MANY}, k = a.k))]",
    ),
}


@dataclass(frozen=True)
class Events:
    """So many events of so many keys."""

    keys: int
    count: int

    @property
    def lateness_ms(self) -> int:
        return max(1, round(_IN_FLIGHT / self.keys * 1000))

    def columns(self) -> tuple[NDArray[np.int64], ...]:
        """id, k, x and ts."""
        chance = np.random.default_rng(_SEED)
        ids = np.arange(self.count)
        times = _SPAN_START_MS + ids * 1000 // self.keys
        keys = chance.integers(0, self.keys // PARTITIONS, self.count) * PARTITIONS + ids % PARTITIONS
        return ids, keys, chance.integers(0, 1_000, self.count), times

    def rows(self) -> Iterator[tuple[int, int, int, int]]:
        return zip(*(each.tolist() for each in self.columns()), strict=True)

    def write(self, path: Path) -> None:
        """As whole numbers of 64 bits, event after event."""
        path.write_bytes(np.stack(self.columns(), axis=1).astype("<i8").tobytes())

    def fill(self, bootstrap: str, topic: str) -> None:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": _COMPRESSION,
                "linger.ms": 20,
                "batch.size": 262_144,
                "queue.buffering.max.messages": 500_000,
                "enable.metrics.push": False,
            }
        )
        end_ms = 0
        for number, key, x, end_ms in self.rows():
            self._produce(producer, topic, _value(number, key, x, end_ms), key % PARTITIONS)
        for partition in range(PARTITIONS):
            value = _value(self.count + partition, FLUSH, 500, end_ms + _FLUSH_AFTER_MS)
            self._produce(producer, topic, value, partition)
        if left := producer.flush(60):
            raise RuntimeError(f"{left} records could not be written to {topic}")

    def _produce(self, producer: Producer, topic: str, value: bytes, partition: int) -> None:
        while True:
            try:
                producer.produce(topic, value, partition=partition)
                return
            except BufferError:
                producer.poll(0.1)


def _value(number: int, key: int, x: int, time_ms: int) -> bytes:
    return b'{"id":%d,"k":%d,"x":%d,"ts":%d}' % (number, key, x, time_ms)


def number_of(key: int, ids: list[int]) -> int:
    """A match's share in the checksum."""
    found = sum(factor * each for factor, each in zip(FACTORS, (key, min(ids), max(ids), len(ids)), strict=True))
    return (found % PRIME) ** 2


def as_found(matches: int, checksum: int) -> dict[str, Any]:
    return {"matches": matches, "checksum": checksum}
