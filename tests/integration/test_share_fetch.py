"""ShareFetch at its limits: sessions, quotas, many partitions, and fetches that wait for enough."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from headrace import Broker
from headrace.broker.share_acquisition import Acquired, Acquirer
from headrace.coordinator.share.records import ShareKey
from headrace.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from headrace.protocol.messages.share_fetch import FetchPartition, FetchTopic
from headrace.protocol.messages.shared import EntityPart
from headrace.storage.log import Log
from tests.conformance.clients.sharing import ACCEPT, RELEASE, Sharer, set_group
from tests.conformance.clients.wire import Wire, batch_of, error_name

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTITIONS = 40  # more than are looked at in one step
PATIENCE_MS = 60_000
SESSIONS = 3


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker(durability="os") as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def wire(servers: str) -> Iterator[Wire]:
    with Wire(servers) as wire:
        yield wire


def create(wire: Wire, name: str, partitions: int) -> str:
    wire.create(name, partitions)
    set_group(wire, name, share_auto_offset_reset="earliest")
    return name


def partitions_of(sharer: Sharer, *indexes: int) -> list[FetchTopic]:
    return [FetchTopic(topic_id=sharer.topic_id, partitions=[FetchPartition(partition_index=i) for i in indexes])]


def acquired(answer: Any) -> list[tuple[int, int]]:
    assert answer.error_code == 0, answer
    return [
        (partition.partition_index, offset)
        for topic in answer.responses
        for partition in topic.partitions
        for run in partition.acquired_records
        for offset in range(run.first_offset, run.last_offset + 1)
    ]


def join(wire: Wire, topic: str) -> Sharer:
    sharer = Sharer(wire, topic, topic)
    sharer.join()
    return sharer


def begin_everywhere(wire: Wire, topic: str) -> Sharer:
    """A member whose group has begun in every partition, and has nothing left there."""
    create(wire, topic, PARTITIONS)
    sharer = join(wire, topic)
    for index in range(PARTITIONS):
        wire.produce(topic, batch_of(b"first"), partition=index)
    left = set(range(PARTITIONS))
    while left:
        for index, offset in acquired(sharer.fetch(topics=partitions_of(sharer, *range(PARTITIONS)))):
            sharer.acknowledge((offset, offset, [ACCEPT]), partition=index)
            left.discard(index)
    return sharer


def test_a_fetch_of_many_partitions_is_woken_by_any_of_them(wire: Wire) -> None:
    topic = "woken-by-appends"
    sharer = begin_everywhere(wire, topic)
    for index in (0, 15, 16, 17, 39):
        began = time.monotonic()
        with Wire(wire.servers) as other:
            produced = threading.Thread(target=other.produce, args=(topic, batch_of(b"x")), kwargs={"partition": index})
            produced.start()  # before the fetch, in the middle of its steps, or while it waits
            given = acquired(sharer.fetch(topics=[], max_wait_ms=PATIENCE_MS))
            produced.join()
        assert given == [(index, 1)]
        assert time.monotonic() - began < PATIENCE_MS / 1000


def test_a_fetch_of_many_partitions_is_woken_by_what_is_released(wire: Wire) -> None:
    topic = "woken-by-releases"
    with Wire(wire.servers) as other_wire:
        begin_everywhere(wire, topic).fetch(epoch=-1)
        holder, waiter = join(wire, topic), join(other_wire, topic)
        wire.produce(topic, batch_of(b"x"), partition=33)
        assert acquired(holder.fetch_some(topics=partitions_of(holder, *range(PARTITIONS)))) == [(33, 1)]
        given: list[tuple[int, int]] = []
        everywhere = partitions_of(waiter, *range(PARTITIONS))
        waiting = threading.Thread(
            target=lambda: given.extend(acquired(waiter.fetch(topics=everywhere, max_wait_ms=PATIENCE_MS)))
        )
        waiting.start()
        holder.acknowledge((1, 1, [RELEASE]), partition=33)
        waiting.join()
    assert given == [(33, 1)]


@pytest.mark.parametrize("min_bytes", [1, 2])
def test_a_fetch_looks_only_at_partitions_of_which_there_is_news(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, min_bytes: int
) -> None:
    topic = f"news-{min_bytes}"
    sharer = begin_everywhere(wire, topic)
    looked_at: list[int] = []
    acquire = Acquirer.acquire

    def note(acquirer: Acquirer, key: ShareKey, log: Log) -> Acquired | None:
        looked_at.append(key.partition)
        return acquire(acquirer, key, log)

    assert acquired(sharer.fetch(topics=[], max_wait_ms=0)) == []
    monkeypatch.setattr(Acquirer, "acquire", note)
    assert acquired(sharer.fetch(topics=[], max_wait_ms=0)) == []
    assert looked_at == []
    wire.produce(topic, batch_of(b"x"), partition=33)
    assert acquired(sharer.fetch(topics=[], max_wait_ms=PATIENCE_MS, min_bytes=min_bytes)) == [(33, 1)]
    assert looked_at == [33]


def test_a_fetch_that_waits_for_committed_records_gets_the_others_when_the_group_wants_them(wire: Wire) -> None:
    topic = create(wire, "isolation", 1)
    set_group(wire, topic, share_isolation_level="read_committed")
    sharer = join(wire, topic)
    producer = Producer({"bootstrap.servers": wire.servers, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"x")
    assert producer.flush(PATIENCE_MS / 1000) == 0
    sharer.fetch(max_wait_ms=0)
    given: list[tuple[int, int]] = []
    waiting = threading.Thread(target=lambda: given.extend(acquired(sharer.fetch(topics=[], max_wait_ms=PATIENCE_MS))))
    waiting.start()
    with Wire(wire.servers) as other:
        began = time.monotonic()
        set_group(other, topic, share_isolation_level="read_uncommitted")  # before the fetch, or while it waits
    waiting.join()
    assert given == [(0, 0)]
    assert time.monotonic() - began < PATIENCE_MS / 1000
    producer.abort_transaction()


def test_a_fetch_gets_what_is_behind_more_than_is_looked_at_in_a_turn(wire: Wire) -> None:
    topic = create(wire, "behind-aborted", 1)
    set_group(wire, topic, share_isolation_level="read_committed")
    sharer = join(wire, topic)
    producer = Producer({"bootstrap.servers": wire.servers, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(40):  # each of them is all that is read at a time for one record
        producer.produce(topic, b"x" * 5000)
        assert producer.flush(PATIENCE_MS / 1000) == 0
    producer.abort_transaction()
    wire.produce(topic, batch_of(b"wanted"))
    began = time.monotonic()
    assert acquired(sharer.fetch(max_records=1, max_wait_ms=PATIENCE_MS)) == [(0, 41)]
    assert time.monotonic() - began < PATIENCE_MS / 1000


def test_one_session_too_many_is_refused_until_one_has_ended() -> None:
    settings = {"group.share.max.share.sessions": str(SESSIONS)}
    with Broker(durability="os", settings=settings) as broker, Wire(broker.bootstrap_servers) as wire:
        topic = create(wire, "sessions", 1)
        members = [join(wire, topic) for _ in range(SESSIONS + 1)]
        answers = [error_name(member.fetch(max_wait_ms=0).error_code) for member in members]
        assert answers == ["NONE"] * SESSIONS + ["SHARE_SESSION_LIMIT_REACHED"]
        members[0].fetch(epoch=-1)
        assert error_name(members[-1].fetch(max_wait_ms=0).error_code) == "NONE"
        assert error_name(members[1].fetch(max_wait_ms=0).error_code) == "NONE", "those that were there go on"


def test_a_quota_of_bytes_holds_for_share_fetches_and_nothing_is_lost_by_it(wire: Wire) -> None:
    topic = create(wire, "quota", 1)
    for _ in range(7):
        wire.produce(topic, batch_of(b"x" * 20_000))
    entry = EntryData(
        entity=[EntityPart(entity_type="client-id", entity_name="slow")],
        ops=[OpData(key="consumer_byte_rate", value=10_000, remove=False)],
    )
    (done,) = wire.ask(AlterClientQuotasRequest(entries=[entry])).entries
    assert error_name(done.error_code) == "NONE"
    with Wire(wire.servers) as slow:
        slow.client_id = "slow"
        sharer = join(slow, topic)
        given: list[int] = []
        throttled: list[int] = []
        began = time.monotonic()
        while len(given) < 7 and time.monotonic() - began < PATIENCE_MS / 1000:
            answer = sharer.fetch(max_records=1, share_acquire_mode=1)
            given += [offset for _, offset in acquired(answer)]
            throttled.append(answer.throttle_time_ms)
        took_s = time.monotonic() - began
    assert given == list(range(7)), "each once: what is acquired is sent"
    assert max(throttled) > 0
    assert took_s > 1, "the sixth used up more than the ten seconds' worth that may come at once, and the next waits"
