"""A stored query: its text, whose it is, and what else is kept with it; as JSON in a compacted topic, keyed by its id.

    {"query": "title:\\"fast car\\"~2 -colour:red", "mapping": "listings", "fields": ["title"], "words": "any",
     "tags": ["cars"], "owner": "ann", "boost": 2, "paused": false, "version": 3, "also_match_last": "24 hours"}

Only `query` has to be there. A record without a value (a tombstone) removes the query.

What always holds: `read_stored(stored.id, stored.as_json()) == stored`; whatever is wrong with a record is one sentence
that names the query, and says nothing of any other.
"""

import json
import sys
from collections.abc import Mapping as Map
from dataclasses import dataclass
from typing import Any, Final

from headrace.durations import InvalidDuration, in_words, positive
from headrace.errors import nearest
from headrace.percolation.errors import InvalidStoredQuery

LONGEST_ID: Final = 256
_HIGHEST_BOOST: Final = 1e6
_MOST_TAGS: Final = 64
_LONGEST_NAME: Final = 256
"""Of a tag, an owner and a mapping: they stand in every hit."""
_PARTS: Final = (
    "query",
    "mapping",
    "fields",
    "words",
    "tags",
    "owner",
    "boost",
    "paused",
    "version",
    "also_match_last",
)


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """One query as it is stored; what its text means is worked out by who holds it against documents."""

    id: str
    text: str
    mapping: str = "default"
    fields: tuple[str, ...] = ()
    """Looked in for words that name no field; without any, the mapping decides."""
    all_words: bool = False
    """Of words side by side all have to be there, instead of any."""
    tags: tuple[str, ...] = ()
    owner: str = ""
    boost: float = 1.0
    paused: bool = False
    version: int = 1
    """Counts the changes, so that a result says which text of the query it is from."""
    also_match_last_us: int | None = None
    """When it is added or changed, it is also run over so much of the log."""

    def __post_init__(self) -> None:
        _check(self)

    def as_json(self) -> bytes:
        """The value of its record: what differs from what is usual."""
        parts: dict[str, Any] = {"query": self.text}
        if self.mapping != "default":
            parts["mapping"] = self.mapping
        if self.fields:
            parts["fields"] = list(self.fields)
        if self.all_words:
            parts["words"] = "all"
        if self.tags:
            parts["tags"] = list(self.tags)
        if self.owner:
            parts["owner"] = self.owner
        if self.boost != 1.0:
            parts["boost"] = self.boost
        if self.paused:
            parts["paused"] = True
        if self.version != 1:
            parts["version"] = self.version
        if self.also_match_last_us is not None:
            parts["also_match_last"] = in_words(self.also_match_last_us)
        return json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode()


def read_stored(query_id: str, value: bytes | str) -> StoredQuery:
    """The stored query of a record, which is not a tombstone."""
    what = f"stored query {query_id!r}"
    try:
        parts = json.loads(value)
    except (ValueError, RecursionError):
        raise InvalidStoredQuery(f"{what} is not JSON: write an object with 'query'") from None
    if not isinstance(parts, dict):
        raise InvalidStoredQuery(f"{what} is not a JSON object: write one with 'query'")
    return from_parts(query_id, parts)


def from_parts(query_id: str, parts: Map[str, Any]) -> StoredQuery:
    """The stored query of the object that its JSON holds."""
    what = f"stored query {query_id!r}"
    for each in parts:
        if each not in _PARTS:
            raise InvalidStoredQuery(f"{what}: {each!r} is unknown; {nearest(str(each), _PARTS)}")
    if not isinstance(parts.get("query"), str):
        raise InvalidStoredQuery(f"{what}: 'query' is missing or not a text")
    if parts.get("words", "any") not in ("any", "all"):
        raise InvalidStoredQuery(f"{what}: 'words' is 'any' or 'all', not {parts['words']!r}")
    also = parts.get("also_match_last")
    try:
        also_us = None if also is None else positive(str(also), f"{what}: 'also_match_last'")
    except InvalidDuration as error:
        raise InvalidStoredQuery(str(error)) from None
    boost = parts.get("boost", 1.0)
    mapping, owner = (_shared(parts.get(name, usual)) for name, usual in (("mapping", "default"), ("owner", "")))
    return StoredQuery(
        query_id,
        parts["query"],
        mapping,
        _texts(what, "fields", parts.get("fields", [])),
        parts.get("words") == "all",
        _texts(what, "tags", parts.get("tags", [])),
        owner,
        float(boost) if isinstance(boost, int) and not isinstance(boost, bool) and boost <= _HIGHEST_BOOST else boost,
        parts.get("paused", False),
        parts.get("version", 1),
        also_us,
    )


def _texts(what: str, name: str, given: object) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(each, str) and each for each in given):
        raise InvalidStoredQuery(f"{what}: {name!r} is a list of texts")
    return tuple(map(_shared, given))


def _shared(text: Any) -> Any:
    """Of texts that many queries have, one is kept; what is not a text is refused later."""
    return sys.intern(text) if isinstance(text, str) else text


def _is_whole(text: str) -> bool:
    """Whether a text can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check(stored: StoredQuery) -> None:
    """Whatever the types promise, values come from JSON and from callers."""
    what = f"stored query {stored.id!r}"
    if not isinstance(stored.id, str) or not stored.id or len(stored.id) > LONGEST_ID or not stored.id.isprintable():
        raise InvalidStoredQuery(f"{what}: an id has 1 to {LONGEST_ID} printable characters")
    if stored.id.startswith("mapping:"):
        raise InvalidStoredQuery(f"{what}: what begins with 'mapping:' names a mapping: choose another id")
    for name, value in (("query", stored.text), ("mapping", stored.mapping), ("owner", stored.owner)):
        if not isinstance(value, str):
            raise InvalidStoredQuery(f"{what}: {name!r} is a text, not {value!r}")
    for name, each in (("mapping", stored.mapping), ("owner", stored.owner), *(("tags", tag) for tag in stored.tags)):
        if len(each) > _LONGEST_NAME:
            raise InvalidStoredQuery(
                f"{what}: {name!r} has a text of {len(each):,} characters: {_LONGEST_NAME} are enough"
            )
    if not all(map(_is_whole, (stored.text, stored.mapping, stored.owner, *stored.tags, *stored.fields))):
        raise InvalidStoredQuery(f"{what}: it has half a letter in it (a surrogate): write the letter itself")
    if len(stored.tags) > _MOST_TAGS:
        raise InvalidStoredQuery(f"{what}: it has {len(stored.tags)} tags, and at most {_MOST_TAGS} are allowed")
    boost = stored.boost
    if not isinstance(boost, float | int) or isinstance(boost, bool) or not 0 <= boost <= _HIGHEST_BOOST:
        raise InvalidStoredQuery(f"{what}: 'boost' is a number from 0 to {_HIGHEST_BOOST:,.0f}")
    if not isinstance(stored.paused, bool):
        raise InvalidStoredQuery(f"{what}: 'paused' is true or false")
    if not isinstance(stored.version, int) or isinstance(stored.version, bool) or stored.version < 1:
        raise InvalidStoredQuery(f"{what}: 'version' is a whole number from 1 on")
