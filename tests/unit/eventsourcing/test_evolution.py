"""Events of older, newer and unknown forms: they become those of today step by step, or the error names the event."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.eventsourcing import Aggregate, EventTypes, Form, MemoryStore, NewEvent, Repository, StoredEvent
from headrace.eventsourcing.errors import (
    InvalidCommand,
    InvalidEventType,
    UndecodableEvent,
    UnknownEventType,
    UnknownEventVersion,
)
from headrace.eventsourcing.model import StreamAppend


@dataclass(frozen=True)
class Moved:
    x: int
    y: int = 0


@dataclass(frozen=True)
class Turned:
    degrees: int


def stored(kind: str, data: bytes, schema: int = 1) -> StoredEvent:
    return StoredEvent(9, "robot-1", 4, kind, schema, data, "id", 0, (), "", "", "", {})


@pytest.fixture
def types() -> EventTypes:
    types = EventTypes()
    types.event("moved", version=3, formerly=["went"])(Moved)
    types.event("turned")(Turned)
    return types


def test_a_step_that_is_missing_is_not_guessed(types: EventTypes) -> None:
    types.upcast("moved", 1)(lambda fields: {"x": fields["at"]})
    with pytest.raises(
        UndecodableEvent, match=r"event 4 of stream 'robot-1' .*version 2 of 'moved' .* add @upcast\('moved', 2\)"
    ):
        types.decode(stored("moved", b'{"at":1}'))
    types.upcast("moved", 2)(lambda fields: fields | {"y": 7})
    assert types.decode(stored("moved", b'{"at":1}')) == Moved(1, 7)


def test_an_event_of_newer_code_is_not_read_by_older(types: EventTypes) -> None:
    """Its fields might fit by chance."""
    with pytest.raises(
        UnknownEventVersion, match="version 4 of 'moved', and this code knows versions up to 3"
    ) as error:
        types.decode(stored("moved", b'{"x":1}', 4))
    assert (error.value.kind, error.value.found, error.value.known) == ("moved", 4, 3)


def test_an_event_may_change_its_name(types: EventTypes) -> None:
    assert types.decode(stored("went", b'{"x":1}', 3)) == Moved(1)
    types.upcast("moved", 2)(lambda fields: {"x": fields["x"] * 10})
    assert types.decode(stored("went", b'{"x":1}', 2)) == Moved(10)
    types.upcast("went", 1)(lambda fields: {"x": fields["x"] + 1})
    assert types.decode(stored("went", b'{"x":1}')) == Moved(20)
    assert types.encode(Moved(1)).type == "moved"


def test_an_event_may_become_another_type_or_several_or_none(types: EventTypes) -> None:
    types.upcast("spun", 1)(lambda fields: Form("turned", {"degrees": fields["turns"] * 360}))
    types.upcast("turned-and-moved", 1)(
        lambda fields: [Form("turned", {"degrees": fields["d"]}), Form("moved", {"x": fields["x"]}, 2)]
    )
    types.upcast("moved", 2)(lambda fields: {"x": fields["x"], "y": 1})
    types.upcast("pinged", 1)(lambda _: [])
    assert types.decode(stored("spun", b'{"turns":2}')) == Turned(720)
    both = stored("turned-and-moved", b'{"d":90,"x":3}')
    assert types.decode_all(both) == (Turned(90), Moved(3, 1))
    assert types.decode_all(stored("pinged", b"{}")) == ()
    assert types.decode_all(stored("turned", b'{"degrees":1}')) == (Turned(1),)


@pytest.mark.parametrize(
    ("upcast", "reason"),
    [
        (lambda _: None, r"returned None: return fields, a Form, or a list"),
        (lambda fields: fields["missing"], "no field 'missing'"),
        (lambda fields: Form("moved", fields, 1), "go in a circle"),
        (lambda _: {"y": 1}, "no field 'x'"),
        (lambda fields: fields.clear() or 1 / 0, "division by zero"),
    ],
)
def test_an_upcast_that_fails_names_the_event(types: EventTypes, upcast: Callable[[Any], Any], reason: str) -> None:
    types.upcast("moved", 1)(upcast)
    types.upcast("moved", 2)(lambda fields: fields)
    with pytest.raises(UndecodableEvent, match=rf"event 4 of stream 'robot-1' \(position 9\).*{reason}"):
        types.decode(stored("moved", b'{"at":1}'))


def test_an_upcast_to_what_is_unknown(types: EventTypes) -> None:
    types.upcast("spun", 1)(lambda _: Form("danced", {}))
    with pytest.raises(UnknownEventType, match="has the type 'danced'"):
        types.decode(stored("spun", b"{}"))
    with pytest.raises(UnknownEventType, match="has the type 'spun'"):
        types.decode(stored("spun", b"{}", 2))


def test_declarations_that_contradict_each_other(types: EventTypes) -> None:
    def other(fields: dict[str, Any]) -> dict[str, Any]:
        return fields

    types.upcast("moved", 1)(lambda fields: fields)
    with pytest.raises(InvalidEventType, match="'moved' has two upcasts of version 1"):
        types.upcast("moved", 1)(other)
    with pytest.raises(InvalidEventType, match="version 0 to upcast"):
        types.upcast("moved", 0)(other)
    with pytest.raises(InvalidEventType, match="formerly 'moved', which is another event"):
        types.event("jumped", formerly=["moved"])(Turned)
    with pytest.raises(InvalidEventType, match="give a list"):
        types.event("jumped", formerly="moved")(Turned)
    with pytest.raises(InvalidEventType, match="what 'moved' was formerly"):
        types.event("went")(Turned)


# --- in a fold


@dataclass(frozen=True)
class Robot:
    x: int = 0
    turned: int = 0


def robots(types: EventTypes, **more: Any) -> Aggregate[Robot]:
    robot = Aggregate("robot", Robot, types=types, **more)

    @robot.evolve
    def moved(state: Robot, event: Moved) -> Robot:
        return Robot(state.x + event.x, state.turned)

    @robot.evolve
    def turned(state: Robot, event: Turned) -> Robot:
        return Robot(state.x, state.turned + event.degrees)

    return robot


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    events = [
        NewEvent("moved", b'{"x":1}', schema=3), NewEvent("danced", b"?"), NewEvent("moved", b"{}", schema=4),
        NewEvent("both", b"{}"), NewEvent("pinged", b"{}"), NewEvent("danced", b"!"),
    ]  # fmt: skip
    store.append([StreamAppend("robot-1", events)])
    return store


def test_a_fold_of_what_was_split(types: EventTypes) -> None:
    types.upcast("both", 1)(lambda _: [Form("turned", {"degrees": 5}), Form("moved", {"x": 2}, 3)])
    types.upcast("pinged", 1)(lambda _: [])
    store = MemoryStore()
    store.append(
        [StreamAppend("robot-1", [NewEvent("both", b"{}"), NewEvent("both", b"{}"), NewEvent("pinged", b"{}")])]
    )
    loaded = Repository(store).load(robots(types), "1")
    assert (loaded.state, loaded.version, loaded.unknown) == (Robot(4, 10), 3, {})


def test_a_fold_stops_at_what_is_unknown(types: EventTypes, store: MemoryStore) -> None:
    with pytest.raises(UnknownEventType, match=r"event 2 of stream 'robot-1' .* 'danced'"):
        Repository(store).load(robots(types), "1")
    assert Repository(store).load(robots(types), "1", to=1).state == Robot(1)


def test_what_is_unknown_is_kept_and_counted_if_that_is_wanted(types: EventTypes, store: MemoryStore) -> None:
    loaded = Repository(store).load(robots(types, unknown="keep"), "1")
    assert loaded.state == Robot(1)
    assert loaded.version == 6
    assert loaded.unknown == Counter(danced=2, moved=1, both=1, pinged=1)
    assert [each.data for each in store.read_stream("robot-1")][1] == b"?"
    with pytest.raises(InvalidCommand, match="unknown='ignore' is not possible"):
        robots(types, unknown="ignore")


def test_an_event_that_does_not_decode_is_never_kept(types: EventTypes) -> None:
    store = MemoryStore()
    store.append([StreamAppend("robot-1", [NewEvent("turned", b'{"degrees":"x"}')])])
    store.append([StreamAppend("robot-2", [NewEvent("turned", b'{"degrees":1}')])])
    repository, robot = Repository(store), robots(types, unknown="keep")
    with pytest.raises(UndecodableEvent, match="event 1 of stream 'robot-1'"):
        repository.load(robot, "1")
    assert repository.load(robot, "2").state == Robot(0, 1)
