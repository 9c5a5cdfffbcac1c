"""Dead letters of share groups: what is given up is in the group's topic for that, whatever happens in between."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import alter_configs, delete_topics, describe_configs
from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.errors import Refused
from headrace.client.groups import delete_groups
from headrace.delivery.filters import LARGEST_JSON
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.queues.redrive import read_letters, redrive
from headrace.records import Codec, Header, Record, build_batch
from headrace.retry import Backoff
from tests.conformance.clients.sharing import ACCEPT, REJECT, RELEASE, Sharer, set_group
from tests.conformance.clients.wire import Wire, batch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headrace.delivery.letters import Letter

PATIENCE_S = 60
QUICK_LOCKS = {
    "group.share.record.lock.duration.ms": "300",
    "group.share.min.record.lock.duration.ms": "100",
    "group.share.delivery.count.limit": "2",
}
FEW_FILES = {"share.coordinator.state.topic.num.partitions": "3"}
ENABLED = {"errors.deadletterqueue.group.enable": "true"}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker(settings=FEW_FILES) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def wire(servers: str) -> Iterator[Wire]:
    with Wire(servers) as wire:
        yield wire


def join(wire: Wire, topic: str, *, letters: str | None = None, is_queue: bool = False, **settings: str) -> Sharer:
    """A member of a group that has the topic's name, and a topic for its dead letters."""
    wire.create(topic, configs={"headrace.queue": "true"} if is_queue else {})
    name = f"dlq.{topic}" if letters is None else letters
    set_group(wire, topic, share_auto_offset_reset="earliest", errors_deadletterqueue_topic_name=name, **settings)
    sharer = Sharer(wire, topic, topic)
    sharer.join()
    return sharer


def letters_in(servers: str, topic: str) -> list[Letter]:
    with Cluster(parse_bootstrap(servers)) as cluster:
        if topic not in {each.name for each in cluster.topics()}:
            return []
        return [found.letter for some in read_letters(cluster, topic) for found in some]


def wait_for(ask: Callable[[], Any], is_good: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not is_good(answer := ask()):
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)  # the pause of a poll
    return answer


def wait_for_letters(servers: str, topic: str, count: int) -> list[Letter]:
    letters: list[Letter] = wait_for(lambda: letters_in(servers, topic), lambda letters: len(letters) >= count)
    return letters


def start_of(wire: Wire, topic: str) -> int:
    """The first offset that the group has not finished."""
    topics = [DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[0])]
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=topic, topics=topics)
    (group,) = wire.ask(DescribeShareGroupOffsetsRequest(groups=[asked])).groups
    return int(group.topics[0].partitions[0].start_offset)


def wait_for_start(wire: Wire, topic: str, offset: int) -> None:
    wait_for(lambda: start_of(wire, topic), lambda start: start == offset)


def acquire(sharer: Sharer, count: int) -> None:
    """Have so many records, from whatever fetches they come."""
    acquired = 0
    while acquired < count:
        answer = sharer.fetch_some(max_records=count - acquired, max_bytes=64 << 20)
        assert not answer.error_code, answer
        acquired += sum(
            run.last_offset - run.first_offset + 1
            for topic in answer.responses
            for partition in topic.partitions
            for run in partition.acquired_records
        )


def refused(answer: Any) -> list[int]:
    return [partition.error_code for topic in answer.responses for partition in topic.partitions]


def test_a_rejected_record_is_a_letter_with_all_that_is_known_of_it(servers: str, wire: Wire) -> None:
    topic = "rejected"
    sharer = join(wire, topic)
    headers = (Header("error", b"of the record itself"), Header("trace", b"7"), Header("nothing", None))
    records = [
        Record(0, 1_700_000_000_000, b"k0", b"v0", headers),
        Record(1, 1_700_000_000_001, None, None),
        Record(2, 1_700_000_000_002, b"k2", b"v2"),
    ]
    wire.produce(topic, build_batch(records, codec=Codec.GZIP))
    before_ms = time.time_ns() // 1_000_000
    acquire(sharer, 3)
    said = {"reason": "no such customer: Zoë"}
    assert refused(sharer.acknowledge((0, 1, [REJECT], said), (2, 2, [ACCEPT]))) == [0]

    first, second = sorted(wait_for_letters(servers, f"dlq.{topic}", 2), key=lambda letter: letter.offset)
    assert (first.topic, first.partition, first.offset, first.job) == (topic, 0, 0, topic)
    assert (first.timestamp, first.key, first.value) == (1_700_000_000_000, b"k0", b"v0")
    assert first.headers == headers
    assert first.reason == "no such customer: Zoë"
    assert first.deliveries == 1
    assert before_ms <= first.first_failed_ms == first.last_failed_ms <= time.time_ns() // 1_000_000
    assert first.is_whole
    assert (second.offset, second.key, second.value, second.headers) == (1, None, None, ())
    wait_for_start(wire, topic, 3)
    with Cluster(parse_bootstrap(servers)) as cluster:
        own = {config.name: config.value for config in describe_configs(cluster, f"dlq.{topic}") if config.is_own}
    assert own["cleanup.policy"] == "compact"
    assert own["errors.deadletterqueue.group.enable"] == "true"


def test_a_record_that_is_released_too_often_tells_the_last_reason(servers: str, wire: Wire) -> None:
    topic = "released"
    sharer = join(wire, topic, share_delivery_count_limit="3")
    wire.produce(topic, batch_of(b"v"))
    for number in range(3):
        acquire(sharer, 1)
        sharer.acknowledge((0, 0, [RELEASE], {"reason": f"attempt {number}"}))
    (letter,) = wait_for_letters(servers, f"dlq.{topic}", 1)
    assert (letter.reason, letter.deliveries, letter.value) == ("attempt 2", 3, b"v")
    assert letter.first_failed_ms <= letter.last_failed_ms


def test_a_letter_can_do_without_the_record(servers: str, wire: Wire) -> None:
    topic = "not-copied"
    sharer = join(wire, topic, errors_deadletterqueue_copy_record_enable="false")
    wire.produce(topic, batch_of(b"secret"))
    acquire(sharer, 1)
    sharer.acknowledge((0, 0, [REJECT]))
    (letter,) = wait_for_letters(servers, f"dlq.{topic}", 1)
    assert (letter.key, letter.value, letter.is_whole, letter.offset) == (None, None, False, 0)
    assert letter.reason == "rejected by its consumer"


def test_lapsed_locks_lost_members_and_a_lower_limit_make_letters_too() -> None:
    with Broker(settings={**FEW_FILES, **QUICK_LOCKS, "group.share.min.delivery.count.limit": "1"}) as broker:
        servers = broker.bootstrap_servers
        with Wire(servers) as wire:
            lapsing = join(wire, "lapsing", share_delivery_count_limit="1")
            wire.produce("lapsing", batch_of(b"v"))
            acquire(lapsing, 1)
            (letter,) = wait_for_letters(servers, "dlq.lapsing", 1)
            assert "lock lapsed" in letter.reason

            leaving = join(wire, "leaving", share_delivery_count_limit="1")
            wire.produce("leaving", batch_of(b"v"))
            acquire(leaving, 1)
            leaving.fetch(epoch=-1)
            (letter,) = wait_for_letters(servers, "dlq.leaving", 1)
            # Which of the two comes first is a matter of a third of a second.
            assert "left" in letter.reason or "lapsed" in letter.reason

            lowered = join(wire, "lowered", share_delivery_count_limit="5")
            wire.produce("lowered", batch_of(b"v"))
            acquire(lowered, 1)
            lowered.acknowledge((0, 0, [RELEASE], {"reason": "not now"}))
            set_group(wire, "lowered", share_delivery_count_limit="1")
            (letter,) = wait_for_letters(servers, "dlq.lowered", 1)
            assert letter.reason in ("not now", "its lock lapsed before its consumer had acknowledged it")


def test_nothing_is_archived_while_letters_cannot_be_written(servers: str, wire: Wire) -> None:
    topic, letters = "held-up", "dlq.held-up"
    wire.create(letters)  # which is not for dead letters: nobody allowed it
    sharer = join(wire, topic)
    wire.produce(topic, batch_of(b"0", b"1", b"2", b"3"))
    acquire(sharer, 4)
    assert refused(sharer.acknowledge((0, 1, [REJECT]), (2, 2, [ACCEPT]), (3, 3, [REJECT]))) == [0]
    wire.produce(topic, batch_of(b"4"))
    acquire(sharer, 1)  # others go on
    assert start_of(wire, topic) == 0
    assert not letters_in(servers, letters)

    with Cluster(parse_bootstrap(servers)) as cluster:
        alter_configs(cluster, letters, changes=ENABLED)
        assert [letter.offset for letter in wait_for_letters(servers, letters, 3)] == [0, 1, 3]
        wait_for_start(wire, topic, 4)

        # Its topic is deleted, and made again by the next letter.
        delete_topics(cluster, [letters])
        sharer.acknowledge((4, 4, [REJECT]))
        assert [letter.offset for letter in wait_for_letters(servers, letters, 1)] == [4]
        wait_for_start(wire, topic, 5)


def test_no_group_is_deleted_before_its_letters_are_written(servers: str, wire: Wire) -> None:
    topic, letters = "owing", "dlq.owing"
    wire.create(letters)  # which is not for dead letters: nobody allowed it
    sharer = join(wire, topic)
    wire.produce(topic, batch_of(b"0"))
    acquire(sharer, 1)
    assert refused(sharer.acknowledge((0, 0, [REJECT]))) == [0]
    sharer.acknowledge(epoch=-1)
    sharer.beat(-1)
    with Cluster(parse_bootstrap(servers), retry=Backoff(retries=0)) as cluster:
        with pytest.raises(Refused, match="dead letters of it are not written yet"):
            delete_groups(Coordinators(cluster), [topic])
        set_group(wire, topic, errors_deadletterqueue_topic_name="")
        delete_groups(Coordinators(cluster), [topic])


def produce_expired(wire: Wire, topic: str) -> None:
    """Three records, of which the second has not expired."""
    now_ms = time.time_ns() // 1_000_000
    gone = Header("headrace-expires-at", b"%d" % (now_ms - 1))
    kept = Header("headrace-ttl-ms", b"3600000")
    over = Header("headrace-ttl-ms", b"1000")
    records = [
        Record(0, now_ms, b"k", b"gone", (gone, Header("trace", b"7"))),
        Record(1, now_ms, None, b"kept", (kept,)),
        Record(2, now_ms - 2000, None, b"over", (over,)),
    ]
    wire.produce(topic, build_batch(records))


def test_what_has_expired_is_a_letter_and_comes_when_it_is_sent_back(servers: str, wire: Wire) -> None:
    topic = "expired"
    sharer = join(wire, topic, is_queue=True)
    produce_expired(wire, topic)
    answer = sharer.fetch_some()
    runs = [run for each in answer.responses for p in each.partitions for run in p.acquired_records]
    assert [(run.first_offset, run.last_offset) for run in runs] == [(1, 1)]
    letters = sorted(wait_for_letters(servers, f"dlq.{topic}", 2), key=lambda letter: letter.offset)
    assert [(each.offset, each.reason, each.deliveries) for each in letters] == [(0, "expired", 0), (2, "expired", 0)]
    assert (letters[0].key, letters[0].value) == (b"k", b"gone")
    assert refused(sharer.acknowledge((1, 1, [ACCEPT]))) == [0]
    wait_for_start(wire, topic, 3)

    with Cluster(parse_bootstrap(servers)) as cluster:
        assert redrive(cluster, f"dlq.{topic}", matches=lambda letter: letter.value == b"gone").sent == 1
    acquire(sharer, 1)
    assert [letter.value for letter in letters_in(servers, f"dlq.{topic}")] == [b"over"]


def test_what_has_expired_is_no_letter_where_nobody_wants_it(servers: str, wire: Wire) -> None:
    topic = "expired-quietly"
    sharer = join(wire, topic, is_queue=True, headrace_deadletterqueue_expired_enable="false")
    produce_expired(wire, topic)
    acquire(sharer, 1)
    sharer.acknowledge((1, 1, [ACCEPT]))
    wait_for_start(wire, topic, 3)  # archived, which it would not be before its letter is written
    assert not letters_in(servers, f"dlq.{topic}")


def test_a_value_that_is_too_large_for_the_filter_is_a_letter(servers: str, wire: Wire) -> None:
    topic = "too-large-to-look-into"
    wire.create(topic, configs={"max.message.bytes": str(4 << 20)})
    filtering = {"headrace_filter": "key = 'any' OR value.wanted = TRUE"}
    set_group(
        wire, topic, share_auto_offset_reset="earliest", errors_deadletterqueue_topic_name=f"dlq.{topic}", **filtering
    )
    sharer = Sharer(wire, topic, topic)
    sharer.join()
    large, small = b'{"wanted": true, "padding": "%s"}' % bytes(LARGEST_JSON).replace(b"\0", b"x"), b'{"wanted": true}'
    for key, value in ((None, large), (b"any", large), (None, small), (None, b"{}")):
        assert not wire.produce(topic, build_batch([Record(0, 0, key, value)], codec=Codec.ZSTD)).error_code
    acquire(sharer, 2)
    assert refused(sharer.acknowledge((1, 2, [ACCEPT]))) == [0]
    (letter,) = wait_for_letters(servers, f"dlq.{topic}", 1)
    assert (letter.offset, letter.value) == (0, large)
    assert "too many for headrace.filter" in letter.reason
    wait_for_start(wire, topic, 4)


def test_what_has_expired_waits_for_its_letter_over_a_restart(tmp_path: Path) -> None:
    topic, letters = "expired-before", "dlq.expired-before"
    with Broker(tmp_path, settings=FEW_FILES) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create(letters)  # which is not for dead letters: nobody allowed it
        sharer = join(wire, topic, is_queue=True)
        produce_expired(wire, topic)
        acquire(sharer, 1)
        assert refused(sharer.acknowledge((1, 1, [ACCEPT]))) == [0]
        assert start_of(wire, topic) == 0
    with Broker(tmp_path, settings=FEW_FILES) as broker, Wire(broker.bootstrap_servers) as wire:
        sharer = Sharer(wire, topic, topic)
        sharer.join()
        with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
            alter_configs(cluster, letters, changes=ENABLED)
        wire.produce(topic, batch_of(b"next"))
        acquire(sharer, 1)
        found = wait_for_letters(broker.bootstrap_servers, letters, 2)
        assert sorted(letter.value for letter in found if letter.reason == "expired") == [b"gone", b"over"]
        wait_for_start(wire, topic, 3)


def test_a_group_that_wants_no_letters_any_more_goes_on_without(servers: str, wire: Wire) -> None:
    topic = "unwanted"
    wire.create(f"dlq.{topic}")
    sharer = join(wire, topic)
    wire.produce(topic, batch_of(b"v"))
    acquire(sharer, 1)
    sharer.acknowledge((0, 0, [REJECT]))
    assert start_of(wire, topic) == 0
    set_group(wire, topic, errors_deadletterqueue_topic_name="")
    wait_for_start(wire, topic, 1)
    assert not letters_in(servers, f"dlq.{topic}")


def test_what_retention_took_meanwhile_holds_nobody_up(servers: str, wire: Wire) -> None:
    topic = "retained"
    wire.create(f"dlq.{topic}")
    sharer = join(wire, topic)
    for number in range(4):
        wire.produce(topic, batch_of(b"%d" % number))
    acquire(sharer, 4)
    sharer.acknowledge((0, 3, [REJECT]))
    partition = DeleteRecordsPartition(partition_index=0, offset=2)
    wire.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=30_000))
    with Cluster(parse_bootstrap(servers)) as cluster:
        alter_configs(cluster, f"dlq.{topic}", changes=ENABLED)
    assert [letter.offset for letter in wait_for_letters(servers, f"dlq.{topic}", 2)] == [2, 3]
    wait_for_start(wire, topic, 4)


def test_letters_that_wait_are_written_though_the_group_begins_elsewhere_by_then(servers: str, wire: Wire) -> None:
    topic = "begins-elsewhere"
    wire.create(f"dlq.{topic}")  # which is not for letters yet
    with Wire(servers) as member:
        sharer = join(member, topic)
        wire.produce(topic, batch_of(*(b"%d" % number for number in range(6))))
        acquire(sharer, 6)
        assert refused(sharer.acknowledge((1, 2, [REJECT]), (4, 4, [REJECT]))) == [0]
        sharer.beat(-1)
    partitions = [AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=3)]
    topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)]
    answer = wire.ask(AlterShareGroupOffsetsRequest(group_id=topic, topics=topics))
    assert (answer.error_code, refused(answer)) == (0, [0])
    with Cluster(parse_bootstrap(servers)) as cluster:
        alter_configs(cluster, f"dlq.{topic}", changes=ENABLED)
    wait_for_start(wire, topic, 3)
    # What it is to have again is not given up any more.
    assert [letter.offset for letter in letters_in(servers, f"dlq.{topic}")] == [1, 2]


def test_many_large_records_become_letters_in_portions(servers: str, wire: Wire) -> None:
    topic, count, size = "large", 60, 300_000
    sharer = join(wire, topic)
    for number in range(count):
        wire.produce(topic, batch_of(b"%04d" % number * (size // 4)))
    acquire(sharer, count)
    assert refused(sharer.acknowledge((0, count - 1, [REJECT]))) == [0]
    letters = wait_for_letters(servers, f"dlq.{topic}", count)
    assert {letter.offset: letter.value for letter in letters} == {
        number: b"%04d" % number * (size // 4) for number in range(count)
    }
    wait_for_start(wire, topic, count)


def test_many_records_of_one_batch_are_rejected_one_by_one(servers: str, wire: Wire) -> None:
    topic, count = "one-by-one", 1000
    sharer = join(wire, topic)
    wire.produce(topic, batch_of(*(b"%d" % number for number in range(count))))
    acquire(sharer, count)
    acks = [(number, number, [REJECT], {"reason": f"reason {number}"}) for number in range(count)]
    assert refused(sharer.acknowledge(*acks)) == [0]
    letters = wait_for_letters(servers, f"dlq.{topic}", count)
    assert {letter.offset: letter.reason for letter in letters} == {n: f"reason {n}" for n in range(count)}
    wait_for_start(wire, topic, count)


def test_a_letter_is_cut_to_what_its_topic_takes(servers: str, wire: Wire) -> None:
    topic = "cut"
    wire.create(f"dlq.{topic}", configs={**ENABLED, "max.message.bytes": "2000"})
    sharer = join(wire, topic)
    wire.produce(topic, batch_of(b"x" * 10_000))
    acquire(sharer, 1)
    sharer.acknowledge((0, 0, [REJECT], {"reason": "too large"}))
    (letter,) = wait_for_letters(servers, f"dlq.{topic}", 1)
    assert letter.cut == ("value",)
    assert 0 < len(letter.value or b"") < 2000
    assert letter.reason == "too large"
    wait_for_start(wire, topic, 1)


@pytest.mark.parametrize("name", ["__internal", "orders", "dlq.no spaces"])
def test_a_topic_that_is_not_for_letters_is_refused(wire: Wire, name: str) -> None:
    config = AlterableConfig(name="errors.deadletterqueue.topic.name", config_operation=0, value=name)
    resource = AlterConfigsResource(resource_type=32, resource_name="refused", configs=[config])
    (answer,) = wire.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert name in answer.error_message


def test_what_is_released_comes_again_when_its_time_has_come(wire: Wire) -> None:
    """By the group's settings, longer each time, or as the consumer says; a fetch that waits is woken, others go on."""
    topic = "backs-off"
    sharer = join(wire, topic, headrace_retry_backoff_ms="300")
    wire.produce(topic, batch_of(b"0"))
    acquire(sharer, 1)
    for least_s, own in ((0.3, {}), (0.6, {}), (0.4, {"retry_after_ms": 400})):
        released_at = time.monotonic()
        assert refused(sharer.acknowledge((0, 0, [RELEASE], own))) == [0]
        acquire(sharer, 1)
        # The broker counts from when its turn began, in whole milliseconds, which may have been before we asked.
        assert time.monotonic() - released_at >= least_s - 0.05
    assert refused(sharer.acknowledge((0, 0, [RELEASE], {"retry_after_ms": 3_600_000}))) == [0]
    wire.produce(topic, batch_of(b"1"))
    answer = sharer.fetch_some()
    runs = [run for each in answer.responses for p in each.partitions for run in p.acquired_records]
    assert [(run.first_offset, run.last_offset) for run in runs] == [(1, 1)]


@pytest.mark.parametrize("acks", [(0, 0, [REJECT], {"reason": "x" * 1025}), (0, 0, [RELEASE], {"retry_after_ms": -2})])
def test_a_malformed_acknowledgement_is_refused_in_a_sentence(wire: Wire, acks: Any) -> None:
    topic = f"malformed-{len(acks[3].get('reason', ''))}"
    sharer = join(wire, topic)
    wire.produce(topic, batch_of(b"v"))
    acquire(sharer, 1)
    answer = sharer.acknowledge(acks)
    assert refused(answer) == [ErrorCode.INVALID_REQUEST]
    assert answer.responses[0].partitions[0].error_message.startswith("an acknowledgement is invalid: ")
    assert refused(sharer.acknowledge((0, 0, [ACCEPT]))) == [0]


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
def test_every_rejected_record_is_a_letter_though_the_broker_is_killed(tmp_path: Path, kills: int) -> None:
    """What was rejected has its letter, once; what was accepted has none."""
    topic, count = "killed", 200
    seed = int(os.environ.get("HEADRACE_SEED", time.time_ns() % 1_000_000))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    accepted: set[int] = set()
    rejected: set[int] = set()
    for kill in range(kills + 1):
        with (
            Broker(tmp_path / "data", own_process=True, settings=FEW_FILES) as broker,
            Wire(broker.bootstrap_servers) as wire,
        ):
            if kill == 0:
                sharer = join(wire, topic)
                for first in range(0, count, 10):
                    wire.produce(topic, batch_of(*(b"%d" % number for number in range(first, first + 10))))
            else:
                sharer = Sharer(wire, topic, topic)
                sharer.join()
            goal = (
                count if kill == kills else min(count, len(accepted | rejected) + chance.randrange(1, count // kills))
            )
            while start_of(wire, topic) < count and len(accepted | rejected) < goal:
                answer = sharer.fetch(max_wait_ms=100, max_records=10)
                for run in (run for each in answer.responses for p in each.partitions for run in p.acquired_records):
                    for offset in range(run.first_offset, run.last_offset + 1):
                        kind = chance.choice([ACCEPT, REJECT])
                        if refused(sharer.acknowledge((offset, offset, [kind]))) == [0]:
                            (accepted if kind == ACCEPT else rejected).add(offset)
            if kill < kills:
                os.kill(broker.pid, signal.SIGKILL)
                continue
            wait_for_start(wire, topic, count)
            letters = letters_in(broker.bootstrap_servers, f"dlq.{topic}")
            assert sorted(letter.offset for letter in letters) == sorted(rejected)
            assert {letter.value for letter in letters} == {b"%d" % offset for offset in rejected}
            assert accepted | rejected == set(range(count))
            assert not accepted & rejected
