"""What `event_stores.py` measures of Headrace, one measurement a process: prints operations a second as JSON.

python benchmarks/event_stores_ours.py sqlite|postgres WHERE append|load|catch-up|project …
"""

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from headrace.eventsourcing import (
    Aggregate,
    Projection,
    ProjectionRunner,
    Repository,
    Snapshots,
    StoredEvent,
    StreamAppend,
    View,
    event,
    postgres,
    sqlite,
)
from headrace.eventsourcing.event_types import EVENT_TYPES


@event("opened")
@dataclass(frozen=True)
class Opened:
    owner: str


@event("deposited")
@dataclass(frozen=True)
class Deposited:
    amount: int
    note: str


@dataclass
class Account:
    owner: str = ""
    balance: int = 0


account = Aggregate("account", Account)


@account.evolve
def opened(state: Account, event: Opened) -> None:
    state.owner = event.owner


@account.evolve
def deposited(state: Account, event: Deposited) -> None:
    state.balance += event.amount


def append(store: Any, writers: int, each: int) -> float:
    """Events appended one at a time, each writer to a stream of its own."""

    def write(writer: int) -> None:
        stream = f"account-{writer}"
        store.append([StreamAppend(stream, [EVENT_TYPES.encode(Opened("ann"))], 0)])
        for version in range(1, each + 1):
            store.append([StreamAppend(stream, [EVENT_TYPES.encode(Deposited(version, "salary"))], version)])

    started = perf_counter()
    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(write, range(writers)))
    return writers * (each + 1) / (perf_counter() - started)


def fill(store: Any, ident: str, events: int) -> None:
    """A stream of so many events."""
    for first in range(0, events, 5_000):
        new = [EVENT_TYPES.encode(Deposited(number, "salary")) for number in range(first, min(first + 5_000, events))]
        store.append([StreamAppend(account.stream(ident), new, first)])


def load(store: Any, events: int, times: int, snapshots: str) -> float:
    """One aggregate of so many events, loaded again and again."""
    fill(store, "7", events)
    accounts = Repository(store, snapshots=Snapshots(every=100) if snapshots == "yes" else Snapshots())
    if snapshots == "yes":
        take_snapshot(store)
    assert accounts.load(account, "7").version == events
    started = perf_counter()
    for _ in range(times):
        accounts.load(account, "7")
    return times / (perf_counter() - started)


def take_snapshot(store: Any) -> None:
    """As a repository does after a command."""
    from headrace.eventsourcing.model import Snapshot

    loaded = Repository(store).load(account, "7")
    store.write_snapshot("account-7", Snapshot(loaded.version, account.fingerprint, account.dump_state(loaded.state)))


def catch_up(store: Any, events: int) -> float:
    """All events read and decoded, as a projection does."""
    for stream in range(10):
        fill(store, str(stream), events // 10)
    started, count = perf_counter(), 0
    for stored in store.read():
        EVENT_TYPES.decode(stored)
        count += 1
    assert count == events // 10 * 10
    return count / (perf_counter() - started)


balances = Projection("balances")


@balances.on
def add(view: View, event: Deposited, stored: StoredEvent) -> None:
    view.put(stored.stream, {"cents": view.get(stored.stream, {"cents": 0})["cents"] + event.amount})


def project(store: Any, events: int) -> float:
    """A view brought up to date: a row for each account, and the position, durably."""
    for stream in range(10):
        fill(store, str(stream), events // 10)
    started = perf_counter()
    runner = ProjectionRunner(store, balances)
    runner.catch_up()
    took_s = perf_counter() - started
    assert len(list(runner.rows())) == 10
    return events // 10 * 10 / took_s


def main(kind: str, where: str, what: str, *arguments: str) -> None:
    store = sqlite(where) if kind == "sqlite" else postgres(where)
    measures: dict[str, Callable[..., float]] = {
        "append": append,
        "load": load,
        "catch-up": catch_up,
        "project": project,
    }
    figure = measures[what](store, *(int(each) if each.isdigit() else each for each in arguments))
    store.close()
    print(json.dumps(figure))


if __name__ == "__main__":
    main(*sys.argv[1:])
