"""A socket of ZeroMQ: made with all its options, and used by one thread."""

import errno
import socket as sockets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final

from headrace.extras import load
from headrace.gateways.errors import GatewayError
from headrace.gateways.messaging.endpoints import check_listening, parse_endpoint
from headrace.gateways.messaging.ends import HIGH_WATER_MARK, LARGEST_BYTES
from headrace.gateways.messaging.forms import Frame
from headrace.gateways.messaging.system import is_in_the_way
from headrace.gateways.zeromq.curve import Curve, CurveClient, CurveServer, Guard, protect

if TYPE_CHECKING:
    import zmq
else:
    zmq = load("zmq", "a socket of ZeroMQ")

SCHEMES: Final = ("tcp", "ipc")
# Heartbeats of ZeroMQ are not for sockets that hold back whoever sends: one that does not read because it is full
# answers none, and is taken for dead; and libzmq 4.3.5 ends the process when the time for a heartbeat comes while its
# peer has gone and it is full. TCP's own find a machine that is gone.
_KEEPALIVE_S, _KEEPALIVE_EVERY_S, _KEEPALIVES = 10, 5, 3
_RECONNECT_MS, _RECONNECT_MOST_MS = 100, 2_000
_EVENT: Final = Struct("=HI")  # of a monitor: what happened, and to which file descriptor
_NOBLOCK: Final = int(zmq.NOBLOCK)
_AUTHENTICATION: Final = "give curve=CurveServer(…), so that only those with a key get in"


class CannotListen(GatewayError):
    """An endpoint that cannot be had."""


@dataclass(frozen=True, slots=True)
class Options:
    """What all sockets of ZeroMQ have."""

    listen: tuple[str, ...] = ()
    connect: tuple[str, ...] = ()
    high_water_mark: int = HIGH_WATER_MARK
    largest_bytes: int = LARGEST_BYTES
    timeout_s: float | None = None
    curve: Curve | None = None
    is_insecure: bool = False
    is_multipart: bool = False

    @property
    def where(self) -> str:
        return ", ".join(self.listen + self.connect)

    def check(self) -> None:
        """Raise the first thing that is wrong; opens nothing."""
        if not self.listen and not self.connect:
            raise GatewayError("a socket has nowhere to listen and nothing to connect to: say listen=… or connect=…")
        if self.high_water_mark < 1:
            raise GatewayError(
                f"high_water_mark={self.high_water_mark} is not possible: give how many messages may wait, from 1 on"
            )
        for each in self.listen:
            check_listening(
                each, SCHEMES, is_protected=self.curve is not None, is_insecure=self.is_insecure, how=_AUTHENTICATION
            )
        for each in self.connect:
            parse_endpoint(each, SCHEMES)
        if self.listen and isinstance(self.curve, CurveClient):
            raise GatewayError(f"{self.where} listens and has curve=CurveClient(…): give it curve=CurveServer(…)")
        if self.connect and isinstance(self.curve, CurveServer):
            raise GatewayError(f"{self.where} connects and has curve=CurveServer(…): give it curve=CurveClient(…)")


def endpoints(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


class ZmqWire:
    """A socket in a context of its own, so that closing it can wait for what lingers."""

    def __init__(
        self,
        kind: int,
        options: Options,
        settings: Sequence[tuple[int, int | bytes]] = (),
        *,
        is_watched: bool = False,
    ) -> None:
        """`settings` are further options of ZeroMQ, set before the socket listens."""
        options.check()
        self._options = options
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._guard: Guard | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._connected: set[int] = set()
        self._timeout_ms = -1
        self.refused = 0  # connections that had no right key
        self.socket: zmq.Socket[bytes] = self._context.socket(kind)
        try:
            self._set_up(settings)
            if is_watched:
                self._monitor = self.socket.get_monitor_socket(
                    zmq.EVENT_ACCEPTED | zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED
                    | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
                    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
                )  # fmt: skip
            self._open()
        except BaseException:
            self.close(0)
            raise
        # pyzmq's own `send` is a Python function around this one, which takes as long again.
        self._send = super(zmq.Socket, self.socket).send
        self._recv = self.socket.recv

    def _set_up(self, settings: Sequence[tuple[int, int | bytes]]) -> None:
        socket, options = self.socket, self._options
        socket.set_hwm(options.high_water_mark)
        socket.maxmsgsize = options.largest_bytes
        socket.sndtimeo = -1 if options.timeout_s is None else max(int(options.timeout_s * 1000), 0)
        socket.linger = 0
        socket.ipv6 = any("[" in each for each in options.listen + options.connect)
        socket.tcp_keepalive = 1
        socket.tcp_keepalive_idle = _KEEPALIVE_S
        socket.tcp_keepalive_intvl = _KEEPALIVE_EVERY_S
        socket.tcp_keepalive_cnt = _KEEPALIVES
        socket.reconnect_ivl = _RECONNECT_MS
        socket.reconnect_ivl_max = _RECONNECT_MOST_MS
        for name, value in settings:
            socket.setsockopt(name, value)
        if options.curve is not None:
            if isinstance(options.curve, CurveServer) and options.curve.clients is not None:
                self._guard = Guard(self._context, options.curve.clients)
                # libzmq 4.3.5 takes no message at all if there is room for one alone and it asks who may connect.
                socket.rcvhwm = max(options.high_water_mark, 2)
            protect(socket, options.curve)

    def _open(self) -> None:
        for each in self._options.listen:
            try:
                if each.startswith("ipc://"):
                    _check_free(each)
                self.socket.bind(each)
            except zmq.ZMQError as error:
                raise CannotListen(
                    f"{each} cannot be listened at ({error.strerror}): choose another, or stop what listens there"
                ) from None
        for each in self._options.connect:
            try:
                self.socket.connect(each)
            except zmq.ZMQError as error:
                raise CannotListen(f"{each} cannot be connected to ({error.strerror}): check the address") from None

    @property
    def endpoint(self) -> str:
        """Where it listens, with the port that was chosen for 0; else what it was connected to last."""
        return self.socket.getsockopt_string(zmq.LAST_ENDPOINT)

    # --- sending and receiving

    def send(self, frame: Frame) -> bool:
        try:
            if isinstance(frame, list):
                self.socket.send_multipart(frame)
            else:
                self._send(frame)
        except zmq.Again:
            return False
        return True

    def try_send(self, frame: Frame) -> bool:
        try:
            if isinstance(frame, list):
                self.socket.send_multipart(frame, _NOBLOCK)
            else:
                self._send(frame, _NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self, timeout_s: float | None) -> Frame | None:
        timeout_ms = -1 if timeout_s is None else int(timeout_s * 1000 + 0.999)
        if timeout_ms != self._timeout_ms:
            self.socket.rcvtimeo = self._timeout_ms = timeout_ms
        try:
            return self.socket.recv_multipart() if self._options.is_multipart else self._recv()
        except zmq.Again:
            return None

    def try_receive(self) -> Frame | None:
        # Asking for events takes notice of what came; only then is the file descriptor to be waited for again.
        if not int(self.socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            return None
        try:
            return self.socket.recv_multipart(_NOBLOCK) if self._options.is_multipart else self._recv(_NOBLOCK)
        except zmq.Again:
            return None

    def wait_writable(self, timeout_s: float) -> None:
        self.socket.poll(int(timeout_s * 1000) + 1, zmq.POLLOUT)

    @property
    def send_fd(self) -> int:
        return int(self.socket.fileno())

    receive_fd = send_fd

    # --- who is connected

    @property
    def monitor(self) -> "zmq.Socket[bytes] | None":
        """What is readable when somebody comes or goes."""
        return self._monitor

    def connections(self) -> int:
        """How many are connected now; whoever asks has to be the socket's thread."""
        self.changes()
        return len(self._connected)

    def changes(self) -> list[bool]:
        """What has happened since the last look: true for each that got in, false for each that went."""
        found: list[bool] = []
        if self._monitor is None:
            return found
        while int(self._monitor.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            kind, value = _EVENT.unpack_from(self._monitor.recv_multipart()[0])
            if kind in (zmq.EVENT_ACCEPTED, zmq.EVENT_CONNECTED):
                self._connected.add(value)
            elif kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                found.append(True)
            elif kind in (zmq.EVENT_DISCONNECTED, zmq.EVENT_CLOSED):
                self._connected.discard(value)
                found.append(False)
            elif kind != zmq.EVENT_MONITOR_STOPPED:
                self.refused += 1
        return found

    # --- the end

    def close(self, linger_s: float) -> None:
        if self._monitor is not None:
            with suppress(zmq.ZMQError):
                self.socket.disable_monitor()
            self._monitor.close(0)
        self.socket.close(linger=int(linger_s * 1000))
        if self._guard is not None:
            self._guard.close()
        self._context.term()

    def abandon(self) -> None:
        """Nothing is to be done: pyzmq touches no socket of another process."""


def _check_free(endpoint: str) -> None:
    """ZeroMQ takes a path over from whoever listens there, who then gets no more, and from a file: see to both."""
    if is_in_the_way(endpoint):
        raise CannotListen(f"{endpoint} cannot be listened at (a file is there): choose another place")
    with sockets.socket(sockets.AF_UNIX) as probe:
        probe.settimeout(1.0)
        with suppress(OSError):
            probe.connect(endpoint.removeprefix("ipc://"))
            raise zmq.ZMQError(errno.EADDRINUSE)


class PublishingWire(ZmqWire):
    """One that is told of subscriptions, which have to be read, or they would pile up."""

    def __init__(self, options: Options, *, is_lossy: bool, is_watched: bool = False) -> None:
        settings = [(int(zmq.XPUB_VERBOSER), 1), (int(zmq.XPUB_NODROP), 0 if is_lossy else 1)]
        super().__init__(zmq.XPUB, options, settings, is_watched=is_watched)
        self._since = 0
        self.subscriptions = 0

    def send(self, frame: Frame) -> bool:
        self._since += 1
        if self._since >= 128:
            self.take_subscriptions()
        return super().send(frame)

    def try_send(self, frame: Frame) -> bool:
        self._since += 1
        if self._since >= 128:
            self.take_subscriptions()
        return super().try_send(frame)

    def take_subscriptions(self) -> int:
        """How many subscriptions there are now."""
        self._since = 0
        while int(self.socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            for part in self.socket.recv_multipart(_NOBLOCK):
                self.subscriptions += (part[:1] == b"\x01") - (part[:1] == b"\x00")
        return self.subscriptions

    def wait_for_subscriptions(self, count: int, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        while self.take_subscriptions() < count:
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            self.socket.poll(int(left_s * 1000) + 1, zmq.POLLIN)
        return True
