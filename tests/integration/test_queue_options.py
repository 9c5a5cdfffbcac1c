"""What `headrace.Queue` can ask of our broker beyond a share group: later, once, again and again, urgent first."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from headrace import Broker, Queue
from headrace.client.admin import alter_configs
from headrace.client.errors import UnknownTopic
from headrace.delivery.headers import ORIGIN
from headrace.delivery.letters import Letter
from headrace.queues.message import Message, QueueError, Unsupported
from headrace.queues.redrive import read_letters, redrive
from tests.integration.waiting import wait_until

PATIENCE_S = 60
CLOCKS_MS = 1  # times are rounded to milliseconds


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    few = {"share.coordinator.state.topic.num.partitions": "1"}
    with Broker(tmp_path_factory.mktemp("broker"), durability="os", settings=few) as broker:
        yield broker


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def take(queue: Queue) -> Message:
    message = queue.get(PATIENCE_S)
    assert message is not None, "nothing came"
    message.ack()
    return message


def take_until(queue: Queue, value: str) -> list[Message]:
    """What comes, up to this one."""
    messages = [take(queue)]
    while messages[-1].value != value:
        messages.append(take(queue))
    return messages


def values(messages: list[Message]) -> list[str]:
    return [message.value for message in messages]


def test_what_is_to_come_later_does_not_come_sooner(broker: Broker) -> None:
    with Queue("later", broker) as queue:
        begun_ms = now_ms()
        due_ms = {"delay": begun_ms + 600, "seconds": begun_ms + 700, "datetime": begun_ms + 800, "now": 0}
        queue.put("delay", delay="600ms", key="k", headers={"trace": "1"})
        queue.put("seconds", at=due_ms["seconds"] / 1000)
        queue.put("datetime", at=datetime.fromtimestamp(due_ms["datetime"] / 1000, UTC))
        queue.put("now")
        while due_ms:
            message = take(queue)
            assert now_ms() + CLOCKS_MS >= due_ms.pop(message.value)
            if message.value == "delay":
                assert (message.key, message.headers["trace"]) == ("k", "1")
                assert message.headers[ORIGIN].startswith("later/0/0")
                assert "headrace-delay-ms" not in message.headers


def test_what_has_expired_does_not_come(broker: Broker) -> None:
    with Queue("expiry", broker) as queue:  # nobody takes yet
        queue.put("gone", ttl="1ms")
        queue.put("kept", ttl="1h")
        queue.put("end")
        assert values(take_until(queue, "end")) == ["kept", "end"]


def test_one_id_is_delivered_once_from_whatever_partition(broker: Broker) -> None:
    with Queue("once", broker, partitions=4) as queue, Queue("once", broker) as other:
        for number in range(8):
            (queue, other)[number % 2].put(f"first {number // 4}", dedup_id=f"id {number // 4}")
        queue.put("another", dedup_id="another")
        assert sorted(values([take(queue) for _ in range(3)])) == ["another", "first 0", "first 1"]
        for name in ("id 0", "id 1", "another"):
            queue.put("end", key=name)  # into the partition of the id, behind what would come twice
        assert values([take(queue) for _ in range(3)]) == ["end"] * 3


def test_what_repeats_comes_until_it_is_cancelled(broker: Broker) -> None:
    with Queue("beats", broker, partitions=3) as queue:
        queue.put("beat", repeat="1s", schedule_id="beat")
        first, second = take(queue), take(queue)
        assert (first.value, second.value) == ("beat", "beat")
        assert second.headers[ORIGIN] == first.headers[ORIGIN].removesuffix("0") + "1"
        queue.cancel("beat")
        # It is behind the cancellation, in its partition: what was taken was followed, and so was what is before it.
        queue.put("cancelled", key="beat")
        take_until(queue, "cancelled")
        seen_ms = now_ms()
        queue.put("after", delay="1500ms", key="beat")
        beats = [message for message in take_until(queue, "after") if message.value == "beat"]
        assert not [beat for beat in beats if beat.timestamp_ms > seen_ms], "it came after it was cancelled"


def test_what_waits_is_replaced_by_its_id(broker: Broker) -> None:
    with Queue("replaced", broker, partitions=3) as queue:
        queue.put("in an hour", delay="1h", schedule_id="report")
        queue.put("soon", delay="100ms", schedule_id="report")
        assert take(queue).value == "soon"


def test_the_most_urgent_comes_first(broker: Broker) -> None:
    with Queue("urgent", broker, priorities=3, prefetch=1) as queue:
        for level in range(3):
            queue.put("begin", priority=level)
        assert values([take(queue) for _ in range(3)]) == ["begin"] * 3  # the group has begun, in every partition
        queue.put("held", priority=0)
        held = queue.get(PATIENCE_S)  # for as long as it is in hand, no other one is fetched
        assert held is not None
        for level in (2, 1, None, 0, 1, 0):
            queue.put(f"level {2 if level is None else level}", priority=level)
        held.ack()
        assert values([take(queue) for _ in range(6)]) == [f"level {level}" for level in (0, 0, 1, 1, 2, 2)]
        with pytest.raises(QueueError, match="priority=3 is not possible: topic 'urgent' has 0 to 2"):
            queue.put("x", priority=3)


def test_a_topic_that_did_not_opt_in_refuses_in_one_sentence(broker: Broker) -> None:
    with Queue("plain", broker) as queue, queue.connect() as cluster:
        alter_configs(cluster, "plain", changes={"headrace.queue": "false"})
    with Queue("plain", broker) as queue:
        with pytest.raises(Unsupported, match="delay= is not supported by topic 'plain' as it is set: set headrace"):
            queue.put("x", delay=1)
        with pytest.raises(Unsupported, match="priority= is not supported by topic 'plain' as it is set: make the"):
            queue.put("x", priority=0)
        assert queue.depth() == 0


def letters_of(queue: Queue) -> dict[str, Letter]:
    """The dead letters of a queue that are there by now, by their values."""
    with queue.connect() as cluster:
        try:
            found = [each.letter for some in read_letters(cluster, f"dlq.{queue.name}") for each in some]
        except UnknownTopic:
            return {}
    return {queue.codec.decode(letter.value): letter for letter in found}


def test_what_is_given_up_is_a_dead_letter_with_its_reason_and_can_be_sent_back(broker: Broker) -> None:
    with Queue("given-up", broker, max_deliveries=2) as queue:
        queue.put("rejected", key="k", headers={"trace": "1"})
        message = queue.get(PATIENCE_S)
        assert message is not None
        message.reject("no such address")
        queue.put("failing")
        for _ in range(2):
            message = queue.get(PATIENCE_S)
            assert message is not None
            message.retry(reason="é" * 2000 + "\udcff")  # more than fits, and not even text
        wait_until(lambda: len(letters_of(queue)) == 2, "both are dead letters", patience_s=PATIENCE_S)
        letters = letters_of(queue)
        assert letters["rejected"].reason == "no such address"
        assert (letters["rejected"].key, dict(letters["rejected"].headers)) == (b"k", {"trace": b"1"})
        assert (letters["failing"].deliveries, set(letters["failing"].reason)) == (2, {"é"})
        wait_until(lambda: queue.depth() == 0, "they are finished for the group", patience_s=PATIENCE_S)
        with queue.connect() as cluster:
            assert redrive(cluster, "dlq.given-up").sent == 2
        assert sorted(values([take(queue) for _ in range(2)])) == ["failing", "rejected"]
        assert queue.receiver.lapsed == 0
