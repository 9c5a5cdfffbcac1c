"""`headrace.rpc` on our broker and on a real Kafka."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from headrace import Queue, rpc
from headrace.client.address import parse_bootstrap
from headrace.client.admin import delete_topics
from headrace.client.cluster import Cluster
from headrace.delivery.headers import CORRELATION_ID, DEADLINE, REPLY_TO

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 60


@pytest.fixture(params=["ours", pytest.param("kafka", marks=pytest.mark.java)])
def servers(request: pytest.FixtureRequest) -> str:
    """Where to connect to."""
    return str(request.getfixturevalue("our_broker" if request.param == "ours" else "real_kafka"))


@pytest.fixture
def service() -> str:
    return f"service-{uuid.uuid4().hex[:8]}"


@contextmanager
def running(*responders: rpc.Responder) -> Iterator[None]:
    threads = [threading.Thread(target=each.run) for each in responders]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for each in responders:
            each.stop()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def reply_topics(servers: str, service: str) -> list[str]:
    with Cluster(parse_bootstrap(servers)) as cluster:
        return [topic.name for topic in cluster.topics() if topic.name.startswith(f"{service}.replies.")]


def test_several_responders_share_the_load_and_errors_come_back(servers: str, service: str) -> None:
    handled: list[list[int]] = [[], []]

    def make(mine: list[int]) -> rpc.Responder:
        @rpc.responder(service, servers, concurrency=2, prefetch=2)
        def double(number: int) -> int:
            mine.append(number)
            if number < 0:
                raise ValueError("no negative numbers")
            return number * 2

        return double

    responders = [make(mine) for mine in handled]
    assert responders[0](4) == 8  # the function as it was
    handled[0].clear()
    with running(*responders), rpc.Client(service, servers, timeout=PATIENCE_S) as client:
        assert len(reply_topics(servers, service)) == 1
        futures = [client.submit(number) for number in range(40)]
        assert [future.result(PATIENCE_S) for future in futures] == [number * 2 for number in range(40)]
        with pytest.raises(rpc.RemoteError, match=f"'{service}' failed with ValueError: no negative numbers") as raised:
            client.call(-1)
        assert (raised.value.kind, raised.value.text) == ("ValueError", "no negative numbers")
    assert sorted(number for mine in handled for number in mine) == [-1, *range(40)]
    deadline = time.monotonic() + PATIENCE_S
    while reply_topics(servers, service):  # Kafka's brokers forget a topic a moment after it was deleted
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_request_whose_deadline_has_passed_is_not_handled(servers: str, service: str) -> None:
    seen: list[str] = []

    @rpc.responder(service, servers, concurrency=1)
    def echo(value: str) -> str:
        seen.append(value)
        return value

    with rpc.Client(service, servers) as client:
        with pytest.raises(rpc.DeadlineExceeded, match="did not reply in time"):
            client.call("too late", timeout=0.1)
        with running(echo):
            assert client.call("in time", timeout=PATIENCE_S) == "in time"
    assert seen == ["in time"]


def test_who_is_cancelled_is_not_served(servers: str, service: str) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    @rpc.responder(service, servers, concurrency=1)
    async def wait(value: str) -> str:
        if value == "quick":
            return value
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "in vain"

    async def call() -> str:
        task = asyncio.ensure_future(client.call_async("long", timeout=PATIENCE_S))
        assert await asyncio.to_thread(begun.wait, PATIENCE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await client.call_async("quick", timeout=PATIENCE_S)

    with running(wait), rpc.Client(service, servers) as client:
        assert asyncio.run(call()) == "quick"
        assert cancelled.wait(PATIENCE_S)
        future = client.submit("long", timeout=PATIENCE_S)
        assert future.cancel()
        with pytest.raises(CancelledError):
            future.result()
        assert client.call("quick", timeout=PATIENCE_S) == "quick"
    assert wait.counts.retried == 0


def test_a_client_that_is_gone_harms_nobody(servers: str, service: str) -> None:
    @rpc.responder(service, servers, concurrency=1)
    def echo(value: str) -> str:
        return value

    later = str(time.time_ns() // 1_000_000 + PATIENCE_S * 1000)
    with running(echo), rpc.Client(service, servers) as client, Queue(service, servers) as queue:
        queue.put("?", headers={CORRELATION_ID: "1", REPLY_TO: f"{service}.replies.gone", DEADLINE: later})
        queue.put("?", headers={})  # nobody's request
        assert client.call("here", timeout=PATIENCE_S) == "here"


def test_a_responder_writes_to_no_topic_but_those_of_replies(servers: str, service: str) -> None:
    handled: list[object] = []

    @rpc.responder(service, servers, concurrency=1)
    def echo(value: object) -> object:
        handled.append(value)
        return value

    later = str(time.time_ns() // 1_000_000 + PATIENCE_S * 1000)
    with (
        running(echo),
        rpc.Client(service, servers) as client,
        Queue(service, servers) as queue,
        Queue(f"{service}-payments", servers) as payments,
    ):
        queue.put("pay me", headers={CORRELATION_ID: "1", REPLY_TO: payments.name, DEADLINE: later})
        assert client.call("here", timeout=PATIENCE_S) == "here"
        assert payments.depth() == 0
    assert handled == ["here"]
    assert echo.counts.rejected == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_whatever_is_in_the_way_of_a_reply_is_raised_where_it_is_waited_for(
    servers: str, service: str, is_async: bool
) -> None:
    handled: list[int] = []

    def large(size: int) -> str:
        handled.append(size)
        if size < 0:
            raise ValueError("x" * -size)
        return "x" * size

    async def large_async(size: int) -> str:
        return large(size)

    responder = rpc.responder(service, servers)(large_async if is_async else large)
    with running(responder), rpc.Client(service, servers) as client:
        for size in (2_000_000, -2_000_000):
            with pytest.raises(rpc.RemoteError, match=r"MESSAGE_TOO_LARGE|xxxx"):
                client.call(size, timeout=PATIENCE_S)
        with rpc.Client(service, servers, values="text") as other, pytest.raises(rpc.RemoteError, match="JSON"):
            other.call("not JSON", timeout=PATIENCE_S)
    assert handled == [2_000_000, -2_000_000]


def test_a_client_whose_topic_was_deleted_makes_another(servers: str, service: str) -> None:
    @rpc.responder(service, servers)
    def echo(value: str) -> str:
        return value

    with running(echo), rpc.Client(service, servers) as client:
        (before,) = reply_topics(servers, service)
        with Cluster(parse_bootstrap(servers)) as cluster:
            delete_topics(cluster, [before])
        deadline = time.monotonic() + PATIENCE_S
        while not set(reply_topics(servers, service)) - {before}:
            assert time.monotonic() < deadline
        while True:  # what is asked in between has nowhere to go
            try:
                assert client.call("here", timeout=5) == "here"
                break
            except rpc.DeadlineExceeded:
                assert time.monotonic() < deadline


def test_a_call_that_is_cancelled_while_it_is_sent_is_cancelled(servers: str, service: str) -> None:
    async def give_up_at_once(client: rpc.Client) -> None:
        calling = asyncio.create_task(client.call_async("?", timeout=PATIENCE_S))
        await asyncio.sleep(0)  # it has begun
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling

    with rpc.Client(service, servers) as client:
        asyncio.run(give_up_at_once(client))
        with Queue(f"{service}.cancellations", servers) as cancellations:
            message = cancellations.get(PATIENCE_S)
        assert message is not None
        assert message.headers[CORRELATION_ID]
