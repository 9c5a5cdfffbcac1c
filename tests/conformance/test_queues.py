"""`headrace.Queue` on our broker and on a real Kafka: what share groups can do is the same on both."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid

import pytest

from headrace import AsyncQueue, Queue, Reject
from headrace.queues.message import InvalidValue, QueueError, Unsupported

PATIENCE_S = 60


@pytest.fixture(params=["ours", pytest.param("kafka", marks=pytest.mark.java)])
def servers(request: pytest.FixtureRequest) -> str:
    """Where to connect to."""
    return str(request.getfixturevalue("our_broker" if request.param == "ours" else "real_kafka"))


@pytest.fixture
def is_ours(servers: str, request: pytest.FixtureRequest) -> bool:
    return bool(servers == request.getfixturevalue("our_broker"))


@pytest.fixture
def name() -> str:
    return f"queue-{uuid.uuid4().hex[:8]}"


def wait_for_depth(queue: Queue, wanted: int) -> None:
    """Kafka tells of what is finished a moment after it has acknowledged it."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := queue.depth()) != wanted:
        assert time.monotonic() < deadline, f"{found} messages are left, and not {wanted}"
        time.sleep(0.05)  # the pause of a poll


def test_messages_are_shared_and_each_is_done_once(servers: str, name: str, is_ours: bool) -> None:
    total = 300
    taken: list[list[int]] = [[], [], []]
    done = threading.Semaphore(0)
    queues = [Queue(name, servers, partitions=2, prefetch=10) for _ in taken]

    def consume(queue: Queue, seen: list[int]) -> None:
        for message in queue:
            seen.append(message.value["n"])
            message.ack()
            done.release()

    with queues[0]:
        assert (
            queues[0].put_many([{"n": number} for number in range(total)], key=lambda value: str(value["n"])) == total
        )
        assert queues[0].depth() == total
        threads = [
            threading.Thread(target=consume, args=(queue, seen)) for queue, seen in zip(queues, taken, strict=True)
        ]
        for thread in threads:
            thread.start()
        for _ in range(total):
            assert done.acquire(timeout=PATIENCE_S)
        for queue in queues:
            assert queue.flush(PATIENCE_S)
        if is_ours:  # what Kafka tells stays wrong where consumers acknowledge in one partition at the same time
            wait_for_depth(queues[0], 0)
        for queue in queues:
            queue.close()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert sorted(number for seen in taken for number in seen) == list(range(total))
    assert [queue.receiver.lapsed for queue in queues] == [0, 0, 0]
    with Queue(name, servers) as late:
        assert late.get(timeout=2) is None


def test_what_is_not_done_comes_again_and_what_is_rejected_does_not(servers: str, name: str) -> None:
    with Queue(name, servers, values="text") as queue:
        queue.put("first", key="k", headers={"trace": "1"})
        message = queue.get(PATIENCE_S)
        assert message is not None
        assert (message.value, message.key, message.headers, message.deliveries) == ("first", "k", {"trace": "1"}, 1)
        message.retry()
        again = queue.get(PATIENCE_S)
        assert again is not None
        assert (again.value, again.deliveries) == ("first", 2)
        message.ack()  # it was said already that it is to come again
        begun = time.monotonic()
        again.retry(after="1s")
        later = queue.get(PATIENCE_S)
        assert later is not None
        assert (later.value, later.deliveries) == ("first", 3)
        assert time.monotonic() - begun > 0.9
        later.reject("no such address")
        queue.put("second")
        last = queue.get(PATIENCE_S)
        assert last is not None
        assert last.value == "second"
        last.ack()
        assert queue.flush(PATIENCE_S)
        wait_for_depth(queue, 0)


def test_a_lock_is_renewed_for_as_long_as_the_work_takes(servers: str, name: str) -> None:
    lock_s = 5
    with Queue(name, servers, lock=lock_s) as queue, Queue(name, servers) as other:
        queue.put("long")
        message = queue.get(PATIENCE_S)
        assert message is not None
        assert other.get(timeout=lock_s * 1.5) is None
        message.ack()
        assert queue.flush(PATIENCE_S)
        assert queue.receiver.lapsed == 0
        wait_for_depth(queue, 0)


def test_a_message_that_the_program_forgets_comes_again(servers: str, name: str) -> None:
    with Queue(name, servers, lock="2s") as queue:
        queue.put("forgotten")
        message = queue.get(PATIENCE_S)
        assert message is not None
        del message
        again = queue.get(PATIENCE_S)
        assert again is not None
        assert again.deliveries == 2
        again.ack()


def test_groups_have_all_messages_each(servers: str, name: str) -> None:
    with Queue(name, servers) as queue:
        queue.put(1)
        for group in ("mail", "audit"):
            with Queue(name, servers, group=f"{name}-{group}") as mine:
                message = mine.get(PATIENCE_S)
                assert message is not None
                assert message.value == 1
                message.ack()


def test_on_an_event_loop(servers: str, name: str) -> None:
    async def run() -> list[int]:
        async with AsyncQueue(name, servers, prefetch=4) as queue:
            assert await queue.put_many(range(20)) == 20
            found: list[int] = []
            async with asyncio.timeout(PATIENCE_S):
                async for message in queue:
                    found.append(message.value)
                    message.ack()
                    if len(found) == 20:
                        break
                assert await queue.flush()
            return found

    assert sorted(asyncio.run(run())) == list(range(20))


@pytest.mark.parametrize("is_async", [False, True])
def test_a_worker_retries_what_fails_and_rejects_what_never_will(servers: str, name: str, is_async: bool) -> None:
    with Queue(name, servers) as queue:
        queue.put_many(["good", "flaky", "bad", "slow"])
    queue = Queue(name, servers)
    calls: list[tuple[str, int]] = []
    finished = threading.Event()

    def decide(message) -> None:
        calls.append((message.value, message.deliveries))
        if message.value == "flaky" and message.deliveries < 3:
            raise ConnectionError("the mail server is away")
        if message.value == "bad":
            raise Reject("no such address")

    def is_slow(message) -> bool:
        return message.value == "slow" and message.deliveries == 1

    if is_async:

        @queue.worker(concurrency=4, timeout="1s", retry_after=0.1)
        async def work(message) -> None:
            decide(message)
            if is_slow(message):
                await asyncio.sleep(3600)
    else:

        @queue.worker(concurrency=4, timeout="1s", retry_after=0.1)
        def work(message) -> None:
            decide(message)
            if is_slow(message):
                finished.wait(PATIENCE_S)

    runner = threading.Thread(target=work.run)
    runner.start()
    with Queue(name, servers) as watched:
        wait_for_depth(watched, 0)
    finished.set()
    work.stop()
    runner.join(PATIENCE_S)
    assert not runner.is_alive()
    assert sorted(calls) == [
        ("bad", 1),
        ("flaky", 1),
        ("flaky", 2),
        ("flaky", 3),
        ("good", 1),
        ("slow", 1),
        ("slow", 2),
    ]
    assert (work.counts.done, work.counts.rejected, work.counts.retried, work.counts.timed_out) == (
        3 if is_async else 4,  # a plain function cannot be stopped, and has done its work in vain
        1,
        2,
        1,
    )


def test_what_a_value_is_not(servers: str, name: str) -> None:
    with Queue(name, servers, values="bytes") as raw, Queue(name, servers) as queue:
        with pytest.raises(InvalidValue, match="put bytes"):
            raw.put({"n": 1})
        with pytest.raises(InvalidValue, match="cannot be put as JSON"):
            queue.put({1, 2})
        raw.put(b"{not json")
        message = queue.get(PATIENCE_S)
        assert message is not None
        with pytest.raises(InvalidValue, match=r"not JSON.*see message\.data"):
            _ = message.value
        assert message.data == b"{not json"
        message.reject("not JSON")


def test_mistakes_are_one_sentence(servers: str, name: str) -> None:
    with pytest.raises(QueueError, match="values='xml' is not possible"):
        Queue(name, servers, values="xml")
    with pytest.raises(QueueError, match="prefetch=0 is not possible"):
        Queue(name, servers, prefetch=0)
    with Queue(name, servers) as queue, pytest.raises(QueueError, match="delay='soon' is not a length of time"):
        queue.put(1, delay="soon")
    with pytest.raises(QueueError, match="is closed"):
        queue.put(1)


@pytest.mark.java
def test_what_another_kafka_cannot_do_is_said_before_anything_is_written(real_kafka: str, name: str) -> None:
    with Queue(name, real_kafka) as queue:
        for options in ({"delay": 1}, {"ttl": 1}, {"dedup_id": "a"}, {"repeat": "5m"}, {"priority": 0}):
            (option,) = options
            with pytest.raises(Unsupported, match=f"{option}= is not supported by the Kafka at"):
                queue.put("later", **options)
        with pytest.raises(Unsupported):
            queue.cancel("a")
        with pytest.raises(Unsupported, match="share groups cannot acknowledge in one: put the result with the id of"):
            queue.transaction()
        with pytest.raises(Unsupported, match="share groups cannot acknowledge in one"):
            Queue(name, real_kafka).worker(results="results")(lambda _: None).run()
        assert queue.depth() == 0
    with pytest.raises(Unsupported, match="priorities= is not supported"), Queue(name, real_kafka, priorities=3):
        pass
