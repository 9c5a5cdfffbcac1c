"""`queue.transaction()` where somebody forks, interrupts, commits twice, or empties the queue: each has one result."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from headrace import Broker, Queue
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.errors import Refused
from headrace.client.groups import delete_groups
from headrace.client.share_groups import alter_share_offsets, share_offsets
from headrace.client.transactions import Transactions
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.queues.message import Lapsed, Message, QueueError
from headrace.queues.moving import Mover, plan_purge
from headrace.queues.transaction import Transaction
from headrace.retry import Backoff
from tests.conformance.clients.sharing import ACCEPT, Sharer, set_group
from tests.conformance.clients.wire import Wire, batch_of
from tests.integration.test_queue_transactions import committed, finish, take
from tests.integration.waiting import wait_until

PATIENCE_S = 60
SOON_S = 20  # much less than the time of a transaction


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


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return request.node.name.removeprefix("test_")[:60].strip("[]_")


def fail_to_finish(queue: Queue, message: Message, **options: object) -> None:
    """A transaction that has put its result, and is aborted since its message has lapsed."""
    transaction = queue.transaction()
    transaction.put(f"{queue.name}-results", "of the first try", **options)
    transaction.ack(message)
    with pytest.raises(Lapsed):
        transaction.commit()


def commit_at_once(transaction: Transaction, threads: int) -> int:
    """Commit in several threads; in how many of them that was done."""
    begin = threading.Barrier(threads)
    done: list[bool] = []

    def commit() -> None:
        begin.wait()
        with suppress(QueueError):
            transaction.commit()
            done.append(True)

    running = [threading.Thread(target=commit) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(PATIENCE_S)
    return len(done)


def test_a_fork_cannot_finish_what_its_parent_holds(broker: Broker, name: str) -> None:
    with Queue(name, broker) as queue:
        queue.put("work")
        message = take(queue)
        pid = os.fork()
        if pid == 0:
            try:
                signal.alarm(SOON_S)  # whoever hangs is killed
                finish(queue, message, f"{name}-results", "of the child")
            except Lapsed:
                message.ack()  # which says nothing either
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        finish(queue, message, f"{name}-results", "of the parent")
        wait_until(lambda: queue.depth() == 0, "the message is not done")
    assert committed(broker.bootstrap_servers, f"{name}-results") == [b'"of the parent"']


def test_of_threads_that_commit_one_transaction_one_does(broker: Broker, name: str) -> None:
    with Queue(name, broker) as queue:
        queue.put_many(range(20))
        for _ in range(20):
            transaction = queue.transaction()
            transaction.put(f"{name}-results", "once")
            transaction.ack(take(queue))
            assert commit_at_once(transaction, threads=4) == 1
        wait_until(lambda: queue.depth() == 0, "some are not done")
    assert committed(broker.bootstrap_servers, f"{name}-results") == [b'"once"'] * 20


def test_whoever_is_interrupted_leaves_no_transaction_open(
    broker: Broker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Queue(name, broker) as queue:
        queue.put("work")
        message = take(queue)
        real = queue.receiver.acknowledge_in

        def interrupt(*arguments: object) -> None:
            real(*arguments)  # type: ignore[arg-type]
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(queue.receiver, "acknowledge_in", interrupt)
            with pytest.raises(KeyboardInterrupt):
                finish(queue, message, f"{name}-results", "of the first try")
        began = time.monotonic()
        finish(queue, take(queue), f"{name}-results", "of the second")
        assert time.monotonic() - began < SOON_S
    assert committed(broker.bootstrap_servers, f"{name}-results") == [b'"of the second"']


def test_a_result_with_an_id_is_not_a_duplicate_of_one_that_was_aborted(broker: Broker, name: str) -> None:
    with Queue(name, broker) as queue, Queue(f"{name}-results", broker) as results:
        queue.put("work")
        message = take(queue)
        message.retry()
        fail_to_finish(queue, message, dedup_id="work")
        with queue.transaction() as transaction:
            transaction.put(results, "of the second", dedup_id="work")
            transaction.ack(take(queue))
        queue.put("more work")
        with queue.transaction() as transaction:
            transaction.put(results, "of the third", dedup_id="work")
            transaction.put(results, "of another", dedup_id="another")
            transaction.ack(take(queue))
        found = [take(results), take(results)]
        assert [each.value for each in found] == ["of the second", "of another"]


def test_what_waits_for_its_time_does_so_only_if_it_was_committed(broker: Broker, name: str) -> None:
    with Queue(name, broker) as queue, Queue(f"{name}-results", broker) as results:
        queue.put_many(["work", "more work"])
        message = take(queue)
        message.retry()
        fail_to_finish(queue, message, delay="100ms", schedule_id="later")
        fail_to_finish(queue, message, repeat="1s")
        for number in range(2):
            with queue.transaction() as transaction:
                transaction.put(results, number, delay="200ms", schedule_id=f"later-{number}")
                transaction.ack(take(queue))
        found = [take(results), take(results)]
        assert sorted(each.value for each in found) == [0, 1]
        for each in found:
            each.ack()
        assert results.get(1.5) is None


class Suspended:
    """A group of which one record is acknowledged in a transaction, and all members are gone."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.cluster = Cluster(parse_bootstrap(broker.bootstrap_servers), retry=Backoff(0.01, 0.02, retries=2))
        self.coordinators = Coordinators(self.cluster)
        self.transactions = Transactions(self.cluster)
        with Wire(broker.bootstrap_servers) as wire:
            wire.create(name)
            set_group(wire, name, share_auto_offset_reset="earliest")
            wire.produce(name, batch_of(b"one", b"two"))
            sharer = Sharer(wire, name, name)
            sharer.join()
            sharer.fetch_some()
            self.open = self.transactions.begin(f"of {name}", 60_000)
            asked = {"transactional_id": self.open.transactional_id, "producer_id": self.open.producer_id}
            answer = sharer.acknowledge((0, 0, [ACCEPT]), producer_epoch=self.open.epoch, **asked)
            assert answer.responses[0].partitions[0].error_code == 0, answer
            sharer.acknowledge(epoch=-1)
            sharer.beat(-1)


def test_nobody_empties_a_queue_while_a_transaction_has_messages_of_it(broker: Broker, name: str) -> None:
    """It would forget them: after a move they would be done twice, after an abort not at all."""
    suspended = Suspended(broker, name)
    asked = suspended.coordinators
    with Wire(broker.bootstrap_servers) as wire:
        wire.create(f"{name}-target")
    with pytest.raises(QueueError, match=r"1 messages of group .* in a transaction that is open"):
        plan_purge(asked, name, name)
    with pytest.raises(QueueError, match="in a transaction that is open"):
        Mover(asked, name, name, f"{name}-target")
    with pytest.raises(Refused, match="in a transaction that is open") as refused:
        alter_share_offsets(asked, name, {TopicPartition(name, 0): 2})
    assert refused.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    with pytest.raises(Refused, match="a transaction in which records of it are acknowledged is open"):
        delete_groups(asked, [name])
    assert suspended.transactions.commit(suspended.open)
    wait_until(lambda: share_offsets(asked, name)[TopicPartition(name, 0)].unfinished == 1, "it is not done")
    assert plan_purge(asked, name, name).messages == 1
    delete_groups(asked, [name])
    suspended.cluster.close()
