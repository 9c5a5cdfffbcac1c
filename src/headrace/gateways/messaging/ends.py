"""A sender and a receiver on a library's socket: policies, timeouts, counts, and whose thread it is.

What always holds: an end belongs to the thread that used it first, and to the process that made it: any other use
raises `NotYours` and touches nothing. What `send` answered true for was handed to the library; what was dropped here is
counted in `dropped`; whatever bytes come, `receive` answers messages and counts the rest in `invalid`.
"""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from threading import get_ident
from types import TracebackType
from typing import Final, Protocol, Self
from weakref import WeakSet

from headrace.gateways.errors import GatewayError, NotYours
from headrace.gateways.gateway import Overload
from headrace.gateways.messaging.forms import DECODERS, Form, Frame, encode_plain
from headrace.gateways.messaging.losses import Losses
from headrace.gateways.messaging.message import (
    GivenHeaders,
    Headers,
    InvalidMessage,
    Message,
    encode,
    headers_of,
    new_session,
    now_ms,
    topic_prefix,
)
from headrace.gateways.messaging.outbox import Outbox
from headrace.telemetry.logs import RareLines, get_logger

_log = RareLines(get_logger(__name__), 1.0)
_SLICE_S: Final = 0.2  # a waiting coroutine looks again: a send on the same socket may have taken its wake-up
_MOST_TOPICS: Final = 65_536
LINGER_S: Final = 1.0
HIGH_WATER_MARK: Final = 1000
LARGEST_BYTES: Final = 16 * 1024 * 1024


class TimedOut(GatewayError, TimeoutError):
    """Nobody took a message in time, or no reply came."""


class Overfull(GatewayError):
    """There is no room for a message, and the policy is to say so."""


class Wire(Protocol):
    """A socket of a library, for one thread."""

    def send(self, frame: Frame) -> bool:
        """Hand a frame over; false if there was no room within the time that the socket was made with."""
        ...

    def try_send(self, frame: Frame) -> bool: ...

    def receive(self, timeout_s: float | None) -> Frame | None: ...

    def try_receive(self) -> Frame | None: ...

    def wait_writable(self, timeout_s: float) -> None: ...

    @property
    def send_fd(self) -> int:
        """What is readable when there may be room."""
        ...

    @property
    def receive_fd(self) -> int: ...

    def close(self, linger_s: float) -> None: ...

    def abandon(self) -> None:
        """Forget the socket in a process that was forked: it is the parent's."""
        ...


_open: "WeakSet[End]" = WeakSet()


def _after_fork() -> None:
    for end in list(_open):
        end.abandon()


os.register_at_fork(after_in_child=_after_fork)


class End:
    """What senders and receivers have in common."""

    def __init__(self, wire: Wire, where: str, linger_s: float) -> None:
        self._wire = wire
        self._where = where
        self._linger_s = linger_s
        self._thread = 0  # whose it is; 0 as long as nobody has used it
        self._why_not = ""
        _open.add(self)

    def _check(self) -> None:
        """Whoever uses it first has it; called when another thread than its own does."""
        if self._why_not:
            raise NotYours(self._why_not)
        if self._thread == 0:
            self._thread = get_ident()
            return
        raise NotYours(
            f"{type(self).__name__} of {self._where} is used by another thread than the one that used it first, and "
            "sockets are not made for that: make one in each thread"
        )

    def _check_mine(self) -> None:
        if self._thread != get_ident():
            self._check()

    def abandon(self) -> None:
        """In a process that was forked."""
        self._thread = -1
        self._why_not = (
            f"{type(self).__name__} of {self._where} was made before this process was forked, and sockets do not "
            "outlive that: make it in the new process, or start that by multiprocessing's spawn"
        )
        self._wire.abandon()

    @property
    def is_closed(self) -> bool:
        return self._thread == -1

    def close(self) -> None:
        """Close it; what is not handed over yet may still be for as long as it was made to linger."""
        if self._thread == -1:
            return
        if self._thread not in (0, get_ident()) and any(t.ident == self._thread for t in threading.enumerate()):
            self._check()
        self._thread = -1
        self._why_not = f"{type(self).__name__} of {self._where} is closed: make another one"
        self._close()
        _open.discard(self)

    def _close(self) -> None:
        self._wire.close(self._linger_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _readable(fd: int, timeout_s: float) -> None:
    """Wait until a file descriptor is readable, or for so long."""
    loop = asyncio.get_running_loop()
    copy = os.dup(fd)  # two coroutines may wait for the same one
    try:
        event = asyncio.Event()
        loop.add_reader(copy, event.set)
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(copy)
    finally:
        os.close(copy)


class Sender(End):
    """Sends messages; each has the number of those that it sent before."""

    is_numbered_by_topic = False

    def __init__(
        self,
        wire: Wire,
        where: str,
        *,
        form: Form,
        overload: Overload,
        high_water_mark: int,
        timeout_s: float | None,
        linger_s: float,
        is_queued: bool = False,
    ) -> None:
        """`is_queued` is for a library whose own queue cannot be waited for when it is closed."""
        super().__init__(wire, where, linger_s)
        self.form = form
        self.overload = overload
        self.session = new_session()
        self.sent = 0  # handed over to the library, or to what drops the oldest
        self._dropped = 0
        self._timeout_s = timeout_s
        self._counter = [0]
        self._places: dict[str, tuple[bytes, list[int]]] = {}
        drops_oldest = overload is Overload.DROP_OLDEST
        self._outbox: Outbox | None = None
        if drops_oldest or (is_queued and overload is not Overload.BLOCK):
            self._outbox = Outbox(wire, high_water_mark, drops_oldest=drops_oldest)
        self._hand = wire.send if overload is Overload.BLOCK else self._hand_by_policy

    @property
    def dropped(self) -> int:
        """How many were dropped here; what was dropped on the way, receivers know (`Subscriber.missed`)."""
        return self._dropped + (self._outbox.dropped if self._outbox else 0)

    def send(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        topic: str = "",
        headers: GivenHeaders | None = None,
        timestamp_ms: int | None = None,
    ) -> bool:
        """Hand a message over as the policy says; false if it was dropped.

        Raises `TimedOut` if it had to wait for longer than the timeout, and `Overfull` where the policy is to fail.
        """
        if self._thread != get_ident():
            self._check()
        place = self._places.get(topic) or self._place(topic)
        counter = place[1]
        if self.form is Form.MESSAGE:
            held = headers_of(headers) if headers else ()
            frame: Frame = encode(value, key, place[0], held, timestamp_ms, self.session, counter[0])
        else:
            frame = encode_plain(self.form, value, key, topic, headers_of(headers) if headers else ())
        if not self._hand(frame):
            if self.overload is Overload.BLOCK:
                raise self._timed_out()
            counter[0] += 1  # whoever receives can tell that it was dropped
            return False
        counter[0] += 1
        self.sent += 1
        return True

    async def send_async(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        topic: str = "",
        headers: GivenHeaders | None = None,
        timestamp_ms: int | None = None,
    ) -> bool:
        """The same, on an event loop, which goes on while this waits."""
        if self.overload is not Overload.BLOCK:
            return self.send(value, key, topic=topic, headers=headers, timestamp_ms=timestamp_ms)
        if self._thread != get_ident():
            self._check()
        held = headers_of(headers) if headers else ()
        at = now_ms() if timestamp_ms is None else timestamp_ms
        until = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        while True:
            # It is numbered as it is handed over: another coroutine may send while this one waits.
            prefix, counter = self._places.get(topic) or self._place(topic)
            frame = (
                encode(value, key, prefix, held, at, self.session, counter[0])
                if self.form is Form.MESSAGE
                else encode_plain(self.form, value, key, topic, held)
            )
            if self._wire.try_send(frame):
                break
            left_s = _SLICE_S if until is None else until - time.monotonic()
            if left_s <= 0:
                raise self._timed_out()
            await _readable(self._wire.send_fd, min(left_s, _SLICE_S))
            if self._thread != get_ident():
                self._check()
        counter[0] += 1
        self.sent += 1
        return True

    def _timed_out(self) -> TimedOut:
        return TimedOut(
            f"nobody took a message at {self._where} within {self._timeout_s:g} s: see whether anybody is connected "
            "and keeps up, or choose another overload policy"
        )

    def _timed_out_waiting(self, count: int, timeout_s: float) -> TimedOut:
        return TimedOut(
            f"nobody subscribed {count} times at {self._where} within {timeout_s:g} s: see whether subscribers run and "
            "connect to this address"
        )

    def _hand_by_policy(self, frame: Frame) -> bool:
        if self._outbox.put(frame) if self._outbox is not None else self._wire.try_send(frame):
            return True
        if self.overload is Overload.FAIL:
            raise Overfull(f"nobody takes messages at {self._where}, or not as fast as they are sent: try again later")
        self._dropped += 1
        return False

    def _place(self, topic: str) -> tuple[bytes, list[int]]:
        """What messages of a topic begin with, and how they are numbered."""
        if len(self._places) >= _MOST_TOPICS:
            self._places.clear()
            if self.is_numbered_by_topic:  # their numbers are forgotten: begin anew, so that nobody takes it for a loss
                self.session = new_session()
        counter = [0] if self.is_numbered_by_topic else self._counter
        place = self._places[topic] = (topic_prefix(topic), counter)
        return place

    def _close(self) -> None:
        until = time.monotonic() + self._linger_s
        if self._outbox is not None:
            self._outbox.close(self._linger_s)
        self._wire.close(max(until - time.monotonic(), 0.0))


class Receiver(End):
    """Receives messages; what cannot be read is counted, and a line is logged once in a second."""

    def __init__(self, wire: Wire, where: str, *, form: Form, linger_s: float = 0.0) -> None:
        super().__init__(wire, where, linger_s)
        self.form = form
        self.received = 0
        self.invalid = 0
        self._decode = DECODERS[form]

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None if none came within `timeout` seconds."""
        if self._thread != get_ident():
            self._check()
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            frame = self._wire.receive(None if until is None else max(until - time.monotonic(), 0))
            if frame is None:
                return None
            try:
                message = self._decode(frame)
            except InvalidMessage as error:
                self._refuse(error)
                continue
            self.received += 1
            return message

    async def receive_async(self, timeout: float | None = None) -> Message | None:  # noqa: ASYNC109 - as `receive`
        """The same, on an event loop, which goes on while this waits."""
        if self._thread != get_ident():
            self._check()
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            frame = self._wire.try_receive()
            if frame is None:
                left_s = _SLICE_S if until is None else until - time.monotonic()
                if left_s <= 0:
                    return None
                await _readable(self._wire.receive_fd, min(left_s, _SLICE_S))
                if self._thread != get_ident():
                    self._check()
                continue
            try:
                message = self._decode(frame)
            except InvalidMessage as error:
                self._refuse(error)
                continue
            self.received += 1
            return message

    def __iter__(self) -> Iterator[Message]:
        """Messages as they come, for ever."""
        while (message := self.receive()) is not None:
            yield message

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (message := await self.receive_async()) is not None:
            yield message

    def _refuse(self, error: InvalidMessage) -> None:
        self.invalid += 1
        _log.warning("an invalid message", at=self._where, error=str(error))


class LossyReceiver(Receiver):
    """A receiver that can tell how much it missed: its senders number what they send of each topic."""

    def __init__(self, wire: Wire, where: str, *, form: Form) -> None:
        super().__init__(wire, where, form=form)
        self.losses = Losses()
        see = self.losses.see
        decode_frame = DECODERS[form]

        def decode_and_count(frame: Frame) -> Message:
            message = decode_frame(frame)
            see(message.session, message.topic, message.sequence)
            return message

        if form is Form.MESSAGE:
            self._decode = decode_and_count

    @property
    def missed(self) -> int:
        """How many messages were sent between those that came, and did not come."""
        return self.losses.missed


__all__ = [
    "HIGH_WATER_MARK", "LARGEST_BYTES", "LINGER_S", "End", "Headers", "LossyReceiver", "NotYours", "Overfull",
    "Receiver", "Sender", "TimedOut", "Wire",
]  # fmt: skip
