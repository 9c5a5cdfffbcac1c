"""Hits gathered into digests, one mail at most per owner and interval. Pure: the time is an argument.

What always holds: a digest is due so long after its first hit, and not before the interval since the last one is over,
nor while a day has had its share; what waits for an owner has an upper bound, and hits beyond it are counted; an
owner's number goes up with each digest, so that a digest is the same whenever it is made again.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace.searches.hits import Piece, SearchHit

DAY_MS: Final = 86_400_000
_PIECES: Final = 3
_LONGEST_TEXT: Final = 400
_LONGEST_WORD: Final = 200
_TAGS: Final = 8
_MARKS: Final = 100  # of a piece
MOST_BYTES: Final = 256 * 1024
"""Of what waits for an owner: well below what a topic takes as one record."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often an owner hears of hits."""

    every_ms: int = 3_600_000
    gather_ms: int = 10_000
    most_a_day: int = 24
    most_hits: int = 20


@dataclass(frozen=True, slots=True)
class Shown:
    """What a mail shows of a hit."""

    query: str
    tags: tuple[str, ...]
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    document_key: str
    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, hit: SearchHit) -> "Shown":
        """As much of a hit as a mail has room for."""
        pieces = tuple(
            Piece(
                piece.field[:_LONGEST_WORD],
                piece.text[:_LONGEST_TEXT],
                tuple((start, end) for start, end in piece.marks if 0 <= start < end <= _LONGEST_TEXT)[:_MARKS],
            )
            for piece in hit.highlights[:_PIECES]
        )
        tags = tuple(tag[:_LONGEST_WORD] for tag in hit.tags[:_TAGS])
        key = (hit.document_key or "")[:_LONGEST_WORD]
        return cls(hit.query[:_LONGEST_WORD], tags, hit.topic, hit.partition, hit.offset, hit.timestamp_ms, key, pieces)

    @property
    def size_bytes(self) -> int:
        return len(json.dumps(self.as_json(), separators=(",", ":")))

    def as_json(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "tags": list(self.tags),
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp_ms": self.timestamp_ms,
            "document_key": self.document_key,
            "pieces": [[piece.field, piece.text, [list(mark) for mark in piece.marks]] for piece in self.pieces],
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> "Shown":
        pieces = tuple(
            Piece(field, text, tuple((start, end) for start, end in marks)) for field, text, marks in said["pieces"]
        )
        return cls(
            said["query"], tuple(said["tags"]), said["topic"], said["partition"], said["offset"],
            said["timestamp_ms"], said["document_key"], pieces,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Digest:
    """What one mail tells."""

    owner: str
    number: int
    count: int
    hits: tuple[Shown, ...]
    since_ms: int
    made_ms: int

    def message_id(self, name: str) -> str:
        """What tells this mail from all others, and is the same whenever it is sent."""
        text = json.dumps([name, self.owner, self.number, self.since_ms, self.made_ms])
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:40]

    def as_json(self) -> dict[str, Any]:
        return {
            "owner": self.owner,
            "number": self.number,
            "count": self.count,
            "since_ms": self.since_ms,
            "made_ms": self.made_ms,
            "hits": [hit.as_json() for hit in self.hits],
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> "Digest":
        return cls(
            said["owner"], said["number"], said["count"], tuple(Shown.from_json(hit) for hit in said["hits"]),
            said["since_ms"], said["made_ms"],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is gathered for one owner, and when the digests of the last day were made."""

    owner: str
    number: int = 0
    count: int = 0
    hits: tuple[Shown, ...] = ()
    since_ms: int = 0
    made_ms: tuple[int, ...] = ()
    size_bytes: int = 0
    """Of the hits, as JSON."""

    def with_hit(self, hit: SearchHit, now_ms: int, pace: Pace) -> "Waiting":
        """With one hit more; the first ones are shown as long as there is room, the others counted."""
        hits, size_bytes = self.hits, self.size_bytes
        if self.count == len(hits) < pace.most_hits:
            shown = Shown.of(hit)
            size_bytes += shown.size_bytes
            hits = (*hits, shown) if size_bytes <= MOST_BYTES else hits
        since_ms = self.since_ms if self.count else now_ms
        return replace(self, count=self.count + 1, hits=hits, size_bytes=size_bytes, since_ms=since_ms)

    def due_ms(self, now_ms: int, pace: Pace) -> int | None:
        """When the next digest is due; None if nothing waits."""
        if not self.count:
            return None
        # A clock that was set back must not silence anybody for longer than the interval.
        made = [min(at, now_ms) for at in self.made_ms if at > now_ms - DAY_MS]
        due = min(self.since_ms, now_ms) + pace.gather_ms
        if made:
            due = max(due, made[-1] + pace.every_ms)
        if len(made) >= pace.most_a_day:
            due = max(due, made[-pace.most_a_day] + DAY_MS)
        return due

    def digest(self, now_ms: int, pace: Pace) -> tuple[Digest, "Waiting"]:
        """What is due now, and what is left."""
        made = (*(min(at, now_ms) for at in self.made_ms if at > now_ms - DAY_MS), now_ms)[-pace.most_a_day :]
        digest = Digest(self.owner, self.number + 1, self.count, self.hits, self.since_ms, now_ms)
        return digest, Waiting(self.owner, self.number + 1, made_ms=made)

    def as_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "count": self.count,
            "hits": [hit.as_json() for hit in self.hits],
            "since_ms": self.since_ms,
            "made_ms": list(self.made_ms),
        }

    @classmethod
    def from_json(cls, owner: str, said: Mapping[str, Any]) -> "Waiting":
        hits = tuple(Shown.from_json(hit) for hit in said["hits"])
        return cls(
            owner, said["number"], said["count"], hits, said["since_ms"], tuple(said["made_ms"]),
            sum(hit.size_bytes for hit in hits),
        )  # fmt: skip


def owner_of(text: str) -> str:
    """Whose digest a text is, if it is one."""
    try:
        return Digest.from_json(json.loads(text)).owner
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
