"""Transactions through every client: what is seen of them, zombies, time-outs, and offsets that go with the records."""

from __future__ import annotations

import pytest

from tests.conformance.clients.aio import Aio
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.members import MEMBERS, Asked
from tests.conformance.clients.python import Python
from tests.conformance.clients.transactions import TRANSACTIONS
from tests.conformance.clients.wire import Wire, batch_of
from tests.conformance.comparison import wait_until

pytestmark = pytest.mark.java

_EVERY_CLIENT = pytest.mark.parametrize("client", [Confluent, Aio, Python])


def _producer(client, transactional_id, **options):
    return TRANSACTIONS[type(client).__name__](client.servers, transactional_id, **options)


def _seen(client, topic, count, isolation_level="read_committed"):
    seen = client.consume(topic, {0: 0}, count, isolation_level=isolation_level)
    return [(each.offset, each.value) for each in seen]


def _make(servers, topic, partitions=1):
    with Wire(servers) as wire:
        wire.create(topic, partitions)


def committed_and_aborted(client, topic):
    """Transactions that commit, that abort, that are open: both kinds of readers, and where markers stand."""
    _make(client.servers, topic)
    with _producer(client, topic) as producer:
        told = [producer.init()]
        for number, end in enumerate(("commit", "abort", "commit", "abort")):
            told.append(producer.begin())
            told += [producer.send(topic, b"%d %s %d" % (number, end.encode(), i)) for i in range(2)]
            told.append(getattr(producer, end)())
        told += [producer.begin(), producer.send(topic, b"open")]
        with Wire(client.servers) as wire:
            open_at = [wire.fetch(topic, 0, isolation_level=1).last_stable_offset]
        uncommitted = _seen(client, topic, 9, "read_uncommitted")
        committed = _seen(client, topic, 4)
        told.append(producer.commit())
    return {
        "told": told,
        "stable up to": open_at,
        "read uncommitted": uncommitted,
        "read committed": committed,
        "and then": _seen(client, topic, 5),
        "ends": wait_until(lambda: client.ends(topic), (0, 14)),  # the marker is behind what it shows
    }


@_EVERY_CLIENT
def test_committed_and_aborted(brokers, client):
    told = brokers.compare(committed_and_aborted, client)
    assert set(told["told"]) == {"NONE"}
    assert told["read committed"] == [(0, b"0 commit 0"), (1, b"0 commit 1"), (6, b"2 commit 0"), (7, b"2 commit 1")]
    assert told["and then"][-1] == (12, b"open")
    assert (told["stable up to"], told["ends"]) == ([12], (0, 14))


def zombie(client, topic, comes_back):
    """A second producer of the same id ends the first one's transaction and fences it."""
    _make(client.servers, topic)
    with _producer(client, topic) as old, _producer(client, topic) as new:
        told = {
            "before": [old.init(), old.begin(), old.send(topic, b"lost")],
            "after": [new.init(), new.begin(), new.send(topic, b"kept")],
        }
        if comes_back == "afterwards":
            told["commit"] = new.commit()
        told["fenced"] = {"send": old.send(topic, b"too late"), "commit": old.commit()}
        if comes_back == "meanwhile":
            told["commit"] = new.commit()
        ends = wait_until(lambda: client.ends(topic), (0, 4))
        return told | {"read committed": _seen(client, topic, 1), "ends": ends}


@pytest.mark.parametrize(
    ("client", "comes_back"),
    [
        *((Confluent, when) for when in ("meanwhile", "afterwards")),
        *((Aio, when) for when in ("meanwhile", "afterwards")),
        # A fenced kafka-python asks for a new epoch at once, and both brokers then end the other's transaction: what
        # that one is told is a matter of which answer comes first.
        (Python, "afterwards"),
    ],
)
def test_zombie(brokers, client, comes_back):
    told = brokers.compare(zombie, client, comes_back=comes_back)
    assert (set(told["before"] + told["after"]), told["commit"]) == ({"NONE"}, "NONE")
    assert "NONE" not in told["fenced"].values()
    assert (told["read committed"], told["ends"]) == ([(2, b"kept")], (0, 4))


def timed_out(client, topic):
    """A transaction that is open for too long is aborted by the broker; its producer is told when it comes back."""
    _make(client.servers, topic)
    with _producer(client, topic, timeout_ms=2000) as producer, Wire(client.servers) as wire:
        told = [producer.init(), producer.begin(), producer.send(topic, b"too slow")]
        stable = wait_until(lambda: wire.fetch(topic, 0, isolation_level=1).last_stable_offset, 2)
        late = {"send": producer.send(topic, b"too late"), "commit": producer.commit()}
        return {"told": told, "stable up to": stable, "late": late, "ends": client.ends(topic)}


@_EVERY_CLIENT
def test_timed_out(brokers, client):
    told = brokers.compare(timed_out, client)
    assert (set(told["told"]), told["stable up to"]) == ({"NONE"}, 2)
    assert told["late"]["commit"] != "NONE"


def offsets_with_records(client, topic):
    """Offsets of a group are part of a transaction: an abort takes them back, a commit lets them be seen."""
    _make(client.servers, topic)
    with Wire(client.servers) as wire:
        wire.produce(topic, batch_of(*(b"%d" % i for i in range(6))))
    name = type(client).__name__
    member = MEMBERS[name](Asked(client.servers, topic, topic, session_ms=10_000))
    try:
        reads = []
        while len(reads) < 6:
            reads += member.poll()
            member.done()
        with _producer(client, topic) as producer:
            told = [producer.init(), member.commit({0: 1}, "by hand")]
            outcome = {}
            for end, offset in (("abort", 4), ("commit", 6)):
                told += [producer.begin(), producer.send_offsets(member, topic, {0: offset})]
                told.append(getattr(producer, end)())
                outcome[end] = wait_until(lambda: member.committed([0])[0][0], 1 if end == "abort" else 6)
        return {"reads": reads, "told": told, **outcome}
    finally:
        member.leave()


@_EVERY_CLIENT
def test_offsets_with_records(brokers, client):
    told = brokers.compare(offsets_with_records, client)
    assert (set(told["told"]), told["abort"], told["commit"]) == ({"NONE"}, 1, 6)
