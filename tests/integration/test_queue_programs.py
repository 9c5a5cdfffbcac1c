"""Programs that use queues in ways that nobody planned: nothing that was put is lost, and nobody waits for ever."""

import asyncio
import functools
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from headrace import AsyncQueue, Broker, Queue
from headrace.client.address import parse_bootstrap
from headrace.client.admin import alter_group_configs, create_topic
from headrace.client.cluster import Cluster
from headrace.queues.message import Message, QueueError
from headrace.queues.worker import Worker
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
PATIENCE_S = 60
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "100",
    "share.coordinator.state.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker(settings=SETTINGS, own_process=True) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def name() -> str:
    return f"queue-{uuid.uuid4().hex[:8]}"


@contextmanager
def running(worker: Worker) -> Iterator[None]:
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


# --- functions that are not what they seem


def _wrapped(done: list[int]) -> Callable[[Message], Any]:
    def plain(message: Message) -> None:
        done.append(message.value)

    @functools.wraps(plain)
    async def wrapper(message: Message) -> None:
        plain(message)

    return wrapper


def _wrapper_of_async(done: list[int]) -> Callable[[Message], Any]:
    async def work(message: Message) -> None:
        done.append(message.value)

    @functools.wraps(work)
    def wrapper(message: Message) -> None:
        asyncio.run(work(message))

    return wrapper


def _async_object(done: list[int]) -> Callable[[Message], Any]:
    class Work:
        async def __call__(self, message: Message) -> None:
            done.append(message.value)

    return Work()


@pytest.mark.parametrize("make", [_wrapped, _wrapper_of_async, _async_object])
def test_a_function_is_run_as_what_it_is_and_not_as_what_it_wraps(
    servers: str, name: str, make: Callable[[list[int]], Callable[[Message], Any]]
) -> None:
    done: list[int] = []
    with Queue(name, servers) as queue:
        queue.put_many(range(3))
        worker = queue.worker()(make(done))
        with running(worker):
            wait_until(lambda: worker.counts.done == 3, "all are done")
    assert sorted(done) == [0, 1, 2]


def test_what_a_function_leaves_undone_is_not_acknowledged(servers: str, name: str) -> None:
    async def work(message: Message) -> None:
        raise AssertionError(message)

    with Queue(name, servers, max_deliveries=2) as queue:
        queue.put("precious")
        worker = queue.worker(retry_after=0)(lambda message: work(message))
        with running(worker):
            wait_until(lambda: worker.counts.retried == 2, "it was tried twice")
        assert worker.counts.done == 0
        assert "nobody runs" in worker.counts.last_error

    def yields(message: Message) -> Iterator[Message]:
        yield message

    with pytest.raises(QueueError, match="yields"):
        queue.worker()(yields)


def test_a_worker_has_its_own_back_off_and_otherwise_the_group_has_one(servers: str, name: str) -> None:
    """A worker says how long a message is kept back; where nobody says so, the group's setting does."""
    tries: list[float] = []

    def fail_once(_: Message) -> None:
        tries.append(time.monotonic())
        if len(tries) == 1:
            raise ValueError("not yet")

    with Cluster(parse_bootstrap(servers)) as cluster:
        for group, backoff_ms in ((name, "3600000"), (f"{name}-again", "700")):
            alter_group_configs(cluster, group, changes={"headrace.retry.backoff.ms": backoff_ms})
    with Queue(name, servers, group=name) as queue:
        queue.put("work")
        worker = queue.worker(retry_after="300ms")(fail_once)
        with running(worker):
            wait_until(lambda: worker.counts.done == 1, "it came again, and not after the group's hour")
    assert tries[1] - tries[0] >= 0.29  # times are cut to milliseconds
    with Queue(name, servers, group=f"{name}-again") as queue:
        message = queue.get(PATIENCE_S)
        assert message is not None
        released = time.monotonic()
        message.retry()
        again = queue.get(PATIENCE_S)
        assert again is not None
        assert time.monotonic() - released >= 0.69
        again.ack()


def test_a_function_that_ends_its_thread_has_failed(servers: str, name: str) -> None:
    with Queue(name, servers, max_deliveries=2) as queue:
        queue.put_many(range(4))
        worker = queue.worker(concurrency=2, retry_after=0)(lambda _: sys.exit(3))
        with running(worker):  # both threads would be gone after two
            wait_until(lambda: worker.counts.retried == 8, "each was tried twice")
            assert "SystemExit" in worker.counts.last_error


def test_an_async_worker_with_all_hands_busy_can_be_stopped(servers: str, name: str) -> None:
    async def hang(_: Message) -> None:
        await asyncio.Event().wait()

    with Queue(name, servers) as queue:
        queue.put_many(range(3))
        worker = Worker(queue, hang, concurrency=1, timeout=None, grace=0.1)
        with running(worker):
            wait_until(lambda: worker.counts.running == 1, "it is at work")
    with Queue(name, servers) as queue:
        assert queue.depth() == 3


# --- threads, loops, forks, pauses


def test_whoever_iterates_is_done_when_another_thread_closes_the_queue(servers: str, name: str) -> None:
    queue = Queue(name, servers)
    queue.put(1)
    messages = iter(queue)
    next(messages).ack()
    queue.close()
    assert list(messages) == []
    assert queue.get() is None
    with pytest.raises(QueueError, match="is closed"):
        queue.put(2)


def test_one_thread_waits_for_room_while_another_makes_it(servers: str, name: str) -> None:
    full = {"headrace.overflow": "block", "headrace.overflow.records": "1"}
    full |= {"headrace.queue.delete.acknowledged": "true"}
    with Cluster(parse_bootstrap(servers)) as cluster:
        create_topic(cluster, name, partitions=1, configs=full)
    with Queue(name, servers, prefetch=1) as queue, ThreadPoolExecutor(1) as threads:
        queue.put(0)
        taken = []
        for number in range(1, 4):
            putting = threads.submit(queue.put, number)  # of the same queue, which is full
            message = queue.get(PATIENCE_S)
            assert message is not None
            taken.append(message.value)
            message.ack()
            putting.result(PATIENCE_S)
        assert taken == [0, 1, 2]


def test_threads_begin_to_put_and_to_take_at_once(servers: str, name: str) -> None:
    for _ in range(10):
        with Queue(name, servers) as queue, ThreadPoolExecutor(2) as threads:
            queue.open()
            putting = threads.submit(lambda queue=queue: [queue.put(number) for number in range(3)])
            taking = threads.submit(queue.get, PATIENCE_S)
            putting.result(PATIENCE_S)
            message = taking.result(PATIENCE_S)
            assert message is not None
            message.ack()


def test_an_async_queue_outlives_its_event_loop(servers: str, name: str) -> None:
    queue = AsyncQueue(name, servers)

    async def take() -> Any:
        taking = asyncio.create_task(queue.get())
        await asyncio.sleep(0)  # it waits for something that is not there yet
        await queue.put("x")
        message = await asyncio.wait_for(taking, PATIENCE_S)
        assert message is not None
        message.ack()
        return message.value

    assert [asyncio.run(take()), asyncio.run(take())] == ["x", "x"]
    asyncio.run(queue.close())


def test_a_fork_has_a_queue_of_its_own(servers: str, name: str) -> None:
    with Queue(name, servers) as queue:
        queue.put("before")
        children = []
        for child in range(3):
            pid = os.fork()
            if pid == 0:
                try:
                    for number in range(50):
                        queue.put([child, number])
                    message = queue.get(PATIENCE_S)
                    if message is not None:
                        message.ack()
                        queue.close()
                        os._exit(0)
                finally:
                    os._exit(1)
            children.append(pid)
        for pid in children:
            assert os.waitpid(pid, 0)[1] == 0
        queue.put("after")
        assert queue.depth() == 1 + 150 + 1 - 3


def test_a_process_that_was_stopped_for_longer_than_its_locks_goes_on(servers: str, name: str) -> None:
    with Queue(name, servers) as queue:
        queue.put_many(range(8))
    shelved, go_on = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with Queue(name, servers, prefetch=8, lock=2, max_deliveries=10) as taker:
                first = taker.get(PATIENCE_S)
                assert first is not None
                first.ack()
                wait_until(lambda: len(taker.receiver._held) == 7, "the others are fetched")
                os.write(shelved[1], b"!")
                os.read(go_on[0], 1)
                for message in taker:
                    message.ack()
                    if taker.flush(PATIENCE_S) and taker.depth() == 0:
                        os._exit(0)
        finally:
            os._exit(1)
    assert os.read(shelved[0], 1)
    os.kill(pid, signal.SIGSTOP)
    with Queue(name, servers) as other:
        message = other.get(PATIENCE_S)  # comes when the locks have lapsed
        assert message is not None
        message.retry()
    os.write(go_on[1], b"!")
    os.kill(pid, signal.SIGCONT)
    assert os.waitpid(pid, 0)[1] == 0
    for descriptor in (*shelved, *go_on):
        os.close(descriptor)


def test_the_longest_name_has_dead_letters_too(servers: str) -> None:
    longest = "n" * (249 - 8) + uuid.uuid4().hex[:8]
    with Queue(longest, servers) as queue:
        queue.put(1)
        message = queue.get(PATIENCE_S)
        assert message is not None
        message.reject("of no use")
        assert queue.flush(PATIENCE_S)


@pytest.mark.parametrize("is_worker", [False, True])
def test_what_nobody_has_seen_does_not_count_as_delivered(servers: str, name: str, is_worker: bool) -> None:
    """Programs that are started again and again: what they fetched ahead is not given up because of that."""
    with Queue(name, servers) as queue:
        queue.put_many(range(8))
    for done in range(1, 5):
        with Queue(name, servers, max_deliveries=2) as queue:
            if is_worker:
                begun, may_end = threading.Event(), threading.Event()

                def work(_: Message, begun: threading.Event = begun, may_end: threading.Event = may_end) -> None:
                    begun.set()
                    may_end.wait(PATIENCE_S)

                worker = queue.worker(concurrency=1)(work)
                with running(worker):
                    assert begun.wait(PATIENCE_S)
                    worker.stop()
                    may_end.set()
            else:
                message = queue.get(PATIENCE_S)
                assert message is not None
                message.ack()
        with Queue(name, servers) as queue:
            assert queue.depth() == 8 - done
    with Queue(name, servers) as queue:
        message = queue.get(PATIENCE_S)
        assert message is not None
        assert (message.value, message.deliveries) == (4, 1)
