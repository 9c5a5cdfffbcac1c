"""kill -9 of a broker that keeps events: what was acknowledged is there once, in its stream, and the index finds it.

What was redacted is in no file any more.
"""

import os
import random
import signal
import threading
from pathlib import Path

import pytest

from headrace.broker.embedded import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.delivery.redaction import read_stand_in
from headrace.eventsourcing.broker_store import BrokerEventStore
from headrace.eventsourcing.erasure import redact
from headrace.eventsourcing.errors import Conflict, StoreUnavailable
from headrace.eventsourcing.hash_chain import chain
from headrace.eventsourcing.model import NewEvent, StreamAppend, where
from headrace.eventsourcing.verification import verify
from headrace.retry import Backoff
from tests.integration.waiting import wait_until

KILLS = [3, pytest.param(20, marks=pytest.mark.long)]
STREAMS, WRITERS = 20, 3
ONCE = Backoff(0.01, 0.01, retries=0)


def open_store(servers: str) -> BrokerEventStore:
    return BrokerEventStore(lambda: Cluster(parse_bootstrap(servers), retry=ONCE), "kept")


class Writer(threading.Thread):
    """Appends to two streams at a time, each from the version that it has read, until the broker is dead."""

    def __init__(self, servers: str, seed: int) -> None:
        super().__init__()
        self.store, self.chance = open_store(servers), random.Random(seed)
        self.acknowledged: list[tuple[str, int, bytes]] = []
        self.has_begun = threading.Event()

    def run(self) -> None:
        try:
            while True:
                self.append()
        except StoreUnavailable:
            pass  # killed: what was not answered is not acknowledged
        finally:
            self.store.close()

    def append(self) -> None:
        streams = [f"s-{number}" for number in self.chance.sample(range(STREAMS), 2)]
        expected = {
            stream: max((each.version for each in self.store.read_stream(stream, backward=True, limit=1)), default=0)
            for stream in streams
        }
        value = b"%d" % self.chance.getrandbits(60)
        try:
            self.store.append(
                [StreamAppend(name, [NewEvent("noted", value, (name,))], expected[name]) for name in streams]
            )
        except Conflict:
            return
        self.acknowledged += [(name, expected[name] + 1, value) for name in streams]
        if len(self.acknowledged) > 40:
            self.has_begun.set()


@pytest.mark.parametrize("kills", KILLS)
def test_what_was_acknowledged_is_there_once(tmp_path: Path, kills: int) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", random.SystemRandom().getrandbits(32)))
    print(f"HEADRACE_SEED={seed}")
    acknowledged: list[tuple[str, int, bytes]] = []
    for life in range(kills):
        broker = Broker(tmp_path, own_process=True).start()
        writers = [Writer(broker.bootstrap_servers, seed + life * WRITERS + number) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        for writer in writers:
            assert writer.has_begun.wait(60)
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)
        for writer in writers:
            writer.join(60)
            acknowledged += writer.acknowledged
        broker.stop()
    with Broker(data_dir=tmp_path) as again:
        store = open_store(again.bootstrap_servers)
        everything = list(store.read())
        for number in range(STREAMS):
            name = f"s-{number}"
            events = list(store.read_stream(name))
            assert events == [each for each in everything if each.stream == name]
            assert events == list(store.read(where(tags=[name])))
            assert [each.version for each in events] == list(range(1, len(events) + 1))
        there = {(each.stream, each.version, each.data) for each in everything}
        assert there >= set(acknowledged)
        assert len(acknowledged) == len(set(acknowledged))
        store.close()


class Redactor(threading.Thread):
    """Redacts one event after the other, until the broker is dead."""

    def __init__(self, servers: str, numbers: range) -> None:
        super().__init__()
        self.store, self.numbers = open_store(servers), numbers
        self.acknowledged: list[int] = []
        self.has_begun = threading.Event()

    def run(self) -> None:
        try:
            for number in self.numbers:
                redact(self.store, f"s-{number % STREAMS}", number // STREAMS + 1, reason="r")
                self.acknowledged.append(number)
                self.has_begun.set()
        except StoreUnavailable:
            pass
        finally:
            self.store.close()


@pytest.mark.parametrize("kills", [2, pytest.param(15, marks=pytest.mark.long)])
def test_what_was_redacted_is_gone_and_what_a_trace_asks_for_is_done(tmp_path: Path, kills: int) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", random.SystemRandom().getrandbits(32)))
    print(f"HEADRACE_SEED={seed}")
    chance, acknowledged, each_life = random.Random(seed), list[int](), 40
    with Broker(data_dir=tmp_path) as broker:
        store = open_store(broker.bootstrap_servers)
        for number in range(kills * each_life):
            data = b"<secret %d>" % number
            store.append([StreamAppend(f"s-{number % STREAMS}", [NewEvent("noted", data)])])
        mark = chain(store)
        store.close()
    for life in range(kills):
        broker = Broker(tmp_path, own_process=True).start()
        redactor = Redactor(broker.bootstrap_servers, range(life * each_life, (life + 1) * each_life))
        redactor.start()
        assert redactor.has_begun.wait(60)
        threading.Event().wait(chance.uniform(0, 0.1))  # to be killed anywhere
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)
        redactor.join(60)
        acknowledged += redactor.acknowledged
        broker.stop()
    with Broker(data_dir=tmp_path) as again:
        store = open_store(again.bootstrap_servers)

        def is_done(stream: str, version: int) -> bool:
            [event] = store.read_stream(stream, after=version - 1, to=version)
            return read_stand_in(event.data) is not None

        traces = verify(store, against=mark).redacted
        wait_until(lambda: all(is_done(each.stream, each.version) for each in traces), "all traces are carried out")
        assert verify(store, against=mark).is_intact
        assert len(traces) >= len(acknowledged) > 0
        store.close()
    held = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert [number for number in acknowledged if b"<secret %d>" % number in held] == []
