"""The listening side: sockets, the connections they accept, and an orderly end."""

import asyncio
import contextlib
import gc
import heapq
import json
import os
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

from headrace.broker.auditing import open_audit
from headrace.broker.channel import SHARED_BUFFER_BYTES
from headrace.broker.config import Address, BrokerConfig, Listener
from headrace.broker.connection import Connection
from headrace.broker.endpoint import Access, Endpoint
from headrace.broker.errors import BrokerError
from headrace.broker.limits import MAX_CONNECTIONS, MAX_PER_IP, ConnectionLimits
from headrace.broker.metrics import Rejected
from headrace.broker.monitoring import DRAINING, RUNNING, STARTING, Monitor
from headrace.broker.runtime import Runtime
from headrace.broker.throttling import now_ms
from headrace.broker.turns import QUEUED_TURN_S
from headrace.protocol.errors import ErrorCode
from headrace.security.quotas import Ledger
from headrace.storage.filesystem import FileSystem
from headrace.telemetry.logs import RareLines, get_logger

_log = get_logger(__name__)
_BACKLOG = 1024
_ACCEPT_AGAIN_S = 0.5  # after the system refused a connection: too many open files, or no memory
_MAX_TURNED_AWAY = 1000  # sockets; beyond that they are closed at once
_QUIET_S = 30.0
_SWEEP_S = 30.0
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_SILENT_S = 10.0  # for so long, a connection makes room for another if there are too many


class Server:
    """Accepts connections for a runtime, on the running event loop."""

    def __init__(self, runtime: Runtime, access: Access, endpoints: list[Endpoint]) -> None:
        self._runtime = runtime
        self._access = access
        self._loop = asyncio.get_running_loop()
        self._shared = bytearray(SHARED_BUFFER_BYTES)
        self._connections: set[Connection] = set()
        self._turned_away: set[socket.socket] = set()  # those that are kept waiting before they are closed
        self._drained: asyncio.Future[None] | None = None  # who waits for the end of all connections
        self._idle_s = runtime.config.number("connections.max.idle.ms") / 1000
        self._rare = RareLines(_log, _QUIET_S)
        self._limits = ConnectionLimits(runtime.config)
        self._endpoints = endpoints
        self._sockets = open_listeners(tuple(endpoint.listener for endpoint in endpoints))
        access.open(runtime.find_credential, runtime.identity.secret)
        runtime.on_users_removed = self._end_removed
        for sock, endpoint in zip(self._sockets, self._endpoints, strict=True):
            self._listen(sock, endpoint)
        self._sweep = self._loop.call_later(min(self._idle_s, _SWEEP_S), self._look_after_idle)

    @property
    def addresses(self) -> list[Address]:
        """Where it listens, with the ports that were chosen."""
        return [Address(*sock.getsockname()[:2]) for sock in self._sockets]

    def count_connections(self) -> Counter[str]:
        """How many are open, by listener."""
        return Counter(connection.listener for connection in self._connections)

    def reload(self) -> None:
        """Read again what may change while the broker runs: certificates and users."""
        self._access.file.reload()
        self._end_removed()
        for endpoint in self._endpoints:
            endpoint.reload()

    def _end_removed(self) -> None:
        """Serve nothing more to users who could not log in any more: whoever is removed is out."""
        for connection in tuple(self._connections):
            user = connection.password_user
            if user is not None and not self._access.has_user(user):
                _log.info("login ended: the user was removed", client=repr(connection), user=user)
                connection.end_login()

    def _listen(self, listener: socket.socket, endpoint: Endpoint) -> None:
        if listener.fileno() >= 0:  # else closed in the meantime
            self._loop.add_reader(listener.fileno(), self._on_waiting, listener, endpoint)

    def _on_waiting(self, listener: socket.socket, endpoint: Endpoint) -> None:
        turns = self._runtime.turns
        if not turns.is_over:  # else the loop comes back
            began_s = time.monotonic()
            self._accept(listener, endpoint, began_s + QUEUED_TURN_S)
            turns.spend(time.monotonic() - began_s)

    def _accept(self, listener: socket.socket, endpoint: Endpoint, end_s: float) -> None:
        for number in count():
            if number and time.monotonic() >= end_s:  # the loop comes back
                return
            if self._limits.is_full(endpoint.listener):
                if number:  # it is not known whether anybody else is there
                    return
                if not self._displace(endpoint):
                    self._wait_to_accept(listener, endpoint)
                    return
            try:
                sock, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                self._wait_to_accept(listener, endpoint)
                self._runtime.metrics.rejected[Rejected.ACCEPT_FAILED] += 1
                self._rare.warning(
                    "cannot accept connections",
                    error=str(error),
                    connections=len(self._connections),
                    hint="those who are connected go on; raise the limit of open files (ulimit -n)",
                )
                return
            host = address[0].removeprefix("::ffff:")
            if self._limits.is_full_for(host):
                self._runtime.limits.reach(MAX_PER_IP, f"{host} has as many connections as it may")
                sock.close()  # as Kafka does
                continue
            if self._runtime.quotas is not None and self._keep_waiting(sock, host, self._runtime.quotas):
                continue
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = self._connect(sock, endpoint)
            except OSError:  # it has left already
                sock.close()
                continue
            self._connections.add(connection)
            self._runtime.metrics.accepted[endpoint.listener.name] += 1
            self._limits.opened(host, endpoint.listener.name)

    def _displace(self, endpoint: Endpoint) -> bool:
        """Close those who were silent longest, so that others can connect; whether there were any."""
        now = time.monotonic()
        limit = self._limits.on_listener(endpoint.listener)
        on_listener = limit < self._limits.in_all
        silent = heapq.nsmallest(
            1 + limit // 100,  # looking for them takes a while, if there are many
            (
                connection
                for connection in self._connections
                if connection.last_active < now - _SILENT_S
                and not connection.is_asked
                and (not on_listener or connection.listener == endpoint.listener.name)
            ),
            key=lambda connection: connection.last_active,
        )
        if silent:
            what = f"{len(silent)} silent connections are closed to make room for others"
        else:
            what = "nobody more can connect until others leave"
        self._runtime.limits.reach(MAX_CONNECTIONS, what)
        for connection in silent:
            connection.close()
        return bool(silent)

    def _keep_waiting(self, sock: socket.socket, host: str, quotas: Ledger) -> bool:
        """Whether an address has connected too often lately: it is served nothing, and closed after a while (KIP-612).

        Closing at once would have it try again at once.
        """
        throttle_ms = quotas.charge_connection(host, now_ms())
        if not throttle_ms:
            return False
        self._runtime.metrics.rejected[Rejected.CONNECTION_RATE] += 1
        if len(self._turned_away) >= _MAX_TURNED_AWAY:
            sock.close()
            return True
        self._turned_away.add(sock)
        self._loop.call_later(throttle_ms / 1000, self._turn_away, sock)
        return True

    def _turn_away(self, sock: socket.socket) -> None:
        self._turned_away.discard(sock)
        sock.close()

    def _connect(self, sock: socket.socket, endpoint: Endpoint) -> Connection:
        rest = (endpoint, self._runtime, self._loop, self._shared, self._disconnected)
        if endpoint.certificates is None:
            return Connection(sock, *rest)
        from headrace.broker.tls import TlsConnection, TlsSocket  # whoever serves in the open does not load OpenSSL

        return TlsConnection(TlsSocket(sock, endpoint.certificates.context), *rest)

    def _wait_to_accept(self, listener: socket.socket, endpoint: Endpoint) -> None:
        """Leave those who want to connect waiting for a while; those who are connected go on.

        The listener stays readable, so the loop would come back here at once, again and again.
        """
        self._loop.remove_reader(listener.fileno())
        self._loop.call_later(_ACCEPT_AGAIN_S, self._listen, listener, endpoint)

    def _look_after_idle(self) -> None:
        now = time.monotonic()
        for connection in tuple(self._connections):
            if connection.last_active < now - self._idle_s:
                self._runtime.metrics.rejected[Rejected.IDLE] += 1
                connection.close()
            elif connection.last_active < now - _SWEEP_S / 2:
                connection.rest()
                connection.close_if_reset()
        self._runtime.audit.flush()
        self._sweep = self._loop.call_later(min(self._idle_s, _SWEEP_S), self._look_after_idle)

    async def drain(self, timeout_s: float) -> None:
        """Accept nobody, answer what was asked, and return when all have hung up or the time is over.

        Requests that came and were not begun are not lost: whoever sent them connects to the next broker, and asks
        again.
        """
        self._stop_accepting()
        self._drained = drained = self._loop.create_future()
        for connection in tuple(self._connections):
            connection.drain()
        self._runtime.waiting.end()
        self._runtime.overflow.end()
        self._disconnected()
        try:
            await asyncio.wait_for(drained, timeout_s)
        except TimeoutError:
            _log.warning(
                "time was up before everything was answered",
                connections=len(self._connections),
                hint="clients ask again; shutdown.drain.timeout.ms gives more time",
            )

    def _disconnected(self, connection: Connection | None = None) -> None:
        if connection is not None and connection in self._connections:
            self._connections.discard(connection)
            self._limits.closed(connection.host, connection.listener)
        if not self._connections and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _stop_accepting(self) -> None:
        for sock in self._sockets:
            if sock.fileno() >= 0:
                self._loop.remove_reader(sock.fileno())
                sock.close()

    def close(self) -> None:
        self._sweep.cancel()
        self._stop_accepting()
        for connection in tuple(self._connections):
            connection.close()
        for sock in tuple(self._turned_away):
            self._turn_away(sock)
        self._access.close()


def open_listeners(listeners: tuple[Listener, ...]) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    try:
        for address in (listener.address for listener in listeners):
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(_BACKLOG)
            sock.setblocking(False)
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise BrokerError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"cannot listen on {address}: {error.strerror}; choose another port with --listen, or 0 for a free one",
        ) from error
    return sockets


class BrokerServer:
    def __init__(self, config: BrokerConfig, *, filesystem: FileSystem | None = None) -> None:
        self.config = config
        self._filesystem = filesystem
        self.runtime: Runtime | None = None
        self.server: Server | None = None
        self.monitor: Monitor | None = None
        self.phase = STARTING
        self._stop_watching: Callable[[], None] = lambda: None

    def start(self) -> list[Address]:
        """Open the data, then the doors; where it listens. To be called on a running event loop.

        What of the settings may be wrong is looked at first: a mistake leaves no folder behind.
        """
        try:
            return self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> list[Address]:
        access = Access(self.config)
        endpoints = [Endpoint(listener, self.config, access) for listener in self.config.listeners]
        if self.config.text("metrics.listener"):
            self.monitor = Monitor(self, self.config)
        if self._filesystem is None:
            _keep_from_others(self.config)
        self.runtime = runtime = Runtime(self.config, filesystem=self._filesystem, audit=open_audit(self.config))
        self.server = Server(runtime, access, endpoints)
        runtime.start()
        self._stop_watching = watch_loop(asyncio.get_running_loop())
        self.phase = RUNNING
        return self.server.addresses

    def reload(self) -> None:
        """Read certificates and users again."""
        if self.server:
            self.server.reload()

    async def drain(self) -> None:
        """Answer what is under way, and take nothing more; `stop` is to follow."""
        self.phase = DRAINING
        if self.server and self.runtime:
            await self.server.drain(self.runtime.config.number("shutdown.drain.timeout.ms") / 1000)

    def stop(self) -> None:
        """Close the doors, then the data: everything that was acknowledged is on disk."""
        self.phase = DRAINING
        self._stop_watching()
        server, runtime, monitor = self.server, self.runtime, self.monitor
        self.server = self.runtime = self.monitor = None
        try:
            if server:
                server.close()
            if runtime:
                runtime.close()
        finally:
            if monitor:
                monitor.close()


def _keep_from_others(config: BrokerConfig) -> None:
    """Where clients show who they are, other users of this machine do not get round that by reading files."""
    is_secured = config.text("authorization") == "on" or any(map(config.authenticates, config.listeners))
    with contextlib.suppress(OSError):  # it is not there yet, and is made so, or it is somebody else's
        mode = stat.S_IMODE(os.stat(config.data_dir).st_mode)
        if is_secured and mode & _OTHERS:
            os.chmod(config.data_dir, mode & ~_OTHERS)
            _log.warning("the data folder could be used by others: it is its owner's alone now", folder=config.data_dir)


STALL_S = 0.1
BEAT_S = 0.01
LOOP_WATCH = "HEADRACE_LOOP_WATCH"


class LoopWatch:
    """Whether the event loop stood still: a measure for tests, on if `HEADRACE_LOOP_WATCH` names a folder.

    A beat comes every `BEAT_S`. What the loop's thread worked between two beats, beyond the beat itself, it worked
    without coming round: nobody was served meanwhile. That is measured in the thread's own processor time, not by the
    clock on the wall: on a busy machine a thread stands still because others run, and that is no fault of the broker's.
    Time that the garbage collector took is not counted either: in a test's own process it walks the test's objects. Nor
    is waiting for a disk, which is no processor time: a sync on the loop's thread is not seen here.

    Each stall is a line of JSON in the folder, in a file of the process: `tests/conftest.py` reads them after every
    test.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, folder: str) -> None:
        self._loop = loop
        self._path = f"{folder}/{os.getpid()}.stalls"
        self._thread = threading.get_ident()
        self._collecting_since = 0.0
        self._collected_s = 0.0
        gc.callbacks.append(self._on_collection)
        self._worked_s = time.thread_time()
        self._beat_at = time.monotonic()
        self._beat = loop.call_later(BEAT_S, self._on_beat)

    def _on_beat(self) -> None:
        worked_s, beat_at = time.thread_time(), time.monotonic()
        held_s = worked_s - self._worked_s - self._collected_s - BEAT_S
        if held_s > STALL_S:
            self._write({"held_ms": round(held_s * 1000), "wall_ms": round((beat_at - self._beat_at) * 1000)})
        self._collected_s = 0.0
        self._worked_s, self._beat_at = worked_s, beat_at
        self._beat = self._loop.call_later(BEAT_S, self._on_beat)

    def _on_collection(self, phase: str, _: dict[str, Any]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collecting_since = time.thread_time()
        else:
            self._collected_s += time.thread_time() - self._collecting_since

    def _write(self, facts: dict[str, Any]) -> None:
        with open(self._path, "a") as file:
            file.write(json.dumps(facts | {"pid": os.getpid(), "thread": threading.current_thread().name}) + "\n")

    def close(self) -> None:
        self._beat.cancel()
        gc.callbacks.remove(self._on_collection)


def watch_loop(loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """Watch the running loop if that is asked for; what ends it."""
    folder = os.environ.get(LOOP_WATCH)
    return LoopWatch(loop, folder).close if folder else lambda: None
