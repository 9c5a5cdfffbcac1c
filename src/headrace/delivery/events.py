"""Events in a topic that keeps them (`headrace.events`): what records say, and what a query matches. Pure.

A record is an event of the stream that its key names. Its headers say what else there is to know; any client can set
them, values are UTF-8. The version is the event's number in its stream, from 1 on: whoever appends says by it which
version he expects, and one that is not the next is a conflict. Beside it a record may name the command that it comes
of, which is appended once, and a condition: that no event after an offset matches a query.

For look-up an event is its terms: digests of its stream, its stream's category, its type and each of its tags. What is
kept of a term is where it occurs, ascending: by version for a stream, by offset for the rest.
"""

import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol, Self

from headrace.errors import HeadraceError
from headrace.records import Record

VERSION: Final = "headrace-event-version"  # in its stream, from 1 on
TYPE: Final = "headrace-event-type"
TAG: Final = "headrace-event-tag"  # as often as there are tags
COMMAND: Final = "headrace-command-id"
CONDITION: Final = "headrace-append-if"  # see `Condition`; of one record, it counts for the whole batch

MAX_NAME_BYTES: Final = 500  # of a stream, a type, a tag, a command id
MAX_TAGS: Final = 100
MAX_CRITERIA: Final = 100  # of a query, and as many types or tags of a criterion
_VERSION: Final = re.compile(b"[1-9][0-9]{0,17}")
_TERM_BYTES: Final = 16  # no two names have the same digest, by chance or by intent

Term = bytes


class InvalidEvent(HeadraceError):
    """A record that is not an event, or a question about events that cannot be read."""


def category_of(stream: str) -> str:
    """The category of a stream: its name up to the first dash."""
    return stream.partition("-")[0]


def _term(kind: bytes, name: bytes) -> Term:
    return blake2b(kind + name, digest_size=_TERM_BYTES).digest()


def stream_term(stream: bytes) -> Term:
    return _term(b"s", stream)


def command_term(command: bytes) -> Term:
    return _term(b"c", command)


def type_term(kind: str) -> Term:
    return _term(b"t", kind.encode())


# --- queries


class Criterion(NamedTuple):
    """An event matches that has one of the types, all of the tags and this category; what is empty asks for nothing."""

    types: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    category: str = ""

    @property
    def alternatives(self) -> list[list[Term]]:
        """The terms that an event has: of each list at least one."""
        groups = [[_term(b"g", tag.encode())] for tag in sorted(self.tags)]
        if self.category:
            groups.append([_term(b"k", self.category.encode())])
        if self.types:
            groups.append([_term(b"t", kind.encode()) for kind in sorted(self.types)])
        return groups


Query = tuple[Criterion, ...]  # an event matches that matches one of them


class Condition(NamedTuple):
    """An append happens only if no event at `offset` or behind it matches the query."""

    query: Query
    offset: int

    def to_text(self) -> str:
        return json.dumps({"from": self.offset, "query": _to_lists(self.query)}, separators=(",", ":"))

    @classmethod
    def parse(cls, text: bytes) -> Self:
        asked = _read_object(CONDITION, text)
        return cls(_read_query(CONDITION, asked.get("query")), _read_number(CONDITION, asked, "from"))


class Selection(NamedTuple):
    """Which events are to be read: those of a stream between two versions, of a command, or what a query matches."""

    stream: str = ""
    first: int = 1
    last: int = 2**62
    command: str = ""
    query: Query = ()
    before: int = 2**62  # no events from this offset on, of those that a query matches

    def to_text(self) -> str:
        if self.stream:
            asked: dict[str, Any] = {"stream": self.stream, "first": self.first, "last": self.last}
        elif self.command:
            asked = {"command": self.command}
        else:
            asked = {"query": _to_lists(self.query), "before": self.before}
        return json.dumps(asked, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Self:
        asked = _read_object("a selection", text)
        match asked:
            case {"stream": str(stream)} if stream:
                first, last = (_read_number("a selection", asked, name) for name in ("first", "last"))
                return cls(stream=stream, first=first, last=last)
            case {"command": str(command)} if command:
                return cls(command=command)
            case {"query": query}:
                before = _read_number("a selection", asked, "before")
                return cls(query=_read_query("a selection", query), before=before)
        raise InvalidEvent(f"a selection names a stream, a command or a query, and this one none of them: {text[:100]}")


def _to_lists(query: Query) -> list[dict[str, Any]]:
    return [{"types": sorted(each.types), "tags": sorted(each.tags), "category": each.category} for each in query]


def _read_object(what: str, text: str | bytes) -> dict[str, Any]:
    try:
        asked = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidEvent(f"{what} is not valid JSON: {error}") from None
    if not isinstance(asked, dict):
        raise InvalidEvent(f"{what} is not a JSON object")
    return asked


def _read_number(what: str, asked: dict[str, Any], name: str) -> int:
    value = asked.get(name)
    if type(value) is not int or not 0 <= value < 2**63:
        raise InvalidEvent(f"{what} needs {name!r}, a number from 0 on, and has {value!r}")
    return value


def _read_query(what: str, lists: Any) -> Query:
    if not isinstance(lists, list) or not 0 < len(lists) <= MAX_CRITERIA:
        raise InvalidEvent(f"{what} needs a query of 1 to {MAX_CRITERIA} criteria")
    return tuple(_read_criterion(what, each) for each in lists)


def _read_criterion(what: str, asked: Any) -> Criterion:
    if isinstance(asked, dict) and isinstance(category := asked.get("category", ""), str):
        named = [asked.get(name, []) for name in ("types", "tags")]
        if all(isinstance(names, list) and len(names) <= MAX_CRITERIA for names in named) and all(
            isinstance(name, str) for names in named for name in names
        ):
            return Criterion(frozenset(named[0]), frozenset(named[1]), category)
    raise InvalidEvent(f"{what} has a criterion that is not made of up to {MAX_CRITERIA} types, tags and a category")


# --- events


class Event(NamedTuple):
    """What is looked into of a record that is an event."""

    stream: bytes
    version: int
    terms: tuple[Term, ...]  # all but its stream's
    command: bytes | None
    condition: Condition | None


def read_event(record: Record) -> Event:
    """What a record says of itself as an event; raises `InvalidEvent`."""
    stream = record.key
    if stream is None:
        raise InvalidEvent("it has no key: the key is the name of the event's stream")
    _check_name("the key, which is the name of its stream,", stream)
    version = kind = command = condition = None
    tags = []
    for key, value in record.headers:
        if key == TAG:
            tags.append(_check_name(TAG, value))
        elif key == VERSION:
            version = _read_version(value)
        elif key == TYPE:
            kind = _check_name(TYPE, value)
        elif key == COMMAND:
            command = _check_name(COMMAND, value)
        elif key == CONDITION:
            condition = Condition.parse(value or b"")
    if version is None or kind is None:
        raise InvalidEvent(f"{VERSION if version is None else TYPE} is missing: a record of this topic is an event")
    if len(tags) > MAX_TAGS:
        raise InvalidEvent(f"it has {len(tags)} tags: give at most {MAX_TAGS}")
    category = _term(b"k", category_of(stream.decode()).encode())
    terms = (category, _term(b"t", kind), *dict.fromkeys(_term(b"g", tag) for tag in tags))
    return Event(stream, version, terms, command, condition)


def _read_version(value: bytes | None) -> int:
    if value is None or not _VERSION.fullmatch(value):
        raise InvalidEvent(f"{VERSION} is not a number from 1 on")
    return int(value)


def _check_name(what: str, value: bytes | None) -> bytes:
    if value is None or not 0 < len(value) <= MAX_NAME_BYTES:
        raise InvalidEvent(f"{what} has {len(value or b'')} bytes: give 1 to {MAX_NAME_BYTES}")
    if not value.isascii():
        try:
            value.decode()
        except UnicodeDecodeError:
            raise InvalidEvent(f"{what} is not UTF-8") from None
    return value


class Entry(NamedTuple):
    """Where a term occurs: `at` is the version of an event in its stream, and its offset for every other term."""

    term: Term
    at: int
    offset: int


def entries_of(events: Iterable[tuple[int, Event]]) -> Iterator[Entry]:
    """What is kept of the events of one batch, given with their offsets."""
    commands = set()
    for offset, event in events:
        yield Entry(stream_term(event.stream), event.version, offset)
        for term in event.terms:
            yield Entry(term, offset, offset)
        if event.command is not None and event.command not in commands:
            commands.add(event.command)  # all events of a command are in the batch of the first
            yield Entry(command_term(event.command), offset, offset)


# --- matching

Find = Callable[[Term, int, int], Sequence[tuple[int, int]]]  # of a term, from `at` on, so many: at, offset

_MOST_AHEAD = 512


class _Cursor:
    """The places of a term one after the other; more are read at a time the longer it is used."""

    def __init__(self, term: Term, find: Find) -> None:
        self._term, self._find = term, find
        self._ahead: Sequence[tuple[int, int]] = ()
        self._next = 0
        self._size = 1
        self._is_over = False

    def seek(self, offset: int) -> int | None:
        """The first place at an offset or behind it; offsets that are sought must ascend."""
        while True:
            while self._next < len(self._ahead):
                at = self._ahead[self._next][0]
                if at >= offset:
                    return at
                self._next += 1
            if self._is_over:
                return None
            self._ahead, self._next = self._find(self._term, offset, self._size), 0
            self._is_over = len(self._ahead) < self._size
            self._size = min(self._size * 8, _MOST_AHEAD)


def find_matches(query: Query, find: Find, offset: int) -> Generator[int | None, None, None]:
    """The offsets of events that match a query, from an offset on, ascending; None now and then, for a pause.

    A criterion without terms matches everything, and is not for here.
    """
    groups = [[[_Cursor(term, find) for term in terms] for terms in each.alternatives] for each in query]
    while True:
        places = []
        for criterion in groups:
            place = yield from _seek_criterion(criterion, offset)
            if place is not None:
                places.append(place)
        if not places:
            return
        yield min(places)
        offset = min(places) + 1


def _seek_criterion(criterion: list[list[_Cursor]], offset: int) -> Generator[None, None, int | None]:
    """The first offset at which all groups have a term: whichever is behind leaps to where the others are."""
    while True:
        furthest = offset
        for group in criterion:
            places = [place for cursor in group if (place := cursor.seek(furthest)) is not None]
            if not places:
                return None
            furthest = max(furthest, min(places))
        if furthest == offset:
            return offset
        yield None
        offset = furthest


def find_versions(term: Term, find: Find, first: int, last: int) -> Iterator[int]:
    """The offsets of a stream's events between two versions."""
    while first <= last:
        places = find(term, first, min(_MOST_AHEAD, last - first + 1))
        if not places:
            return
        yield from (offset for version, offset in places if version <= last)
        first = places[-1][0] + 1


# --- checking an append


class EventConflict(HeadraceError):
    """Events that cannot be appended, since others were appended before them."""


class VersionConflict(EventConflict):
    """A stream is not at the version that comes before an event."""

    def __init__(self, stream: str, expected: int, actual: int) -> None:
        super().__init__(
            f"stream {stream!r} is at version {actual}, and the append expects version {expected}: another writer was "
            "first"
        )
        self.stream, self.expected, self.actual = stream, expected, actual


class ConditionConflict(EventConflict):
    """An event matches the condition of an append."""

    def __init__(self, condition: Condition, offset: int) -> None:
        super().__init__(
            f"the event at offset {offset} matches the append's condition, which holds from offset "
            f"{condition.offset} on: another writer was first"
        )
        self.offset = offset


class Lookup(Protocol):
    """What is known of the events of a log."""

    @property
    def end(self) -> int:
        """The offset that the next event will have, or a smaller one."""
        ...

    def find(self, term: Term, at: int, limit: int) -> Sequence[tuple[int, int]]: ...

    def find_last(self, term: Term) -> int:
        """The last place of a term; 0 if there is none."""
        ...


_CHECKS_A_STEP: Final = 16


def check_append(events: Sequence[Event], known: Lookup) -> Generator[None, None, int | None]:
    """Raise `EventConflict` if events are not the next ones; the offset of the first if their commands are known.

    All of them are one append. It is done in steps, between which nothing may be appended.
    """
    repeated = yield from _find_commands(events, known)
    if repeated is not None:
        return repeated
    for event in events:
        if event.condition is not None:
            yield from _check_condition(event.condition, known)
    versions: dict[bytes, int] = {}
    for event in events:
        stream = event.stream
        if stream not in versions:
            versions[stream] = known.find_last(stream_term(stream))
            if not len(versions) % _CHECKS_A_STEP:
                yield
        if event.version != versions[stream] + 1:
            raise VersionConflict(stream.decode(), event.version - 1, versions[stream])
        versions[stream] += 1
    return None


def _find_commands(events: Sequence[Event], known: Lookup) -> Generator[None, None, int | None]:
    offsets = []
    commands = dict.fromkeys(event.command for event in events if event.command is not None)
    for number, command in enumerate(commands, start=1):
        if not number % _CHECKS_A_STEP:
            yield
        offsets += [offset for _, offset in known.find(command_term(command), 0, 1)]
    if not offsets:
        return None
    if len(offsets) < len(commands) or any(event.command is None for event in events):
        raise EventConflict(
            "some commands of the batch were appended before, and some were not: send each in a batch of its own"
        )
    return min(offsets)


def _check_condition(condition: Condition, known: Lookup) -> Generator[None, None, None]:
    if any(not criterion.alternatives for criterion in condition.query):  # which everything matches
        if condition.offset < known.end:
            raise ConditionConflict(condition, known.end - 1)
        return
    for offset in find_matches(condition.query, known.find, condition.offset):
        if offset is not None:
            raise ConditionConflict(condition, offset)
        yield
