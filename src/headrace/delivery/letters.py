"""Dead letters: the one form of a record that could not be processed, in a topic beside its own.

A letter's key says which record it is about and for whom, so that a letter that is written twice is one, and a record
under the same key without value and headers takes it back. Its value is the record's, and its headers are those of the
record, then its own: the reason, where the record was, its key, how often it was delivered.

What always holds: a letter that was written is read as it was. A record without a value has a letter with an empty one,
which a header tells apart: in a compacted topic a letter without a value would be gone after a day. What of the record
is not in the letter, because the topic takes no larger ones or because it was not to be copied, `cut` names.
"""

from typing import Any, Final, NamedTuple

from headrace.records import Header, Record

_FIRST_OWN: Final = "error"  # those of the record are before it
_ALL_OF_RECORD: Final = ("value", "key", "headers")
_PARTS: Final = ("value", "key", "reason", "headers")  # what may be cut
# What Kafka writes from 4.4 on (KIP-1191): the record's own key and value, or neither, and none of its headers.
_KAFKAS: Final = "__dlq.errors."


class Letter(NamedTuple):
    """One record that could not be processed by one job or share group, and why."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    reason: str
    format: str
    job: str
    headers: tuple[Header, ...] = ()
    deliveries: int = 0  # how often a share group had it; of a job's nothing is known
    first_failed_ms: int = -1
    last_failed_ms: int = -1
    topic_id: str = ""  # so that records of a topic that was made again are not taken for these
    cut: tuple[str, ...] = ()

    @property
    def id(self) -> bytes:
        """What it is known by; a query without a name has no job."""
        parts = (self.topic, str(self.partition), str(self.offset), self.job, self.topic_id)
        return "/".join(filter(None, parts)).encode(errors="replace")

    @property
    def place(self) -> str:
        """Where the record is, as people read it."""
        return f"{self.topic}-{self.partition}@{self.offset}"

    @property
    def is_whole(self) -> bool:
        """Whether the record could be written again as it was."""
        return not set(self.cut) & set(_ALL_OF_RECORD)

    def without_record(self) -> "Letter":
        """The same, but for the record itself, which has to be looked up where it was."""
        return self._replace(key=None, value=None, headers=(), cut=_ALL_OF_RECORD)

    def shortened(self) -> "Letter | None":
        """The same with its largest part cut by half, and headers all at once; None if there is nothing left to cut."""
        sizes = {
            "value": len(self.value or b""),
            "key": len(self.key or b""),
            "reason": len(self.reason),
            "headers": sum(len(header.key) + len(header.value or b"") for header in self.headers),
        }
        part = max(sizes, key=lambda name: sizes[name])
        if not sizes[part]:
            return None
        less: Any = () if part == "headers" else getattr(self, part)[: sizes[part] // 2]
        cut: dict[str, Any] = {"cut": tuple(name for name in _PARTS if name in self.cut or name == part), part: less}
        return self._replace(**cut)

    def to_record(self, now_ms: int, offset: int = 0) -> Record:
        """As it is written."""
        texts = {
            _FIRST_OWN: self.reason,
            "format": self.format,
            "topic": self.topic,
            "partition": str(self.partition),
            "offset": str(self.offset),
            "timestamp": str(self.timestamp),
        }
        if self.job:
            texts["job"] = self.job
        if self.deliveries:
            texts["deliveries"] = str(self.deliveries)
        if self.last_failed_ms >= 0:
            texts |= {"first-failed": str(self.first_failed_ms), "last-failed": str(self.last_failed_ms)}
        if self.topic_id:
            texts["topic-id"] = self.topic_id
        if self.cut:
            texts["cut"] = ",".join(self.cut)
        if self.value is None:
            texts["null"] = "value"
        own = (Header(name, text.encode(errors="replace")) for name, text in texts.items())
        value = b"" if self.value is None else self.value
        return Record(offset, now_ms, self.id, value, (*self.headers, *own, Header("key", self.key)))

    @classmethod
    def of(cls, record: Record) -> "Letter":
        """As it was written; once derived systems called the job a sink, and pipelines did not name it."""
        names = [header.key for header in record.headers]
        if f"{_KAFKAS}topic" in names:
            return cls._of_kafkas(record)
        begin = len(names) - 1 - names[::-1].index(_FIRST_OWN) if _FIRST_OWN in names else 0
        told = {header.key: header.value for header in record.headers[begin:]}
        text = {name: (value or b"").decode(errors="replace") for name, value in told.items()}
        return cls(
            text.get("topic", ""),
            number_of(text.get("partition")),
            number_of(text.get("offset")),
            number_of(text.get("timestamp")),
            told.get("key"),
            None if text.get("null") == "value" else record.value,
            text.get(_FIRST_OWN, ""),
            text.get("format", ""),
            text.get("job") or text.get("sink", ""),
            record.headers[:begin],
            max(number_of(text.get("deliveries")), 0),
            number_of(text.get("first-failed")),
            number_of(text.get("last-failed")),
            text.get("topic-id", ""),
            tuple(filter(None, text.get("cut", "").split(","))),
        )

    @classmethod
    def _of_kafkas(cls, record: Record) -> "Letter":
        text = {header.key: (header.value or b"").decode(errors="replace") for header in record.headers}
        is_copied = record.key is not None or record.value is not None
        return cls(
            text[f"{_KAFKAS}topic"],
            number_of(text.get(f"{_KAFKAS}partition")),
            number_of(text.get(f"{_KAFKAS}offset")),
            -1,
            record.key,
            record.value,
            text.get(f"{_KAFKAS}message", ""),
            "",
            text.get(f"{_KAFKAS}group", ""),
            deliveries=max(number_of(text.get(f"{_KAFKAS}delivery.count")), 0),
            last_failed_ms=record.timestamp,
            cut=("headers",) if is_copied else _ALL_OF_RECORD,
        )


def takes_back(record: Record) -> bool:
    """Whether a record of such a topic takes back the letter whose id is its key."""
    return record.value is None and not record.headers


def number_of(text: str | None) -> int:
    """A number of a header; -1 if it is none, because anybody may write to the topic."""
    try:
        return int(text or -1)
    except ValueError:
        return -1
