"""Where share groups begin, and how much a fetch of theirs waits for."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.protocol.messages.share_fetch import FetchPartition, FetchTopic
from tests.conformance.clients.sharing import ACCEPT, Sharer, set_group
from tests.conformance.clients.wire import Wire, batch_of

pytestmark = pytest.mark.java

_HOUR_MS = 3_600_000
_PATIENCE_S = 60


def acquired(answer):
    return [
        (partition.partition_index, offset)
        for topic in answer.responses
        for partition in topic.partitions
        for run in partition.acquired_records
        for offset in range(run.first_offset, run.last_offset + 1)
    ]


def beginnings(wire, topic):
    """Groups that begin at the start, an hour ago, longer ago than there are records, and at the end."""
    wire.create(topic)
    now_ms = int(time.time() * 1000)
    for hours in (3, 2, 0.5):
        wire.produce(topic, batch_of(b"x", timestamp=now_ms - int(hours * _HOUR_MS)))
    told = {}
    for reset in ("earliest", "by_duration:PT1H", "by_duration:PT150M", "by_duration:P10D"):
        group = f"{topic}-{reset.replace(':', '-')}"
        set_group(wire, group, share_auto_offset_reset=reset)
        sharer = Sharer(wire, group, topic)
        sharer.join()
        told[reset] = [offset for _, offset in acquired(sharer.fetch_some(max_wait_ms=2000))]
        sharer.fetch(epoch=-1)
        sharer.beat(-1)
    set_group(wire, topic, share_auto_offset_reset="latest")
    sharer = Sharer(wire, topic, topic)
    sharer.join()
    given = acquired(sharer.fetch(max_wait_ms=200))
    deadline = time.monotonic() + _PATIENCE_S
    while not given and time.monotonic() < deadline:  # nobody tells when a group has begun
        wire.produce(topic, batch_of(b"new", timestamp=now_ms))
        given = acquired(sharer.fetch(max_wait_ms=200))
    told["latest"] = "new ones" if given and min(given)[1] > 2 else given
    return told


def test_beginnings(brokers):
    told = brokers.compare(beginnings, Wire)
    assert told["earliest"] == told["by_duration:P10D"] == [0, 1, 2]
    assert told["by_duration:PT150M"] == [1, 2]
    assert told["by_duration:PT1H"] == [2]
    assert told["latest"] == "new ones"


def enough(wire, topic):
    """A fetch waits for its least number of bytes over all partitions, and then has them all; or for its time."""
    wire.create(topic, 2)
    set_group(wire, topic, share_auto_offset_reset="earliest")
    sharer = Sharer(wire, topic, topic)
    sharer.join()
    both = [
        FetchTopic(topic_id=sharer.topic_id, partitions=[FetchPartition(partition_index=index) for index in range(2)])
    ]
    for index in range(2):  # the group has begun in both
        wire.produce(topic, batch_of(b"first"), partition=index)
    begun: list[tuple[int, int]] = []
    while len(begun) < 2:
        begun += acquired(sharer.fetch_some(topics=both))
    for index in range(2):
        sharer.acknowledge((0, 0, [ACCEPT]), partition=index)
    wire.produce(topic, batch_of(b"x" * 600), partition=0)
    told = {"too little, until its time is up": acquired(sharer.fetch(topics=both, min_bytes=1000, max_wait_ms=300))}
    sharer.acknowledge((1, 1, [2]), partition=0)
    with Wire(wire.servers) as other, ThreadPoolExecutor(1) as pool:
        wanted = {"topics": both, "min_bytes": 1000, "max_wait_ms": 45_000}
        waiting = pool.submit(lambda: sharer.fetch(**wanted))
        other.metadata(topic)  # so that it waits, most likely; whichever comes first, it gets both
        other.produce(topic, batch_of(b"x" * 600), partition=1)
        told["enough"] = sorted(acquired(waiting.result()))
    return told


def test_enough(brokers):
    told = brokers.compare(enough, Wire)
    assert told == {"too little, until its time is up": [(0, 1)], "enough": [(0, 1), (1, 1)]}
