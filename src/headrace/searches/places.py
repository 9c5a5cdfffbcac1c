"""How far a search has come: as the records that are committed with its hits. Pure.

    {"search": NAME}                       {"queries": 41, "id": …}   the next record of the queries' topic
    {"search": NAME, "partition": 0}       {"offset": 17, "id": …, "topic": …}    the next document
    {"search": NAME, "backfill": QUERY}    {"version": 2, "queries": 40, "parts": {"0": [5, 17]}}

An id is the topic's: a place in a topic that was deleted is none in the one that was made again under its name.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Backfill:
    """A query that is yet to be held against older documents: by partition the next offset, and the end."""

    query: str
    version: int
    queries_offset: int
    """Up to which the queries were read when it was begun: of the queries, it is the one that counts."""
    parts: Mapping[int, tuple[int, int]]

    @property
    def is_over(self) -> bool:
        return all(start >= end for start, end in self.parts.values())

    @property
    def left(self) -> int:
        """How many offsets are still to be read."""
        return sum(max(end - start, 0) for start, end in self.parts.values())


@dataclass(frozen=True, slots=True)
class Places:
    """What is committed; empty before the first commit."""

    queries: int = 0
    queries_id: str = ""
    documents: Mapping[int, int] = field(default_factory=dict)
    documents_id: str = ""
    documents_topic: str = ""
    """Empty of places that were written before they said so."""
    backfills: Mapping[str, Backfill] = field(default_factory=dict)

    @property
    def is_new(self) -> bool:
        return not self.documents


def is_of(search: str, key: bytes) -> bool:
    """Whether a record is one of this search's."""
    try:
        found = json.loads(key)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("search") == search


def read_places(stored: Mapping[bytes, bytes]) -> Places:
    """What the records of one search say."""
    queries, queries_id, documents_id, documents_topic = 0, "", "", ""
    documents: dict[int, int] = {}
    backfills: dict[str, Backfill] = {}
    for key, value in stored.items():
        name, said = json.loads(key), json.loads(value)
        if "partition" in name:
            documents[name["partition"]] = said["offset"]
            documents_id = said["id"]
            documents_topic = said.get("topic") or documents_topic
        elif "backfill" in name:
            parts = {int(partition): (start, end) for partition, (start, end) in said["parts"].items()}
            backfills[name["backfill"]] = Backfill(name["backfill"], said["version"], said["queries"], parts)
        else:
            queries, queries_id = said["queries"], said["id"]
    return Places(queries, queries_id, documents, documents_id, documents_topic, backfills)


def changes(search: str, before: Places, after: Places) -> list[tuple[bytes, bytes | None]]:
    """The records that make of one the other."""
    found: list[tuple[bytes, bytes | None]] = []
    if (before.queries, before.queries_id) != (after.queries, after.queries_id):
        found.append((_key(search), _json({"queries": after.queries, "id": after.queries_id})))
    said = {"id": after.documents_id, "topic": after.documents_topic}
    for partition, offset in after.documents.items():
        if before.documents.get(partition) != offset or before.documents_id != after.documents_id:
            found.append((_key(search, partition=partition), _json({"offset": offset, **said})))
    found += [(_key(search, partition=gone), None) for gone in before.documents if gone not in after.documents]
    for query, backfill in after.backfills.items():
        if before.backfills.get(query) != backfill:
            parts = {str(partition): list(span) for partition, span in backfill.parts.items()}
            value = {"version": backfill.version, "queries": backfill.queries_offset, "parts": parts}
            found.append((_key(search, backfill=query), _json(value)))
    found += [(_key(search, backfill=gone), None) for gone in before.backfills if gone not in after.backfills]
    return found


def _key(search: str, **more: Any) -> bytes:
    return _json({"search": search, **more})


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
