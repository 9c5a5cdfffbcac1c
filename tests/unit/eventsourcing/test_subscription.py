"""Events as they come: what is there, then what is new."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.delivery.letters import Letter
from headrace.eventsourcing.errors import InvalidSubscription, UndecodableEvent, UnknownEventType
from headrace.eventsourcing.memory import MemoryStore
from headrace.eventsourcing.model import NewEvent, StreamAppend, where
from headrace.eventsourcing.sqlite_store import sqlite
from headrace.eventsourcing.subscription import Subscription
from tests.unit.eventsourcing.bank import Deposited, Opened, types

PATIENCE_S = 60.0


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    store: Any = MemoryStore() if request.param == "memory" else sqlite(tmp_path / "events.db")
    yield store
    store.close()


def put(store: Any, stream: str, *events: Any) -> int:
    new = [each if isinstance(each, NewEvent) else types.encode(each) for each in events]
    return int(store.append([StreamAppend(stream, new)]).position)


def test_what_is_there_comes_in_batches_and_then_nothing(store: Any) -> None:
    put(store, "account-1", Opened("ann"), Deposited(1), Deposited(2))
    found = Subscription(store, types=types, batch=2)
    first, second = found.take(), found.take()
    assert first is not None
    assert [each.event for each in first.events] == [Opened("ann"), Deposited(1)]
    assert second is not None
    assert [(each.event, each.stored.version) for each in second.events] == [(Deposited(2), 3)]
    assert (first.position, second.position, found.position) == (2, 3, 3)
    assert found.take() is None


def test_what_comes_after_a_batch_that_was_full_is_not_missed(store: Any) -> None:
    put(store, "account-1", Opened("ann"))
    found = Subscription(store, types=types, batch=1)
    assert found.take() is not None
    put(store, "account-1", Deposited(1))
    batch = found.take()
    assert batch is not None
    assert [each.event for each in batch.events] == [Deposited(1)]


def test_the_position_is_beyond_what_the_query_does_not_match(store: Any) -> None:
    put(store, "account-1", Opened("ann"), Deposited(1))
    last = put(store, "order-1", Deposited(3))
    found = Subscription(store, where(types=["opened"], category="account"), types=types)
    batch = found.take()
    assert batch is not None
    assert [each.event for each in batch.events] == [Opened("ann")]
    assert batch.position == last
    last = put(store, "order-1", Deposited(4))
    batch = found.take()
    assert batch is not None
    assert (batch.events, batch.position) == ([], last)
    assert Subscription(store, types=types, after=last).take() is None


def test_new_events_come_until_it_is_stopped(store: Any) -> None:
    put(store, "account-1", Opened("ann"))
    found, seen, all_seen = Subscription(store, types=types), list[Any](), threading.Event()

    def follow() -> None:
        for event, _ in found:
            seen.append(event)
            if len(seen) == 3:
                all_seen.set()

    thread = threading.Thread(target=follow)
    thread.start()
    put(store, "account-1", Deposited(1))
    put(store, "account-2", Opened("bob"))
    assert all_seen.wait(PATIENCE_S)
    found.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert seen == [Opened("ann"), Deposited(1), Opened("bob")]


def test_new_events_come_on_an_event_loop(store: Any) -> None:
    async def follow() -> list[Any]:
        found, seen = Subscription(store, types=types), []
        async for event, _ in found:
            seen.append(event)
            if len(seen) == 1:
                await asyncio.to_thread(put, store, "account-1", Deposited(1))
            else:
                found.stop()
        return seen

    put(store, "account-1", Opened("ann"))
    assert asyncio.run(follow()) == [Opened("ann"), Deposited(1)]


@pytest.mark.parametrize(
    ("bad", "error", "reason"),
    [
        (NewEvent("renamed", b"{}"), UnknownEventType, r"event 2 of stream 'account-1' \(position 2\) has the type"),
        (NewEvent("deposited", b'{"amount": "x"}'), UndecodableEvent, r"event 2 of stream 'account-1' .*'x' is not"),
    ],
)
def test_what_cannot_be_decoded(store: Any, bad: NewEvent, error: type[Exception], reason: str) -> None:
    put(store, "account-1", Opened("ann"), bad, Deposited(1))
    found = Subscription(store, types=types)
    for _ in range(2):  # nothing is lost by the error
        with pytest.raises(error, match=reason):
            found.take()
    assert found.position == 0
    letters = list[Letter]()
    batch = Subscription(store, types=types, on_invalid=letters.append, name="totals").take()
    assert batch is not None
    assert [each.event for each in batch.events] == [Opened("ann"), Deposited(1)]
    (letter,) = letters
    assert (letter.offset, letter.key, letter.value, letter.job) == (2, b"account-1", bad.data, "totals")
    assert letter.reason.startswith("event 2 of stream 'account-1'")
    assert Letter.of(letter.to_record(1)) == letter


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Subscription(MemoryStore(), batch=0), "a batch of 0 events is not possible: give 1 or more"),
        (lambda: Subscription(MemoryStore(), after=-1), "cannot begin after position -1: give 0 or more"),
    ],
)
def test_what_cannot_be_subscribed_to(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(InvalidSubscription, match=sentence):
        make()
