"""A hit as a record: which query, which document, what for.

key     {"query": "bikes", "topic": "listings", "partition": 0, "offset": 17}
value   {"query": "bikes", "version": 2, "owner": "ann", "tags": [], "score": 1.0, "highlights": [{"field": "title",
         "text": "a racing bike", "marks": [[2, 13]]}], "topic": "listings", "partition": 0, "offset": 17,
         "timestamp_ms": 1790000000000, "document_key": "17", "queries_offset": 40, "is_backfill": false}

The key names the pair, so that a table kept in step with the topic has one row for it.

What always holds: `read_hit(*write_hit(hit)[:2]) == hit`.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

QUERIES_OFFSET: Final = "queries-offset"
"""The header that says up to which offset of their topic queries were read."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Words of a document for which it matched, with what stands around them."""

    field: str
    text: str
    marks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One query that one document matches."""

    query: str
    version: int
    owner: str
    tags: tuple[str, ...]
    score: float
    highlights: tuple[Piece, ...]
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    document_key: str | None
    queries_offset: int
    is_backfill: bool = False
    document: Any = None
    """The document itself, if hits are to carry it."""


def write_hit(hit: SearchHit) -> tuple[bytes, bytes, tuple[tuple[str, bytes], ...]]:
    """Key, value and headers."""
    key = {"query": hit.query, "topic": hit.topic, "partition": hit.partition, "offset": hit.offset}
    value: dict[str, Any] = {
        "query": hit.query,
        "version": hit.version,
        "owner": hit.owner,
        "tags": list(hit.tags),
        "score": hit.score,
        "highlights": [
            {"field": piece.field, "text": piece.text, "marks": [list(mark) for mark in piece.marks]}
            for piece in hit.highlights
        ],
        "topic": hit.topic,
        "partition": hit.partition,
        "offset": hit.offset,
        "timestamp_ms": hit.timestamp_ms,
        "document_key": hit.document_key,
        "queries_offset": hit.queries_offset,
        "is_backfill": hit.is_backfill,
    }
    if hit.document is not None:
        value["document"] = hit.document
    return _json(key), _json(value), ((QUERIES_OFFSET, str(hit.queries_offset).encode()),)


def read_hit(_key: bytes | None, value: bytes | None) -> SearchHit | None:
    """The hit of a record; None for what is no hit: anybody may write to a topic."""
    try:
        said = json.loads(value or b"")
        return SearchHit(
            str(said["query"]),
            int(said["version"]),
            str(said["owner"]),
            tuple(map(str, said["tags"])),
            float(said["score"]),
            tuple(
                Piece(
                    str(each["field"]), str(each["text"]), tuple((int(start), int(end)) for start, end in each["marks"])
                )
                for each in said["highlights"]
            ),
            str(said["topic"]),
            int(said["partition"]),
            int(said["offset"]),
            int(said["timestamp_ms"]),
            None if said["document_key"] is None else str(said["document_key"]),
            int(said["queries_offset"]),
            said["is_backfill"] is True,
            said.get("document"),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _json(value: object) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half a letter, which a document may have: JSON can say it, UTF-8 cannot
        return json.dumps(value, separators=(",", ":")).encode()
