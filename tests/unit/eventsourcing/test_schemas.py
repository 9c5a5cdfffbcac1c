"""Recorded schemas: what today's classes could not read is one sentence each, and what does no harm passes."""

from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest

from headrace.eventsourcing import EventTypes, Form, MemoryStore, NewEvent, StreamAppend
from headrace.eventsourcing.errors import EventSourcingError, UnsupportedFormat
from headrace.eventsourcing.schemas import check_stored, compare, read_schemas, schema_of, write_schemas
from headrace.testing import check_event_schemas


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class OnlyRed(Enum):
    RED = "red"


@dataclass(frozen=True)
class Line:
    item: str
    price: Decimal


@dataclass(frozen=True)
class OtherLine:
    item: str
    price: Decimal | None = None
    rebate: int = 0


@dataclass(frozen=True)
class ShortLine:
    item: str


def types_with(*fields: Any, version: int = 1, name: str = "placed", **more: Any) -> EventTypes:
    types = EventTypes()
    types.event(name, version=version, **more)(make_dataclass("Placed", fields, frozen=True))
    return types


def default(value: Any) -> Any:
    return field(default=value)


BEFORE = [("order", str), ("amount", int), ("note", str, default(""))]


def broken(before: EventTypes, after: EventTypes) -> list[str]:
    return compare(compare({}, before).recorded, after).broken


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (BEFORE[:2], "field 'note' is gone"),
        ([BEFORE[0], ("sum", int, default(0)), BEFORE[2]], "field 'amount' is gone, perhaps renamed to 'sum'"),
        ([BEFORE[0], ("amount", str), BEFORE[2]], "field 'amount' was int and is str"),
        ([*BEFORE[:2], ("payer", str), BEFORE[2]], "field 'payer' is new and has no default"),
        ([*BEFORE[:2], ("note", str)], "field 'note' has no default any more"),
    ],
)
def test_a_change_that_breaks_what_is_stored(fields: list[Any], reason: str) -> None:
    [sentence, *_] = broken(types_with(*BEFORE), types_with(*fields))
    assert sentence.startswith(f"event 'placed': {reason}")
    assert sentence.endswith("raise its version to 2 and add @upcast('placed', 1)")


@pytest.mark.parametrize(
    "fields",
    [
        BEFORE, [*BEFORE, ("payer", str, default(""))], [BEFORE[0], ("amount", int | None), BEFORE[2]],
        [BEFORE[0], ("amount", float), BEFORE[2]], [BEFORE[0], ("amount", Any), BEFORE[2]],
        [BEFORE[1], BEFORE[0], BEFORE[2]], [("order", str, default("")), ("amount", int, default(0)), BEFORE[2]],
    ],
)  # fmt: skip
def test_a_change_that_does_no_harm(fields: list[Any]) -> None:
    assert broken(types_with(*BEFORE), types_with(*fields)) == []


@pytest.mark.parametrize(
    ("then", "now", "reason"),
    [
        (int, int | str, ""), (int | str, int, "'x' was str and is int"), (str | None, str, "was None and is str"),
        (Literal["a"], Literal["a", "b"], ""), (Literal["a", "b"], Literal["a"], "could be 'b' and cannot any more"),
        (Colour, OnlyRed, "field 'x' could be 'blue' and cannot any more"), (OnlyRed, Colour, ""), (Colour, str, ""),
        (list[Line], list[OtherLine], ""), (list[OtherLine], list[Line], "field 'x[].price' was None"),
        (dict[str, Line], dict[str, ShortLine], "field 'x[].price' is gone"),
        (tuple[int, str], tuple[int, int], "field 'x[1]' was str and is int"),
        (tuple[int, int], tuple[int], "was tuple[int, int] and is tuple[int]"), (set[int], list[int], ""),
        (tuple[int, ...], frozenset[int], ""), (list[int], dict[str, int], "was list[int] and is dict[int]"),
        (dict[str, int], dict[int, int], "was dict[int] and is dict[int, int]"), (date, str | date, "be read as str"),
        (date, date | datetime, "be read as datetime"), (date, date | None, ""), (str, str | date, ""),
        (Any, int, "was any and is int"), (Line, str, "was an object and is str"), (Decimal, str, "was Decimal and is"),
    ],
)  # fmt: skip
def test_types_are_compared_by_what_is_stored(then: Any, now: Any, reason: str) -> None:
    found = broken(types_with(("x", then)), types_with(("x", now)))
    assert bool(found) == bool(reason)
    assert not reason or reason in found[0]


def test_a_field_that_was_personal_stays_so() -> None:
    fields = [("who", str), ("name", str)]
    plain, personal = types_with(*fields), types_with(*fields, subject="who", personal={"name": "?"})
    assert "field 'name' is not personal any more" in broken(personal, plain)[0]
    assert not broken(plain, personal)
    assert not broken(personal, personal)


def test_a_class_inside_itself() -> None:
    @dataclass(frozen=True)
    class Node:
        name: str
        inner: "list[Node]" = field(default_factory=list)

    Node.__annotations__["inner"] = list[Node]
    assert schema_of(Node)["inner"]["type"] == {"list": {"inside": 0}}
    assert broken(types_with(("x", Node)), types_with(("x", Node))) == []


def test_a_new_version_needs_a_step_from_each_that_was_recorded() -> None:
    first = compare({}, types_with(*BEFORE))
    after = types_with(("order", str), version=3)
    assert compare(first.recorded, after).broken == [
        f"event 'placed': version 1 may be stored, and @upcast('placed', {step}) is missing: add it" for step in (1, 2)
    ]
    after.upcast("placed", 1)(lambda fields: fields)
    after.upcast("placed", 2)(lambda fields: fields)
    second = compare(first.recorded, after)
    assert second.broken == []
    assert second.new == ["event 'placed': version 3 is new"]
    assert sorted(second.recorded["placed"]) == ["1", "3"]
    # What was recorded once is not forgotten.
    assert (
        "@upcast('placed', 1) is missing" in compare(second.recorded, types_with(("order", str), version=3)).broken[0]
    )
    [lowered] = [each for each in compare(second.recorded, types_with(*BEFORE)).broken if "never lower" in each]
    assert lowered.startswith("event 'placed': version 3 was recorded, and the code has 1")


def test_an_event_that_is_gone() -> None:
    before = types_with(*BEFORE)
    [sentence] = broken(before, EventTypes())
    assert sentence.startswith("event 'placed': its class is gone, and version 1 of it may be stored")
    assert broken(before, types_with(*BEFORE, name="ordered", formerly=["placed"])) == []
    [sentence] = broken(before, types_with(BEFORE[0], name="ordered", formerly=["placed"]))[:1]
    assert "field 'amount' is gone" in sentence
    elsewhere = types_with(*BEFORE, name="ordered")
    elsewhere.upcast("placed", 1)(lambda fields: Form("ordered", fields))
    assert broken(before, elsewhere) == []


def test_the_file(tmp_path: Path) -> None:
    file, types = tmp_path / "events.json", types_with(*BEFORE)
    with pytest.raises(EventSourcingError, match=r"there is no file .*events.json: record the schemas"):
        read_schemas(file)
    write_schemas(file, compare({}, types).recorded)
    assert read_schemas(file) == compare({}, types).recorded
    assert compare(read_schemas(file), types).new == []
    check_event_schemas(file, types)
    with pytest.raises(AssertionError, match="field 'amount' is gone"):
        check_event_schemas(file, types_with(BEFORE[0]))
    written = file.read_text()
    for damage, reason in (("{", "JSONDecodeError"), ("[]", "TypeError"), ('{"format": 1, "events": 7}', "Attribute")):
        file.write_text(damage)
        with pytest.raises(EventSourcingError, match=f"does not hold the schemas of events .*{reason}"):
            read_schemas(file)
    file.write_text(written.replace('"format": 1', '"format": 2'))
    with pytest.raises(UnsupportedFormat, match="has format 2, and this Headrace knows formats up to 1"):
        read_schemas(file)


def test_samples_of_what_is_stored() -> None:
    types = types_with(*BEFORE)
    store = MemoryStore()

    def add(kind: str, data: bytes, number: int = 1, **more: Any) -> None:
        store.append([StreamAppend("order-1", [NewEvent(kind, data, **more) for _ in range(number)])])

    add("placed", b'{"order":"a","amount":1}', 50)
    add("placed", b'{"order":"a"}', 5, schema=2)
    add("gone", b"{}", 3)
    add("placed", b'{"order":"a","amount":"x"}')  # the last of its kind
    found = {(each.type, each.version): (each.events, each.problem) for each in check_stored(store.read(), types, 2)}
    assert found["placed", 1][0] == 51
    assert "event 59 of stream 'order-1'" in found["placed", 1][1]
    assert "version 2 of 'placed', and this code knows versions up to 1" in found["placed", 2][1]
    assert "the type 'gone', which is not registered" in found["gone", 1][1]
    assert all(not each.problem for each in check_stored(store.read(to=50), types))


def test_many_events_are_not_all_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    types, decoded = types_with(*BEFORE), list[int]()
    decode_all: Callable[..., Any] = types.decode_all
    monkeypatch.setattr(types, "decode_all", lambda event: decoded.append(event.version) or decode_all(event))
    store = MemoryStore()
    store.append([StreamAppend("a", [NewEvent("placed", b'{"order":"a","amount":1}') for _ in range(100)])])
    check_stored(store.read(), types, 3)
    assert decoded == [1, 2, 3, 98, 99, 100]
