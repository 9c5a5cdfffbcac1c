"""A socket of nng: made with all its options, and used by one thread.

nng's threads do not survive a fork, and the library ends the process that tries: so a process that was forked after its
parent had used nng is told so before anything is touched.
"""

import atexit
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from headrace.extras import load
from headrace.gateways.errors import GatewayError
from headrace.gateways.messaging.endpoints import check_listening, parse_endpoint
from headrace.gateways.messaging.ends import HIGH_WATER_MARK, LARGEST_BYTES, NotYours
from headrace.gateways.messaging.forms import Frame
from headrace.gateways.messaging.system import is_in_the_way, wait_readable
from headrace.secret_files import check_private

pynng: Any = load("pynng", "a socket of nng")

SCHEMES: Final = ("tcp", "ipc", "tls+tcp")
_SLICE_MS: Final = 200  # nng does not hear Ctrl-C while it waits
_RECONNECT_MS, _RECONNECT_MOST_MS = 100, 2_000
_MOST_BUFFER: Final = 8192  # what nng allows
_AUTHENTICATION: Final = "listen at tls+tcp:// with tls=TlsServer(…, clients=…)"
_used_in: int | None = None


class CannotListen(GatewayError):
    """An endpoint that cannot be had."""


@dataclass(frozen=True, slots=True)
class TlsServer:
    """For whoever listens: a PEM file of a private key and its certificates."""

    certificate: str
    clients: str | None = None
    """A PEM file of authorities; only those with a certificate of theirs are let in. None lets in everybody."""


@dataclass(frozen=True, slots=True)
class TlsClient:
    """For whoever connects: the authorities by which the listener is known, and a certificate if it wants one.

    The listener's certificate has to be for `server_name`, by default the host that is connected to first.
    """

    authorities: str
    certificate: str | None = None
    server_name: str | None = None


Tls = TlsServer | TlsClient


@dataclass(frozen=True, slots=True)
class Options:
    """What all sockets of nng have."""

    listen: tuple[str, ...] = ()
    connect: tuple[str, ...] = ()
    high_water_mark: int = HIGH_WATER_MARK
    largest_bytes: int = LARGEST_BYTES
    timeout_s: float | None = None
    tls: Tls | None = None
    is_insecure: bool = False

    @property
    def where(self) -> str:
        return ", ".join(self.listen + self.connect)

    def check(self) -> None:
        """Raise the first thing that is wrong; opens nothing."""
        if not self.listen and not self.connect:
            raise GatewayError("a socket has nowhere to listen and nothing to connect to: say listen=… or connect=…")
        if not 1 <= self.high_water_mark <= _MOST_BUFFER:
            raise GatewayError(
                f"high_water_mark={self.high_water_mark} is not possible: nng lets 1 to {_MOST_BUFFER} messages wait"
            )
        is_protected = isinstance(self.tls, TlsServer) and self.tls.clients is not None
        for each in self.listen:
            found = check_listening(
                each, SCHEMES, is_protected=is_protected and each.startswith("tls"), is_insecure=self.is_insecure,
                how=_AUTHENTICATION,
            )  # fmt: skip
            if found.scheme == "tls+tcp" and not isinstance(self.tls, TlsServer):
                raise GatewayError(f"{each} listens with TLS and has no certificate: give it tls=TlsServer(…)")
        for each in self.connect:
            if parse_endpoint(each, SCHEMES).scheme == "tls+tcp" and not isinstance(self.tls, TlsClient):
                raise GatewayError(f"{each} connects with TLS and knows no authorities: give it tls=TlsClient(…)")


def _tls_config(tls: Tls, connect: Sequence[str]) -> Any:
    config = pynng.TLSConfig
    try:
        if isinstance(tls, TlsServer):
            check_private(tls.certificate, "the certificate's private key")
            mode = config.AUTH_MODE_NONE if tls.clients is None else config.AUTH_MODE_REQUIRED
            found = config(config.MODE_SERVER, ca_files=tls.clients, cert_key_file=tls.certificate)
            found.set_auth_mode(mode)
            return found
        if tls.certificate is not None:
            check_private(tls.certificate, "the certificate's private key")
        name = tls.server_name or (parse_endpoint(connect[0], SCHEMES).host if connect else None)
        found = config(config.MODE_CLIENT, server_name=name, ca_files=tls.authorities, cert_key_file=tls.certificate)
        found.set_auth_mode(config.AUTH_MODE_REQUIRED)
        return found
    except pynng.NNGException as error:
        files = tls.certificate if isinstance(tls, TlsServer) else tls.authorities
        raise GatewayError(f"the PEM file {files} cannot be used ({error}): check its path and what is in it") from None


_sockets: "WeakSet[Any]" = WeakSet()


class NngWire:
    """A socket; pynng's, made by `open_socket` with these options."""

    def __init__(
        self, open_socket: Callable[..., Any], options: Options, *, send_buffer: int = 0, receive_buffer: int = 0
    ) -> None:
        options.check()
        _check_process()
        self._options = options
        timeout_s = options.timeout_s
        self._timeout_s = timeout_s
        config = None if options.tls is None else _tls_config(options.tls, options.connect)
        self.socket = open_socket(
            recv_max_size=options.largest_bytes,
            reconnect_time_min=_RECONNECT_MS,
            reconnect_time_max=_RECONNECT_MOST_MS,
            recv_timeout=_SLICE_MS,
            send_timeout=_SLICE_MS,
            tls_config=config,
        )
        _sockets.add(self.socket)
        self._send_fd = self._receive_fd = -1
        try:
            for name, buffer in (("send_buffer_size", send_buffer), ("recv_buffer_size", receive_buffer)):
                with suppress(pynng.NotSupported):
                    setattr(self.socket, name, buffer)
            with suppress(pynng.NotSupported):
                self.socket.tcp_keepalive = True
            self._open()
        except BaseException:
            self.socket.close()
            raise

    def _open(self) -> None:
        for each in self._options.listen:
            if each.startswith("ipc://") and is_in_the_way(each):
                raise CannotListen(f"{each} cannot be listened at (a file is there): choose another place")
            try:
                self.socket.listen(each)
            except pynng.NNGException as error:
                raise CannotListen(
                    f"{each} cannot be listened at ({error}): choose another, or stop what listens there"
                ) from None
        for each in self._options.connect:
            try:
                self.socket.dial(each, block=False)
            except pynng.NNGException as error:
                raise CannotListen(f"{each} cannot be connected to ({error}): check the address") from None

    @property
    def endpoint(self) -> str:
        """Where it listens, with the port that was chosen for 0; else what it connects to."""
        for listener in self.socket.listeners:
            if listener.url.startswith("ipc"):
                return str(listener.url)
            scheme = listener.url.partition("://")[0]
            return f"{scheme}://{listener.local_address}"
        return self._options.connect[0]

    def connections(self) -> int:
        return len(self.socket.pipes)

    # --- sending and receiving

    def send(self, frame: Frame) -> bool:
        until = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        while True:
            try:
                self.socket.send(frame)
            except pynng.Timeout:
                if until is not None and time.monotonic() >= until:
                    return False
            else:
                return True
            if until is not None:
                self.socket.send_timeout = max(1, min(_SLICE_MS, int((until - time.monotonic()) * 1000)))

    def try_send(self, frame: Frame) -> bool:
        try:
            self.socket.send(frame, block=False)
        except pynng.TryAgain:
            return False
        return True

    def receive(self, timeout_s: float | None) -> Frame | None:
        if timeout_s is None:
            while True:
                with suppress(pynng.Timeout):
                    return self._received(block=True)
        until = time.monotonic() + timeout_s
        while (frame := self.try_receive()) is None:
            left_s = until - time.monotonic()
            if left_s <= 0:
                return None
            wait_readable(min(left_s, _SLICE_MS / 1000), self.receive_fd)
        return frame

    def try_receive(self) -> Frame | None:
        try:
            return self._received(block=False)
        except pynng.TryAgain:
            return None

    def _received(self, *, block: bool) -> bytes:
        try:
            return bytes(self.socket.recv(block=block))
        except RuntimeError:  # pynng reads an empty message from no address
            return b""

    def wait_writable(self, timeout_s: float) -> None:
        wait_readable(timeout_s, self.send_fd)

    @property
    def send_fd(self) -> int:
        if self._send_fd < 0:
            self._send_fd = self.socket.send_fd
        return self._send_fd

    @property
    def receive_fd(self) -> int:
        if self._receive_fd < 0:
            self._receive_fd = self.socket.recv_fd
        return self._receive_fd

    # --- the end

    def close(self, linger_s: float) -> None:
        """Wait until there is room, which is when nothing waits in a socket without a buffer; then close."""
        if linger_s > 0 and self.socket.pipes:
            with suppress(pynng.NNGException, OSError):
                self.wait_writable(linger_s)
        self.socket.close()

    def abandon(self) -> None:
        """Nothing is to be done: see `_after_fork`."""


def _after_fork() -> None:
    """Closing a socket, also one that is closed, and nng's own end wait for threads that this process does not have."""
    for socket in list(_sockets):
        socket.__dict__.pop("_socket", None)
    if _used_in is not None:
        atexit.unregister(pynng.nng._pynng_atexit)  # noqa: SLF001 - there is no other way to it


os.register_at_fork(after_in_child=_after_fork)


def _check_process() -> None:
    global _used_in
    if _used_in is None:
        _used_in = os.getpid()
    elif _used_in != os.getpid():
        raise NotYours(
            "this process was forked from one that uses nng, which cannot be used any more after that: start it by "
            "multiprocessing's spawn, or use nng in the new processes alone"
        )


def endpoints(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def check_file(path: str) -> None:
    """Raise if a file of certificates is not there."""
    if not Path(path).is_file():
        raise GatewayError(f"there is no file {path}: name a PEM file")
