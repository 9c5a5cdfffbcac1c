"""Messages finished and results put, in one transaction: all of it counts, or none of it.

    with queue.transaction() as transaction:
        transaction.put("thumbnails", shrink(message.value))
        transaction.ack(message)

What is put and finished is gathered, and sent when the block ends: results first, then what becomes of the messages,
then the commit. What always holds: after a crash anywhere a message that comes again has no result that readers of
committed records see; a block that raises sends nothing, and its messages are still in the program's hands.

Each transaction that is under way at a time has a producer of its own, which the queue keeps for the next one. One that
failed is not used again: its successor of the same name aborts whatever it left open.
"""

import asyncio
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from headrace.client import transactions
from headrace.client.cluster import Cluster
from headrace.client.share_session import Ack
from headrace.coordinator.share.acknowledgement import AckType
from headrace.model import TopicPartition
from headrace.queues.message import Message, QueueError, short_reason
from headrace.queues.moving import TRANSACTION_MS, Sender
from headrace.queues.receiver import Receiver
from headrace.records import Record

if TYPE_CHECKING:
    from headrace.queues.queue import NewMessage, Queue


class Senders:
    """The producers of a queue's transactions, for any thread; one is lent to one transaction at a time."""

    def __init__(self, queue: "Queue") -> None:
        self._queue = queue
        self._lock = threading.Lock()
        self._idle: list[tuple[Cluster, Sender]] = []
        self._names: list[str] = []  # of those that are not used any more, for the next ones
        self._is_closed = False

    def lend(self) -> tuple[Cluster, Sender]:
        with self._lock:
            if self._idle:
                return self._idle.pop()
            name = self._names.pop() if self._names else f"headrace-queue.{self._queue.group}.{uuid4()}"
        fenced = QueueError(
            f"a transaction of queue {self._queue.name!r} took longer than {TRANSACTION_MS // 1000} s from its first "
            "result to its commit, and was aborted: its messages come again"
        )
        cluster = self._queue.connect()
        try:
            return cluster, Sender(cluster, name, fenced)
        except BaseException:
            cluster.close()
            raise

    def take_back(self, lent: tuple[Cluster, Sender], *, is_usable: bool) -> None:
        with self._lock:
            if is_usable and not self._is_closed:
                self._idle.append(lent)
                return
            self._names.append(lent[1].name)
        lent[0].close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for cluster, _ in idle:
            cluster.close()


class Transaction:
    """One transaction; use it in a `with` or an `async with` block, at whose end it is committed."""

    def __init__(self, queue: "Queue", senders: Senders) -> None:
        self._queue = queue
        self._senders = senders
        self._puts: list[tuple[Queue, NewMessage]] = []
        self._said: dict[Receiver, dict[Message, Ack]] = {}
        self._lock = threading.Lock()  # of two threads that commit, one does
        self._is_over = False

    def put(self, to: "str | Queue", value: Any, **options: Any) -> None:
        """Put a message into another queue, or this one, with the options of `Queue.put`; it is there with the commit.

        `to` is a queue of the same cluster, or the name of one whose values have the form of this queue's.
        """
        self._check_open()
        target = self._queue.beside(to) if isinstance(to, str) else to
        if target.bootstrap_servers != self._queue.bootstrap_servers:
            raise QueueError(
                f"{target!r} is on another cluster than {self._queue!r}: a transaction is of one cluster, so put the "
                "result there by itself, with the id of its message"
            )
        self._puts.append((target, target.gather(value, **options)))

    def ack(self, message: Message) -> None:
        """The message is done, with the commit; it may be of any queue of the cluster."""
        self._say(message, Ack(AckType.ACCEPT))

    def reject(self, message: Message, reason: str = "") -> None:
        """The message is never to be delivered again, with the commit; where there are dead letters it becomes one."""
        self._say(message, Ack(AckType.REJECT, reason=short_reason(reason)))

    def _say(self, message: Message, ack: Ack) -> None:
        self._check_open()
        keeper = message._keeper  # noqa: SLF001 - the receiver that holds it
        assert isinstance(keeper, Receiver)
        self._said.setdefault(keeper, {}).setdefault(message, ack)

    def _check_open(self) -> None:
        if self._is_over:
            raise QueueError("this transaction has ended: begin another one with queue.transaction()")

    def commit(self) -> None:
        """Send everything, and commit; the end of the block does so by itself.

        Raises `Lapsed` if a message is not held any more, and whatever else is in the way: nothing counts then. Only
        if the broker cannot be reached during the commit itself it is not known; the message comes again if it failed.
        """
        with self._lock:
            self._check_open()
            self._is_over = True
        if not self._puts and not self._said:
            return
        placed: dict[TopicPartition, list[Record]] = {}
        for target, message in self._puts:
            where, record = target.place(message)
            placed.setdefault(where, []).append(record)
        lent = self._senders.lend()
        is_committed = False
        try:
            lent[1].send(placed, acknowledge=self._acknowledge)
            is_committed = True
        finally:
            self._senders.take_back(lent, is_usable=is_committed)

    def _acknowledge(self, transaction: transactions.Transaction) -> None:
        for receiver, said in self._said.items():
            receiver.acknowledge_in(transaction, said)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._is_over:
            self.commit()
        self._is_over = True

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._queue.check_transactions)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._is_over:
            await asyncio.to_thread(self.commit)
        self._is_over = True
