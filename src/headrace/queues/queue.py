"""`headrace.Queue` and `headrace.AsyncQueue`: put messages, take messages, and say what became of them.

    queue = headrace.Queue("emails", "127.0.0.1:9092")
    queue.put({"to": "ada@example.org"}, delay="10m")
    for message in queue:
        send(message.value)
        message.ack()

A queue is a topic, made when it is first used if it is missing, and a share group that takes from it (by default one of
the same name, so that all who take from the queue share its messages; another `group` has all of them for itself). On
our broker messages may be delayed, expire, repeat, be taken once for an id and by urgency; another Kafka (4.2 or newer)
delivers, redelivers and shares, and what it cannot do is refused at the call that asks for it.
"""

import asyncio
import os
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from weakref import WeakSet
from zlib import crc32

from headrace.client.address import parse_bootstrap
from headrace.client.admin import alter_group_configs, configs_of_groups, describe_configs, ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.errors import Refused
from headrace.client.look import Running
from headrace.client.offsets import bounds
from headrace.client.security import settings_from
from headrace.client.share import FEATURE, ONCE, ShareMember
from headrace.client.share_groups import share_offsets
from headrace.client.writer import NewRecord, Partitioner, Writer
from headrace.delivery import headers as names
from headrace.model import TopicPartition, check_topic_name
from headrace.protocol.errors import ErrorCode
from headrace.queues.message import (
    Duration,
    Message,
    QueueError,
    Unsupported,
    codec_of,
    headers_for,
    key_bytes,
    seconds,
)
from headrace.queues.overview import LETTERS_SETTING
from headrace.queues.receiver import Receiver
from headrace.queues.transaction import Senders, Transaction
from headrace.records import Header, Record
from headrace.records.partitioning import partition_of_key
from headrace.telemetry.logs import get_logger

if TYPE_CHECKING:
    from headrace.queues.worker import Worker

_log = get_logger(__name__)

_CHANCE: Final = random.SystemRandom()  # a program that seeds `random` keeps its own; forks differ
_TRANSACTIONS_SINCE: Final = 2  # level of that feature
_QUEUE_SETTING, _PRIORITIES_SETTING = "headrace.queue", "headrace.queue.priorities"
_RESET, _DELIVERIES, _LOCK = "share.auto.offset.reset", "share.delivery.count.limit", "share.record.lock.duration.ms"
_ISOLATION: Final = "share.isolation.level"
_LETTERS_PREFIX: Final = "dlq."  # as brokers ask for by default (KIP-1191)
_LONGEST_NAME: Final = 249  # of a topic
_DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
# Messages of put_many that are written together: a batch is sent whole, to everybody who acquires some of it.
_MAX_GATHERED: Final = 500


_queues: "WeakSet[Queue]" = WeakSet()


class NewMessage(NamedTuple):
    """A message that is to be put, with what was asked for it, and what it has to be in one partition with."""

    data: bytes
    key: bytes | None
    headers: list[Header]
    asked: list[str]
    priority: int | None
    together: bytes | None


class Queue:
    """A queue, for programs, their threads and their forks; close it, or use it in a `with` block."""

    def __init__(
        self,
        name: str,
        bootstrap_servers: "str | Running | None" = None,
        *,
        group: str | None = None,
        values: str = "json",
        prefetch: int = 16,
        partitions: int | None = None,
        priorities: int | None = None,
        max_deliveries: int | None = None,
        lock: Duration | None = None,
        kafka: Mapping[str, str] | None = None,
    ) -> None:
        """Describe the queue; the first use connects.

        `bootstrap_servers` is an address, a running broker, or what `HEADRACE_BOOTSTRAP` says; `values` are `json`,
        `text` or `bytes`; `prefetch` messages are held at the most, waiting or being worked on. `partitions` and
        `priorities` (levels of urgency) are those of a new topic; `max_deliveries` and `lock` (how long a message is
        held before it must be renewed) are set for the group. `kafka` has Kafka's own client settings, for TLS and
        logins.
        """
        check_topic_name(name)
        self.name = name
        self.group = group or name
        self.codec = codec_of(values)
        at = bootstrap_servers or os.environ.get("HEADRACE_BOOTSTRAP") or _DEFAULT_BOOTSTRAP
        self.bootstrap_servers = at if isinstance(at, str) else at.bootstrap_servers
        self._addresses = parse_bootstrap(self.bootstrap_servers)
        self._connection = settings_from({"client.id": f"headrace-queue-{name}", **(kafka or {})})
        self._partitions, self._priorities = partitions, priorities
        self._group_settings = {
            name: value
            for name, value in (
                (_DELIVERIES, max_deliveries),
                (_LOCK, None if lock is None else round(seconds(lock, "lock") * 1000)),
            )
            if value is not None
        }
        self._prefetch = prefetch
        self._values, self._kafka = values, kafka
        self._is_ours = self._is_queue = False
        self._level = 0  # of what a broker of ours can do
        self._levels = 1
        self._begin_anew()
        _queues.add(self)

    def _begin_anew(self) -> None:
        """Be as if never used: nothing that a process has before it forks is its child's, not even its locks."""
        self._lock = threading.RLock()
        self._cluster: Cluster | None = None
        self._writer: Writer | None = None
        self._senders = Senders(self)
        self._others: dict[str, Queue] = {}
        self.receiver = Receiver(self._join, prefetch=self._prefetch, codec=self.codec, can_wait=lambda: self._is_ours)

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, {self.bootstrap_servers!r}, group={self.group!r})"

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Send what was said of messages, give back the others, leave the group."""
        self.receiver.close()
        self._senders.close()
        with self._lock:
            for other in self._others.values():
                other.close()
            if self._cluster is not None:
                self._cluster.close()
            self._cluster = self._writer = None

    # --- putting

    def put(
        self,
        value: Any,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        delay: Duration | None = None,
        at: datetime | float | None = None,
        ttl: Duration | None = None,
        priority: int | None = None,
        dedup_id: str | None = None,
        repeat: str | None = None,
        schedule_id: str | None = None,
    ) -> None:
        """Put a message; it is durable when this returns.

        `delay` or `at`: it is delivered no sooner. `ttl`: it is not delivered later. `priority`: 0 is the most urgent
        level. `dedup_id`: of several with the same id within the topic's window one is delivered. `repeat`: it is
        delivered again and again, by an interval (`5m`) or a cron line in UTC. `schedule_id`: what a message that
        waits is cancelled by, and replaced by another one.
        """
        message = self.gather(
            value,
            key=key,
            headers=headers,
            delay=delay,
            at=at,
            ttl=ttl,
            priority=priority,
            dedup_id=dedup_id,
            repeat=repeat,
            schedule_id=schedule_id,
        )
        with self._lock:
            self._write([self._prepare(message)])

    def gather(
        self,
        value: Any,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        priority: int | None = None,
        dedup_id: str | None = None,
        schedule_id: str | None = None,
        **options: Any,
    ) -> NewMessage:
        """A message with the options of `put`, to be put later; raises what is wrong with it."""
        found, asked = headers_for(headers, dedup_id=dedup_id, schedule_id=schedule_id, **options)
        # Ids are compared within a partition, and a cancellation is in order with what it cancels within one.
        together = schedule_id or (dedup_id if key is None else None)
        return NewMessage(self.codec.encode(value), key_bytes(key), found, asked, priority, key_bytes(together))

    def _prepare(self, message: NewMessage) -> NewRecord:
        self.open()
        self._check_asked(message.asked)
        return self._record(message.data, message.key, message.headers, message.priority, message.together)

    def place(self, message: NewMessage) -> tuple[TopicPartition, Record]:
        """The record of a message that is put by somebody else, and where it goes."""
        with self._lock:
            record = self._prepare(message)
            assert self._cluster is not None
            partition = record.partition
            if partition is None:
                partitioner = Partitioner(len(self._cluster.topic(self.name).partitions))
                partition = partitioner.choose(record.key, record.size_bytes)
        found = Record(0, record.timestamp, record.key, record.value, tuple(record.headers))
        return TopicPartition(self.name, partition), found

    def put_many(self, values: Iterable[Any], *, key: Callable[[Any], str | bytes | None] | None = None) -> int:
        """Put messages together, which is much faster; answers how many. They are durable when this returns."""
        count = 0
        gathered: list[NewRecord] = []
        with self._lock:
            self.open()
            for value in values:
                record_key = key_bytes(key(value)) if key is not None else None
                gathered.append(self._record(self.codec.encode(value), record_key, []))
                count += 1
                if len(gathered) >= _MAX_GATHERED:
                    self._write(gathered)
                    gathered = []
            self._write(gathered)
        return count

    def cancel(self, schedule_id: str, *, priority: int | None = None) -> None:
        """Have what waits or repeats under this id, and was put with this priority, not delivered any more."""
        name = schedule_id.encode()
        with self._lock:
            self.open()
            self._check_asked(["schedule_id"])
            self._write([self._record(None, None, [Header(names.CANCEL, name)], priority, name)])

    def _record(
        self,
        data: bytes | None,
        key: bytes | None,
        headers: list[Header],
        priority: int | None = None,
        together: bytes | None = None,
    ) -> NewRecord:
        """A record; those with the same `together`, or else the same key, are in one partition of their level."""
        partition = None
        if self._levels > 1 or priority is not None or together is not None:
            partition = self._partition_for(key if together is None else together, priority)
        return NewRecord(key, data, time.time_ns() // 1_000_000, headers, partition)

    def _partition_for(self, key: bytes | None, priority: int | None) -> int:
        """A partition of a level of urgency; without one, of the least urgent."""
        if priority is not None and self._levels == 1:
            raise self._unsupported("priority", f"make the topic with {_PRIORITIES_SETTING}")
        level = self._levels - 1 if priority is None else priority
        if not 0 <= level < self._levels:
            raise QueueError(f"priority={priority} is not possible: topic {self.name!r} has 0 to {self._levels - 1}")
        assert self._cluster is not None
        partitions = range(level, len(self._cluster.topic(self.name).partitions), self._levels)
        if not partitions:
            raise QueueError(
                f"priority={priority} is not possible: topic {self.name!r} has fewer partitions than levels, give it "
                f"{self._levels} or more"
            )
        if key is not None:
            return partitions[partition_of_key(key, len(partitions))]
        return _CHANCE.choice(partitions)

    def _write(self, records: list[NewRecord]) -> None:
        if not records:
            return
        assert self._cluster is not None
        writer, self._writer = self._writer, None  # after an error, a new one
        writer = writer or Writer(self._cluster, self.name)
        for record in records:
            writer.add(record)
        writer.flush()
        self._writer = writer

    def _check_asked(self, asked: list[str]) -> None:
        if asked and not self._is_queue:
            raise self._unsupported(asked[0], f"set {_QUEUE_SETTING}=true for it")

    def _unsupported(self, option: str, mend: str) -> Unsupported:
        if not self._is_ours:
            return Unsupported(
                f"{option}= is not supported by the Kafka at {self.bootstrap_servers}: leave it out, or use Headrace's "
                "own broker"
            )
        return Unsupported(f"{option}= is not supported by topic {self.name!r} as it is set: {mend}")

    # --- taking

    def __iter__(self) -> Iterator[Message]:
        """Messages as they come, until the queue is closed."""
        while (message := self.get()) is not None:
            yield message

    def get(self, timeout: Duration | None = None) -> Message | None:
        """The next message; None if none came in time, or the queue was closed."""
        self._open()
        return self.receiver.take(None if timeout is None else seconds(timeout, "timeout"))

    def flush(self, timeout: Duration | None = None) -> bool:
        """Wait until what was said of messages is durable at the broker; whether it is, in this time."""
        return self.receiver.flush(None if timeout is None else seconds(timeout, "timeout"))

    def depth(self) -> int:
        """How many messages the group has yet to finish, those that are held and those that wait for their time too."""
        with self._lock:
            self.open()
            assert self._cluster is not None
            partitions = self._cluster.partitions(self.name)
            try:
                known = share_offsets(Coordinators(self._cluster), self.group)
            except Refused as refusal:
                if refusal.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
                known = {}
            counted = {where: known[where].unfinished for where in partitions if where in known}
            held = bounds(self._cluster, [where for where in partitions if counted.get(where) is None])
            unfinished = sum(count for count in counted.values() if count is not None)
            return unfinished + sum(found.end - found.start for found in held.values())

    def worker(
        self,
        *,
        concurrency: int = 8,
        timeout: Duration | None = "30s",
        retry_after: Duration = "1s",
        results: "str | Queue | None" = None,
    ) -> "Callable[[Callable[[Message], Any]], Worker]":
        """Make a function, plain or async, a worker of this queue: `run` runs it for each message.

        What it returns is put into the queue `results`, in one transaction with the acknowledgement of its message.
        """
        from headrace.queues.worker import Worker

        return lambda function: Worker(
            self, function, concurrency=concurrency, timeout=timeout, retry_after=retry_after, results=results
        )

    # --- both in one transaction

    def transaction(self) -> Transaction:
        """Messages finished and others put, together or not at all: for a `with` block, at whose end it is committed.

        Whoever takes the results sees those of committed transactions, as a queue does, or a consumer with
        `isolation.level=read_committed`. Headrace's own broker is needed for it.
        """
        self.check_transactions()
        return Transaction(self, self._senders)

    def check_transactions(self) -> None:
        """Refuse transactions where they are not possible."""
        self.open()
        if self._level < _TRANSACTIONS_SINCE:
            raise Unsupported(
                f"a transaction of queue {self.name!r} is not supported by the Kafka at {self.bootstrap_servers}: its "
                "share groups cannot acknowledge in one: put the result with the id of its message (message.id) before "
                "message.ack(), and have its readers drop doubles, or use Headrace's own broker"
            )

    def beside(self, name: str) -> "Queue":
        """Another queue of the same cluster, with values of the same form; this one closes it."""
        with self._lock:
            if name != self.name and name not in self._others:
                self._others[name] = Queue(name, self.bootstrap_servers, values=self._values, kafka=self._kafka)
            return self._others.get(name, self)

    def _begin(self) -> None:
        self._open()
        self.receiver.start()

    def _join(self) -> ShareMember:
        with self.connect() as cluster:  # whoever puts has the other one
            self._set_group(cluster)
        cluster = Cluster(self._addresses, self._connection, retry=ONCE)
        return ShareMember(cluster, self.group, [self.name])

    # --- opening

    def open(self) -> None:
        """Connect, and make the topic if it is missing; the first use does so by itself."""
        if not self._open():
            raise QueueError(f"queue {self.name!r} is closed: make another one")

    def _open(self) -> bool:
        """Connect; whether the queue is open, and not closed already."""
        if self._cluster is not None:  # and nobody waits for one who puts into a queue that is full
            return True
        with self._lock:
            if self.receiver.is_closed or self._cluster is not None:
                return self._cluster is not None
            cluster = self.connect()
            try:
                self._open_topic(cluster)
            except BaseException:
                cluster.close()
                raise
            self._cluster = cluster
            return True

    def connect(self) -> Cluster:
        """A connection of one's own, for another thread."""
        return Cluster(self._addresses, self._connection)

    def _open_topic(self, cluster: Cluster) -> None:
        self._level = cluster.any_broker().features.get(FEATURE, 0)
        self._is_ours = self._level > 0
        levels = self._priorities or 1
        if levels > 1 and not self._is_ours:
            raise self._unsupported("priorities", "")
        configs = {_QUEUE_SETTING: "true"} if self._is_ours else {}
        configs |= {_PRIORITIES_SETTING: str(levels)} if levels > 1 else {}
        ensure_topic(cluster, self.name, partitions=max(self._partitions or 1, levels), configs=configs)
        if self._is_ours:
            found = {config.name: config.value for config in describe_configs(cluster, self.name)}
            self._is_queue = found.get(_QUEUE_SETTING) == "true"
            self._levels = int(found.get(_PRIORITIES_SETTING) or 1)

    def _set_group(self, cluster: Cluster) -> None:
        """Have the group begin with what is there already, take what is committed, and keep what it cannot use.

        A setting of its own stays.
        """
        wanted = {_RESET: "earliest", _ISOLATION: "read_committed"}
        if self._is_ours:
            wanted[LETTERS_SETTING] = _letters_of(self.name)
        try:
            known = configs_of_groups(cluster, [self.group])[self.group]
            changes = {
                name: value
                for name, value in wanted.items()
                if name in known and not known[name].is_own and known[name].value != value
            }
            changes |= {name: str(value) for name, value in self._group_settings.items()}
            if changes:
                alter_group_configs(cluster, self.group, changes=changes)
        except Refused as refusal:
            is_denied = refusal.code in (
                ErrorCode.GROUP_AUTHORIZATION_FAILED,
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            )
            if not is_denied or self._group_settings:
                raise
            # Whoever may not set it may still take: somebody else has set the group up, or it begins at the end.
            _log.warning("group not set up", group=self.group, error=str(refusal))


def _begin_anew_in_child() -> None:
    for queue in list(_queues):
        receiver = queue.receiver
        if not receiver.is_closed:
            queue._begin_anew()  # noqa: SLF001 - the same module
        receiver.abandon()


os.register_at_fork(after_in_child=_begin_anew_in_child)


class AsyncQueue:
    """The same for a program on an event loop: what waits for the broker is awaited, `async for` takes."""

    def __init__(self, name: "str | Queue", bootstrap_servers: "str | Running | None" = None, **options: Any) -> None:
        """Describe the queue, as `Queue`; or name one that is there already."""
        self.queue = name if isinstance(name, Queue) else Queue(name, bootstrap_servers, **options)
        self._news: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.queue.__enter__)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Send what was said of messages, give back the others, leave the group."""
        await asyncio.to_thread(self.queue.close)

    async def put(self, value: Any, **options: Any) -> None:
        """Put a message, with the options of `Queue.put`; it is durable when this returns."""
        await asyncio.to_thread(lambda: self.queue.put(value, **options))

    async def put_many(self, values: Iterable[Any], **options: Any) -> int:
        """Put messages together; answers how many."""
        return await asyncio.to_thread(lambda: self.queue.put_many(values, **options))

    async def cancel(self, schedule_id: str, *, priority: int | None = None) -> None:
        """Have what waits or repeats under this id, and was put with this priority, not delivered any more."""
        await asyncio.to_thread(lambda: self.queue.cancel(schedule_id, priority=priority))

    def transaction(self) -> Transaction:
        """Messages finished and others put, together or not at all, as `Queue.transaction`: for `async with`."""
        return Transaction(self.queue, self.queue._senders)  # noqa: SLF001 - the same queue

    async def depth(self) -> int:
        """How many messages the group has yet to finish."""
        return await asyncio.to_thread(self.queue.depth)

    async def flush(self, timeout: Duration | None = None) -> bool:  # noqa: ASYNC109 - as Queue has it
        """Wait until what was said of messages is durable at the broker; whether it is, in this time."""
        return await asyncio.to_thread(self.queue.flush, timeout)

    async def get(self) -> Message | None:
        """The next message; None once the queue is closed."""
        receiver, news = self.queue.receiver, await self._listen()
        while (message := receiver.take_now()) is None and not receiver.is_closed:
            news.clear()
            if (message := receiver.take_now()) is not None:
                return message
            if not receiver.is_closed:
                await news.wait()
        return message

    async def wait_closed(self) -> None:
        """Wait until there will be no more messages."""
        news = await self._listen()
        while not self.queue.receiver.is_closed:
            news.clear()
            if not self.queue.receiver.is_closed:
                await news.wait()

    async def _listen(self) -> asyncio.Event:
        """Begin to take messages; what is set on this loop whenever there may be one."""
        loop = asyncio.get_running_loop()
        if self._news is None or self._loop is not loop:
            await asyncio.to_thread(self.queue._begin)  # noqa: SLF001 - the same queue
            self._news, self._loop = news, _ = asyncio.Event(), loop
            self.queue.receiver.listen(lambda: _set_soon(loop, news))
        return self._news

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages as they come, until the queue is closed."""
        while (message := await self.get()) is not None:
            yield message


def _letters_of(name: str) -> str:
    """The topic for a queue's dead letters; the end of a name that is too long for it is a checksum."""
    letters = _LETTERS_PREFIX + name
    return letters if len(letters) <= _LONGEST_NAME else f"{letters[: _LONGEST_NAME - 9]}-{crc32(name.encode()):08x}"


def _set_soon(loop: asyncio.AbstractEventLoop, news: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(news.set)
