"""Events of a topic shared among several programs by a share group."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.dead_letters import LetterBox
from headrace.eventsourcing.competing import compete
from headrace.eventsourcing.errors import InvalidSubscription
from headrace.eventsourcing.memory import MemoryStore
from headrace.eventsourcing.model import NewEvent, StreamAppend, where
from headrace.eventsourcing.opening import open_store
from tests.integration.waiting import wait_until
from tests.unit.eventsourcing.bank import Deposited, Opened, types

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 60.0
_NUMBERS = count()


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def store(bootstrap: str) -> Iterator[Any]:
    store = open_store(f"kafka://{bootstrap}/events-{next(_NUMBERS)}")
    yield store
    store.close()


def put(store: Any, stream: str, *events: Any) -> None:
    new = [each if isinstance(each, NewEvent) else types.encode(each) for each in events]
    store.append([StreamAppend(stream, new)])


def test_each_event_is_had_by_one_of_a_group_and_by_every_group(store: Any) -> None:
    put(store, "account-1", Opened("ann"), *[Deposited(number) for number in range(20)])
    with compete(store, "a", types=types, prefetch=1) as one, compete(store, "a", types=types, prefetch=1) as other:
        found: list[list[Any]] = [[], []]
        while sum(map(len, found)) < 21:
            for mine, member in zip(found, (one, other), strict=True):
                if (each := member.get(0.2)) is not None:
                    mine.append((each.event, each.stored.version))
                    each.ack()
        assert all(found)
        assert sorted(found[0] + found[1], key=lambda each: each[1])[:2] == [(Opened("ann"), 1), (Deposited(0), 2)]
        assert len(set(found[0] + found[1])) == 21
        assert one.flush(PATIENCE_S)
        assert other.flush(PATIENCE_S)
    with compete(store, "b", where(types=["opened"]), types=types) as third:
        got = third.get(PATIENCE_S)
        assert got is not None
        assert got.event == Opened("ann")
        got.ack()


def test_an_event_comes_again_until_it_is_done_and_what_is_rejected_is_a_dead_letter(
    store: Any, bootstrap: str
) -> None:
    put(store, "account-1", Opened("ann"), NewEvent("renamed", b"{}"), Deposited(1))
    reasons: dict[str, int] = {}
    with compete(store, "rejecting", types=types) as events:
        first = events.get(PATIENCE_S)
        assert first is not None
        first.retry()
        seen = {}
        while len(seen) < 2:
            each = events.get(PATIENCE_S)
            assert each is not None
            seen[each.event] = each.deliveries
            each.ack() if each.event == Opened("ann") else each.reject("too much")
        assert seen == {Opened("ann"): 2, Deposited(1): 1}
        assert events.flush(PATIENCE_S)
        box = LetterBox(f"dlq.{store.topic}", store.topic, "rejecting")

        def has_letters() -> bool:
            with Cluster(parse_bootstrap(bootstrap)) as cluster:
                box.look(cluster)
            reasons.update(box.reasons)
            return len(reasons) == 2

        wait_until(has_letters, "there are no dead letters")
    assert {reason.partition(" has the type")[0] for reason in reasons} == {
        "too much",
        "event 2 of stream 'account-1' (position 2)",
    }


def test_events_of_a_stream_come_one_after_the_other(store: Any) -> None:
    put(store, "account-1", Opened("ann"), Deposited(1))
    put(store, "account-2", Opened("bob"))

    async def take() -> list[Any]:
        seen: list[Any] = []
        with compete(store, "in-order", types=types, ordered=True) as events:
            held: list[Any] = []
            async for each in events:
                seen.append(each.event)
                held.append(each)
                if len(seen) == 2:  # the first ones of both; the next of the first waits for it
                    assert await asyncio.to_thread(events.get, 0.3) is None
                    for one in held:
                        one.ack()
                if len(seen) == 3:
                    each.ack()
                    return seen
        return seen

    assert asyncio.run(take()) == [Opened("ann"), Opened("bob"), Deposited(1)]


def test_a_database_has_no_share_groups() -> None:
    with pytest.raises(InvalidSubscription, match="events in memory cannot be competed for, as a database has no"):
        compete(MemoryStore(), "a")
