"""kill -9 of the broker, and members of a share group that vanish: what was accepted comes once, nothing is lost.

The same with a broker that cuts the topic of its state off all the time, and deletes what is acknowledged at once.
"""

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from headrace.broker.embedded import Broker
from headrace.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from headrace.records import headers_in
from tests.conformance.clients.sharing import ACCEPT, RELEASE, Sharer, set_group
from tests.conformance.clients.wire import Wire, batch_of
from tests.conformance.comparison import wait_until

TOPIC = GROUP = "work"
SETTINGS = {
    "group.share.record.lock.duration.ms": "1000",
    "group.share.min.record.lock.duration.ms": "100",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.delivery.count.limit": "10",
}
DELETED_AT_ONCE = {"headrace.queue.delete.acknowledged": "true", "internal.segment.bytes": "500"}
RECORDS = 300
PATIENCE_S = 120
KILLS = [
    (2, False),
    (3, True),
    pytest.param(20, False, marks=pytest.mark.long),
    pytest.param(20, True, marks=pytest.mark.long),
]
# Stands for `python -P -m headrace.cli.main`.
CUTTER = """#!/bin/sh
shift 3
exec {python} -P -c '
from headrace.broker import shares
shares._CHECK_CUT_S, shares._RECORDS_BEFORE_CUT, shares._RECORDS_PER_KEY_BEFORE_CUT = 0.01, 3, 1
from headrace.broker.queues import finished
finished._FREE_S, finished._WORTH_BYTES = 0.001, 1
from headrace.cli.main import main
main()' "$@"
"""


class Worker(threading.Thread):
    """A member that accepts most of what it gets, releases some, and may vanish in the middle of it."""

    def __init__(
        self, servers: str, seed: int, accepted: dict[int, int], unsure: set[int], is_over: threading.Event
    ) -> None:
        super().__init__()
        self.servers, self.accepted, self.unsure, self.is_over = servers, accepted, unsure, is_over
        self.chance = random.Random(seed)
        self.complaints: list[str] = []

    def run(self) -> None:
        while not self.is_over.is_set():
            try:
                with Wire(self.servers) as wire:
                    self.work(Sharer(wire, GROUP, TOPIC))
            except (OSError, AssertionError):
                if self.is_over.wait(0.02):  # the broker is dead, or was just born
                    return

    def work(self, sharer: Sharer) -> None:
        sharer.join()
        for _ in range(self.chance.randrange(2, 30)):  # then it drops its connection, with whatever it has
            if self.is_over.is_set():
                return
            before = set(self.accepted)  # what is accepted later may have been on its way here, until its lock ran out
            answer = sharer.fetch(max_records=self.chance.randrange(1, 12), max_wait_ms=50, share_acquire_mode=1)
            if answer.error_code:
                return
            for topic in answer.responses:
                for partition in topic.partitions:
                    self.take(sharer, partition, before)

    def take(self, sharer: Sharer, partition: object, before: set[int]) -> None:
        offsets = [
            offset
            for run in partition.acquired_records  # type: ignore[attr-defined]
            for offset in range(run.first_offset, run.last_offset + 1)
        ]
        there = {
            offset
            for _, header in headers_in(partition.records)  # type: ignore[attr-defined]
            for offset in range(header.base_offset, header.last_offset + 1)
        }
        for offset in offsets:
            if offset in before:
                self.complaints.append(f"{offset} was accepted, and came again")
            if offset not in there:
                self.complaints.append(f"{offset} was acquired, and not sent")
        for offset in offsets:
            kind = ACCEPT if self.chance.random() < 0.8 else RELEASE
            if kind == ACCEPT:  # if there is no answer, nobody knows
                self.unsure.add(offset)
            told = sharer.acknowledge((offset, offset, [kind]))
            if told.error_code:
                return
            refused = told.responses[0].partitions[0].error_code
            if kind == ACCEPT and not refused:
                self.accepted[offset] = self.accepted.get(offset, 0) + 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kills", "is_cut"), KILLS)
def test_what_is_accepted_is_accepted_once_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, is_cut: bool
) -> None:
    if is_cut:
        cutter = tmp_path / "cutter"
        cutter.write_text(CUTTER.format(python=sys.executable))
        cutter.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(cutter))
    seed = int(os.environ.get("HEADRACE_SEED", time.time_ns() % 1_000_000))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    accepted: dict[int, int] = {}
    unsure: set[int] = set()  # accepted, and the answer may be lost
    for kill in range(kills + 1):
        with Broker(tmp_path / "data", own_process=True, settings=SETTINGS) as broker:
            with Wire(broker.bootstrap_servers) as wire:
                if kill == 0:
                    wire.create(TOPIC, configs=DELETED_AT_ONCE if is_cut else None)
                    set_group(wire, GROUP, share_auto_offset_reset="earliest")
                    for first in range(0, RECORDS, 10):
                        wire.produce(TOPIC, batch_of(*(b"%d" % number for number in range(first, first + 10))))
            is_over = threading.Event()
            seeds = [chance.randrange(1 << 30) for _ in range(3)]
            workers = [Worker(broker.bootstrap_servers, each, accepted, unsure, is_over) for each in seeds]
            for worker in workers:
                worker.start()
            if kill < kills:  # dying is a place in the work, not a time
                goal = min(RECORDS - 50, len(accepted) + chance.randrange(1, 40))
                wait_until(lambda goal=goal: len(accepted) >= goal, True, timeout_s=PATIENCE_S)
                os.kill(broker.pid, signal.SIGKILL)
            else:
                with Wire(broker.bootstrap_servers) as wire:
                    assert wait_until(lambda wire=wire: start_of(wire), RECORDS, timeout_s=PATIENCE_S) == RECORDS
            is_over.set()
            for worker in workers:
                worker.join()
            complaints = [complaint for worker in workers for complaint in worker.complaints]
            assert not complaints
    assert accepted.keys() | unsure == set(range(RECORDS))
    assert set(accepted.values()) == {1}
    assert len(accepted) > RECORDS // 2
    firsts = [int(file.stem) for file in (tmp_path / "data").glob("**/__share_group_state-*/*.log")]
    assert all(first == 0 for first in firsts) is not is_cut
    assert (min(int(file.stem) for file in (tmp_path / "data" / f"{TOPIC}-0").glob("*.log")) > 0) is is_cut


def start_of(wire: Wire) -> int:
    """Where the group begins: everything before it is finished."""
    topics = [DescribeShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[0])]
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=topics)
    (group,) = wire.ask(DescribeShareGroupOffsetsRequest(groups=[asked])).groups
    return int(group.topics[0].partitions[0].start_offset)
