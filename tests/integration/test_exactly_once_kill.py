"""Exactly once, with the broker and the workers killed at random: each input's result is there, once, and in order."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.broker.embedded import Broker
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from headrace.records import Record, build_batch
from tests.integration.transforming_worker import GROUP, INPUT, NEVER_SEEN, OUTPUT, transformed
from tests.integration.wire import Wire
from tests.ports import free_port
from tests.reading import read_committed

PARTITIONS = 4
WORKERS = 2
# Of the broker, and as many of workers, by the group's protocol.
KILLS = [("classic", 4), ("consumer", 4), pytest.param("classic", 16, marks=pytest.mark.long)]
PATIENCE_S = 120.0


class Steps:
    """What the workers say they did."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.seen: Counter[str] = Counter()
        self.total = 0

    def add(self, step: str) -> None:
        with self._changed:
            self.seen[step] += 1
            self.total += 1
            self._changed.notify_all()

    def wait_for_more(self, seen: int, patience_s: float) -> None:
        """Until there are more than `seen`, or patience ends."""
        with self._changed:
            self._changed.wait_for(lambda: self.total > seen, patience_s)


class WorkerProcess:
    """A worker; one that ends by itself (it was fenced, or its broker was gone for too long) is started again."""

    def __init__(self, bootstrap: str, index: int, chance: random.Random, steps: Steps, protocol: str) -> None:
        self._bootstrap, self._index, self._chance, self._steps = bootstrap, index, chance, steps
        self._protocol = protocol
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.integration.transforming_worker"]
        arguments = [self._bootstrap, str(self._index), str(self._chance.randrange(1 << 30)), self._protocol]
        self._process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE)
        self._reader = threading.Thread(target=self._read, args=(self._process,))
        self._reader.start()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._steps.add(line.decode().strip())

    def keep_going(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.kill()
            self.start()

    def kill(self) -> None:
        if self._process is None or self._reader is None:
            return
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None


def end_offsets(wire: Wire, topic: str, partitions: int, *, committed: bool) -> list[int]:
    asked = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(partitions)]
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=int(committed), topics=[ListOffsetsTopic(name=topic, partitions=asked)]
    )
    (answer,) = wire.ask(request, ListOffsetsResponse, 7).topics
    assert all(partition.error_code == 0 for partition in answer.partitions), answer
    return [partition.offset for partition in sorted(answer.partitions, key=lambda found: found.partition_index)]


def committed_offsets(wire: Wire) -> list[int] | None:
    """How far the group is; None while a transaction may still change it."""
    topics = [OffsetFetchRequestTopics(name=INPUT, partition_indexes=list(range(PARTITIONS)))]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)], require_stable=True)
    (group,) = wire.ask(request, OffsetFetchResponse, 8).groups
    assert group.error_code == 0
    partitions = sorted(group.topics[0].partitions, key=lambda found: found.partition_index)
    return None if any(found.error_code for found in partitions) else [found.committed_offset for found in partitions]


def read_results(bootstrap: str) -> dict[int, list[tuple[bytes, bytes]]]:
    """All of the output that a reader of committed records sees, by partition."""
    found: dict[int, list[tuple[bytes, bytes]]] = {number: [] for number in range(PARTITIONS)}
    for message in read_committed(bootstrap, OUTPUT):
        found[message.partition() or 0].append((message.key() or b"", message.value() or b""))
    return found


class Inputs:
    """What is there to be transformed, by partition, in order."""

    def __init__(self) -> None:
        self.written: list[list[bytes]] = [[] for _ in range(PARTITIONS)]

    def feed(self, wire: Wire, count: int) -> None:
        for partition, written in enumerate(self.written):
            values = [b"%d/%d" % (partition, len(written) + place) for place in range(count)]
            batch = build_batch([Record(place, 1_700_000_000_000, value, value) for place, value in enumerate(values)])
            assert wire.produce(INPUT, batch, partition=partition) == (0, len(written))
            written += values


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("protocol", "kills"), KILLS)
def test_every_result_is_seen_once_whatever_is_killed(tmp_path: Path, protocol: str, kills: int) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", time.time_ns() % 1_000_000))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    began = time.monotonic()
    broker = Broker(
        tmp_path / "data",
        listen=f"127.0.0.1:{free_port()}",
        own_process=True,
        settings={
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "500",
            "group.consumer.session.timeout.ms": "1500",
            "group.consumer.heartbeat.interval.ms": "200",
        },
    ).start()
    bootstrap = broker.bootstrap_servers
    steps, inputs = Steps(), Inputs()
    workers = [WorkerProcess(bootstrap, index, chance, steps, protocol) for index in range(WORKERS)]
    victims = ["broker"] * kills + ["worker"] * kills
    chance.shuffle(victims)
    try:
        with Wire(bootstrap) as wire:
            wire.create(INPUT, PARTITIONS)
            wire.create(OUTPUT, PARTITIONS)
        for victim in victims:
            with Wire(bootstrap) as wire:
                inputs.feed(wire, chance.randrange(15, 40))  # more than is done before the next kill
            for worker in workers:
                worker.keep_going()
            goal = steps.total + chance.randrange(1, 12)
            wait_for_steps(steps, goal, workers)
            threading.Event().wait(chance.random() * 0.02)  # anywhere within a step
            if victim == "broker":
                os.kill(broker.pid, signal.SIGKILL)
                broker.stop()
                broker.start()
            else:
                chance.choice(workers).kill()
        killed_s = time.monotonic() - began

        ends = [len(written) for written in inputs.written]
        with Wire(bootstrap) as wire:
            wait_until(lambda: committed_offsets(wire) == ends, workers, "the group did not reach the ends", steps)
            for worker in workers:
                worker.kill()
            for topic, count in ((OUTPUT, PARTITIONS), (INPUT, PARTITIONS), ("__consumer_offsets", 1)):
                wait_until(
                    lambda topic=topic, count=count: (  # type: ignore[misc]
                        end_offsets(wire, topic, count, committed=True)
                        == end_offsets(wire, topic, count, committed=False)
                    ),
                    [],
                    f"a transaction is left open in {topic}",
                    steps,
                )
            assert committed_offsets(wire) == ends
            states = wire.ask(ListTransactionsRequest(), ListTransactionsResponse, 1).transaction_states
            assert {state.transactional_id for state in states} == {"worker-0", "worker-1"}
            assert {state.transaction_state for state in states} <= {"CompleteCommit", "CompleteAbort", "Empty"}
        found = read_results(bootstrap)
    finally:
        for worker in workers:
            worker.kill()
        broker.stop()
    print(
        f"{kills} kills of the broker and {kills} of workers in {killed_s:.1f} s, {sum(ends)} inputs,"
        f" {time.monotonic() - began:.1f} s in all; {dict(steps.seen)}"
    )
    for partition, written in enumerate(inputs.written):
        assert NEVER_SEEN not in {value for _, value in found[partition]}
        assert found[partition] == [(value, transformed(value)) for value in written]
    assert steps.seen["committed"] >= kills
    assert steps.seen["aborted"] > 0


def wait_for_steps(steps: Steps, goal: int, workers: list[WorkerProcess]) -> None:
    """Until so much work is done; a worker that ended by itself is started again meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while steps.total < goal:
        assert time.monotonic() < deadline, f"the workers are stuck: {steps.seen}"
        for worker in workers:
            worker.keep_going()
        steps.wait_for_more(steps.total, 0.5)


def wait_until(condition: Callable[[], bool], workers: list[WorkerProcess], why: str, steps: Steps) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{why}; steps: {steps.seen}"
        for worker in workers:
            worker.keep_going()
        threading.Event().wait(0.05)
