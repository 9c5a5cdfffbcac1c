"""Event classes: registered by name, written as JSON, read back equal; what cannot be read back is not written."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NewType
from uuid import UUID

import pytest

from headrace.eventsourcing.errors import InvalidAppend, InvalidEventType, UndecodableEvent, UnknownEventType
from headrace.eventsourcing.event_types import EventTypes
from headrace.eventsourcing.model import NewEvent, StoredEvent

Owner = NewType("Owner", str)


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Line:
    item: str
    price: Decimal


@dataclass(frozen=True)
class Everything:
    text: str
    whole: int
    real: float
    truth: bool
    owner: Owner
    moment: datetime
    day: date
    wait: timedelta
    price: Decimal
    ident: UUID
    raw: bytes
    colour: Colour
    size: Literal["s", "m"]
    lines: list[Line]
    pair: tuple[int, Decimal]
    many: tuple[str, ...]
    kinds: frozenset[int]
    by_name: dict[str, Line]
    anything: Any
    perhaps: date | None = None
    either: int | str = 0
    later: list[int] = field(default_factory=list)


def whole(**changed: Any) -> Everything:
    values: dict[str, Any] = {
        "text": "ü\n\"'", "whole": 2**70, "real": 0.1, "truth": True, "owner": Owner("ann"),
        "moment": datetime(2026, 1, 2, 3, 4, 5, 678, UTC), "day": date(2026, 1, 2), "wait": timedelta(seconds=1.5),
        "price": Decimal("1.10"), "ident": UUID(int=7), "raw": b"\0\xff", "colour": Colour.RED, "size": "m",
        "lines": [Line("a", Decimal(1))], "pair": (1, Decimal("2.5")), "many": ("x", "y"), "kinds": frozenset({3, 1}),
        "by_name": {"b": Line("b", Decimal(2))}, "anything": {"a": [1, None]}, **changed,
    }  # fmt: skip
    return Everything(**values)


def stored(new: NewEvent, **changed: Any) -> StoredEvent:
    made = StoredEvent(
        9, "a-1", 4, new.type, new.schema, new.data, new.id, new.time_ms, new.tags, "", "", "", new.headers
    )
    return made._replace(**changed)


@pytest.fixture
def types() -> EventTypes:
    types = EventTypes()
    types.event("everything", tags=["owner", "size"])(Everything)
    return types


@pytest.mark.parametrize("changed", [{}, {"perhaps": date(2020, 1, 1), "either": "x", "later": [1]}])
def test_what_is_written_is_read_back(types: EventTypes, changed: dict[str, Any]) -> None:
    event = whole(**changed)
    new = types.encode(event, correlation_id="c")
    assert (new.type, new.schema, new.tags, new.correlation_id) == ("everything", 1, ("owner:ann", "size:m"), "c")
    assert types.decode(stored(new)) == event


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"whole": "1"}, "'1' is not int"),
        ({"whole": True}, "True is not int"),
        ({"text": None}, "None is not str"),
        ({"size": "xl"}, "'xl' is not one of"),
        ({"perhaps": "tomorrow"}, "is not datetime.date"),
        ({"anything": (1, 2)}, "another value"),
        ({"anything": {1: 2}}, "another value"),
        ({"real": float("nan")}, "JSON"),
        ({"anything": object()}, "a object has no form in JSON"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(types: EventTypes, changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidAppend, match=reason):
        types.encode(whole(**changed))


def test_a_class_that_is_not_registered(types: EventTypes) -> None:
    with pytest.raises(InvalidAppend, match="Line is not an event: declare it with @event"):
        types.encode(Line("a", Decimal(1)))


def test_an_event_that_cannot_be_read_names_its_place(types: EventTypes) -> None:
    new = types.encode(whole())
    with pytest.raises(UnknownEventType, match=r"event 4 of stream 'a-1' \(position 9\) has the type 'gone'"):
        types.decode(stored(new, type="gone"))
    for data, reason in ((b"{", "Expecting"), (b"[]", "not an object"), (b"{}", "no field 'text'"), (b"\xff", "utf-8")):
        with pytest.raises(UndecodableEvent, match=rf"event 4 of stream 'a-1' .*{reason}.*@upcast\('everything', 1\)"):
            types.decode(stored(new, data=data))


def test_older_forms_become_newer_ones_step_by_step() -> None:
    types = EventTypes()

    @types.event("moved", version=3)
    @dataclass(frozen=True)
    class Moved:
        x: int
        y: int = 0

    @types.upcast("moved", 1)
    def split(fields: dict[str, Any]) -> dict[str, Any]:
        x, y = fields["at"]
        return {"x": x, "z": y}

    @types.upcast("moved", 2)
    def rename(fields: dict[str, Any]) -> dict[str, Any]:
        return {"x": fields["x"], "y": fields["z"]}

    new = NewEvent("moved", b'{"at":[1,2]}')
    assert types.decode(stored(new)) == Moved(1, 2)
    assert types.decode(stored(new, schema=2, data=b'{"x":1,"z":5}')) == Moved(1, 5)
    assert types.decode(stored(new, schema=3, data=b'{"x":1,"removed":5}')) == Moved(1, 0)
    assert types.encode(Moved(1, 2)).schema == 3


def test_declarations_that_cannot_be_meant() -> None:
    types = EventTypes()

    class Plain:
        pass

    with pytest.raises(InvalidEventType, match="'Plain' is not a dataclass: put @dataclass"):
        types.event(Plain)
    with pytest.raises(InvalidEventType, match="no field 'ownr' to make a tag of: did you mean 'owner'"):
        types.event("e", tags=["ownr"])(Everything)
    with pytest.raises(InvalidEventType, match="give a list"):
        types.event("e", tags="owner")(Everything)
    with pytest.raises(InvalidEventType, match="count from 1 on"):
        types.event("e", version=0)(Everything)
    types.event("e")(Everything)
    with pytest.raises(InvalidEventType, match="two classes are event 'e', Everything and Line"):
        types.event("e")(Line)


def test_tags_by_a_function_and_a_name_by_the_class() -> None:
    types = EventTypes()
    types.event(Line)
    types.event("pair", tags=lambda event: (f"a:{event.text}", f"a:{event.text}", "b"))(Everything)
    assert types.encode(Line("a", Decimal(1))).type == "Line"
    assert types.encode(whole(text="x")).tags == ("a:x", "b")


def test_a_class_that_does_more_than_set_its_fields_is_made_by_its_constructor() -> None:
    types = EventTypes()

    @types.event("checked")
    @dataclass(frozen=True)
    class Checked:
        amount: int
        double: int = field(init=False, default=0)

        def __post_init__(self) -> None:
            if self.amount < 0:
                raise ValueError("below zero")
            object.__setattr__(self, "double", 2 * self.amount)

    @types.event("slotted")
    @dataclass(frozen=True, slots=True)
    class Slotted:
        amount: int

    @types.event("keywords")
    @dataclass(frozen=True, kw_only=True)
    class Keywords:
        amount: int
        rest: list[int] = field(default_factory=list)

    for made in (Checked(3), Slotted(3), Keywords(amount=3, rest=[1])):
        assert types.decode(stored(types.encode(made))) == made
    with pytest.raises(UndecodableEvent, match="below zero"):
        types.decode(stored(types.encode(Checked(3)), data=b'{"amount":-1}'))
    kept = stored(types.encode(Keywords(amount=3)), data=b' {"amount": 3, "removed": 1} ')
    assert types.decode(kept) == Keywords(amount=3)
    for data in (b'{"amount":3}x', b'{"amount":"3"}', b'{"amount":true}', b"3", b'["amount"]'):
        with pytest.raises(UndecodableEvent):
            types.decode(kept._replace(data=data))
