"""Declarations of aggregates, fingerprints of folds, and the kit for testing decisions."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.eventsourcing import Aggregate, Refused
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
from dataclasses import dataclass
from headrace.eventsourcing import Aggregate, EventTypes

types = EventTypes()
RATE = 2

@types.event
@dataclass(frozen=True)
class Paid:
    amount: int

@dataclass(frozen=True)
class Total:
    paid: int = 0

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
    with pytest.raises(InvalidAppend, match="could not be read back"):
        given(account).when(Deposit("much"))  # type: ignore[arg-type]
