"""A topic that is a queue, as its clients see it: what waits, repeats, expires, is cancelled or comes twice."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.embedded import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import delete_topics
from headrace.client.cluster import Cluster
from headrace.delivery.headers import (
    DEDUP_ID,
    DELAY_MS,
    DELIVER_AT,
    EXPIRES_AT,
    ORIGIN,
    REPEAT,
    SCHEDULE_ID,
    TTL_MS,
)
from headrace.delivery.schedule import Schedule
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.records import Header, Record, build_batch, headers_in, records_of
from tests.conformance.clients.sharing import ACCEPT, Sharer, set_group
from tests.conformance.clients.wire import Wire, error_name

PATIENCE_S = 60
HOUR_MS = 3_600_000
QUEUE = {"headrace.queue": "true"}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Broker(tmp_path_factory.mktemp("queues")) as broker:
        yield broker.bootstrap_servers


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def message(value: bytes, *, key: bytes | None = None, at_ms: int | None = None, **asked: str) -> Record:
    headers = tuple(Header(f"headrace-{name.replace('_', '-')}", text.encode()) for name, text in asked.items())
    return Record(0, now_ms() if at_ms is None else at_ms, key, value, headers)


def batch(*messages: Record) -> bytes:
    return build_batch([each._replace(offset=place) for place, each in enumerate(messages)])


class Group:
    """A share group with one member that accepts what it gets."""

    def __init__(self, wire: Wire, name: str, topic: str) -> None:
        set_group(wire, name, share_auto_offset_reset="earliest")
        self.sharer = Sharer(wire, name, topic)
        self.sharer.join()
        self.records: list[Record] = []
        self.take_some(max_wait_ms=0)

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]

    def take_some(self, **options: Any) -> None:
        answer = self.sharer.fetch(**options)
        assert not answer.error_code, answer
        for partition in (each for topic in answer.responses for each in topic.partitions):
            there = {
                record.offset: record
                for position, header in headers_in(partition.records or b"")
                for record in records_of(partition.records[position : position + header.size])
            }
            for run in partition.acquired_records:
                self.records += [there[each] for each in range(run.first_offset, run.last_offset + 1)]
                told = self.sharer.acknowledge((run.first_offset, run.last_offset, [ACCEPT]))
                assert not told.error_code, told

    def take_until(self, *values: bytes) -> list[Record]:
        """Take what comes until these have come; all that has come."""
        deadline = time.monotonic() + PATIENCE_S
        while not set(values) <= set(self.values):
            assert time.monotonic() < deadline, f"{self.values} came, and not all of {values}"
            self.take_some()
        return self.records


@pytest.fixture
def wire(servers: str) -> Iterator[Wire]:
    with Wire(servers) as wire:
        yield wire


def header_of(record: Record, name: str) -> bytes | None:
    return next((each.value for each in record.headers if each.key == name), None)


def test_a_message_comes_when_it_is_due_and_the_others_at_once(wire: Wire):
    wire.create("delays", configs=QUEUE)
    group = Group(wire, "delays", "delays")
    due_ms = now_ms() + 700
    late = message(b"late", key=b"k", deliver_at=str(due_ms), ttl_ms=str(HOUR_MS))
    assert not wire.produce("delays", batch(late, message(b"soon", delay_ms="300"), message(b"now"))).error_code
    records = group.take_until(b"late", b"soon", b"now")
    assert [record.value for record in records] == [b"now", b"soon", b"late"]
    copy = records[-1]
    assert copy.timestamp >= due_ms
    assert now_ms() >= due_ms
    assert copy.key == b"k"
    assert [(each.key, each.value) for each in copy.headers] == [
        (TTL_MS, str(HOUR_MS).encode()),
        (ORIGIN, b"delays/0/0/0"),
    ]


def test_messages_that_are_too_large_for_one_portion_come_once_each(wire: Wire):
    wire.create("large", configs=QUEUE)
    group = Group(wire, "large", "large")
    due_ms = now_ms() + 500
    values = [b"%d" % number * 400_000 for number in range(8)]
    for pair in (values[:2], values[2:4], values[4:6], values[6:]):
        assert not wire.produce("large", batch(*(message(each, deliver_at=str(due_ms)) for each in pair))).error_code
    wire.produce("large", batch(message(b"end", deliver_at=str(due_ms + 1000))))
    assert sorted(record.value or b"" for record in group.take_until(*values, b"end")) == sorted([*values, b"end"])


def test_what_is_cancelled_does_not_come_and_what_is_replaced_comes_as_it_is_now(wire: Wire):
    wire.create("names", configs=QUEUE)
    group = Group(wire, "names", "names")
    wire.produce(
        "names",
        batch(
            message(b"cancelled", delay_ms="500", schedule_id="a"),
            message(b"replaced", delay_ms="500", schedule_id="b"),
            message(b"", cancel="a"),
            message(b"", cancel="nobody"),
            message(b"new", delay_ms="600", schedule_id="b"),
            message(b"last", delay_ms="900"),
        ),
    )
    assert [record.value for record in group.take_until(b"last")] == [b"new", b"last"]
    assert header_of(group.records[0], SCHEDULE_ID) == b"b"


def test_what_repeats_comes_again_until_it_is_cancelled(wire: Wire):
    wire.create("beats", configs=QUEUE)
    group = Group(wire, "beats", "beats")
    wire.produce("beats", batch(message(b"beat", repeat="1s", schedule_id="beat")))
    deadline = time.monotonic() + PATIENCE_S
    while len(group.records) < 3:
        assert time.monotonic() < deadline
        group.take_some()
    assert [header_of(record, ORIGIN) for record in group.records[:3]] == [b"beats/0/0/%d" % n for n in range(3)]
    wire.produce("beats", batch(message(b"", cancel="beat"), message(b"cancelled")))
    group.take_until(b"cancelled")
    seen_ms = now_ms()  # what comes is followed, and so is the cancellation before it
    wire.produce("beats", batch(message(b"after", delay_ms="1500")))
    beats = [record.timestamp for record in group.take_until(b"after") if record.value == b"beat"]
    assert not [each for each in beats if each > seen_ms], "it came after it was cancelled"


def test_of_what_was_missed_one_comes(wire: Wire):
    wire.create("missed", configs=QUEUE)
    group = Group(wire, "missed", "missed")
    sent_ms = now_ms() - 600_000
    wire.produce("missed", batch(message(b"beat", at_ms=sent_ms, repeat="1s"), message(b"end", delay_ms="1500")))
    group.take_until(b"end")
    beats = [record.timestamp for record in group.records if record.value == b"beat"]
    assert beats
    assert len({(each - sent_ms) // 1000 for each in beats}) == len(beats), "one was made up for"


def test_of_messages_with_one_id_the_first_comes_and_after_the_window_another(wire: Wire):
    wire.create("ids", configs=QUEUE | {"headrace.queue.dedup.window.ms": "60000"})
    group = Group(wire, "ids", "ids")
    start_ms = now_ms() - HOUR_MS
    wire.produce(
        "ids", batch(message(b"first", at_ms=start_ms, dedup_id="x"), message(b"other", at_ms=start_ms, dedup_id="y"))
    )
    wire.produce("ids", batch(message(b"again", at_ms=start_ms + 59_999, dedup_id="x")))
    wire.produce("ids", batch(message(b"renewed", at_ms=start_ms + 60_000, dedup_id="x"), message(b"end")))
    assert [record.value for record in group.take_until(b"end")] == [b"first", b"other", b"renewed", b"end"]


def test_what_has_expired_does_not_come(wire: Wire):
    wire.create("expiry", configs=QUEUE | {"headrace.queue.ttl.ms": str(HOUR_MS)})
    old_ms = now_ms() - HOUR_MS - 1
    wire.produce(
        "expiry",
        batch(
            message(b"old", at_ms=old_ms),
            message(b"kept", at_ms=old_ms, ttl_ms=str(2 * HOUR_MS)),
            message(b"gone", expires_at=str(now_ms() - 1)),
            message(b"here"),
        ),
    )
    group = Group(wire, "expiry", "expiry")
    assert [record.value for record in group.take_until(b"here")] == [b"kept", b"here"]


@pytest.mark.parametrize(
    ("name", "text"), [(DELAY_MS, "soon"), (DELIVER_AT, ""), (REPEAT, "5x"), (EXPIRES_AT, "-1"), (DEDUP_ID, "")]
)
def test_what_is_malformed_is_refused_and_nothing_of_its_batch_is_taken(wire: Wire, name: str, text: str):
    topic = f"strict{name}"
    wire.create(topic, configs=QUEUE)
    bad = message(b"bad")._replace(headers=(Header(name, text.encode()),))
    answer = wire.produce(topic, batch(message(b"good"), bad))
    assert error_name(answer.error_code) == "INVALID_RECORD"
    assert name in answer.error_message
    assert [(each.batch_index, name in each.batch_index_error_message) for each in answer.record_errors] == [(1, True)]
    assert wire.fetch(topic, 0).high_watermark == 0


def test_in_a_topic_that_did_not_opt_in_the_headers_mean_nothing(wire: Wire):
    wire.create("plain")
    group = Group(wire, "plain", "plain")
    bad = message(b"bad", delay_ms="soon")
    assert not wire.produce("plain", batch(message(b"late", delay_ms="999999"), bad)).error_code
    assert [record.value for record in group.take_until(b"late", b"bad")] == [b"late", b"bad"]


def set_topic(wire: Wire, topic: str, **settings: str) -> Any:
    configs = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=configs)
    (answer,) = wire.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses
    return answer


def test_a_topic_that_opts_in_later_is_a_queue_from_then_on_and_what_waits_outlives_its_opting_out(wire: Wire):
    wire.create("later")
    group = Group(wire, "later", "later")
    wire.produce("later", batch(message(b"before", delay_ms="999999")))
    assert not set_topic(wire, "later", headrace_queue="true").error_code
    wire.produce("later", batch(message(b"waits", delay_ms="800"), message(b"now")))
    group.take_until(b"before", b"now")
    assert not set_topic(wire, "later", headrace_queue="false").error_code
    wire.produce("later", batch(message(b"plain", delay_ms="999999")))
    group.take_until(b"plain", b"waits")
    assert sorted(group.values) == [b"before", b"now", b"plain", b"waits"]


def test_a_partition_that_a_queue_gets_later_is_one_from_its_first_record_on(wire: Wire):
    wire.create("grows", configs=QUEUE)
    wanted = CreatePartitionsTopic(name="grows", count=2, assignments=None)
    (grown,) = wire.ask(CreatePartitionsRequest(topics=[wanted], timeout_ms=30_000)).results
    assert not grown.error_code, grown
    hour = message(b"in an hour", delay_ms=str(HOUR_MS))
    assert not wire.produce("grows", batch(hour, message(b"now")), partition=1).error_code
    sharer = Group(wire, "grows", "grows").sharer
    answer = sharer.fetch_some(partition=1)
    runs = [run for topic in answer.responses for each in topic.partitions for run in each.acquired_records]
    assert [(run.first_offset, run.last_offset) for run in runs] == [(1, 1)]


def test_what_waits_comes_though_its_topic_drops_the_oldest(wire: Wire):
    topic = "dropping"
    wire.create(topic, configs={**QUEUE, "headrace.overflow": "drop-oldest", "headrace.overflow.records": "5"})
    group = Group(wire, topic, topic)
    late = message(b"late", deliver_at=str(now_ms() + 1500))
    assert not wire.produce(topic, batch(late, message(b"behind it"))).error_code
    group.take_until(b"behind it")  # so it was followed
    for number in range(20):
        assert not wire.produce(topic, batch(message(b"%d" % number))).error_code
    values = [record.value for record in group.take_until(b"late", b"19")]
    assert values.count(b"late") == 1
    assert [each for each in values if each in (b"0", b"19")] == [b"19"]


def topics_in_schedule(folder: Path) -> set[bytes]:
    """The ids of topics of which the schedule says something, as it is on the disk."""
    schedule = Schedule()
    for file in sorted(folder.glob("__headrace_schedule-0/*.log")):
        data = memoryview(file.read_bytes())
        for position, header in headers_in(data):
            for record in records_of(data[position : position + header.size]):
                schedule.take(record.offset, record.key or b"", record.value)
    return {topic_id for topic_id in schedule.topic_ids() if list(schedule.entries_of(topic_id))}


def test_what_waits_in_a_topic_that_is_deleted_is_dropped_at_once(tmp_path: Path):
    with Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        for topic in ("stays", "goes"):
            bindings = {"headrace.bindings": '[{"to": "missing", "key": "nothing"}]'}
            wire.create(topic, configs={**QUEUE, **bindings})
            hour = str(HOUR_MS)
            asked = message(b"late", delay_ms=hour), message(b"named", delay_ms=hour, schedule_id="n")
            again = message(b"again", repeat="1h"), message(b"id", dedup_id="1"), message(b"id", dedup_id="1")
            assert not wire.produce(topic, batch(*asked, *again, message(b"end"))).error_code
            Group(wire, topic, topic).take_until(b"end")  # so it was followed
        stays, goes = (wire.metadata(topic).topic_id for topic in ("stays", "goes"))
        assert topics_in_schedule(tmp_path) == {stays, goes}
        with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
            delete_topics(cluster, ["goes"])
        deadline = time.monotonic() + PATIENCE_S
        while topics_in_schedule(tmp_path) != {stays}:
            assert time.monotonic() < deadline, "what waited in the deleted topic is still in the schedule"
            time.sleep(0.02)  # the pause of a poll
        wire.produce("stays", batch(message(b"now")))
        Group(wire, "stays", "stays").take_until(b"now")


def test_no_client_reaches_the_schedule(wire: Wire):
    wire.create("seen", configs=QUEUE)
    assert wire.metadata("__headrace_schedule").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_what_waits_comes_after_a_restart(tmp_path: Path):
    with Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("jobs", configs=QUEUE)
        set_group(wire, "jobs", share_auto_offset_reset="earliest")
        wire.produce(
            "jobs",
            batch(
                message(b"waits", delay_ms="1500"),
                message(b"beat", repeat="1s"),
                message(b"cancelled", delay_ms="1500", schedule_id="c"),
                message(b"", cancel="c"),
                message(b"first", dedup_id="x"),
            ),
        )
    with Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.produce("jobs", batch(message(b"second", dedup_id="x"), message(b"end", delay_ms="1600")))
        group = Group(wire, "jobs", "jobs")
        values = [record.value for record in group.take_until(b"waits", b"beat", b"first", b"end")]
        assert values.count(b"waits") == values.count(b"first") == 1
        assert not {b"second", b"cancelled"} & set(values)
        origins = [header_of(record, ORIGIN) for record in group.records if record.value == b"beat"]
        assert origins == [b"jobs/0/1/%d" % number for number in range(len(origins))]


@pytest.mark.parametrize("origin", [b"jobs/0/" + b"9" * 5000, b"jobs/0/0", b"jobs/0/0/0"])
def test_an_origin_that_a_client_wrote_keeps_nothing_from_coming_after_a_restart(tmp_path: Path, origin: bytes):
    forged = Record(0, now_ms(), None, b"forged", (Header(ORIGIN, origin),))
    with Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("jobs", configs=QUEUE)
        wire.produce("jobs", batch(message(b"waits", delay_ms="2000")))
        wire.produce("jobs", batch(message(b"marker")))
        Group(wire, "before", "jobs").take_until(b"marker")  # it was written how far the partition was followed
        wire.produce("jobs", batch(forged))
    with Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        group = Group(wire, "after", "jobs")
        assert sorted(record.value or b"" for record in group.take_until(b"waits")) == [b"forged", b"marker", b"waits"]


def test_what_is_asked_for_after_a_power_cut_took_the_end_of_a_log_is_done(tmp_path: Path):
    """Where syncs are left to the operating system, the schedule may have what the topic does not have any more."""
    log = tmp_path / "jobs-0"
    with Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("jobs", configs=QUEUE)
        wire.produce("jobs", batch(message(b"kept")))
        size = (log / f"{0:020}.log").stat().st_size
        for number in range(3):
            wire.produce("jobs", batch(message(b"%d" % number, delay_ms="1", dedup_id="x")))
        wire.produce("jobs", batch(message(b"lost")))
        assert len(Group(wire, "before", "jobs").take_until(b"kept", b"0", b"lost")) == 3
    for file in log.iterdir():
        if file.suffix == ".log":
            os.truncate(file, size)
        elif file.suffix not in (".metadata", ""):
            file.unlink()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        later = wire.produce("jobs", batch(message(b"later", delay_ms="2000", dedup_id="y")))
        assert later.base_offset == 1, "where one stood that was delivered"
        wire.produce("jobs", batch(message(b"once", dedup_id="z")))
        Group(wire, "followed", "jobs").take_until(b"once")
    with Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        group = Group(wire, "after", "jobs")
        came = group.take_until(b"kept", b"once", b"later")
        assert sorted(record.value or b"" for record in came) == [b"kept", b"later", b"once"]
