"""Groups and topics on loopback: the contract of gateways both ways, late joiners, kills, overload."""

import asyncio
import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic, delete_records, delete_topics, ensure_topic
from headrace.client.cluster import Cluster
from headrace.errors import HeadraceError
from headrace.gateways.errors import GatewayError
from headrace.gateways.multicast import (
    Content,
    Ended,
    Event,
    Group,
    LogSubscriber,
    Lost,
    Message,
    NotYours,
    Overload,
    Overloaded,
    Publisher,
    PublisherClosed,
    SendingSettings,
    Subscriber,
    TopicGap,
    TopicRecord,
    Why,
)
from headrace.gateways.multicast.kind import KIND
from headrace.model import TopicPartition
from headrace.section_keys import with_defaults
from headrace.testing.contracts.gateway import (
    InwardGatewayContract,
    OutwardGatewayContract,
    Running,
    free_port,
    read_topic,
    until,
    write_topic,
)
from tests.integration.gateways.running import running

ADDRESS = "239.255.43.1"


class TestInward(InwardGatewayContract):
    kind = "multicast"

    def values(self, topic: str, port: int) -> dict[str, Any]:
        return {"direction": "in", "topic": topic, "group": f"{ADDRESS}:{port}"}

    def send(self, section: Mapping[str, Any], messages: Sequence[bytes]) -> None:
        with Publisher(section["group"]) as publisher:
            for message in messages:
                publisher.publish(message)

    def send_bad(self, section: Mapping[str, Any]) -> int:
        group = Group.parse(section["group"])
        bad = [b"", b"hello", b"HM", b"HM\x01\x01" + b"\0" * 30, b"HM\x09\x01" + b"\0" * 60, b"\xff" * 1_400]
        with group.open_data_sender() as sender:
            for datagram in bad:
                sender.sendto(datagram, group.data_address)
        return len(bad)

    def is_listening(self, running: Running) -> bool:
        return running.gateway._subscriber is not None


class TestOutward(OutwardGatewayContract):
    kind = "multicast"

    def values(self, topic: str, port: int) -> dict[str, Any]:
        return {"direction": "out", "topic": topic, "group": f"{ADDRESS}:{port}"}

    @contextlib.contextmanager
    def receiving(self, section: Mapping[str, Any]) -> Iterator[Callable[[], list[bytes]]]:
        found: list[bytes] = []
        with Subscriber(section["group"]) as subscriber:
            thread = threading.Thread(
                target=lambda: found.extend(each.value or b"" for each in subscriber), daemon=True
            )
            thread.start()

            def seen() -> list[bytes]:
                return list(found)

            yield seen
        thread.join()


@pytest.fixture
def group() -> str:
    return f"{ADDRESS}:{free_port()}"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "broker", durability="os") as broker:
        yield broker


def numbers_of(events: Sequence[Event]) -> list[int]:
    """The number of each message that came or was told lost."""
    found: list[int] = []
    for event in events:
        if isinstance(event, Message):
            found.append(event.number)
        elif isinstance(event, Lost):
            found += range(event.first, event.last + 1)
    return found


# --- programs among themselves


def test_key_headers_time_and_no_value_come_as_they_were_sent(group: str) -> None:
    sent = [
        Content(b"v", b"k", (("a", b"1"), ("b", None)), 1_700_000_000_000),
        Content(None, b"k"),
        Content(b"", None, (), -5),
        Content(b"x" * 3_000_000, b"large"),
    ]
    with Subscriber(group) as subscriber, Publisher(group) as publisher:
        assert publisher.publish_many(sent) == 4
        messages = list(itertools.islice(subscriber, 4))
    assert [Content(*each[:5]) for each in messages] == sent
    assert [each.number for each in messages] == [0, 1, 2, 3]
    assert {each.session for each in messages} == {publisher.session}


def test_a_loop_of_events_hears_a_group(group: str) -> None:
    async def hear(subscriber: Subscriber) -> list[bytes | None]:
        found = []
        async for message in subscriber:
            found.append(message.value)
            if len(found) == 100:
                return found
        return found

    with Subscriber(group) as subscriber, Publisher(group) as publisher:

        async def both() -> list[bytes | None]:
            hearing = asyncio.create_task(hear(subscriber))
            for number in range(100):
                publisher.publish(b"%d" % number)
                await asyncio.sleep(0)
            return await asyncio.wait_for(hearing, 20)

        assert asyncio.run(both()) == [b"%d" % number for number in range(100)]


def test_iterations_end_when_it_is_closed(group: str) -> None:
    subscriber = Subscriber(group)
    thread = threading.Thread(target=list, args=(subscriber,))
    thread.start()
    subscriber.close()
    thread.join(10)
    assert not thread.is_alive()

    async def hear() -> list[Message]:
        return [message async for message in subscriber]

    assert asyncio.run(hear()) == []


def test_several_publishers_and_several_subscribers_in_a_group(group: str) -> None:
    with contextlib.ExitStack() as stack:
        subscribers = [stack.enter_context(Subscriber(group)) for _ in range(3)]
        publishers = [stack.enter_context(Publisher(group, name=f"p{number}")) for number in range(3)]
        for number in range(200):
            for publisher in publishers:
                publisher.publish(b"%s %d" % (publisher.name.encode(), number))
        for subscriber in subscribers:
            found = [message.value for message in itertools.islice(subscriber, 600)]
            for publisher in publishers:
                name = publisher.name.encode()
                mine = [value for value in found if value.startswith(name)]
                assert mine == [b"%s %d" % (name, number) for number in range(200)]


@pytest.mark.parametrize("overload", [Overload.DROP_OLDEST, Overload.DROP_NEWEST])
@pytest.mark.parametrize("room", [50_000, 500_000])
def test_a_program_that_is_too_slow_is_told_what_it_did_not_take(group: str, overload: Overload, room: int) -> None:
    with Subscriber(group, overload=overload, queue_bytes=room) as subscriber:
        with Publisher(group, settings=SendingSettings(rate_bytes_s=8_000_000)) as publisher:
            for number in range(3_000):
                publisher.publish(b"%d" % number + b"x" * 300)
                assert subscriber.waiting_bytes <= room
        # It takes nothing before all has come.
        until(lambda: subscriber.counts.messages + subscriber.counts.lost == 3_000, "all came")
        events = subscriber.take(10_000, 5)
        assert subscriber.waiting_bytes == 0
    assert numbers_of(events) == list(range(3_000))
    lost = [event for event in events if isinstance(event, Lost)]
    assert [event.why for event in lost] == [Why.OVERLOAD]
    assert lost[0].count == subscriber.dropped > 0
    came = [event.number for event in events if isinstance(event, Message)]
    assert came[-1] == 2_999 if overload is Overload.DROP_OLDEST else came[0] == 0


def test_a_subscriber_that_fails_where_it_is_too_slow(group: str) -> None:
    with Subscriber(group, overload=Overload.FAIL, queue_bytes=20_000) as subscriber, Publisher(group) as publisher:
        for _ in range(100):
            publisher.publish(b"x" * 1_000)
        until(lambda: subscriber.dropped, "there is no room")
        with pytest.raises(Overloaded, match="found no room"):
            list(subscriber)


def test_a_publisher_keeps_to_its_rate_and_waits_or_drops_or_fails(group: str) -> None:
    slow = SendingSettings(rate_bytes_s=200_000, queue_bytes=20_000)
    with Publisher(group, settings=slow) as publisher:
        began = time.monotonic()
        for _ in range(120):
            publisher.publish(b"x" * 1_000)
            assert publisher.waiting_bytes <= 20_000
        assert publisher.flush(10)
        assert time.monotonic() - began >= 0.5
        assert publisher.counts.messages == 120
    with Publisher(group, settings=slow, overload=Overload.DROP_NEWEST) as publisher:
        taken = [publisher.publish(b"x" * 1_000) for _ in range(120)]
        assert not all(taken)
        assert publisher.counts.dropped == taken.count(False)
    with Publisher(group, settings=slow, overload=Overload.DROP_OLDEST) as publisher:
        assert all(publisher.publish(b"x" * 1_000) for _ in range(120))
        assert publisher.counts.dropped > 0
    failing = Publisher(group, settings=slow, overload=Overload.FAIL)
    with failing as publisher, pytest.raises(Overloaded, match="wait for the pace"):
        publisher.publish_many(Content(b"x" * 1_000) for _ in range(120))
    with pytest.raises(PublisherClosed, match="is closed"):
        publisher.publish(b"x")


def test_what_was_published_before_the_end_is_sent(group: str) -> None:
    with Subscriber(group) as subscriber:
        with Publisher(group, settings=SendingSettings(rate_bytes_s=400_000, linger_s=5.0)) as publisher:
            for number in range(100):
                publisher.publish(b"%d" % number + b"x" * 1_000)
        events = []
        while not events or not isinstance(events[-1], Ended):
            events += subscriber.take(1_000, 10)
    assert numbers_of(events) == list(range(100))
    assert events[-1].is_clean


# --- with the log


def test_who_is_too_slow_for_the_group_reads_the_log(broker: Broker, group: str) -> None:
    values = {"direction": "out", "topic": "told", "group": group}
    write_topic(broker.bootstrap_servers, "told", [b"%d" % number for number in range(500)])
    with (
        running(KIND, broker.bootstrap_servers, **values),
        LogSubscriber(group, broker.bootstrap_servers, "told", start="earliest", queue_bytes=20_000) as subscriber,
    ):
        found = list(itertools.islice(subscriber, 400))
        # It takes nothing, while more comes than may wait.
        write_topic(broker.bootstrap_servers, "told", [b"%d" % number + b"x" * 500 for number in range(500, 1_500)])
        until(lambda: subscriber._subscriber.dropped, "there is no room")
        found += itertools.islice(subscriber, 1_100)
        assert [record.offset for record in found] == list(range(1_500))
        assert all(record.value.startswith(b"%d" % record.offset) for record in found)
        until_live = subscriber.events()
        write_topic(broker.bootstrap_servers, "told", [b"last"])
        last = next(until_live)
        assert isinstance(last, TopicRecord)
        assert (last.offset, last.value) == (1_500, b"last")


def test_a_follower_begins_where_it_is_told_and_goes_on_there(broker: Broker, group: str) -> None:
    write_topic(broker.bootstrap_servers, "told", [b"%d" % number for number in range(100)])
    with LogSubscriber(group, broker.bootstrap_servers, "told", start={0: 90}) as subscriber:
        assert [record.offset for record in itertools.islice(subscriber, 10)] == list(range(90, 100))
        positions = subscriber.positions
    assert positions == {0: 100}
    with (
        running(KIND, broker.bootstrap_servers, direction="out", topic="told", group=group),
        LogSubscriber(group, broker.bootstrap_servers, "told", start=positions) as subscriber,
    ):
        write_topic(broker.bootstrap_servers, "told", [b"new"])
        assert next(iter(subscriber)).offset == 100
    for start, said in (({3: 0}, "no partition 3"), ({0: 5_000}, "offset 5000"), ("last", "'last' cannot be")):
        with (
            pytest.raises(GatewayError, match=said),
            LogSubscriber(group, broker.bootstrap_servers, "told", start=start) as subscriber,
        ):
            next(iter(subscriber))


def test_what_the_log_let_go_is_told(broker: Broker, group: str) -> None:
    write_topic(broker.bootstrap_servers, "told", [b"%d" % number for number in range(100)])
    with LogSubscriber(group, broker.bootstrap_servers, "told", start={0: 10}) as subscriber:
        with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
            delete_records(cluster, {TopicPartition("told", 0): 40})
        events = list(itertools.islice(subscriber.events(), 61))
    assert events[0] == TopicGap(0, 10, 40)
    assert [event.offset for event in events[1:]] == list(range(40, 100))


def test_a_topic_that_is_made_again_ends_who_follows_it(broker: Broker, group: str) -> None:
    write_topic(broker.bootstrap_servers, "told", [b"a", b"b"])
    with LogSubscriber(group, broker.bootstrap_servers, "told", start="earliest") as subscriber:
        assert [record.value for record in itertools.islice(subscriber, 2)] == [b"a", b"b"]
        with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
            delete_topics(cluster, ["told"])
        write_topic(broker.bootstrap_servers, "told", [b"c"])
        with pytest.raises(GatewayError, match="deleted and made again"):
            list(subscriber)


def test_a_topic_that_is_made_again_while_it_is_published_ends_who_follows_it(broker: Broker, group: str) -> None:
    write_topic(broker.bootstrap_servers, "told", [b"%d" % number for number in range(5)])
    with (
        running(KIND, broker.bootstrap_servers, direction="out", topic="told", group=group) as gateway,
        LogSubscriber(group, broker.bootstrap_servers, "told", start="earliest") as subscriber,
    ):
        records = iter(subscriber)  # one for all: a new one asks the broker first
        assert [record.offset for record in itertools.islice(records, 5)] == list(range(5))
        until(lambda: gateway.progress.records == 5, "they are published")
        with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
            delete_topics(cluster, ["told"])
            create_topic(cluster, "told", partitions=1)
        write_topic(broker.bootstrap_servers, "told", [b"new %d" % number for number in range(20)])
        until(lambda: gateway.progress.records == 25, "the new one is published")
        with pytest.raises(GatewayError, match="deleted and made again"):
            next(records)


def test_what_comes_from_a_topic_does_not_go_round(broker: Broker, group: str) -> None:
    write_topic(broker.bootstrap_servers, "round", [b"%d" % number for number in range(20)])
    common = {"topic": "round", "group": group}
    with (
        running(KIND, broker.bootstrap_servers, "ear", direction="in", **common) as ear,
        running(KIND, broker.bootstrap_servers, "mouth", direction="out", **common) as mouth,
    ):
        until(lambda: mouth.progress.records == 20, "it is published")
        until(lambda: ear.progress.refused == 20, "it is refused")
        assert ear.progress.records == 0
    assert len(read_topic(broker.bootstrap_servers, "round")) == 20


def test_what_the_broker_refuses_harms_no_other(broker: Broker, group: str) -> None:
    with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        ensure_topic(cluster, "small", configs={"max.message.bytes": "2000"})
    with running(KIND, broker.bootstrap_servers, direction="in", topic="small", group=group) as gateway:
        until(lambda: gateway._subscriber, "it listens")
        with Publisher(group) as publisher:
            for number in range(40):
                publisher.publish(b"%d" % number + b"x" * (5_000 if number % 10 == 3 else 10))
            until(lambda: gateway.progress.records == 36 and gateway.progress.refused == 4, "36 are written")
    found = [int(value.rstrip(b"x")) for _, value in read_topic(broker.bootstrap_servers, "small")]
    assert found == [number for number in range(40) if number % 10 != 3]


def test_a_gateway_with_a_key(broker: Broker, group: str, tmp_path: Path) -> None:
    file = tmp_path / "group.key"
    file.write_text("secret" * 8 + "\n")
    with pytest.raises(HeadraceError, match="chmod 600"):
        KIND.make("k", section(direction="in", group=group, key_file=str(file)), (), threading.Event()).run()
    file.chmod(0o600)
    values = {"direction": "in", "topic": "sealed", "group": group, "key_file": str(file)}
    with running(KIND, broker.bootstrap_servers, **values) as gateway:
        until(lambda: gateway._subscriber, "it listens")
        with Publisher(group) as stranger, Publisher(group, key=b"secret" * 8) as friend:
            stranger.publish(b"no")
            friend.publish(b"yes")
            until(lambda: gateway.progress.records == 1 and gateway.progress.refused > 0, "one is taken")
    assert [value for _, value in read_topic(broker.bootstrap_servers, "sealed")] == [b"yes"]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"overload": "block"}, "overload = 'block' cannot be"),
        ({"interface": ""}, "interface is empty"),
        ({"key_file": ""}, "key_file is empty"),
        ({"topic": "a b"}, "not legal"),
    ],
)
def test_a_section_that_cannot_be_is_one_sentence(told: dict[str, Any], said: str) -> None:
    with pytest.raises(HeadraceError, match=said):
        KIND.check("name", section(direction="in", group="239.255.0.1:7400", **told))


def section(**values: Any) -> dict[str, Any]:
    return with_defaults(KIND.keys, values)


def test_who_else_is_in_the_group_keeps_nobody_from_the_log(broker: Broker, group: str) -> None:
    """No gateway publishes the topic; somebody else publishes in the group all the time."""
    write_topic(broker.bootstrap_servers, "told", [b"0"])
    with (
        Publisher(group, name="other") as other,
        LogSubscriber(group, broker.bootstrap_servers, "told", start="earliest") as subscriber,
    ):
        other.publish(b"noise")
        records = iter(subscriber)
        assert next(records).offset == 0
        until(lambda: subscriber._subscriber.counts.messages == 1, "the other one is heard")
        for offset in (1, 2):
            write_topic(broker.bootstrap_servers, "told", [b"more"])
            assert next(records).offset == offset


def test_a_process_that_was_forked_harms_neither_publisher_nor_subscriber(group: str) -> None:
    """It publishes nothing under the numbers of its parent's messages, and ends nothing of its parent's."""
    with Subscriber(group) as subscriber, Publisher(group, name="of the parent") as publisher:
        publisher.publish(b"before")
        messages = iter(subscriber)
        assert next(messages).value == b"before"
        child = os.fork()
        if child == 0:
            said = 0
            for use in (lambda: publisher.publish(b"child"), publisher.flush, lambda: subscriber.get(0.1)):
                try:
                    use()
                except NotYours:
                    said += 1
            subscriber.close()
            publisher.close()
            os._exit(said)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        busy_s = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - busy_s < 0.1  # its close wakes no thread of ours for ever
        publisher.publish(b"after")
        assert next(messages).value == b"after"
