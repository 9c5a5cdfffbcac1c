"""A subscriber at work: the machine that decides (`receiving.py`) between two sockets and a program.

A thread of its own reads, so that holes are asked for in time also while the program is busy; what the program has not
taken waits in an inbox with a bound.
"""

import asyncio
import os
import secrets
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from random import Random
from types import TracebackType
from typing import Final, Self

from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Overload
from headrace.gateways.inlet import Overloaded
from headrace.gateways.multicast.events import Event, Lost
from headrace.gateways.multicast.group import LOOPBACK, Group, seal_of
from headrace.gateways.multicast.inbox import Inbox
from headrace.gateways.multicast.message import Message
from headrace.gateways.multicast.process import OfProcess
from headrace.gateways.multicast.receiving import Receiving, ReceivingCounts
from headrace.gateways.multicast.stream import Position, ReceivingSettings
from headrace.gateways.multicast.wire import MOST_DATAGRAM_BYTES, Session
from headrace.telemetry.logs import RareLines, get_logger

QUEUE_BYTES: Final = 32 * 1024 * 1024
_LONGEST_WAIT_S: Final = 1.0
_TOGETHER: Final = 256  # datagrams between two looks at the clock
_AT_ONCE: Final = 1_024  # events that a program takes from the inbox in one go
_log = RareLines(get_logger(__name__), quiet_s=1.0)


class Subscriber(OfProcess):
    """Hears a group: iterate over it for messages, over `events()` for losses, restarts and ends as well.

    What is lost is given to `on_lost`, in order with the messages; without that it is logged, and always counted. Of
    what the program does not take quickly enough, at most `queue_bytes` wait; then `overload` drops the oldest or the
    newest, which is told as lost, or has the iteration fail.
    """

    def __init__(
        self,
        group: str | Group,
        *,
        interface: str = LOOPBACK,
        key: bytes | None = None,
        overload: Overload = Overload.DROP_OLDEST,
        queue_bytes: int = QUEUE_BYTES,
        settings: ReceivingSettings | None = None,
        positions: Mapping[Session, Position] | None = None,
        on_lost: Callable[[Lost], object] | None = None,
    ) -> None:
        self.group = group if isinstance(group, Group) else Group.parse(group, interface=interface)
        if overload is Overload.BLOCK:
            raise GatewayError(
                "a subscriber cannot block publishers that it does not speak with: choose overload drop-oldest, "
                "drop-newest or fail, or give the publishers a lower rate_bytes_s"
            )
        super().__init__()
        self.on_lost = on_lost
        self._machine = Receiving(
            settings or ReceivingSettings(),
            secrets.randbits(64),
            Random(secrets.randbits(64)),  # noqa: S311 - it spreads NAKs, and guards nothing
            time.monotonic(),
            seal=seal_of(key),
            positions=positions,
        )
        self._inbox = Inbox(queue_bytes, overload)
        self._changed = threading.Condition()
        self._async_waiters: list[Callable[[], None]] = []
        self._ready: deque[Event] = deque()  # taken from the inbox, for one iterator at a time
        self._is_closed = False
        self._failure: BaseException | None = None
        self._sockets: list[socket.socket] = []
        try:
            self._sockets.append(self.group.open_data_receiver())
            self._sockets.append(self.group.open_nak_receiver())
            self._sockets.append(self.group.open_data_sender())
        except BaseException:
            for opened in self._sockets:
                opened.close()
            raise
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name=f"headrace-multicast-{self.group}", daemon=True)
        self._thread.start()

    # --- for programs

    def __iter__(self) -> Iterator[Message]:
        """Messages, until it is closed."""
        for event in self.events():
            if isinstance(event, Message):
                yield event
            elif isinstance(event, Lost):
                self._tell_lost(event)

    def events(self) -> Iterator[Event]:
        """All that happens, until it is closed."""
        while True:
            event = self.get()
            if event is None:
                return
            yield event

    async def __aiter__(self) -> AsyncIterator[Message]:
        async for event in self.events_async():
            if isinstance(event, Message):
                yield event
            elif isinstance(event, Lost):
                self._tell_lost(event)

    async def events_async(self) -> AsyncIterator[Event]:
        """As `events`, on an event loop."""
        loop = asyncio.get_running_loop()
        while True:
            event = self.get(0)
            if event is not None:
                yield event
                continue
            arrived = asyncio.Event()

            def tell(arrived: asyncio.Event = arrived) -> None:
                loop.call_soon_threadsafe(arrived.set)

            with self._changed:
                if self._is_closed:
                    return
                if self._inbox:
                    continue
                self._async_waiters.append(tell)
            try:
                await arrived.wait()
            finally:
                with self._changed:
                    if tell in self._async_waiters:
                        self._async_waiters.remove(tell)

    def get(self, timeout_s: float | None = None) -> Event | None:
        """The next event; None if none comes in time, or it is closed."""
        self._check_process()
        if not self._ready:
            self._ready.extend(self.take(_AT_ONCE, timeout_s))
        return self._ready.popleft() if self._ready else None

    def take(self, most: int, timeout_s: float | None = None) -> list[Event]:
        """The next events, up to so many; none if none comes in time, or it is closed."""
        self._check_process()
        with self._changed:
            if timeout_s != 0:
                self._changed.wait_for(lambda: self._inbox or self._is_closed or self._inbox.is_failed, timeout_s)
            taken = self._inbox.take(most)
            if taken:
                return taken
            if self._failure is not None:
                raise GatewayError(f"the subscriber of {self.group} has failed: {self._failure}") from self._failure
            if self._inbox.is_failed:
                raise Overloaded(
                    f"{self._inbox.dropped:,} messages of {self.group} found no room, since the program takes them too "
                    "slowly: take them faster, raise queue_bytes, or choose an overload that drops"
                )
            return []

    def run(self, on_message: Callable[[Message], object]) -> None:
        """Call for every message, until it is closed; losses go to `on_lost`."""
        for message in self:
            on_message(message)

    @property
    def counts(self) -> ReceivingCounts:
        return self._machine.counts

    @property
    def dropped(self) -> int:
        """Messages that were told lost because they were not taken quickly enough."""
        return self._inbox.dropped

    @property
    def waiting_bytes(self) -> int:
        """What came and has not been taken."""
        return self._inbox.bytes

    def close(self) -> None:
        """Hear no more. What has come can still be taken, then iterations end."""
        if self._is_of_parent:
            return
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._tell()
        os.eventfd_write(self._waker, 1)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _tell_lost(self, lost: Lost) -> None:
        if self.on_lost is not None:
            self.on_lost(lost)
        else:
            _log.warning(
                "messages are lost",
                group=str(self.group),
                session=str(lost.session),
                count=lost.count,
                why=str(lost.why),
            )

    # --- sockets

    def _tell(self) -> None:
        self._changed.notify_all()
        waiters, self._async_waiters = self._async_waiters, []
        for tell in waiters:
            tell()

    def _deliver(self, events: list[Event]) -> None:
        if events:
            with self._changed:
                for event in events:
                    self._inbox.put(event)
                self._tell()

    def _run(self) -> None:
        data, naks, sender = self._sockets
        try:
            with selectors.DefaultSelector() as selector:
                for opened in (data, naks):
                    selector.register(opened, selectors.EVENT_READ)
                selector.register(self._waker, selectors.EVENT_READ)
                while not self._is_closed:
                    now = time.monotonic()
                    selector.select(min(max(self._machine.next_at() - now, 0.0), _LONGEST_WAIT_S))
                    self._hear(naks)
                    self._hear(data)
                    answers, events = self._machine.poll(time.monotonic(), time.time_ns() // 1_000_000)
                    self._deliver(events)
                    for nak in answers:
                        try:
                            sender.sendto(nak, self.group.nak_address)
                        except OSError as error:  # it is asked for again
                            _log.warning("NAK was not sent", group=str(self.group), error=str(error))
        except Exception as error:  # noqa: BLE001 - a program must not wait for ever for a defect of ours
            self._failure = error
        finally:
            for opened in self._sockets:
                opened.close()
            with self._changed:
                self._is_closed = True
                self._tell()
            os.close(self._waker)

    def _hear(self, opened: socket.socket) -> None:
        receive = self._machine.receive
        invalid = self._machine.invalid
        now, wall_ms = time.monotonic(), time.time_ns() // 1_000_000
        events: list[Event] = []
        try:
            for _ in range(_TOGETHER):
                events += receive(opened.recv(MOST_DATAGRAM_BYTES), now, wall_ms)
        except BlockingIOError:
            pass
        except OSError as error:
            _log.warning("group cannot be read", group=str(self.group), error=str(error))
        self._deliver(events)
        if self._machine.invalid > invalid:
            _log.warning("datagram is refused", group=str(self.group), error=self._machine.counts.problem)
