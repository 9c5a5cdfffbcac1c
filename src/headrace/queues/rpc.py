"""`headrace.rpc`: request and reply over topics, with several responders that share the load.

    @headrace.rpc.responder("prices", "127.0.0.1:9092")
    def price(request):
        return {"cents": prices[request["sku"]]}

    price.run()

    with headrace.rpc.Client("prices", "127.0.0.1:9092") as prices:
        prices.call({"sku": "tea"}, timeout="2s")

Requests are messages of a queue with the service's name. A reply goes to a topic of the client's own, which it makes
and deletes (`SERVICE.replies.…`); of a client that was not closed another one deletes it, a day later. What a client
does not want any more it says in a topic that every responder reads (`SERVICE.cancellations`).

What always holds: a request whose deadline has passed is not handled; an error of the function is raised where it was
called; the first reply counts; replies go to topics of that name alone, whoever asks, since a responder may be allowed
to write where its clients are not; what is not a request is a dead letter. A responder that dies leaves its requests to
others, so that a function may run more than once for a request: let it only read, or give each request an id of yours.
"""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, cast
from uuid import uuid4

from headrace.client.admin import create_topic, delete_topics, ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, OffsetOutOfRange, Refused, UnknownTopic
from headrace.client.fetch import FetchOptions
from headrace.client.look import Running
from headrace.client.offsets import YOUNGEST, bounds, list_offsets
from headrace.client.reader import ReadRecord, read_records
from headrace.client.writer import ACKS_LEADER, send
from headrace.delivery.headers import CORRELATION_ID, DEADLINE, REPLY_TO
from headrace.model import TopicPartition
from headrace.queues.message import Duration, Message, QueueError, Reject, seconds
from headrace.queues.queue import Queue
from headrace.queues.worker import Worker, is_awaited
from headrace.records import Header, Record, build_batch
from headrace.retry import Backoff
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)
_ERROR: Final = "headrace-error"  # of a reply: the kind of error; its text is the value
_SHORT_LIVED: Final = {"retention.ms": "3600000"}
_ALIVE_EVERY_S: Final = 600.0
_ABANDONED_AFTER_MS: Final = 86_400_000
_POLL: Final = FetchOptions(max_wait_ms=100)
_BACKOFF: Final = Backoff(0.1, 2.0)
_REMEMBERED: Final = 10_000  # cancelled requests, and topics of clients
_MOST_ERROR_BYTES: Final = 64 * 1024
_TICK_S: Final = 0.1


class RemoteError(QueueError):
    """The function failed where it ran: the name of its error, and what that said."""

    def __init__(self, service: str, kind: str, text: str) -> None:
        super().__init__(f"{service!r} failed with {kind}: {text}")
        self.kind = kind
        self.text = text


class DeadlineExceeded(QueueError, TimeoutError):
    """No reply came in time; the request is not handled any more, if nobody has begun."""


def _cancellations(service: str) -> str:
    return f"{service}.cancellations"


def _replies(service: str) -> str:
    return f"{service}.replies."


class Client:
    """Calls a service; for programs and their threads. Close it, or use it in a `with` block."""

    def __init__(
        self,
        service: str,
        bootstrap_servers: "str | Running | None" = None,
        *,
        values: str = "json",
        timeout: Duration = "30s",
        **options: Any,
    ) -> None:
        """Connect, and make the topic of the replies; `options` are those of `Queue`."""
        self.service = service
        self._timeout_s = seconds(timeout, "timeout")
        self._queue = Queue(service, bootstrap_servers, values=values, **options)
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[Future[Any], float]] = {}
        self._unwanted: deque[str] = deque()
        self._is_closed = threading.Event()
        self._topic = self._new_topic()
        self._pid = os.getpid()
        try:
            self._queue.open()
            self._cluster = self._queue.connect()
            try:
                ensure_topic(self._cluster, _cancellations(service), configs=_SHORT_LIVED)
                create_topic(self._cluster, self._topic, partitions=1, configs=_SHORT_LIVED)
            except BaseException:
                self._cluster.close()
                raise
        except BaseException:
            self._queue.close()
            raise
        self._thread = threading.Thread(target=self._listen, name=f"headrace-rpc-{service}", daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch, name=f"headrace-rpc-{service}-deadlines", daemon=True).start()

    def _new_topic(self) -> str:
        return f"{_replies(self.service)}{int(time.time())}-{uuid4().hex[:12]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what is not replied to, and delete the topic of the replies."""
        with self._lock:
            waiting = [future for future, _ in self._waiting.values()]
        for future in waiting:
            future.cancel()
        self._is_closed.set()
        self._thread.join()
        self._queue.close()

    def submit(self, value: Any, *, timeout: Duration | None = None, key: str | None = None) -> "Future[Any]":
        """Send a request; the future has the reply, and cancelling it cancels the request."""
        if self._is_closed.is_set():
            raise QueueError(f"the client of {self.service!r} is closed: make another one")
        if self._pid != os.getpid():
            raise QueueError(
                f"the client of {self.service!r} was made before this process was forked: make another one"
            )
        timeout_s = self._timeout_s if timeout is None else seconds(timeout, "timeout")
        correlation = uuid4().hex
        future: Future[Any] = Future()
        with self._lock:
            self._waiting[correlation] = future, time.monotonic() + timeout_s
        headers = {
            CORRELATION_ID: correlation,
            REPLY_TO: self._topic,
            DEADLINE: str(time.time_ns() // 1_000_000 + round(timeout_s * 1000)),
        }
        try:
            self._queue.put(value, key=key, headers=headers)
        except BaseException:
            with self._lock:
                self._waiting.pop(correlation, None)
            raise
        future.add_done_callback(lambda done: self._unwanted.append(correlation) if done.cancelled() else None)
        return future

    def call(self, value: Any, *, timeout: Duration | None = None, key: str | None = None) -> Any:
        """Send a request, and wait for the reply; raises `RemoteError` or `DeadlineExceeded`."""
        return self.submit(value, timeout=timeout, key=key).result()

    async def call_async(self, value: Any, *, timeout: Duration | None = None, key: str | None = None) -> Any:  # noqa: ASYNC109 - the deadline travels with the request
        """The same on an event loop; a caller that is cancelled cancels the request."""
        submitted: list[Future[Any]] = []
        is_unwanted = threading.Event()

        def submit() -> Future[Any]:
            submitted.append(self.submit(value, timeout=timeout, key=key))
            if is_unwanted.is_set():  # it could not be stopped on its way
                submitted[0].cancel()
            return submitted[0]

        try:
            return await asyncio.wrap_future(await asyncio.to_thread(submit))
        except asyncio.CancelledError:
            is_unwanted.set()
            for future in submitted:
                future.cancel()
            raise

    # --- the thread

    def _listen(self) -> None:
        offset = failures = 0
        alive_at = time.monotonic() + _ALIVE_EVERY_S
        with suppress(ClientError):
            _sweep(self._cluster, self.service)
        while not self._is_closed.is_set():
            try:
                where = TopicPartition(self._topic, 0)
                for found in read_records(self._cluster, {where: offset}, options=_POLL):
                    for read in found:
                        self._take(read.record)
                        offset = read.record.offset + 1
                    failures = 0
                    self._cancel()
                    if time.monotonic() >= alive_at:
                        _send(self._cluster, self._topic, None, [])
                        alive_at = time.monotonic() + _ALIVE_EVERY_S
                    if self._is_closed.is_set():
                        break
            except ClientError as error:
                failures += 1
                _log.warning("replies cannot be read", service=self.service, error=str(error))
                if isinstance(error, UnknownTopic):  # this program slept for so long that another one deleted it
                    offset = 0
                    self._make_topic()
                elif isinstance(error, OffsetOutOfRange):
                    offset = min(max(offset, error.start), error.end)
                self._is_closed.wait(_BACKOFF.pause_s(failures))
        with suppress(ClientError):
            self._cancel()
            delete_topics(self._cluster, [self._topic])
        self._cluster.close()

    def _make_topic(self) -> None:
        topic = self._new_topic()
        with suppress(ClientError):  # it is tried again
            create_topic(self._cluster, topic, partitions=1, configs=_SHORT_LIVED)
            self._topic = topic

    def _watch(self) -> None:
        """Have futures end at their deadlines, whatever the thread waits for that reads replies."""
        while not self._is_closed.wait(_TICK_S):
            self._expire()

    def _take(self, record: Record) -> None:
        headers = {header.key: (header.value or b"").decode(errors="replace") for header in record.headers}
        with self._lock:
            future, _ = self._waiting.pop(headers.get(CORRELATION_ID, ""), (None, 0.0))
        if future is None:
            return  # it came twice, or too late
        with suppress(InvalidStateError):  # it was cancelled
            if _ERROR in headers:
                text = (record.value or b"").decode(errors="replace")
                future.set_exception(RemoteError(self.service, headers[_ERROR], text))
                return
            try:
                future.set_result(self._queue.codec.decode(record.value))
            except QueueError as error:
                future.set_exception(error)

    def _expire(self) -> None:
        now = time.monotonic()
        with self._lock:
            late = [name for name, (_, until) in self._waiting.items() if until <= now]
            futures = [self._waiting.pop(name)[0] for name in late]
        for future in futures:
            with suppress(InvalidStateError):
                future.set_exception(
                    DeadlineExceeded(f"{self.service!r} did not reply in time: look at its responders")
                )

    def _cancel(self) -> None:
        while self._unwanted:
            correlation = self._unwanted[0]
            _send(self._cluster, _cancellations(self.service), None, [Header(CORRELATION_ID, correlation.encode())])
            self._unwanted.popleft()
            with self._lock:
                self._waiting.pop(correlation, None)


def _send(cluster: Cluster, topic: str, value: bytes | None, headers: list[Header]) -> None:
    """Append one record to a topic of one partition; it need not outlive the broker."""
    record = Record(0, time.time_ns() // 1_000_000, None, value, tuple(headers))
    send(cluster, {TopicPartition(topic, 0): build_batch([record])}, acks=ACKS_LEADER)


def _sweep(cluster: Cluster, service: str) -> None:
    """Delete the topics of clients that were not closed, and are not heard of for a day."""
    now_ms = time.time_ns() // 1_000_000
    for topic in cluster.topics():
        began = topic.name.removeprefix(_replies(service)).partition("-")[0]
        if not topic.name.startswith(_replies(service)) or not began.isdigit():
            continue
        if now_ms - int(began) * 1000 > _ABANDONED_AFTER_MS:
            where = TopicPartition(topic.name, 0)
            youngest_ms = list_offsets(cluster, {where: YOUNGEST})[where].timestamp
            if now_ms - youngest_ms > _ABANDONED_AFTER_MS:
                with suppress(UnknownTopic, Refused):  # another one was faster
                    delete_topics(cluster, [topic.name])


# --- responders


class Responder(Worker):
    """A function that replies to requests; `run` runs it until `stop`, SIGTERM or SIGINT."""

    def __init__(self, queue: Queue, function: Callable[[Any], Any], **options: Any) -> None:
        super().__init__(queue, self._respond_async if is_awaited(function) else self._respond, **options)
        self.reply = function
        self._sending = threading.Lock()
        self._cluster: Cluster | None = None
        self._topics: set[str] = set()
        self._gone: dict[str, None] = {}  # topics of clients that are closed
        self._cancelled: dict[str, None] = {}
        self._running: dict[str, Callable[[], object]] = {}  # how each is cancelled

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The function itself, as it was."""
        return self.reply(*arguments, **named)

    def run(self) -> None:
        """Reply until told to stop; raises what somebody has to mend."""
        self.queue.open()
        self._cluster = self.queue.connect()
        with self.queue.connect() as cluster:
            ensure_topic(cluster, _cancellations(self.queue.name), configs=_SHORT_LIVED)
            starts = bounds(cluster, [TopicPartition(_cancellations(self.queue.name), 0)])
            is_over = threading.Event()
            listener = threading.Thread(
                target=self._listen, args=(cluster, starts, is_over), name="headrace-rpc-cancellations", daemon=True
            )
            listener.start()
            try:
                super().run()
            finally:
                is_over.set()
                listener.join()
                self._cluster.close()

    def _respond(self, message: Message) -> None:
        asked = self._read(message)
        if asked is None:
            return
        try:
            reply, error = self.queue.codec.encode(self.reply(message.value)), None
        except Exception as raised:  # noqa: BLE001 - it is the caller's to know
            reply, error = _text_of(raised), raised
        self._answer(message, reply, error)

    async def _respond_async(self, message: Message) -> None:
        correlation = self._read(message)
        if correlation is None:
            return
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._reply_async(message))
        self._running[correlation] = lambda: loop.call_soon_threadsafe(task.cancel)
        if correlation in self._cancelled:  # since it was read
            task.cancel()
        try:
            reply, error = self.queue.codec.encode(await task), None
        except asyncio.CancelledError:
            if correlation in self._cancelled:
                return
            raise
        except Exception as raised:  # noqa: BLE001 - it is the caller's to know
            reply, error = _text_of(raised), cast("Exception | None", raised)
        finally:
            self._running.pop(correlation, None)
        await asyncio.to_thread(self._answer, message, reply, error)

    async def _reply_async(self, message: Message) -> Any:
        return await self.reply(message.value)

    def _read(self, message: Message) -> str | None:
        """The id of a request; None if nobody waits for its reply any more."""
        headers = message.headers
        correlation, deadline, topic = (headers.get(name, "") for name in (CORRELATION_ID, DEADLINE, REPLY_TO))
        if not correlation or not topic.startswith(_replies(self.queue.name)):
            raise Reject(
                f"it is not a request: it needs {CORRELATION_ID}, and a {REPLY_TO} that begins with "
                f"{_replies(self.queue.name)}"
            )
        is_late = deadline.isdigit() and int(deadline) <= time.time_ns() // 1_000_000
        return None if is_late or topic in self._gone or correlation in self._cancelled else correlation

    def _answer(self, message: Message, reply: bytes, error: Exception | None) -> None:
        headers = message.headers
        topic = headers.get(REPLY_TO, "")
        told = [Header(CORRELATION_ID, headers[CORRELATION_ID].encode())]
        told += [Header(_ERROR, type(error).__name__.encode())] if error else []
        with self._sending:
            assert self._cluster is not None
            self._topics.add(topic)
            if len(self._topics) > _REMEMBERED:
                for known in self._topics:
                    self._cluster.forget(known)
                self._topics = {topic}
            try:
                _send(self._cluster, topic, reply, told)
                return
            except UnknownTopic:
                _remember(self._gone, topic)  # to look for it takes a while, in which nobody is replied to
                _log.debug("client gone", service=self.queue.name, topic=topic)
                return
            except Refused as refused:
                if error is not None:
                    raise
                refusal = refused
        self._answer(message, _text_of(refusal), refusal)  # it may be too large: the caller is to know

    # --- cancellations

    def _listen(self, cluster: Cluster, starts: Any, is_over: threading.Event) -> None:
        offsets = {where: found.end for where, found in starts.items()}
        failures = 0
        while not is_over.is_set():
            try:
                for found in _until(is_over, cluster, offsets):
                    failures = 0
                    for read in found:
                        offsets[read.partition] = read.record.offset + 1
                        for header in read.record.headers:
                            if header.key == CORRELATION_ID:
                                self._take_cancelled((header.value or b"").decode(errors="replace"))
            except ClientError as error:
                failures += 1
                _log.warning("cancellations cannot be read", service=self.queue.name, error=str(error))
                is_over.wait(_BACKOFF.pause_s(failures))

    def _take_cancelled(self, correlation: str) -> None:
        _remember(self._cancelled, correlation)
        if cancel := self._running.get(correlation):
            cancel()


def _remember(names: dict[str, None], name: str) -> None:
    names[name] = None
    if len(names) > _REMEMBERED:
        del names[next(iter(names))]


def _text_of(error: Exception) -> bytes:
    return str(error).encode(errors="replace")[:_MOST_ERROR_BYTES]


def _until(
    is_over: threading.Event, cluster: Cluster, offsets: dict[TopicPartition, int]
) -> Iterator[list[ReadRecord]]:
    for found in read_records(cluster, dict(offsets), options=_POLL):
        yield found
        if is_over.is_set():
            return


def responder(
    service: str,
    bootstrap_servers: "str | Running | None" = None,
    *,
    values: str = "json",
    concurrency: int = 8,
    timeout: Duration | None = "30s",
    **options: Any,
) -> Callable[[Callable[[Any], Any]], Responder]:
    """Make a function, plain or async, one that replies to requests: it is given a value, and returns one."""
    queue = Queue(service, bootstrap_servers, values=values, **options)
    return lambda function: Responder(queue, function, concurrency=concurrency, timeout=timeout)
