"""The receiver of a queue, with a member whose answers the test decides."""

import threading
from collections import deque
from typing import Any, cast

import pytest

from headrace.client.share import Acquired, Polled, ShareMember
from headrace.client.share_session import Ack, Outcome, Place
from headrace.client.transactions import Transaction
from headrace.coordinator.share.acknowledgement import AckType
from headrace.model import TopicPartition
from headrace.protocol.schema import Uuid
from headrace.queues.message import Lapsed, codec_of
from headrace.queues.receiver import Receiver
from headrace.records import Record

PATIENCE_S = 30
PLACE = Place(Uuid(bytes(16)), 0)


def acquired(offset: int, deliveries: int = 1) -> Acquired:
    record = Record(offset, 1, None, b"1")
    return Acquired(TopicPartition("jobs", 0), PLACE, 1, record, deliveries, 60_000)


class Member:
    """Answers what is laid ready, in order, and nothing for as long as there is none."""

    group = "jobs"
    trouble = None

    def __init__(self) -> None:
        self.said: deque[tuple[Acquired, Ack]] = deque()
        self._news = threading.Condition()
        self._ready: deque[Polled] = deque()
        self._is_woken = False

    def answer(self, polled: Polled) -> None:
        with self._news:
            self._ready.append(polled)
            self._news.notify_all()

    def wait_for_ack(self) -> tuple[Acquired, Ack]:
        with self._news:
            assert self._news.wait_for(lambda: self.said, PATIENCE_S)
            return self.said[-1]

    def join(self) -> None:
        pass

    def wake(self) -> None:
        with self._news:
            self._is_woken = True
            self._news.notify_all()

    def acknowledge(self, taken: Acquired, ack: Ack) -> bool:
        with self._news:
            self.said.append((taken, ack))
            self._news.notify_all()
        return True

    def poll(self, _: int, **__: Any) -> Polled:
        with self._news:
            self._news.wait_for(lambda: self._ready or self._is_woken, 0.1)
            self._is_woken = False
            return self._ready.popleft() if self._ready else Polled()

    def close(self) -> list[Outcome]:
        return []


@pytest.mark.parametrize("is_accepted", [False, True])
def test_a_message_that_comes_again_before_its_transaction_is_heard_of_has_lapsed(is_accepted: bool) -> None:
    """As after a broker that hung for longer than a lock: the transaction must not wait for an answer that is not its.

    Even if the broker takes the acknowledgement for the second delivery, which the same session has.
    """
    member = Member()
    receiver = Receiver(lambda: cast("ShareMember", member), prefetch=4, codec=codec_of("json"), can_wait=lambda: True)
    member.answer(Polled(acquired=[acquired(7)]))
    message = receiver.take(PATIENCE_S)
    assert message is not None
    failures: list[BaseException] = []

    def commit() -> None:
        try:
            receiver.acknowledge_in(Transaction("t", 1, 0), {message: Ack(AckType.ACCEPT)})
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=commit, daemon=True)
    thread.start()
    _, ack = member.wait_for_ack()
    outcomes = [Outcome(PLACE, 7, ack)] if is_accepted else []
    member.answer(Polled(acquired=[acquired(7, 2)]))
    member.answer(Polled(outcomes=outcomes))
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "it waits without end"
    assert [type(error) for error in failures] == [Lapsed]
    again = receiver.take(PATIENCE_S)
    assert again is not None
    assert again.deliveries == 2
    receiver.close()
