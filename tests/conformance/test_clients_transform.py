"""Consume, transform, produce in transactions, with workers that are killed in the middle: each result comes once."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing

import pytest

from tests.conformance.clients.aio import Aio
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.members import MEMBERS, Asked
from tests.conformance.clients.python import Python
from tests.conformance.clients.transactions import TRANSACTIONS
from tests.conformance.clients.wire import Wire, batch_of

pytestmark = pytest.mark.java

_INPUTS = 30
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["tests.conformance.clients.transactions"])


def _work(client, asked, transactional_id, dies_at, pipe):
    """Transform until all is done; one that is to die waits for it where it was told to."""
    logging.disable()
    member = MEMBERS[client](asked)
    with TRANSACTIONS[client](asked.servers, transactional_id) as producer:
        assert producer.init() == "NONE"
        position = 0
        while position < _INPUTS:
            reads = member.poll()
            if reads:
                told = [producer.begin()]
                told += [producer.send(f"{asked.topic}-out", b"result of " + value) for _, _, value in reads]
                position = reads[-1][1] + 1
                if dies_at == "sent":
                    _wait_for_death(pipe, told)
                told.append(producer.send_offsets(member, asked.topic, {0: position}))
                if dies_at == "offsets sent":
                    _wait_for_death(pipe, told)
                told.append(producer.commit())
                assert set(told) == {"NONE"}, told
                if dies_at == "committed":
                    _wait_for_death(pipe, told)
            member.done()
        member.leave()
    pipe.send("done")


def _wait_for_death(pipe, told):
    pipe.send(told)
    pipe.recv()


@contextlib.contextmanager
def _worker(client, asked, transactional_id, dies_at=None):
    pipe, theirs = _forks.Pipe()
    process = _forks.Process(target=_work, args=(client, asked, transactional_id, dies_at, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield pipe
    finally:
        process.kill()
        process.join()
        process.close()
        pipe.close()


def transformed(client, topic):
    """Three workers of one transactional id die, each at another step; the fourth ends the work."""
    with Wire(client.servers) as wire:
        wire.create(topic)
        wire.create(f"{topic}-out")
        for i in range(_INPUTS):
            wire.produce(topic, batch_of(b"%d" % i))
    # The dead ones' sessions run out soon.
    asked = Asked(client.servers, topic, topic, session_ms=2000)
    name = type(client).__name__
    told = {}
    for step in ("sent", "offsets sent", "committed"):
        with _worker(name, asked, topic, step) as pipe:
            assert pipe.poll(90), f"no worker came to {step}"
            told[step] = set(pipe.recv())
    with _worker(name, asked, topic) as pipe:
        assert pipe.poll(90), "the work was not done"
        told["in the end"] = pipe.recv()
    # One more behind them, so that a result that came twice would be among as many as are read.
    with TRANSACTIONS[name](client.servers, f"{topic}-last") as last:
        told["last"] = [last.init(), last.begin(), last.send(f"{topic}-out", b"last"), last.commit()]
    seen = client.consume(f"{topic}-out", {0: 0}, _INPUTS + 1, isolation_level="read_committed")
    told["results"] = [each.value for each in seen]
    return told


@pytest.mark.parametrize("client", [Confluent, Aio, Python])
def test_transformed(brokers, client):
    told = brokers.compare(transformed, client)
    assert told["results"] == [*(b"result of %d" % i for i in range(_INPUTS)), b"last"]
