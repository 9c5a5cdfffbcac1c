"""`queue.transaction()`, and workers with results: a message and its result are finished together, or not at all."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headrace import AsyncQueue, Broker, Queue, Reject
from headrace.client.address import parse_bootstrap
from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.queues.message import Lapsed, Message, QueueError
from headrace.queues.worker import Worker
from headrace.security.acl import Operation, PatternType, Permission, ResourceType
from tests.conformance.clients.sharing import ACCEPT, Sharer
from tests.conformance.clients.wire import Wire
from tests.integration.waiting import wait_until

PATIENCE_S = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    few = {
        "share.coordinator.state.topic.num.partitions": "3",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "group.share.min.record.lock.duration.ms": "100",
    }
    with Broker(tmp_path_factory.mktemp("broker"), settings=few) as broker:
        yield broker


def take(queue: Queue) -> Message:
    message = queue.get(PATIENCE_S)
    assert message is not None, "nothing came"
    return message


def committed(servers: str, topic: str) -> list[bytes | None]:
    """All that a reader of committed records sees, once every transaction up to the end has ended."""
    with Cluster(parse_bootstrap(servers)) as cluster:
        ensure_topic(cluster, topic)
        found = bounds(cluster, cluster.partitions(topic))
        starts = {where: each.start for where, each in found.items() if each.start < each.end}
        ends = {where: found[where].end for where in starts}
        options = FetchOptions(committed=True)
        return [
            read.record.value
            for some in (read_records(cluster, starts, until=ends, options=options) if starts else ())
            for read in some
        ]


def finish(queue: Queue, message: Message, results: str, value: object) -> None:
    with queue.transaction() as transaction:
        transaction.put(results, value)
        transaction.ack(message)


def test_a_message_is_done_with_its_results_and_only_with_them(broker: Broker) -> None:
    with Queue("pictures", broker) as queue, Queue("thumbnails", broker) as thumbnails:
        queue.put({"picture": 1})
        message = take(queue)
        with suppress(ZeroDivisionError), queue.transaction() as transaction:
            transaction.put("thumbnails", "half of one")
            transaction.ack(message)
            transaction.put("thumbnails", 1 / 0)
        with queue.transaction() as transaction:
            transaction.put(thumbnails, {"thumbnail": 1}, key="k", headers={"of": message.id})
            transaction.put("thumbnails", {"thumbnail": 2})
            transaction.ack(message)
        with pytest.raises(QueueError, match="this transaction has ended"):
            transaction.ack(message)
        results = [take(thumbnails), take(thumbnails)]
        assert [each.value for each in results] == [{"thumbnail": 1}, {"thumbnail": 2}]
        assert results[0].headers == {"of": "pictures/0/0"}
        wait_until(lambda: queue.depth() == 0, "the message is not done")
        assert queue.receiver.lapsed == 0
    assert committed(broker.bootstrap_servers, "thumbnails") == [b'{"thumbnail":1}', b'{"thumbnail":2}']


def test_what_is_not_held_any_more_has_no_result(broker: Broker) -> None:
    with Queue("late", broker) as queue:
        queue.put("work")
        message = take(queue)
        message.retry()
        with pytest.raises(Lapsed, match="is not held any more"):
            finish(queue, message, "late-results", "of the first try")
        finish(queue, take(queue), "late-results", "of the second")
        wait_until(lambda: queue.depth() == 0, "the message is not done")
    assert committed(broker.bootstrap_servers, "late-results") == [b'"of the second"']


def test_a_lock_that_lapsed_unnoticed_is_refused_by_the_broker(broker: Broker) -> None:
    """The program stood still for longer than its lock, and somebody else has the message."""
    with Queue("zombie", broker, lock="1s") as queue, Queue("zombie", broker) as other:
        queue.put("work")
        message = take(queue)
        with queue.receiver._lock:  # its thread renews nothing meanwhile
            second = take(other)
        finish(other, second, "zombie-results", "of the other")
        with pytest.raises(Lapsed):
            finish(queue, message, "zombie-results", "of the zombie")
        wait_until(lambda: queue.depth() == 0, "the message is not done")
    assert committed(broker.bootstrap_servers, "zombie-results") == [b'"of the other"']


def test_messages_of_several_queues_groups_and_partitions_are_done_together(broker: Broker) -> None:
    with (
        Queue("left", broker, partitions=3) as left,
        Queue("right", broker) as right,
        Queue("right", broker, group="another") as another,
    ):
        left.put_many(range(30), key=str)
        right.put_many(range(5))
        messages = [take(left) for _ in range(15)] + [take(right) for _ in range(5)] + [take(another) for _ in range(5)]
        with left.transaction() as transaction:
            for message in messages:
                transaction.ack(message)
            transaction.put("both", len(messages))
        messages = [take(left) for _ in range(15)]
        with left.transaction() as transaction:
            for message in messages:
                transaction.ack(message)
        for queue in (left, right, another):
            wait_until(lambda queue=queue: queue.depth() == 0, "some are not done")
    assert committed(broker.bootstrap_servers, "both") == [b"25"]


def test_what_is_rejected_with_a_result_is_a_dead_letter(broker: Broker) -> None:
    with Queue("orders", broker) as queue:
        queue.put("broken")
        with queue.transaction() as transaction:
            transaction.put("complaints", "an order was broken")
            transaction.reject(take(queue), "it was broken")
        wait_until(lambda: queue.depth() == 0, "the message is not done")
    assert committed(broker.bootstrap_servers, "complaints") == [b'"an order was broken"']
    assert committed(broker.bootstrap_servers, "dlq.orders") == [b'"broken"']


def test_on_an_event_loop(broker: Broker) -> None:
    async def run() -> None:
        async with AsyncQueue("async-jobs", broker) as queue:
            await queue.put_many(range(10))
            for _ in range(10):
                message = await queue.get()
                assert message is not None
                async with queue.transaction() as transaction:
                    transaction.put("async-results", message.value)
                    transaction.ack(message)

    asyncio.run(run())
    assert committed(broker.bootstrap_servers, "async-results") == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_worker_returns_is_there_once_for_each_message(broker: Broker, is_async: bool) -> None:
    name = f"squares-{is_async}"
    queue = Queue(name, broker, partitions=2, max_deliveries=10)
    queue.put_many(range(40), key=str)
    failed: set[int] = set()

    def square(message: Message) -> dict[str, int] | None:
        number = message.value
        if number % 7 == 0 and number not in failed:
            failed.add(number)
            raise ValueError("not the first time")
        if number == 13:
            raise Reject("unlucky")
        return {"square": number * number} if number % 10 else None

    async def square_async(message: Message) -> dict[str, int] | None:
        return square(message)

    make = queue.worker(results=f"{name}-results", retry_after=0, concurrency=4)
    worker: Worker = make(square_async if is_async else square)
    running = threading.Thread(target=worker.run)
    running.start()
    with Queue(name, broker) as other:
        wait_until(lambda: other.depth() == 0, "some are not done")
    worker.stop()
    running.join(PATIENCE_S)
    assert not running.is_alive()
    expected = Counter(b'{"square":%d}' % (number * number) for number in range(40) if number % 10 and number != 13)
    assert Counter(committed(broker.bootstrap_servers, f"{name}-results")) == expected
    assert (worker.counts.done, worker.counts.rejected) == (39, 1)


def test_a_result_that_cannot_be_put_leaves_its_message_undone(broker: Broker) -> None:
    with Queue("huge", broker) as queue:
        queue.put("small")
        message = take(queue)
        with pytest.raises(ClientError):
            finish(
                queue, message, "huge-results", random.Random(7).randbytes(2_000_000).hex()
            )  # too large compressed, too
        with pytest.raises(QueueError, match="on another cluster"), queue.transaction() as transaction:
            transaction.put(Queue("elsewhere", "127.0.0.1:1"), 1)
        finish(queue, message, "huge-results", "fits")  # it is still in hand
        wait_until(lambda: queue.depth() == 0, "the message is not done")
    assert committed(broker.bootstrap_servers, "huge-results") == [b'"fits"']


def test_whoever_may_not_write_with_a_transactional_id_cannot_acknowledge_with_it(tmp_path: Path) -> None:
    settings = {"authorization": "on", "allow.everyone.if.no.acl.found": "true"}
    with Broker(tmp_path, settings=settings) as broker, Wire(broker.bootstrap_servers) as wire:
        with Queue("secrets", broker) as queue:
            queue.put("one")
            take(queue).retry()
            assert queue.flush(PATIENCE_S)
        somebody_else = AclCreation(
            resource_type=ResourceType.TRANSACTIONAL_ID,
            resource_name="theirs",
            resource_pattern_type=PatternType.LITERAL,
            principal="User:somebody",
            host="*",
            operation=Operation.WRITE,
            permission_type=Permission.ALLOW,
        )
        assert wire.ask(CreateAclsRequest(creations=[somebody_else])).results[0].error_code == 0
        sharer = Sharer(wire, "secrets", "secrets")
        sharer.join()
        sharer.fetch_some()
        answer = sharer.acknowledge((0, 0, [ACCEPT]), transactional_id="theirs", producer_id=1, producer_epoch=0)
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert sharer.acknowledge((0, 0, [ACCEPT])).responses[0].partitions[0].error_code == 0
