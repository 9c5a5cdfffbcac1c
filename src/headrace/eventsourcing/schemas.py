"""What the event classes looked like when they were recorded, in a file that is committed, and whether today's code can
still read what they wrote.

A record has each event's versions with their fields. Of a version, fields with a default may be added, and a type may
take more than it did; anything else needs a new version, with an upcast from each one that was recorded. Types are
compared by what is stored of them: a class inside an event counts by its fields, an enum by its values. Pure.
"""

import dataclasses
import json
from collections.abc import Container, Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from headrace.eventsourcing.errors import EventSourcingError, UndecodableEvent, UnknownEventType, UnsupportedFormat
from headrace.eventsourcing.event_types import EventType, EventTypes
from headrace.eventsourcing.model import StoredEvent

FORMAT: Final = 1
_NOT_TEXTS: Final = ("any", "none", "bool", "int", "float")  # in JSON; other types without parts are
_MOMENTS: Final = ("date", "datetime")  # a text may be either
Schema = Mapping[str, Any]  # of one version: its fields, each with a type and whether it must be there
Recorded = Mapping[str, Mapping[str, Schema]]  # by the event's name and version


class Check(NamedTuple):
    """What came of a comparison: what is broken, one sentence each, and what is new and does no harm."""

    broken: list[str]
    new: list[str]
    recorded: dict[str, dict[str, Schema]]  # what is to be written


# --- types, as the file has them


def schema_of(cls: Any, personal: Container[str] = ()) -> Schema:
    """The fields of a dataclass; those that are sealed when they are stored say so."""
    fields = _fields_of(cls, ())
    return {name: each | {"personal": True} if name in personal else each for name, each in fields.items()}


def _schema_of_type(kind: EventType) -> Schema:
    return schema_of(kind.cls, () if kind.personal is None else kind.personal.stand_ins)


def _fields_of(cls: Any, inside: tuple[Any, ...]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {
        each.name: {
            "type": _type_of(hints[each.name], (*inside, cls)),
            "required": each.default is each.default_factory is dataclasses.MISSING,
        }
        for each in dataclasses.fields(cls)
        if each.init
    }


def _type_of(kind: Any, inside: tuple[Any, ...]) -> Any:
    if kind is Any or kind is object:
        return "any"
    if kind is None or kind is NoneType:
        return "none"
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        options = [_type_of(each, inside) for each in arguments]
        return {"one of": sorted(options, key=json.dumps)}
    if origin is Literal:
        return {"values": list(arguments)}
    if origin is tuple and arguments[1:] != (Ellipsis,) and arguments:
        return {"tuple": [_type_of(each, inside) for each in arguments]}
    if origin in (list, set, frozenset, tuple):
        return {"list": _type_of(arguments[0], inside) if arguments else "any"}
    if origin in (dict, Mapping):
        if arguments and _type_of(arguments[0], inside) not in ("str", "any"):
            return str(kind)  # keys are texts in JSON, and are read as nothing else
        return {"dict": _type_of(arguments[1], inside) if arguments else "any"}
    if hasattr(kind, "__supertype__"):
        return _type_of(kind.__supertype__, inside)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"values": [each.value for each in kind]}
    if dataclasses.is_dataclass(kind):
        return {"inside": inside.index(kind)} if kind in inside else {"fields": _fields_of(kind, inside)}
    return getattr(kind, "__name__", str(kind))


# --- whether today's type reads what another wrote


def _misfits(now: Any, then: Any, where: str) -> Iterator[str]:
    """Why values that were stored as `then` could not be read as `now`, or would not mean the same."""
    if now in (then, "any") or (now, then) == ("float", "int"):
        return
    if isinstance(then, dict) and "one of" in then:
        for each in then["one of"]:
            yield from _misfits(now, each, where)
    elif isinstance(now, dict) and "one of" in now:
        if not any(not list(_misfits(each, then, where)) for each in now["one of"]):
            yield f"field {where!r} was {_shown(then)} and is {_shown(now)}"
        elif wrong := _read_first(now["one of"], then):
            yield f"field {where!r} was {_shown(then)} and would be read as {wrong}"
    elif isinstance(now, dict) and isinstance(then, dict) and now.keys() == then.keys() and "inside" not in now:
        yield from _misfits_inside(now, then, where)
    elif now == "str" and isinstance(then, dict) and all(isinstance(each, str) for each in then.get("values", (0,))):
        return
    else:
        yield f"field {where!r} was {_shown(then)} and is {_shown(now)}"


def _read_first(options: list[Any], then: Any) -> str:
    """The option as which values of a type would be read instead, since they are stored as texts; mostly none."""
    if not isinstance(then, str) or then in _NOT_TEXTS or then == "str":
        return ""
    others = ["str", *(_MOMENTS if then in _MOMENTS else ())]
    return next((each for each in others if each != then and each in options), "")


def _misfits_inside(now: Any, then: Any, where: str) -> Iterator[str]:
    if "values" in now:
        if gone := [each for each in then["values"] if each not in now["values"]]:
            yield f"field {where!r} could be {', '.join(map(repr, gone))} and cannot any more"
    elif "tuple" in now:
        if len(now["tuple"]) != len(then["tuple"]):
            yield f"field {where!r} was {_shown(then)} and is {_shown(now)}"
        else:
            for number, (one, other) in enumerate(zip(now["tuple"], then["tuple"], strict=True)):
                yield from _misfits(one, other, f"{where}[{number}]")
    elif "fields" in now:
        yield from _changed_fields(now["fields"], then["fields"], f"{where}.")
    else:
        [(name, inner)] = now.items()
        yield from _misfits(inner, then[name], f"{where}[]")


def _changed_fields(now: Schema, then: Schema, prefix: str = "") -> Iterator[str]:
    """What keeps fields of today from being read from those that were stored."""
    added = [name for name in now if name not in then]
    for name, was in then.items():
        if name not in now:
            hint = f", perhaps renamed to {added[0]!r}" if len(added) == 1 else ""
            yield f"field '{prefix}{name}' is gone{hint}"
        else:
            yield from _misfits(now[name]["type"], was["type"], f"{prefix}{name}")
            if was.get("personal") and not now[name].get("personal"):
                yield f"field '{prefix}{name}' is not personal any more, and what is stored of it stays sealed"
            if now[name]["required"] and not was["required"]:
                yield f"field '{prefix}{name}' has no default any more, and events may be stored without it"
    for name in added:
        if now[name]["required"]:
            yield f"field '{prefix}{name}' is new and has no default, and stored events do not have it"


def _shown(kind: Any) -> str:
    """A type of the file as Python writes it."""
    if not isinstance(kind, dict):
        return "None" if kind == "none" else str(kind)
    [(name, inner)] = kind.items()
    if name == "one of":
        return " | ".join(map(_shown, inner))
    if name == "values":
        return f"one of {', '.join(map(repr, inner))}"
    if name == "tuple":
        return f"tuple[{', '.join(map(_shown, inner))}]"
    return "an object" if name in ("fields", "inside") else f"{name}[{_shown(inner)}]"


# --- a registry against the file


def compare(recorded: Recorded, types: EventTypes) -> Check:
    """Today's event classes with those that were recorded."""
    broken, new, written = list[str](), list[str](), dict[str, dict[str, Schema]]()
    for name in sorted({*recorded, *types.known}):
        versions, kind = recorded.get(name, {}), types.known.get(types.former.get(name, name))
        written[name] = dict(versions)
        for version in sorted(map(int, versions)):
            broken += _check_version(name, version, versions[str(version)], kind, types)
        if kind is not None and kind.name == name:
            now = _schema_of_type(kind)
            then = versions.get(str(kind.version))
            if then != now:
                new.append(f"event {name!r}: version {kind.version} {'is new' if then is None else 'has changed'}")
            written[name][str(kind.version)] = now
    return Check(broken, new, written)


def _check_version(name: str, version: int, then: Schema, kind: EventType | None, types: EventTypes) -> Iterator[str]:
    if kind is not None and version == kind.version:
        mend = f"raise its version to {version + 1} and add @upcast({name!r}, {version})"
        for change in _changed_fields(_schema_of_type(kind), then):
            yield f"event {name!r}: {change}: {mend}"
    elif kind is None and types.find_upcast(name, version) is None:
        yield (
            f"event {name!r}: its class is gone, and version {version} of it may be stored: bring it back, name it in "
            f"formerly=[{name!r}] of another, or say with @upcast({name!r}, {version}) what becomes of it"
        )
    elif kind is not None and version > kind.version:
        yield f"event {name!r}: version {version} was recorded, and the code has {kind.version}: never lower a version"
    elif kind is not None:
        for step in range(version, kind.version):
            if types.find_upcast(name, step) is None:
                missing = f"@upcast({name!r}, {step})"
                yield f"event {name!r}: version {version} may be stored, and {missing} is missing: add it"


def read_schemas(path: Path) -> Recorded:
    """What a file has recorded."""
    try:
        document = json.loads(path.read_text())
        found = document["format"]
        events: Recorded = document["events"]
        if found != FORMAT:
            raise UnsupportedFormat(f"file {path}", found, FORMAT)
        for versions in events.values():
            for version, fields in versions.items():
                int(version)
                for each in fields.values():
                    _ = each["type"], each["required"]
    except FileNotFoundError:
        raise EventSourcingError(
            f"there is no file {path}: record the schemas with headrace events schema write"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EventSourcingError(
            f"file {path} does not hold the schemas of events ({type(error).__name__}: {error}): restore it"
        ) from None
    return events


def write_schemas(path: Path, recorded: Recorded) -> None:
    """Record them, in an order that makes for short differences."""
    document = {"format": FORMAT, "events": {name: recorded[name] for name in sorted(recorded)}}
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


# --- stored events against the code


class Stored(NamedTuple):
    """What is in a store of one version of a type: how often, and why it cannot be read, if so."""

    type: str
    version: int
    events: int
    problem: str


def check_stored(events: Iterable[StoredEvent], types: EventTypes, samples: int = 10) -> list[Stored]:
    """Whether the first and the last events of each type and version can be read; the others are counted."""
    counts: dict[tuple[str, int], int] = {}
    problems: dict[tuple[str, int], str] = {}
    last: dict[tuple[str, int], list[StoredEvent]] = {}
    for event in events:
        key = (event.type, event.schema)
        counts[key] = number = counts.get(key, 0) + 1
        if number <= samples:
            _try(event, types, problems)
        else:
            kept = last.setdefault(key, [])
            kept.append(event)
            if len(kept) > 2 * samples:
                del kept[:samples]
    for kept in last.values():
        for event in kept[-samples:]:
            _try(event, types, problems)
    return [Stored(*key, count, problems.get(key, "")) for key, count in sorted(counts.items())]


def _try(event: StoredEvent, types: EventTypes, problems: dict[tuple[str, int], str]) -> None:
    key = (event.type, event.schema)
    if key not in problems:
        try:
            types.decode_all(event)
        except (UndecodableEvent, UnknownEventType) as error:
            problems[key] = str(error)
