"""Declarations of aggregates, fingerprints of folds, and the kit for testing decisions."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from functools import cache, partial, wraps
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypedDict

import pytest

from headrace.eventsourcing import Aggregate, Refused
from headrace.eventsourcing.command_shape import misfit
from headrace.eventsourcing.errors import InvalidAppend, InvalidCommand
from headrace.testing import given
from tests.unit.eventsourcing.bank import (
    Account,
    CheckIn,
    Deposit,
    Deposited,
    Open,
    Opened,
    Withdraw,
    Withdrawn,
    account,
    types,
)

FOLD = '''
from dataclasses import dataclass, field
from headrace.eventsourcing import Aggregate, EventTypes

types = EventTypes()
RATE = 2

@types.event(version=2)
@dataclass(frozen=True)
class Paid:
    amount: int
    currency: str = "EUR"

@types.upcast("Paid", 1)
def in_euros(fields):
    return {"amount": fields["cents"] // 100}

@dataclass(frozen=True)
class Line:
    item: str = ""

@dataclass(frozen=True)
class Total:
    paid: int = 0
    lines: dict[str, tuple[Line, ...]] = field(default_factory=dict)


def scaled(event):
    return event.amount * RATE if event.amount in {1, 2, 3} else 0

total = Aggregate("total", Total, types=types)

@total.evolve
def paid(state: Total, event: Paid) -> Total:
    """What was paid."""
    return Total(state.paid + scaled(event))
'''


def fingerprint(source: str) -> str:
    space: dict[str, Any] = {"__name__": "folds"}
    exec(compile(source, "folds.py", "exec"), space)  # the module's own name is what a package goes by
    total: Aggregate[Any] = space["total"]
    return total.fingerprint


def test_a_fold_is_known_by_its_code() -> None:
    first = fingerprint(FOLD)
    assert fingerprint(FOLD) == first
    assert (
        fingerprint(FOLD.replace("types = EventTypes()", "# a comment, and lines\n\n\ntypes = EventTypes()")) == first
    )
    for old, new in (
        ("state.paid + scaled", "state.paid - scaled"),
        ("RATE = 2", "RATE = 3"),
        ("{1, 2, 3}", "{1, 2, 4}"),
        ("else 0", "else 1"),
        ("paid: int = 0", "paid: int = 7"),
        ("    paid: int = 0", "    paid: int = 0\n    more: int = 0"),
        ("types=types)", "types=types, version=2)"),
        ('item: str = ""', 'item: str = ""\n    price: int = 0'),
        ("default_factory=dict", "default_factory=lambda: {1: 2}"),
        ('"EUR"', '"SEK"'),
        ("    amount: int\n", "    amount: int\n    payer: str = ''\n"),
        ("// 100", "// 10"),
        ('@types.upcast("Paid", 1)', "@(lambda function: function)"),
    ):
        assert old in FOLD
        assert fingerprint(FOLD.replace(old, new)) != first, new


def test_a_fold_has_one_fingerprint_in_all_processes(tmp_path: Path) -> None:
    (tmp_path / "folds.py").write_text(FOLD)
    printed = {
        subprocess.run(
            [sys.executable, "-c", "import folds; print(folds.total.fingerprint)"], cwd=tmp_path, text=True, check=True,
            capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(tmp_path)},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(printed) == 1


def test_declarations_that_cannot_be_meant() -> None:
    thing = Aggregate("thing", Account, types=types)
    with pytest.raises(InvalidCommand, match="whose type is annotated"):
        thing.decide(lambda state, command: None)
    with pytest.raises(InvalidCommand, match="whose type is annotated"):
        thing.decide(lambda state: None)

    async def later(state: Account, event: Opened) -> None: ...

    with pytest.raises(InvalidCommand, match="a fold cannot wait"):
        thing.evolve(later)

    @thing.evolve
    def first(state: Account, event: Opened) -> None: ...

    def second(state: Account, event: Opened | Deposited) -> None: ...

    with pytest.raises(InvalidCommand, match=r"two functions for Opened, .*first and .*second"):
        thing.evolve(second)
    with pytest.raises(InvalidCommand, match="has a dash in its name"):
        Aggregate("user-name", Account)


def test_given_when_then() -> None:
    given(account).when(Open("ann", gift=5)).then(Opened("ann"), Deposited(5)).then_state(Account("ann", 5))
    given(account, Opened("ann"), Deposited(5)).when(Withdraw(3)).then(Withdrawn(3)).then_state(Account("ann", 2))
    given(account, Opened("ann")).when(Withdraw(3)).then(Refused("there are only 0")).then_state(Account("ann"))
    given(account).when(CheckIn()).then(Deposited(1))
    given(account, Deposited(1)).when(CheckIn()).then()


def test_given_when_then_fails() -> None:
    with pytest.raises(AssertionError):
        given(account).when(Deposit(1)).then(Deposited(2))
    with pytest.raises(AssertionError):
        given(account).when(Deposit(1)).then()
    with pytest.raises(AssertionError, match="refused: there are only 0"):
        given(account).when(Withdraw(1)).then(Withdrawn(1))
    with pytest.raises(AssertionError, match="refused was expected"):
        given(account).when(Deposit(1)).then(Refused("no"))
    with pytest.raises(AssertionError):
        given(account).when(Withdraw(1)).then(Refused("another reason"))
    with pytest.raises(AssertionError):
        given(account).when(Deposit(1)).then_state(Account())

    @dataclass
    class Stray:
        pass

    with pytest.raises(InvalidAppend, match="Stray is not an event"):
        given(account, Stray()).when(Deposit(1))
    with pytest.raises(InvalidCommand, match="its field 'amount' is a str and not int"):
        given(account).when(Deposit("much"))  # type: ignore[arg-type]
    with pytest.raises(InvalidAppend, match="could not be read back"):
        given(account, Deposited("much")).when(Deposit(1))  # type: ignore[arg-type]


# --- commands of a wrong shape


@dataclass(frozen=True)
class Item:
    name: str
    price: Decimal


class Place(TypedDict):
    street: str


@dataclass(frozen=True)
class Order:
    customer: str = "ann"
    number: int = 1
    weight: float = 1
    items: list[Item] = field(default_factory=list)
    codes: tuple[str, ...] = ()
    place: tuple[float, float] | None = None
    notes: Mapping[str, int] = field(default_factory=dict)
    size: Literal["s", "m"] = "s"
    pages: Sequence[int] = ()
    extra: Any = None
    on_done: Callable[[], None] | None = None
    when: "datetime | date | None" = None
    sent_to: Place = field(default_factory=lambda: Place(street="x"))  # a type that no value can be asked for


def order_with(**fields: Any) -> str:
    return misfit(Order(**fields))


def test_fields_of_commands_are_of_their_types() -> None:
    assert order_with() == ""
    assert order_with(
        number=2**70, weight=2, items=[Item("a", Decimal(1))], codes=("x",), place=(1, 2.5), notes={"a": 1}, size="m",
        pages=[1], extra=object(), on_done=print, when=date(2026, 1, 1),
    ) == ""  # fmt: skip
    for name, wrong in {
        "customer": 7, "number": True, "weight": "1", "items": [Item("a", 1)], "codes": "xyz", "place": (1.0,),  # type: ignore[arg-type]
        "notes": {"a": "b"}, "size": "l", "pages": "12", "when": "today",
    }.items():  # fmt: skip
        assert order_with(**{name: wrong}).startswith(f"its field {name!r} is a {type(wrong).__name__} and not "), name
    assert order_with(items=["a"]) == f"its field 'items' is a list and not list[{__name__}.Item]"
    assert misfit(object()) == ""


_STATE = "@dataclass\nclass State:\n    number: int = 0\n"
_CHANGED = {
    "a decimal": ("RATE = Decimal(#)", "RATE"),
    "a dict": ("RATES = {'a': #}", "RATES['a']"),
    "a set": ("RATES = {#}", "max(RATES)"),
    "an enum": ("class Rate(Enum):\n    A = #", "Rate.A.value"),
    "a dataclass": ("@dataclass\nclass Rate:\n    value: int\nRATE = Rate(#)", "RATE.value"),
    "a module's": ("rates = ModuleType('app.rates'); rates.RATE = #", "rates.RATE"),
    "a keyword's default": ("def rate(*, value=#):\n    return value", "rate()"),
    "a partial": ("rate = partial(int, #)", "rate()"),
    "a cached function": ("@cache\ndef rate():\n    return #", "rate()"),
    "a class method": ("class Rate:\n    @classmethod\n    def value(cls):\n        return #", "Rate.value()"),
    "a static method": ("class Rate:\n    @staticmethod\n    def value():\n        return #", "Rate.value()"),
    "what a decorator wraps": ("def rate():\n    return #\nrate = wraps(rate)(lambda r=rate: r())", "rate()"),
}


@pytest.mark.parametrize("what", _CHANGED)
def test_whatever_a_fold_is_made_of_changes_its_fingerprint(what: str) -> None:
    """A snapshot of a fold that differs would be taken for this one's, and the state be wrong."""
    definition, use = _CHANGED[what]

    def fingerprint(value: int) -> str:
        space: dict[str, Any] = {
            "__name__": "app", "Opened": Opened, "dataclass": dataclass, "Decimal": Decimal, "Enum": Enum,
            "ModuleType": ModuleType, "partial": partial, "cache": cache, "wraps": wraps,
        }  # fmt: skip
        source = f"{definition}\n{_STATE}def evolve(state: State, event: Opened) -> State:\n    return State({use})\n"
        exec(source.replace("#", str(value)), space)  # a module that was edited
        folded = Aggregate("a", space["State"], types=types)
        folded.evolve(space["evolve"])
        return folded.fingerprint

    assert fingerprint(1) == fingerprint(1)
    assert fingerprint(1) != fingerprint(2)
