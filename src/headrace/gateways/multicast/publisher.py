"""A publisher at work: the machine that decides (`sending.py`) between a program and two sockets.

Messages go out in the thread that publishes them as far as the pace allows; a thread of the publisher's own sends the
rest, repairs and heartbeats.
"""

import hashlib
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from headrace.errors import HeadraceError
from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Overload
from headrace.gateways.inlet import Overloaded
from headrace.gateways.multicast.group import LOOPBACK, Group, seal_of
from headrace.gateways.multicast.message import Content, Headers, Origin, check_content, write_content
from headrace.gateways.multicast.process import OfProcess
from headrace.gateways.multicast.sending import Offered, Sending, SendingCounts, SendingSettings
from headrace.gateways.multicast.wire import MOST_NAME_BYTES, InvalidDatagram, Nak, Seal, Session, read_datagram
from headrace.telemetry.logs import RareLines, get_logger

_LONGEST_WAIT_S: Final = 1.0
_QUIET_S: Final = 0.25  # after the last NAK nobody is likely to miss anything more
_log = RareLines(get_logger(__name__), quiet_s=1.0)


class PublisherClosed(HeadraceError):
    """Something was published after the end."""


class Publisher(OfProcess):
    """Publishes to a group; any thread may.

    `overload` says what happens when messages come faster than they may go out (`settings.rate_bytes_s`): by default
    `publish` waits. `name` stays over restarts, and by it subscribers see that a publisher has restarted; without one
    each start is a publisher of its own.
    """

    def __init__(
        self,
        group: str | Group,
        *,
        name: str = "",
        interface: str = LOOPBACK,
        ttl: int = 1,
        key: bytes | None = None,
        overload: Overload = Overload.BLOCK,
        settings: SendingSettings | None = None,
    ) -> None:
        self.group = group if isinstance(group, Group) else Group.parse(group, interface=interface, ttl=ttl)
        if len(name.encode()) > MOST_NAME_BYTES:
            raise GatewayError(
                f"a publisher's name has at most {MOST_NAME_BYTES} bytes, and this one has more: shorten it"
            )
        super().__init__()
        self.name = name
        self.session = Session(source_of(name), secrets.randbits(64))
        self.problem = ""
        self._overload = overload
        self._seal: Seal | None = seal_of(key)
        self._machine = Sending(
            settings or SendingSettings(), self.session, time.monotonic(), name=name, seal=self._seal
        )
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._is_closing = False
        self._is_stopped = False
        self._heard_at = time.monotonic()
        self._planned = 0.0  # when the thread wakes by itself
        self._address = self.group.data_address
        self._data: socket.socket = self.group.open_data_sender()
        try:
            self._naks = self.group.open_nak_receiver()
        except BaseException:
            self._data.close()
            raise
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name=f"headrace-multicast-{self.group}", daemon=True)
        self._thread.start()

    # --- for programs

    def publish(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        origin: Origin | None = None,
    ) -> bool:
        """Send a message; whether it was taken, which it always is unless `overload` drops."""
        now_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        return self.publish_many((Content(value, key, headers, now_ms, origin),)) == 1

    def publish_many(self, contents: Iterable[Content]) -> int:
        """Send messages, as many to a datagram as fit; how many were taken."""
        self._check_process()
        taken = 0
        with self._lock:
            for content in contents:
                check_content(content)
                taken += self._offer(write_content(content))
            self._transmit()
            now = time.monotonic()
            if self._planned > now and self._machine.next_at(now) < self._planned:
                os.eventfd_write(self._waker, 1)
                self._planned = 0.0  # woken once is enough
        return taken

    def _offer(self, encoded: bytes) -> bool:
        machine = self._machine
        while True:
            if self._is_closing:
                raise PublisherClosed(f"the publisher of {self.group} is closed and sends nothing more")
            if machine.offer(encoded, time.monotonic()) is Offered.TAKEN:
                return True
            if self._overload is Overload.BLOCK:
                self._transmit()
                if machine.offer(encoded, time.monotonic()) is Offered.TAKEN:
                    return True
                if self._planned:
                    os.eventfd_write(self._waker, 1)
                self._room.wait(_LONGEST_WAIT_S)
            elif self._overload is Overload.FAIL:
                raise Overloaded(
                    f"{machine.waiting_bytes:,} bytes wait for the pace of the publisher of {self.group}, and there is "
                    "no room for more: publish less, or raise rate_bytes_s"
                )
            elif self._overload is Overload.DROP_NEWEST or not machine.drop_oldest():
                machine.counts.dropped += 1
                return False

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until all that was published has gone out; whether it has."""
        self._check_process()
        until = None if timeout_s is None else time.monotonic() + timeout_s
        with self._lock:
            self._machine.hurry()
            while not self._is_stopped:
                self._transmit()
                if self._machine.is_idle:
                    return True
                left = _LONGEST_WAIT_S if until is None else until - time.monotonic()
                if left <= 0:
                    return False
                os.eventfd_write(self._waker, 1)
                self._room.wait(min(left, _LONGEST_WAIT_S))
            return self._machine.is_idle

    @property
    def counts(self) -> SendingCounts:
        return self._machine.counts

    @property
    def waiting_bytes(self) -> int:
        """What was published and has not gone out."""
        return self._machine.waiting_bytes

    def close(self, timeout_s: float = 3.0) -> None:
        """Send what waits, say that it was all, and repair until nobody has asked for a quarter of a second."""
        if self._is_of_parent:
            return
        until = time.monotonic() + timeout_s
        with self._lock:
            if self._is_stopped:
                return
            self._is_closing = True
            self._room.notify_all()
        self.flush(timeout_s)
        with self._lock:
            self._heard_at = time.monotonic()
            self._machine.finish(self._heard_at)
        os.eventfd_write(self._waker, 1)
        while (now := time.monotonic()) < until and now < self._heard_at + _QUIET_S:
            time.sleep(min(until, self._heard_at + _QUIET_S) - now)
        with self._lock:
            self._is_stopped = True
        os.eventfd_write(self._waker, 1)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- sockets

    def _transmit(self) -> None:
        """Send what may go now; with the lock held."""
        now = time.monotonic()
        for datagram in self._machine.transmit(now, time.time_ns() // 1_000_000):
            try:
                self._data.sendto(datagram, self._address)
            except OSError as error:
                # As if the network had lost it: it stays in the history.
                self.problem = (
                    f"a datagram of {len(datagram)} bytes did not go out to {self.group} on {self.group.interface} "
                    f"({error.strerror or error}): see whether the interface is up and takes such datagrams"
                )
                _log.warning("datagram was not sent", group=str(self.group), error=str(error))

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._naks, selectors.EVENT_READ)
            selector.register(self._waker, selectors.EVENT_READ)
            while True:
                with self._lock:
                    if self._is_stopped:
                        break
                    self._transmit()
                    self._room.notify_all()
                    now = time.monotonic()
                    wait_s = min(max(self._machine.next_at(now) - now, 0.0), _LONGEST_WAIT_S)
                    self._planned = now + wait_s
                for ready, _ in selector.select(wait_s):
                    if ready.fileobj is self._naks:
                        self._hear()
                    else:
                        os.eventfd_read(self._waker)
        self._data.close()
        self._naks.close()
        os.close(self._waker)

    def _hear(self) -> None:
        for _ in range(64):
            try:
                datagram = self._naks.recv(4096)
            except OSError:
                return
            try:
                read = read_datagram(datagram, time.time_ns() // 1_000_000, self._seal)
            except InvalidDatagram as error:
                _log.warning("datagram is refused", group=str(self.group), error=str(error))
                continue
            if isinstance(read, Nak) and read.session == self.session:
                with self._lock:
                    self._heard_at = time.monotonic()
                    self._machine.heard(read, self._heard_at)


def source_of(name: str) -> int:
    """The number by which a publisher of this name is known; one without a name is known by chance."""
    if not name:
        return secrets.randbits(64)
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
