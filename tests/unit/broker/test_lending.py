"""What threads do with a socket that is lent to them."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from headrace.broker.lending import Senders


class Peer:
    """A socket as a thread sees one, that fails or waits when it is told to."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.taken: list[int] = []
        self.error: Exception | None = None

    def sendmsg(self, parts: list[memoryview]) -> int:
        self.may_go_on.wait(10)
        if self.taken and self.error:
            raise self.error
        self.taken.append(len(parts[0]))
        return len(parts[0])


@pytest.fixture
def senders() -> Iterator[Senders]:
    found = Senders()
    yield found
    found.close()


def lend(senders: Senders, peer: Peer, parts: list[memoryview]) -> "Future[tuple[int, bool]]":
    said: Future[tuple[int, bool]] = Future()
    sock: socket.socket = peer  # type: ignore[assignment]
    senders.lend(sock, parts, lambda sent, is_broken: said.set_result((sent, is_broken)))
    return said


def test_there_is_room_for_so_many_loans_and_again_when_they_are_over(senders: Senders) -> None:
    peer = Peer()
    said = []
    while senders.have_room:
        said.append(lend(senders, peer, [memoryview(b"abc")]))
        assert len(said) < 100
    peer.may_go_on.set()
    assert [each.result(10) for each in said] == [(3, False)] * len(said)
    senders.close()
    assert senders.have_room


def test_who_cannot_be_sent_to_for_whatever_reason_is_sent_nothing_twice(senders: Senders) -> None:
    peer = Peer()
    peer.may_go_on.set()
    peer.error = MemoryError()
    assert lend(senders, peer, [memoryview(b"abc"), memoryview(b"def")]).result(10)[1]
