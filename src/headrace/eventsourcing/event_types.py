"""Event classes: plain dataclasses, registered under a name and a version, written as JSON and read by their fields.

    @event("account-opened", tags=["owner"])
    @dataclass(frozen=True)
    class AccountOpened:
        owner: str
        limit: Decimal = Decimal(0)

The name is what is stored, so a class can be renamed and moved; if the name itself is changed, `formerly` names what
there was before. Whoever changes what an event holds raises `version` and says with `@upcast` how the older form
becomes the newer one (`evolution.py`); a field that was added with a default needs neither.

Fields may be personal (`personal.py`): they are sealed with the keys that `use_keys` was given.

What always holds: what `encode` has written, `decode` reads as an equal object, unless it was redacted.
"""

import dataclasses
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, overload
from uuid import UUID

from headrace.delivery.redaction import REDACTION, STAND_IN
from headrace.errors import nearest
from headrace.eventsourcing.errors import (
    InvalidAppend,
    InvalidEventType,
    UndecodableEvent,
    UnknownEventType,
    UnknownEventVersion,
)
from headrace.eventsourcing.evolution import BrokenChain, Form, Several, Upcast, Upcasts
from headrace.eventsourcing.model import NewEvent, StoredEvent, check_name
from headrace.eventsourcing.personal import Marked, Personal, SubjectOf, declare_personal
from headrace.eventsourcing.traces import ARCHIVAL, ArchivalTrace, Redacted, RedactionTrace
from headrace.forgetting.errors import ForgettingError
from headrace.forgetting.keyring import Keyring

T = TypeVar("T")
C = TypeVar("C", bound=type)
Read = Callable[[Any], Any]
TagsOf = Callable[[Any], Iterable[str]]


@dataclass(frozen=True, slots=True)
class EventType:
    """A class under its name; `tags_of` are the tags of one object."""

    name: str
    version: int
    cls: type
    tags_of: TagsOf | None
    personal: Personal | None = None


class EventTypes:
    """A registry of event classes. Most programs need but the one that `@event` adds to."""

    def __init__(self) -> None:
        self._by_name: dict[str, EventType] = {}
        self._by_class: dict[type, EventType] = {}
        self._versions: dict[str, int] = {}
        self._former: dict[str, str] = {}  # names, and what they are now
        self._upcasts = Upcasts()
        self.keys: Keyring | None = None

    def use_keys(self, keys: Keyring | None) -> None:
        """Seal and open personal fields with these keys, in the whole program."""
        self.keys = keys

    @property
    def known(self) -> Mapping[str, EventType]:
        """What is registered, by name."""
        return self._by_name

    @property
    def former(self) -> Mapping[str, str]:
        """Names that events had before, and what they are now."""
        return self._former

    @property
    def upcasts(self) -> Mapping[tuple[str, int], Upcast]:
        """What `upcast` has registered, by type and version."""
        return self._upcasts.steps

    def find_upcast(self, name: str, version: int) -> Upcast | None:
        """What was registered for a version of an event, under its own name or the one it has today."""
        return self._upcasts.find(name, version, self._former)

    @overload
    def event(self, name: C, /) -> C: ...

    @overload
    def event(
        self,
        name: str = "",
        /,
        *,
        version: int = 1,
        tags: TagsOf | Iterable[str] = (),
        formerly: Iterable[str] = (),
        subject: SubjectOf | None = None,
        personal: Marked = (),
    ) -> Callable[[C], C]: ...

    def event(
        self,
        name: Any = "",
        /,
        *,
        version: int = 1,
        tags: TagsOf | Iterable[str] = (),
        formerly: Iterable[str] = (),
        subject: SubjectOf | None = None,
        personal: Marked = (),
    ) -> Any:
        """Register a dataclass, under its own name unless one is given.

        `tags` are names of fields, each of which makes a tag `field:value`, or a function that returns an event's tags.
        `formerly` are names that events of this class were stored under before. `personal` are fields that are sealed
        with the key of `subject`: a field, or a function of the event.
        """
        if isinstance(name, type):
            return self._register("", 1, (), (), None, (), name)
        tags = tags if callable(tags) or isinstance(tags, str) else list(tags)
        return partial(self._register, name, version, tags, formerly, subject, personal)

    def _register(
        self,
        name: str,
        version: int,
        tags: TagsOf | Iterable[str],
        formerly: Iterable[str],
        subject: SubjectOf | None,
        personal: Marked,
        cls: C,
    ) -> C:
        name = name or cls.__name__
        if isinstance(formerly, str):
            raise InvalidEventType(f"event {name!r}: formerly={formerly!r} is one text: give a list")
        if not dataclasses.is_dataclass(cls):
            raise InvalidEventType(f"event {name!r} is not a dataclass: put @dataclass(frozen=True) under @event")
        if version < 1:
            raise InvalidEventType(f"event {name!r} cannot have version {version}: count from 1 on")
        check_name("event type", name)
        known = self._by_name.get(name)
        if known is not None and (known.cls.__module__, known.cls.__qualname__) != (cls.__module__, cls.__qualname__):
            raise InvalidEventType(
                f"two classes are event {name!r}, {known.cls.__qualname__} and {cls.__qualname__}: name one differently"
            )
        sealed = declare_personal(name, cls, subject, personal, tags, dump, reader_of)
        registered = EventType(name, version, cls, _tags_of(name, cls, tags), sealed)
        for former in formerly:
            if former in self._by_name or self._former.get(former, name) != name:
                raise InvalidEventType(
                    f"event {name!r} was formerly {former!r}, which is another event: name one of them"
                )
        if name in self._former:
            raise InvalidEventType(f"event {name!r} is what {self._former[name]!r} was formerly: name it differently")
        self._by_name[name] = self._by_class[cls] = registered
        self._former |= dict.fromkeys(formerly, name)
        self._versions |= dict.fromkeys((name, *formerly), version)
        return cls

    def upcast(self, name: str, version: int) -> Callable[[Upcast], Upcast]:
        """Register what the fields of the form `version` become: those of the next version, or what else there is."""

        def register(function: Upcast) -> Upcast:
            self._upcasts.add(name, version, function)
            return function

        return register

    def name_of(self, cls: type) -> str:
        """The name under which events of a class are stored."""
        return self._kind_of(cls).name

    def _kind_of(self, cls: type) -> EventType:
        kind = self._by_class.get(cls)
        if kind is None:
            name, known = cls.__name__, [each.__name__ for each in self._by_class]
            raise InvalidAppend(f"{name} is not an event: declare it with @event; {nearest(name, known)}")
        return kind

    def encode(self, event: object, **more: Any) -> NewEvent:
        """An event to be appended; `more` are other fields of `NewEvent`, such as a correlation id."""
        kind = self._kind_of(type(event))
        tags = tuple(dict.fromkeys(kind.tags_of(event))) if kind.tags_of else ()
        data = _dump_readable(kind.cls, event, kind.personal)
        if kind.personal is not None:
            data = kind.personal.seal(kind.name, event, data, tags, self.keys)
        return NewEvent(kind.name, data, tags, kind.version, **more)

    def decode(self, stored: StoredEvent, opened: set[str] | None = None) -> Any:
        """The object that was stored, in its newest form; `Redacted` if its data was.

        `Several`, if an upcast has made several or none of it. `opened` gets the ids of keys that opened fields of it.
        """
        if stored.data.startswith(STAND_IN):
            return Redacted(stored.type, stored.stream, stored.version, stored.position)
        kind = self._by_name.get(stored.type) or _TRACES.get(stored.type)
        if kind is None or stored.schema != kind.version:
            return self._decode_older(stored, opened)
        try:
            fields = _parse(stored.data)
            if kind.personal is not None:
                fields = kind.personal.open(fields, self.keys, opened)
            return reader_of(kind.cls)(fields)
        except ForgettingError:
            raise
        except Exception as error:  # noqa: BLE001 - from JSON or a class: all say which event
            cause = error if kind.personal is None else None
            raise self._undecodable(stored, kind.cls.__qualname__, error, kind.personal) from cause

    def decode_all(self, stored: StoredEvent, opened: set[str] | None = None) -> tuple[Any, ...]:
        """What was stored, in its newest form: one object, unless an upcast makes several or none of it."""
        decoded = self.decode(stored, opened)
        return decoded if type(decoded) is Several else (decoded,)

    def _decode_older(self, stored: StoredEvent, opened: set[str] | None) -> Any:
        name = self._former.get(stored.type, stored.type)
        personal = self._by_name[name].personal if name in self._by_name else None
        if name not in self._by_name and (stored.type, stored.schema) not in self._upcasts.steps:
            raise UnknownEventType(stored.type, str(stored))
        try:
            fields = _parse(stored.data)
            if type(fields) is not dict:
                raise TypeError(f"{fields!r} is not an object with fields")
            if personal is not None:
                fields = personal.open(fields, self.keys, opened)
            forms = self._upcasts.run(Form(stored.type, fields, stored.schema), self._versions, self._former)
            found = Several(self._read_form(form, stored) for form in forms)
        except (UnknownEventType, ForgettingError):
            raise
        except BrokenChain as broken:
            raise UndecodableEvent(f"{stored} cannot be read: {broken}") from None
        except Exception as error:  # noqa: BLE001 - a user's upcast raises anything
            raise self._undecodable(stored, name, error, personal) from (error if personal is None else None)
        return found[0] if len(found) == 1 else found

    def _read_form(self, form: Form, stored: StoredEvent) -> Any:
        kind = self._by_name.get(self._former.get(form.type, form.type))
        if kind is None:
            raise UnknownEventType(form.type, str(stored))
        if form.version > kind.version:
            raise UnknownEventVersion(form.type, str(stored), form.version, kind.version)
        return reader_of(kind.cls)(form.fields)

    @staticmethod
    def _undecodable(stored: StoredEvent, name: str, error: Exception, personal: Personal | None) -> UndecodableEvent:
        return UndecodableEvent(
            f"{stored} cannot be read as {name} ({_reason(error, personal)}): give the class the fields that are "
            f"stored, or raise its version and convert them with @upcast({stored.type!r}, {stored.schema})"
        )


def _tags_of(name: str, cls: type, tags: TagsOf | Iterable[str]) -> TagsOf | None:
    if callable(tags):
        return tags
    if isinstance(tags, str):
        raise InvalidEventType(f"event {name!r}: tags={tags!r} is one text: give a list, as in tags=[{tags!r}]")
    names = list(tags)
    known = {each.name for each in dataclasses.fields(cls)}
    for each in names:
        if each not in known:
            raise InvalidEventType(f"event {name!r} has no field {each!r} to make a tag of: {nearest(each, known)}")
    return (lambda event: [f"{each}:{getattr(event, each)}" for each in names]) if names else None


def _reason(error: Exception, personal: Personal | None = None) -> str:
    if personal is not None and not isinstance(error, KeyError | InvalidAppend):
        return type(error).__name__  # its text may hold what nobody should read
    return f"no field {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__


# --- JSON, and back by the fields' types


def _default(value: Any) -> Any:
    """What JSON has no form for, as one that `reader_of` reads back."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


_encode: Final = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_default, check_circular=False
).encode


_scan: Final = json.JSONDecoder().raw_decode


def _parse(data: bytes) -> Any:
    """As `json.loads`, which decides what this does not read; it takes half the time, for what `dump` writes."""
    try:
        text = data.decode()
        value, end = _scan(text)
    except ValueError:
        return json.loads(data)
    return value if end == len(text) else json.loads(data)


def dump(value: Any) -> bytes:
    """A dataclass as JSON."""
    try:
        return _encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidAppend(
            f"{type(value).__name__} cannot be written as JSON ({error}): use numbers, texts, dates, decimals, UUIDs, "
            "enums, bytes, lists, dicts and dataclasses of these"
        ) from None


def _dump_readable(cls: Any, value: Any, personal: Personal | None) -> bytes:
    """As `dump`; refused if it cannot be read back, for once it is stored it is there for good."""
    data = dump(value)
    shown = repr(value) if personal is None else cls.__qualname__
    try:
        is_other = reader_of(cls)(_parse(data)) != value and cls.__dataclass_params__.eq
    except Exception as error:  # noqa: BLE001 - whatever a class raises for fields it does not take
        reason = f"could not be read back ({_reason(error, personal)})"
        cause = error if personal is None else None
        raise InvalidAppend(f"{shown} {reason}: mend its fields or their types") from cause
    if is_other:
        raise InvalidAppend(f"{shown} would be read back as another value: mend its fields or their types")
    return data


def load(cls: Callable[..., T], data: bytes) -> T:
    """An object of the class from its JSON."""
    try:
        loaded: T = reader_of(cls)(_parse(data))
    except Exception as error:  # whatever a class raises for fields it does not take
        raise UndecodableEvent(f"{cls} cannot be read ({_reason(error)})") from error
    return loaded


def _same(value: Any) -> Any:
    return value


_PLAIN: Final[Mapping[Any, tuple[type, ...]]] = {
    str: (str,), bool: (bool,), int: (int,), float: (float, int), NoneType: (NoneType,)
}  # fmt: skip
_FROM_TEXT: Final[Mapping[type, Read]] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    time: time.fromisoformat,
    Decimal: Decimal,
    UUID: UUID,
    bytes: partial(b64decode, validate=True),
}


_COMPILED: Final = (str, bool, int)


@lru_cache(maxsize=4096)
def reader_of(kind: Any) -> Read:
    """What makes a value of an annotated type from parsed JSON; wrong values and unsupported types raise."""
    if kind is Any or kind is object:
        return _same
    if kind in _PLAIN:
        return _plain_reader(kind, _PLAIN[kind])
    if kind in _FROM_TEXT:
        return _FROM_TEXT[kind]
    if kind is timedelta:
        return lambda value: timedelta(seconds=value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _class_reader(kind)
    return _generic_reader(kind)


def _plain_reader(kind: type, accepted: tuple[type, ...]) -> Read:
    def read(value: Any) -> Any:
        if type(value) not in accepted:
            raise TypeError(f"{value!r} is not {'None' if kind is NoneType else kind.__name__}")
        return value

    return read


def _generic_reader(kind: Any) -> Read:
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        options = [reader_of(each) for each in sorted(arguments, key=lambda each: each not in _PLAIN)]
        return partial(_first_that_reads, kind, options)
    if origin in (list, set, frozenset):
        each = reader_of(arguments[0]) if arguments else _same
        return lambda values: origin(map(each, values))
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            each = reader_of(arguments[0])
            return lambda values: tuple(map(each, values))
        readers = [reader_of(one) for one in arguments]
        return lambda values: tuple(read(value) for read, value in zip(readers, values, strict=True))
    if origin in (dict, Mapping):
        if arguments and arguments[0] is not str:
            raise TypeError(f"{kind} has keys that are not texts, which JSON cannot hold")
        each = reader_of(arguments[1]) if arguments else _same
        return lambda values: {key: each(value) for key, value in values.items()}
    if origin is Literal:
        return partial(_one_of, arguments)
    if hasattr(kind, "__supertype__"):  # a NewType
        return reader_of(kind.__supertype__)
    raise TypeError(f"a field of type {kind} cannot be read from JSON")


def _one_of(options: tuple[Any, ...], value: Any) -> Any:
    if value not in options:
        raise TypeError(f"{value!r} is not one of {options}")
    return value


def _first_that_reads(kind: Any, options: list[Read], value: Any) -> Any:
    for read in options:
        try:
            return read(value)
        except (TypeError, ValueError, ArithmeticError):
            continue
    raise TypeError(f"{value!r} is not {kind}")


def _class_reader(cls: type) -> Read:
    """Compiled for the class: all fields there, and of types that JSON has. What is not so goes to the exact reader."""
    hints = get_type_hints(cls)
    fields = [each for each in dataclasses.fields(cls) if each.init]
    readers = {each.name: reader_of(hints[each.name]) for each in fields}
    required = [each.name for each in fields if each.default is each.default_factory is dataclasses.MISSING]

    def read_exactly(stored: Any) -> Any:
        if type(stored) is not dict:
            raise TypeError(f"{stored!r} is not an object with fields")
        for name in required:
            if name not in stored:
                raise KeyError(name)
        return cls(**{name: read(stored[name]) for name, read in readers.items() if name in stored})

    plain = {number: hints[each.name] for number, each in enumerate(fields) if hints[each.name] in _COMPILED}
    taken = "".join(f"        f{number} = stored[{each.name!r}]\n" for number, each in enumerate(fields))
    fits = " and ".join(f"type(f{number}) is {kind.__name__}" for number, kind in plain.items())
    given = ", ".join(
        f"{each.name}={f'f{number}' if number in plain else f'readers[{each.name!r}](f{number})'}"
        for number, each in enumerate(fields)
    )
    result = f"        return cls({given})\n"
    if _is_made_by_its_fields(cls, fields):  # a frozen dataclass takes long to set its fields one by one
        result = f"        made = new(cls)\n        made.__dict__.update({given})\n        return made\n"
    source = (
        f"def read(stored):\n    try:\n{taken or '        pass'}\n    except (KeyError, TypeError):\n"
        f"        return read_exactly(stored)\n    if type(stored) is dict and {fits or True}:\n"
        f"{result}    return read_exactly(stored)\n"
    )
    space: dict[str, Any] = {"cls": cls, "new": object.__new__, "readers": readers, "read_exactly": read_exactly}
    exec(compile(source, f"<reader of {cls.__qualname__}>", "exec"), space)  # noqa: S102 - of fields' names only
    compiled: Read = space["read"]
    return compiled


def _is_made_by_its_fields(cls: Any, fields: list[Any]) -> bool:
    """Whether all that its constructor does is to set its fields."""
    return bool(
        cls.__dataclass_params__.init
        and len(cls.__dataclass_fields__) == len(fields)
        and cls.__new__ is object.__new__
        and not hasattr(cls, "__post_init__")
        and not any("__slots__" in vars(each) for each in cls.__mro__)
        and cls.__init__.__code__.co_filename == "<string>"
    )


_TRACES: Final = {
    name: EventType(name, 1, cls, None) for name, cls in ((REDACTION, RedactionTrace), (ARCHIVAL, ArchivalTrace))
}
"""Of every registry: they are in any stream."""

EVENT_TYPES: Final = EventTypes()
event = EVENT_TYPES.event
upcast = EVENT_TYPES.upcast
use_keys = EVENT_TYPES.use_keys
