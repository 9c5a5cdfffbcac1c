"""The events that every contender reads, and what must come out: made from one seed, so that nobody's word is taken.

A record's value is a JSON object of about 98 bytes, its key the user. Event time runs from `SPAN_START_MS` over
`SPAN_MS` whatever the size, in order within each partition. The last record of each partition is a `flush` an hour
later: it moves every engine's watermark past the last window, so that all windows close; no query's result counts it.
"""

import time
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from pipelines_events import (
    COMPRESSION,
    EVENTS,
    FLUSH,
    LEAST_AMOUNT,
    SPAN_MS,
    SPAN_START_MS,
    WANTED_EVENT,
    WINDOW_S,
    digest_windows,
)

PARTITIONS = 4
_USERS = 1000
_COUNTRIES = ("NO", "SE", "DK", "DE", "FR", "PT", "IT", "PL")
_SEED = 20260101
_CHUNK = 100_000
_PATIENCE_S = 30


class Expected(NamedTuple):
    """What the queries must find in a topic of so many events."""

    records: int  # with the flushes
    value_bytes: int
    passing: int
    passing_cents: int
    windows: int  # rows of the tumbling count, without the flushes'
    windows_digest: str
    checksum: int  # of all values, in any order


def fill(bootstrap: str, topic: str, size: int) -> Expected:
    """Write `size` events and the flushes, and say what is in them."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": COMPRESSION,
            "linger.ms": 20,
            "batch.size": 262_144,
            "queue.buffering.max.messages": 500_000,
        }
    )
    value_bytes = checksum = passing = passing_cents = 0
    counts = np.zeros((SPAN_MS // 1000 // WINDOW_S, _USERS), dtype=np.int64)
    for chunk in _chunks(size):
        for number, user, value in chunk.records():
            while True:
                try:
                    producer.produce(topic, value, user, number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
            value_bytes += len(value)
            checksum += zlib.crc32(value)
        producer.poll(0)
        wanted = (chunk.events == EVENTS.index(WANTED_EVENT)) & (chunk.cents > LEAST_AMOUNT * 100)
        passing += int(wanted.sum())
        passing_cents += int(chunk.cents[wanted].sum())
        np.add.at(counts, ((chunk.times - SPAN_START_MS) // 1000 // WINDOW_S, chunk.users), 1)
    for partition in range(PARTITIONS):
        value = _value(size + partition, FLUSH, FLUSH, 0, SPAN_START_MS + SPAN_MS + 3_600_000, _COUNTRIES[0])
        producer.produce(topic, value, FLUSH.encode(), partition)
        value_bytes += len(value)
        checksum += zlib.crc32(value)
    if left := producer.flush(60):
        raise RuntimeError(f"{left} records could not be written to {topic}")
    filled = np.argwhere(counts)
    rows = ((SPAN_START_MS + int(w) * WINDOW_S * 1000, _user(int(u)), int(counts[w, u])) for w, u in filled)
    return Expected(size + PARTITIONS, value_bytes, passing, passing_cents, len(filled), digest_windows(rows), checksum)


def read_back(bootstrap: str, topic: str) -> tuple[int, int]:
    """How many committed records a topic holds, and their values' checksum."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-read-back",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 5,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
        records = checksum = ended = 0
        deadline = time.monotonic() + _PATIENCE_S
        while ended < PARTITIONS:
            messages = consumer.consume(10_000, 0.1)  # which waits for as many as it is told to
            if messages:
                deadline = time.monotonic() + _PATIENCE_S
            elif time.monotonic() > deadline:
                raise RuntimeError(f"{topic} could not be read back to its end")
            for message in messages:
                if (error := message.error()) is None:
                    records += 1
                    checksum += zlib.crc32(message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended += 1
                else:
                    raise RuntimeError(error.str())
        return records, checksum
    finally:
        consumer.close()


class _Chunk(NamedTuple):
    first: int
    users: np.ndarray
    events: np.ndarray
    cents: np.ndarray
    times: np.ndarray
    countries: np.ndarray

    def records(self) -> Iterator[tuple[int, bytes, bytes]]:
        columns = (each.tolist() for each in self[1:])
        for number, (user, event, cents, time_ms, country) in enumerate(zip(*columns, strict=True), self.first):
            name = _user(user)
            yield number, name.encode(), _value(number, name, EVENTS[event], cents, time_ms, _COUNTRIES[country])


def _chunks(size: int) -> Iterator[_Chunk]:
    chance = np.random.default_rng(_SEED)
    for first in range(0, size, _CHUNK):
        count = min(_CHUNK, size - first)
        yield _Chunk(
            first,
            chance.integers(0, _USERS, count),
            chance.integers(0, len(EVENTS), count),
            chance.integers(100, 50_000, count),
            SPAN_START_MS + (first + np.arange(count)) * SPAN_MS // size,
            chance.integers(0, len(_COUNTRIES), count),
        )


def _user(number: int) -> str:
    return f"u-{number:06d}"


def _value(number: int, user: str, event: str, cents: int, time_ms: int, country: str) -> bytes:
    return (
        f'{{"id":{number},"user":"{user}","event":"{event}","amount":{cents / 100:.2f},"ts":{time_ms},'
        f'"country":"{country}"}}'
    ).encode()
