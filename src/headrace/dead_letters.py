"""Records that a job cannot use, written to a topic beside theirs, and read again.

Their form is `delivery/letters.py`, for pipelines, for derived systems and for share groups, whose letters the broker
writes. A letter's key is the record's place and the job, and the topic is compacted: a batch that runs twice leaves one
letter, and two jobs that read one topic have theirs beside each other. Letters are durable before the job's place moves
on, so a record that is missing from a result is in the topic. One that is of no interest any more is taken back by a
record without a value.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import Refused, UnknownTopic
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.delivery.letters import Letter, number_of, takes_back
from headrace.model import MAX_TOPIC_NAME, TopicPartition
from headrace.protocol.errors import ErrorCode

SUFFIX: Final = ".dead-letters"
_SHOWN_REASONS: Final = 3
_LONGEST_REASON: Final = 300
_ROOM_BYTES: Final = 16 * 1024 * 1024  # for a letter, in a topic that we make
_OPTIONS: Final = FetchOptions(max_wait_ms=100, committed=True)


def topic_for(topic: str, chosen: str | None) -> str:
    """The topic that takes what cannot be used of another."""
    if chosen or len(topic) + len(SUFFIX) <= MAX_TOPIC_NAME:
        return chosen or topic + SUFFIX
    # There is no room for more in such a name.
    digest = hashlib.sha256(topic.encode()).hexdigest()[:16]
    return f"{topic[: MAX_TOPIC_NAME - len(SUFFIX) - len(digest) - 1]}-{digest}{SUFFIX}"


def write_letters(cluster: Cluster, letters_topic: str, letters: Iterable[Letter]) -> None:
    """Write letters; they are durable when this returns.

    A letter is larger than its record, by its headers: a topic that we make has room for that, and in one that has not
    the letter is cut. What is wrong with a record must not depend on how large it is, and the record itself is where it
    was.
    """
    ensure_topic(cluster, letters_topic, configs={"cleanup.policy": "compact", "max.message.bytes": str(_ROOM_BYTES)})
    whole = list(letters)
    try:
        _write(Writer(cluster, letters_topic), whole)
    except Refused as refusal:
        if refusal.code is not ErrorCode.MESSAGE_TOO_LARGE:
            raise
        writer = Writer(cluster, letters_topic)
        for letter in whole:  # those that were written already are written again, under the same keys
            _write_cut(writer, letter)


def _write_cut(writer: Writer, letter: Letter) -> None:
    """Write one letter, its longest part cut by half until the topic takes it."""
    while True:
        try:
            _write(writer, [letter])
        except Refused as refusal:
            less = letter.shortened()
            if refusal.code is not ErrorCode.MESSAGE_TOO_LARGE or less is None:
                raise
            letter = less
        else:
            return


def _write(writer: Writer, letters: Iterable[Letter]) -> None:
    for letter in letters:
        _, timestamp, key, value, headers = letter.to_record(int(time.time() * 1000))
        writer.add(NewRecord(key, value, timestamp, headers))
    writer.flush()


class LetterBox:
    """The letters of one job in one topic, read on at each look; what is kept of one is its id and its reason."""

    def __init__(self, letters_topic: str, topic: str, job: str) -> None:
        """Those of one `topic`: several may have their letters in one place."""
        self._letters_topic = letters_topic
        self._topic = topic
        self._job = job
        self._reasons: dict[bytes, str] = {}
        self._places: dict[TopicPartition, int] = {}

    def look(self, cluster: Cluster, *, keep: bool = False) -> list[Letter]:
        """Read what is new; the new letters are answered if they are to be kept."""
        # A topic that is asked for by its name is waited for a moment, and mostly there is none.
        if not self._places and all(topic.name != self._letters_topic for topic in cluster.topics()):
            return []
        try:
            held = bounds(cluster, cluster.partitions(self._letters_topic), committed=True)
        except UnknownTopic:
            self._reasons.clear()
            self._places.clear()
            return []
        if any(place > held[where].end for where, place in self._places.items() if where in held):
            self._reasons.clear()  # the topic was made again
            self._places.clear()
        starts = {where: max(self._places.get(where, 0), bound.start) for where, bound in held.items()}
        ends = {where: bound.end for where, bound in held.items()}
        starts = {where: start for where, start in starts.items() if start < ends[where]}
        found: dict[bytes, Letter] = {}
        for records in read_records(cluster, starts, until=ends, options=_OPTIONS) if starts else ():
            for _, record in records:
                identity = record.key or b""
                if takes_back(record):
                    self._reasons.pop(identity, None)
                    found.pop(identity, None)
                    continue
                letter = Letter.of(record)
                if letter.job == self._job and letter.topic == self._topic:
                    self._reasons[identity] = letter.reason
                    if keep:
                        found[identity] = letter
        self._places = ends
        return list(found.values())

    @property
    def ids(self) -> frozenset[bytes]:
        """Which letters there are."""
        return frozenset(self._reasons)

    def ids_before(self, offsets: Mapping[int, int]) -> frozenset[bytes]:
        """Those of records before these offsets of their partitions."""
        found = set()
        for identity in self._reasons:
            _, *place = identity.decode(errors="replace").split("/")
            partition, offset = (*map(number_of, place[:2]), -1, -1)[:2]
            if 0 <= offset < offsets.get(partition, 0):
                found.add(identity)
        return frozenset(found)

    @property
    def count(self) -> int:
        """How many letters there are."""
        return len(self._reasons)

    @property
    def reasons(self) -> dict[str, int]:
        """The reasons that most letters have, and how many."""
        most = Counter(self._reasons.values()).most_common(_SHOWN_REASONS)
        return {reason[:_LONGEST_REASON]: count for reason, count in most}

    def facts(self) -> dict[str, Any]:
        """For a status record; nothing if there are none."""
        return {"dead_letters": self.count, "dead_letter_reasons": self.reasons} if self.count else {}


class Letters(NamedTuple):
    """How many, and the reasons that most of them have."""

    total: int = 0
    reasons: Mapping[str, int] = MappingProxyType({})


NO_LETTERS: Final = Letters()


def letters_in(boxes: Iterable[LetterBox], cluster: Cluster) -> Letters:
    """What several boxes hold, after a look."""
    count, reasons = 0, Counter[str]()
    for box in boxes:
        box.look(cluster)
        count += box.count
        reasons.update(box.reasons)
    return Letters(count, dict(reasons.most_common(_SHOWN_REASONS)))


def in_words(count: int, reasons: Mapping[str, int]) -> str:
    """Letters in a sentence."""
    if not count:
        return ""
    first = next(iter(reasons), "")
    many = "1 record was" if count == 1 else f"{count:,} records were"
    which = f" ({first})" if len(reasons) == 1 else f" ({reasons[first]:,} of them: {first})" if first else ""
    return f"{many} set aside as dead letters{which}"


def forget_letters(cluster: Cluster, letters_topic: str, ids: Collection[bytes]) -> None:
    """Take letters back."""
    writer = Writer(cluster, letters_topic)
    for identity in ids:
        writer.add(NewRecord(identity, None, int(time.time() * 1000)))
    writer.flush()
