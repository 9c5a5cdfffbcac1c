"""Large answers that threads send, beside the event loop: while the kernel copies them, others are served.

What always holds:
- while a socket is lent, nobody else sends on it, and its descriptor stays open: a thread that is at it when its client
  is let go of closes it;
- a thread stays with one client for a moment only, and waits for one that does not read as long as no other waits for a
  thread;
- nobody but the kernel looks at what is lent (`file_views.py`), and it is unmapped in the thread;
- what is lent at a time is bounded, whoever asks: each slice that is mapped takes a descriptor.
"""

import select
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from time import monotonic
from typing import Final

from headrace.broker.channel import MAX_PARTS

_THREADS: Final = 2
_MOST_LOANS: Final = 16  # of `MAX_PARTS` at most; beyond that the loop sends by itself
_LONGEST_S: Final = 0.02
_PATIENCE_MS: Final = 2  # a client that reads makes room in less

Then = Callable[[int, bool], object]  # told in the thread: how many bytes were sent, and whether the socket is broken


class Senders:
    """The threads."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="headrace-sender")
        self._lock = Lock()
        self._loans = 0

    @property
    def are_wanted(self) -> bool:
        """Whether a client waits for a thread."""
        return self._loans > _THREADS

    @property
    def have_room(self) -> bool:
        return self._loans < _MOST_LOANS

    def lend(self, sock: socket.socket, parts: list[memoryview], then: Then) -> "Loan":
        loan = Loan(self, sock, parts, then)
        self._count(1)
        self._threads.submit(self._run, loan)
        return loan

    def close(self) -> None:
        """Wait for what is lent, which is little once its clients were let go of."""
        self._threads.shutdown(wait=True)

    def _run(self, loan: "Loan") -> None:
        try:
            loan.run()
        finally:
            self._count(-1)

    def _count(self, loans: int) -> None:
        with self._lock:
            self._loans += loans


class Loan:
    """A socket, and what is to be sent on it."""

    __slots__ = ("_has_left", "_is_over", "_lock", "_parts", "_senders", "_sock", "_then")

    def __init__(self, senders: Senders, sock: socket.socket, parts: list[memoryview], then: Then) -> None:
        self._senders = senders
        self._sock = sock
        self._parts = parts
        self._then = then
        self._lock = Lock()
        self._has_left = False
        self._is_over = False

    def leave(self) -> None:
        """The client is let go of: send nothing more, and close the socket, now or as soon as no thread is at it."""
        with self._lock:
            self._has_left = True
            is_over = self._is_over
        if is_over:
            self._sock.close()

    def run(self) -> None:
        sent, is_broken = 0, True  # where it failed, nobody knows how much was sent
        try:
            sent, is_broken = self._send()
        finally:
            self._parts.clear()
            with self._lock:
                self._is_over = True
                has_left = self._has_left
            if has_left:
                self._sock.close()
            else:
                self._then(sent, is_broken)

    def _send(self) -> tuple[int, bool]:
        parts, sock = self._parts, self._sock
        sent = 0
        end_s = monotonic() + _LONGEST_S
        while parts and not self._has_left:
            try:
                count = sock.sendmsg(parts[:MAX_PARTS])
            except (BlockingIOError, InterruptedError):
                if self._senders.are_wanted or not _is_writable_soon(sock):
                    break
            except OSError:  # also if a file was cut that is sent
                return sent, True
            else:
                sent += count
                while parts and count >= len(parts[0]):
                    count -= len(parts.pop(0))
                if count:
                    parts[0] = parts[0][count:]
            if monotonic() >= end_s:
                break
        return sent, False


def _is_writable_soon(sock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    return bool(poll.poll(_PATIENCE_MS))
