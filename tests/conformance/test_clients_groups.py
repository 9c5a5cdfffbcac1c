"""Members that join, leave, crash and stall, with every client and assignor, under load, on both brokers."""

from __future__ import annotations

import pytest

from tests.conformance.clients.aio import Aio
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.members import Asked
from tests.conformance.clients.python import Python
from tests.conformance.group_load import group_under_load

pytestmark = pytest.mark.java

_EVERY_ASSIGNOR = [
    *((Confluent, assignor) for assignor in ("range", "roundrobin", "cooperative-sticky", "consumer")),
    *((Aio, assignor) for assignor in ("range", "roundrobin", "sticky")),
    *((Python, assignor) for assignor in ("range", "roundrobin", "sticky", "cooperative-sticky")),
]
_EVERY_PROTOCOL = [
    *((Confluent, assignor) for assignor in ("range", "cooperative-sticky", "consumer")),
    (Aio, "roundrobin"),
    *((Python, assignor) for assignor in ("range", "cooperative-sticky")),
]


def coming_and_going(client, topic, assignor):
    """Three members join one after another, and two leave in good order: nothing is lost and nothing comes twice."""
    asked = Asked(client.servers, topic, topic, assignor, session_ms=10_000)
    with group_under_load(type(client).__name__, client.servers, topic) as (group, load):
        first = group.join(asked)
        shares = [group.shares(first)]
        second = group.join(asked)
        shares.append(group.shares(first, second))
        third = group.join(asked)
        shares.append(group.shares(first, second, third))
        first.leave()
        shares.append(group.shares(second, third))
        third.leave()
        shares.append(group.shares(second))
        load.stop()
        group.read_up_to(load.written)
        return {"shares": shares, **group.in_order()}


@pytest.mark.parametrize(("client", "assignor"), _EVERY_ASSIGNOR)
def test_coming_and_going(brokers, client, assignor):
    assert brokers.compare(coming_and_going, client, assignor=assignor) == {
        "shares": [[5], [2, 3], [1, 2, 2], [2, 3], [5]],
        "left out": [],
        "again": [],
    }


def crashed(client, topic, assignor):
    """A member is killed without a word: the other has its partitions when its session has run out."""
    asked = Asked(client.servers, topic, topic, assignor)
    with group_under_load(type(client).__name__, client.servers, topic) as (group, load):
        first, second = group.join(asked), group.join(asked)
        shares = [group.shares(first, second)]
        group.read_up_to(load.written)
        second.crash()
        shares.append(group.shares(first))
        load.stop()
        group.read_up_to(load.written)
        return {"shares": shares, "left out": group.in_order()["left out"]}


@pytest.mark.parametrize(("client", "assignor"), _EVERY_PROTOCOL)
def test_crashed(brokers, client, assignor):
    told = brokers.compare(crashed, client, assignor=assignor)
    assert told == {"shares": [[2, 3], [5]], "left out": []}


def stalled(client, topic, assignor):
    """A member does not poll for longer than it said: the other takes over. It comes back, too late to commit."""
    patient = Asked(client.servers, topic, topic, assignor)
    stalling = Asked(client.servers, topic, topic, assignor, max_poll_ms=2000)
    with group_under_load(type(client).__name__, client.servers, topic) as (group, load):
        first, second = group.join(patient), group.join(stalling)
        shares = [group.shares(first, second)]
        second.tell("stall")
        second.answer("stalled")
        shares.append(group.shares(first))
        second.tell("resume")
        late = second.answer("late commit")
        shares.append(group.shares(first, second))
        load.stop()
        group.read_up_to(load.written)
        return {"shares": shares, "late commit": late, "left out": group.in_order()["left out"]}


@pytest.mark.parametrize(("client", "assignor"), _EVERY_PROTOCOL)
def test_stalled(brokers, client, assignor):
    told = brokers.compare(stalled, client, assignor=assignor)
    assert told["late commit"] != "NONE"
    assert (told["shares"], told["left out"]) == ([[2, 3], [5], [2, 3]], [])
