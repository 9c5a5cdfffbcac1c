"""What the next owner of a partition finds: offsets and their notes, what a static member had, offsets out of range."""

from __future__ import annotations

import contextlib
import time

import pytest

from tests.conformance.clients.aio import Aio
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.member_process import MemberProcess, wait_for
from tests.conformance.clients.members import MEMBERS, Asked, Refused
from tests.conformance.clients.python import Python
from tests.conformance.clients.wire import Wire, batch_of
from tests.conformance.comparison import wait_until

pytestmark = pytest.mark.java

_EVERY_PROTOCOL = [
    *((Confluent, assignor) for assignor in ("range", "cooperative-sticky", "consumer")),
    (Aio, "range"),
    (Python, "range"),
]
_PATIENT_MS = 20_000


def _write(wire, topic, partitions, count):
    for partition in range(partitions):
        wire.produce(topic, batch_of(*(b"%d" % i for i in range(count))), partition=partition)


def _reads(member, count):
    wait_for([member], lambda: len(member.reads) >= count, f"{count} reads")
    return sorted((partition, offset) for _, partition, offset in member.reads)


def handed_over(client, topic, assignor):
    """One reads and leaves; the next finds its offsets, with its note, and begins there."""
    asked = Asked(client.servers, topic, topic, assignor, session_ms=_PATIENT_MS)
    name = type(client).__name__
    with Wire(client.servers) as wire, contextlib.ExitStack() as stack:
        wire.create(topic, 2)
        _write(wire, topic, 2, 5)
        first = stack.enter_context(MemberProcess(name, asked, "the first was here: é"))
        told = {"first": _reads(first, 10)}
        first.leave()
        second = stack.enter_context(MemberProcess(name, asked, "the second"))
        wait_for([second], lambda: len(second.held) == 2, "the second has everything")
        second.tell("committed")
        told["found"] = second.answer("committed")
        _write(wire, topic, 2, 3)
        told["second"] = _reads(second, 6)
        second.leave()
        return told


@pytest.mark.parametrize(("client", "assignor"), _EVERY_PROTOCOL)
def test_handed_over(brokers, client, assignor):
    assert brokers.compare(handed_over, client, assignor=assignor) == {
        "first": [(partition, offset) for partition in range(2) for offset in range(5)],
        "found": dict.fromkeys(range(2), (5, "the first was here: é")),
        "second": [(partition, offset) for partition in range(2) for offset in range(5, 8)],
    }


def static_restart(client, topic, assignor):
    """A member with a name of its own restarts within its session: it has what it had, and nobody else is disturbed."""
    name = type(client).__name__
    with Wire(client.servers) as wire, contextlib.ExitStack() as stack:
        wire.create(topic, 4)

        def join(instance):
            asked = Asked(client.servers, topic, topic, assignor, session_ms=_PATIENT_MS, instance=instance)
            return stack.enter_context(MemberProcess(name, asked))

        stays, goes = join("stays"), join("goes")
        wait_for([stays, goes], lambda: len(stays.held) == len(goes.held) == 2, "two each")
        before, changes = goes.held, stays.changes
        goes.leave()
        back = join("goes")
        wait_for([stays, back], lambda: bool(back.held), "it is back")
        _write(wire, topic, 4, 1)
        reads = {p for p, _ in _reads(stays, 2)}, {p for p, _ in _reads(back, 2)}
        return {
            "has what it had": back.held == before,
            "the other was disturbed": stays.changes - changes,
            "both read their own": reads == (set(stays.held), set(before)),
        }


@pytest.mark.parametrize(("client", "assignor"), _EVERY_PROTOCOL)
def test_static_restart(brokers, client, assignor):
    assert brokers.compare(static_restart, client, assignor=assignor) == {
        "has what it had": True,
        "the other was disturbed": 0,
        "both read their own": True,
    }


def out_of_range(client, topic, assignor):
    """A group's offset lies before the log or behind it: where each policy goes on."""
    told = {}
    with Wire(client.servers) as wire:
        for place, offset in (("before", 2), ("behind", 100)):
            for reset in ("earliest", "latest", "none"):
                name = f"{topic}-{place}-{reset}"
                wire.create(name)
                _write(wire, name, 1, 10)
                assert client.delete_records(name, 4) == 4
                told[f"{place}, {reset}"] = _first_read(client, wire, name, assignor, offset, reset)
    return told


def _first_read(client, wire, topic, assignor, offset, reset):
    kind = MEMBERS[type(client).__name__]
    asked = Asked(client.servers, topic, topic, assignor, session_ms=_PATIENT_MS, reset=reset)
    wire.find_coordinator(topic)
    assert wait_until(lambda: wire.commit(topic, topic, offset), "NONE") == "NONE"
    member = kind(asked)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                reads = member.poll()
            except Refused as refused:
                return str(refused)
            member.done()
            if reads:
                # Where "latest" begins is the end at that moment: more is written until some of it comes.
                return "the end" if reads[0][1] >= 10 else reads[0][1]
            if reset == "latest":
                _write(wire, topic, 1, 1)
        return "nothing"
    finally:
        member.leave()


@pytest.mark.parametrize(
    ("client", "assignor"), [(Confluent, "range"), (Confluent, "consumer"), (Aio, "range"), (Python, "range")]
)
def test_out_of_range(brokers, client, assignor):
    told = brokers.compare(out_of_range, client, assignor=assignor)
    assert (told["before, earliest"], told["behind, earliest"]) == (4, 4)
    assert (told["before, latest"], told["behind, latest"]) == ("the end", "the end")
    assert {type(told["before, none"]), type(told["behind, none"])} == {str}
