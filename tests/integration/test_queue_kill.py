"""kill -9 of a broker with queues and bindings at work: what waits comes once, copies are made once, none is lost."""

import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from headrace.broker.embedded import Broker
from headrace.delivery.headers import DEDUP_ID, ORIGIN, parse_origin, read_delivery
from headrace.records import Record
from tests.conformance.clients.sharing import set_group
from tests.conformance.clients.wire import Wire
from tests.integration.test_bindings import bind, read_log, read_until
from tests.integration.test_queue_delivery import Group, batch, header_of, message

KILLS = [3, pytest.param(20, marks=pytest.mark.long)]
LONGEST_DELAY_MS = 1000
JOBS, ORDERS, EU, BIG = "jobs", "orders", "eu", "big"


class Writer(threading.Thread):
    """Writes jobs and orders until the broker is dead; remembers what was acknowledged."""

    def __init__(self, servers: str, seed: int, first: int) -> None:
        super().__init__()
        self.servers, self.chance, self.number = servers, random.Random(seed), first
        self.acknowledged: list[bytes | None] = []

    def run(self) -> None:
        try:
            with Wire(self.servers) as wire:
                while True:
                    self.number += 1
                    self.send(wire, JOBS, *self.jobs())
                    self.send(wire, ORDERS, *self.orders())
        except OSError:
            pass  # killed: what was not answered is not acknowledged

    def send(self, wire: Wire, topic: str, *messages: Record) -> None:
        answer = wire.produce(topic, batch(*messages))
        assert not answer.error_code, answer
        self.acknowledged += [each.value for each in messages]

    def jobs(self) -> list[Record]:
        delayed = message(b"delayed %d" % self.number, delay_ms=str(self.chance.randrange(1, LONGEST_DELAY_MS)))
        # Every id is there twice, and often before and after a kill.
        once = message(b"id %d" % self.number, dedup_id=str(self.number // 2))
        return [delayed, once, message(b"plain %d" % self.number)]

    def orders(self) -> list[Record]:
        return [
            message(
                b'{"number": %d, "place": %d, "amount": %d}' % (self.number, place, self.chance.randrange(200)),
                key=b"orders.%s.%d" % (self.chance.choice([b"eu", b"us"]), place),
            )
            for place in range(20)
        ]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", KILLS)
def test_what_waits_comes_once_and_copies_are_made_once(tmp_path: Path, kills: int):
    seed = int(os.environ.get("HEADRACE_SEED", time.time_ns() % 1_000_000))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    acknowledged: list[bytes | None] = []
    number = 0
    for kill in range(kills):
        broker = Broker(tmp_path, own_process=True).start()
        if kill == 0:
            begin(broker.bootstrap_servers)
        writer = Writer(broker.bootstrap_servers, chance.randrange(1 << 30), number)
        writer.start()
        goal = chance.randrange(1, 600)  # die while this many are under way: a place in the work, not a time
        while len(writer.acknowledged) < goal and writer.is_alive():
            writer.join(0.001)
        os.kill(broker.pid, signal.SIGKILL)
        writer.join()
        broker.stop()
        assert len(writer.acknowledged) >= goal
        acknowledged += writer.acknowledged
        number = writer.number
    with Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.produce(ORDERS, batch(message(b'{"amount": 999}', key=b"orders.eu.end")))
        wire.produce(JOBS, batch(message(b"end", delay_ms=str(LONGEST_DELAY_MS + 100))))
        check_orders(wire, acknowledged)
        check_jobs(wire, acknowledged)


def begin(servers: str) -> None:
    with Wire(servers) as wire:
        for name in (EU, BIG):
            wire.create(name)
        bound = bind({"to": EU, "key": "orders.eu.*"}, {"to": BIG, "where": "value.amount > 100"})
        wire.create(ORDERS, configs=bound)
        wire.create(JOBS, configs={"headrace.queue": "true", "headrace.queue.dedup.window.ms": "86400000"})
        assert not wire.produce(JOBS, batch(message(b"beat", repeat="1s"))).error_code
        set_group(wire, "workers", share_auto_offset_reset="earliest")


def check_orders(wire: Wire, acknowledged: list[bytes | None]) -> None:
    copied = {name: read_until(wire, name, b'{"amount": 999}') for name in (EU, BIG)}
    orders = read_log(wire, ORDERS)
    assert {value for value in acknowledged if value and value.startswith(b"{")} <= {each.value for each in orders}
    expected = {
        EU: [each for each in orders if (each.key or b"").startswith(b"orders.eu.")],
        BIG: [each for each in orders if int((each.value or b"").split(b'"amount": ')[1][:-1]) > 100],
    }
    for name, records in expected.items():
        assert [header_of(each, ORIGIN) for each in copied[name]] == [b"orders/0/%d" % each.offset for each in records]
        assert [each.value for each in copied[name]] == [each.value for each in records]


def check_jobs(wire: Wire, acknowledged: list[bytes | None]) -> None:
    came = Counter(Group(wire, "workers", JOBS).take_until(b"end"))
    assert set(came.values()) == {1}
    jobs = read_log(wire, JOBS)
    originals = [each for each in jobs if header_of(each, ORIGIN) is None]
    assert {value for value in acknowledged if value and not value.startswith(b"{")} <= {
        each.value for each in originals
    }
    ids: dict[bytes | None, bytes | None] = {}  # the first message with each id
    for each in originals:
        if (dedup_id := header_of(each, DEDUP_ID)) is not None:
            ids.setdefault(dedup_id, each.value)
    is_due = [each.value for each in originals if (each.value or b"").startswith((b"delayed", b"plain", b"end"))]
    values = Counter(each.value for each in came)
    beats = values.pop(b"beat", 0)
    assert values == Counter([*is_due, *ids.values()])
    due_ms = {each.offset: read_delivery(each).due_ms or 0 for each in originals}
    numbers = []
    for each in came:
        origin = parse_origin(header_of(each, ORIGIN) or b"")
        if origin is not None:
            assert each.timestamp >= due_ms[origin.offset], "it came before its time"
            if each.value == b"beat":
                numbers.append(origin.number)
    assert beats
    assert sorted(numbers) == list(range(beats)), "of what repeats each number comes once"
