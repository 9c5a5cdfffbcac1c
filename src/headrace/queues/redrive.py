"""Dead letters, sent back to the topics that their records came from.

A letter is sent back in a transaction: the record is written to its topic, and the letter is taken back, or neither.
So a redrive that is killed half-way is run again, and sends what is left. Two cannot send the same: they have the same
transactional id, so that the second one fences the first. All of it is plain Kafka, and works on any.

Sent back is the record as it was, with the time of now, to its partition if that is still there. It does not have what
would keep it from being delivered: the id by which it would be a duplicate, and the time after which it was of no use.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import OffsetOutOfRange, Refused, UnknownTopic
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import Partitioner
from headrace.delivery.headers import DEDUP_ID, EXPIRES_AT
from headrace.delivery.letters import Letter, takes_back
from headrace.errors import HeadraceError
from headrace.model import TopicPartition
from headrace.queues.moving import TRANSACTION_MS, UNSENDABLE, Sender
from headrace.records import Record

_MOST_LETTERS: Final = 500  # of a transaction
_MOST_BYTES: Final = 4 * 1024 * 1024
_DONE_WITH: Final = frozenset({DEDUP_ID, EXPIRES_AT})
_OPTIONS: Final = FetchOptions(max_wait_ms=100, committed=True)


class RedriveError(HeadraceError):
    """Dead letters could not be sent back."""


class FoundLetter(NamedTuple):
    """A letter, and where in its topic it is."""

    at: TopicPartition
    offset: int
    letter: Letter


@dataclass(slots=True)
class Redriven:
    """What a redrive has come to so far."""

    letters: int = 0  # that are in the topic
    sent: int = 0  # or, in a dry run, would be
    left: dict[str, int] = field(default_factory=dict)  # chosen, and not sent: how many, by the reason


def read_letters(cluster: Cluster, letters_topic: str) -> Iterator[list[FoundLetter]]:
    """The letters that are in a topic now and were not taken back, each once; the first list may take a while."""
    live = _live(cluster, letters_topic)
    yield from _read(cluster, live)


def redrive(
    cluster: Cluster,
    letters_topic: str,
    *,
    ids: Collection[bytes] = (),
    matches: Callable[[Letter], bool] = lambda _: True,
    limit: int | None = None,
    to: str | None = None,
    dry_run: bool = False,
    on_progress: Callable[[Redriven], None] = lambda _: None,
) -> Redriven:
    """Send letters back: all, or those with these ids, or that match, and no more than `limit`; what came of it.

    They go where they came from, or all to the topic `to`. `on_progress` is called after every transaction.
    """
    cluster.topic(letters_topic)  # a name that is wrong is no reason to take over from another redrive
    sender = None if dry_run else _begin(cluster, letters_topic)
    done = Redriven()
    live = _live(cluster, letters_topic)
    done.letters = len(live)
    chosen: list[FoundLetter] = []
    records = _Records(cluster, to)
    left = done.letters if limit is None else limit
    wanted = frozenset(ids)

    def send_chosen() -> None:
        ready = [(found, where) for found in chosen if (where := records.look_up(found.letter, done.left)) is not None]
        chosen.clear()
        send(ready)
        on_progress(done)

    def send(ready: list[tuple[FoundLetter, _Place]]) -> None:
        """Send all of them or, if some are such that their topic does not take them, the others."""
        try:
            if sender is not None and ready:
                sender.send(_steps(ready))
        except Refused as error:
            if error.code not in UNSENDABLE:
                raise
            if len(ready) == 1:
                _count(done.left, f"their topic {ready[0][1].partition.topic!r} refuses them: {error.code.meaning}")
                return
            send(ready[: len(ready) // 2])
            send(ready[len(ready) // 2 :])
        else:
            done.sent += len(ready)

    size = 0
    for some in _read(cluster, live):
        for found in some:
            if left <= 0:
                break
            if (wanted and found.letter.id not in wanted) or not matches(found.letter):
                continue
            left -= 1
            chosen.append(found)
            size += len(found.letter.value or b"") + len(found.letter.key or b"")
            if len(chosen) >= _MOST_LETTERS or size >= _MOST_BYTES:
                send_chosen()
                size = 0
        if left <= 0:
            break
    if chosen:
        send_chosen()
    return done


def _live(cluster: Cluster, letters_topic: str) -> dict[bytes, tuple[TopicPartition, int]]:
    """Where the newest of each letter is that was not taken back."""
    live: dict[bytes, tuple[TopicPartition, int]] = {}
    for where, record in _all(cluster, letters_topic):
        if takes_back(record):
            live.pop(record.key or b"", None)
        else:
            live[Letter.of(record).id] = (where, record.offset)
    return live


def _all(cluster: Cluster, letters_topic: str) -> Iterator[tuple[TopicPartition, Record]]:
    cluster.topic(letters_topic, refresh=True)
    held = bounds(cluster, cluster.partitions(letters_topic), committed=True)
    starts = {where: bound.start for where, bound in held.items() if bound.start < bound.end}
    ends = {where: held[where].end for where in starts}
    for records in read_records(cluster, starts, until=ends, options=_OPTIONS) if starts else ():
        yield from records


def _read(cluster: Cluster, live: dict[bytes, tuple[TopicPartition, int]]) -> Iterator[list[FoundLetter]]:
    """Those letters, in portions; what was taken back meanwhile is among them."""
    places: dict[TopicPartition, set[int]] = {}
    for where, offset in live.values():
        places.setdefault(where, set()).add(offset)
    starts = {where: min(offsets) for where, offsets in places.items()}
    ends = {where: max(offsets) + 1 for where, offsets in places.items()}
    for records in read_records(cluster, starts, until=ends, options=_OPTIONS) if starts else ():
        yield [
            FoundLetter(where, record.offset, Letter.of(record))
            for where, record in records
            if record.offset in places[where]
        ]


class _Place(NamedTuple):
    """Where a record goes, and what it is then."""

    partition: TopicPartition
    record: Record


class _Records:
    """The records of letters, as they are sent back: out of the letter or, if it is not whole, from where they were."""

    def __init__(self, cluster: Cluster, to: str | None) -> None:
        self._cluster = cluster
        self._to = to
        self._partitioners: dict[str, Partitioner | None] = {}
        if to is not None:
            cluster.topic(to)  # a name that is wrong is refused before anything is sent

    def look_up(self, letter: Letter, left: dict[str, int]) -> _Place | None:
        """What is sent, and where to; None, with the reason counted, if that is not possible."""
        topic = self._to or letter.topic
        partitioner = self._partitioner(topic)
        if partitioner is None:
            _count(left, f"their topic {topic!r} does not exist")
            return None
        key, value, headers = letter.key, letter.value, letter.headers
        if not letter.is_whole:
            original = self._original(letter)
            if original is not None:
                key, value, headers = original.key, original.value, original.headers
            elif set(letter.cut) & {"key", "value"}:
                _count(left, f"the letter does not have all of the record, and {letter.topic!r} has it no more")
                return None
        kept = tuple(header for header in headers if header.key not in _DONE_WITH)
        record = Record(0, time.time_ns() // 1_000_000, key, value, kept)
        partitions = self._cluster.topic(topic).partitions
        stays = topic == letter.topic and letter.partition in partitions
        index = letter.partition if stays else partitioner.choose(key, len(value or b""))
        return _Place(TopicPartition(topic, index), record)

    def _partitioner(self, topic: str) -> Partitioner | None:
        if topic not in self._partitioners:
            try:
                self._partitioners[topic] = Partitioner(len(self._cluster.topic(topic).partitions))
            except (UnknownTopic, Refused):
                self._partitioners[topic] = None
        return self._partitioners[topic]

    def _original(self, letter: Letter) -> Record | None:
        where = TopicPartition(letter.topic, letter.partition)
        try:
            topic = self._cluster.topic(letter.topic)
            if letter.partition not in topic.partitions or letter.topic_id not in ("", topic.id_text):
                return None
            held = bounds(self._cluster, [where])[where]
            if not held.start <= letter.offset < held.end:
                return None
            found = read_records(
                self._cluster, {where: letter.offset}, until={where: letter.offset + 1}, options=_OPTIONS
            )
            return next((record for records in found for _, record in records), None)
        except (UnknownTopic, OffsetOutOfRange):
            return None


def _count(left: dict[str, int], reason: str) -> None:
    left[reason] = left.get(reason, 0) + 1


def _begin(cluster: Cluster, letters_topic: str) -> Sender:
    fenced = RedriveError(
        f"another redrive of {letters_topic!r} has begun, or a transaction of this one took longer than "
        f"{TRANSACTION_MS // 1000} s: what was committed is sent, run it again for the rest"
    )
    return Sender(cluster, f"headrace-redrive-{letters_topic}", fenced)


def _steps(ready: Iterable[tuple[FoundLetter, _Place]]) -> dict[TopicPartition, list[Record]]:
    """What is written of a transaction: records, and that their letters are taken back."""
    now_ms = time.time_ns() // 1_000_000
    by_partition: dict[TopicPartition, list[Record]] = {}
    for found, place in ready:
        by_partition.setdefault(place.partition, []).append(place.record)
        by_partition.setdefault(found.at, []).append(Record(0, now_ms, found.letter.id, None))
    return by_partition
