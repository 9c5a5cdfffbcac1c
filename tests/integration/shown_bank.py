"""A bank for the pages of events: a store in SQLite with the code of its aggregate, and a topic that keeps events."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace import Broker
from headrace.dashboard.settings import StoreSection
from headrace.eventsourcing import NewEvent, StreamAppend, open_store

CODE = """
from dataclasses import dataclass, replace
from headrace.eventsourcing import Aggregate, EventTypes

types = EventTypes()
event = types.event

@event("opened")
@dataclass(frozen=True)
class Opened:
    owner: str

@event("deposited")
@dataclass(frozen=True)
class Deposited:
    amount: int

@dataclass(frozen=True)
class Account:
    owner: str = ""
    balance: int = 0
    entries: tuple[int, ...] = ()

account = Aggregate("account", Account, types=types)

@account.evolve
def opened(state: Account, event: Opened) -> Account:
    return replace(state, owner=event.owner)

@account.evolve
def deposited(state: Account, event: Deposited) -> Account:
    if event.amount == 13:
        raise ValueError("an unlucky number")
    return replace(state, balance=state.balance + event.amount, entries=(*state.entries, event.amount))

@event("named", subject="customer", personal={"name": "(personal)"})
@dataclass(frozen=True)
class Named:
    customer: str
    name: str

@dataclass(frozen=True)
class Customer:
    name: str = ""

customer = Aggregate("customer", Customer, types=types)

@customer.evolve
def named(state: Customer, event: Named) -> Customer:
    return Customer(event.name)
"""


def events(*amounts: int) -> list[NewEvent]:
    return [NewEvent("deposited", json.dumps({"amount": each}).encode(), correlation_id="r-1") for each in amounts]


@contextmanager
def shown_bank(folder: Path) -> Iterator[tuple[str, tuple[StoreSection, ...]]]:
    """The address of a broker, and the sections of stores; this process is in the folder with the code meanwhile."""
    (folder / "event_page_bank.py").write_text(CODE)
    url = "sqlite:///bank.db"
    patch = pytest.MonkeyPatch()
    patch.chdir(folder)
    patch.syspath_prepend(folder)
    with Broker() as broker:
        at = broker.bootstrap_servers
        store, own = open_store(url), open_store(f"kafka://{at}/own-events")
        opened = NewEvent("opened", b'{"owner":"ann"}', ("owner:ann",), headers={"who": "me"})
        cause = NewEvent("deposited", b'{"amount":30}', causation_id=opened.id)
        store.append([StreamAppend("account-1", [opened, cause, *events(5, 7)])], command_id="c-1")
        store.append([StreamAppend("account-2", events(*[1] * 120))])
        store.append([StreamAppend("account-13", events(1, 13))])
        sealed = json.dumps({"customer": "a", "name": f"sealed:1:{'k' * 22}:{'x' * 40}"}).encode()
        store.append([StreamAppend("customer-a/b?", [NewEvent("named", sealed)])])
        own.append([StreamAppend("thing-1", events(1))])
        yield (
            at,
            (
                StoreSection("bank", url, "bank.events", ("event_page_bank:account", "event_page_bank:customer")),
                StoreSection("broken", url, "", ("event_page_bank:acount",)),
                StoreSection("missing", "sqlite:///missing.db"),
            ),
        )
        assert not (folder / "missing.db").exists(), "looking makes nothing"
        store.close()
        own.close()
    patch.undo()
