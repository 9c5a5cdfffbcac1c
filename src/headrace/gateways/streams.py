"""Listeners for streams of bytes, TCP and Unix, in the open or by TLS, for gateways that read frames from them.

What always holds: what is not taken is not read, so whoever sends faster than the broker writes is slowed down by the
kernel, and a connection holds no more than a piece and a frame; there are no more connections than allowed, and who
comes beyond that is closed at once and counted; a client that does not finish its handshake is closed after a while.
"""

import asyncio
import contextlib
import os
import socket
import ssl
import stat
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.gateways.bad_input import BadInput
from headrace.gateways.errors import GatewayError
from headrace.gateways.framing import Framer, Frames
from headrace.gateways.gateway import Progress
from headrace.section_keys import Key, port
from headrace.security.principal import is_public
from headrace.serving.listening import listening, load_certificate
from headrace.telemetry.logs import get_logger

PIECE_BYTES: Final = 64 * 1024
CONNECTIONS: Final = 1_000
_HANDSHAKE_S: Final = 10.0
_RESTING_S: Final = 0.1  # so long a connection is waited for, of which only what is there already is taken
_REST_S: Final = 1.0  # so long all of them together
_QUIET_S: Final = 60  # after which the kernel asks whether the other side is still there
_log = get_logger(__name__)


def stream_keys(port_meaning: str, unix_meaning: str) -> tuple[Key, ...]:
    """Of a gateway that listens for streams."""
    return (
        Key("host", str, "Where to listen; another than loopback has to be said to be meant, with insecure or clients.",
            "127.0.0.1"),
        port("port", port_meaning),
        Key("unix", str, unix_meaning),
        Key("certificate", str, "A PEM file of a private key and its certificates, to speak TLS on the port."),
        Key("clients", str, "A PEM file of authorities: only who has a certificate that they signed is let in (TLS)."),
        Key("insecure", bool, "Let anybody in who can reach another host than loopback.", False),
        Key("connections", int, "How many may be open at once.", CONNECTIONS, least=1, most=100_000),
        Key("idle_s", float, "After how many seconds of silence a connection is closed; 0 is never.", 0.0, least=0),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Where streams come in, and which."""

    host: str = "127.0.0.1"
    port: int | None = None
    unix: str = ""
    certificate: str = ""
    clients: str = ""
    connections: int = CONNECTIONS
    idle_s: float = 0.0

    @classmethod
    def of(cls, where: str, values: Mapping[str, Any]) -> "StreamSettings":
        """From the values of `stream_keys`; raises the first that is wrong."""
        clients, certificate = values.get("clients") or "", values.get("certificate") or ""
        if clients and not certificate:
            raise GatewayError(f"[{where}] clients needs TLS: give a certificate as well")
        if certificate and values.get("port") is None:
            raise GatewayError(f"[{where}] certificate is for TLS on a port, and there is none: give port")
        check_host(where, values, asks=bool(clients))
        return cls(
            values["host"], values.get("port"), values.get("unix") or "", certificate, clients,
            values["connections"], values["idle_s"],
        )  # fmt: skip


def check_host(where: str, values: Mapping[str, Any], *, asks: bool = False) -> None:
    """Raise, where others than this machine could send and nothing says that this is meant."""
    if is_public(values["host"]) and not (asks or values["insecure"]):
        raise GatewayError(
            f"[{where}] host {values['host']} can be reached from other machines, and nobody has to show who he is: "
            "allow it with insecure = true, or listen on 127.0.0.1"
        )


@dataclass(slots=True, eq=False)
class Connection:
    """One client: what it sends, where answers go, and its address."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    client: str
    idle_s: float
    is_ending: bool = False  # what was sent by now is read, and no more
    is_cut: bool = False  # by us: nothing more is read, though the client may go on
    _patience: asyncio.Timeout | None = None

    async def read(self) -> bytes:
        """The next piece; nothing at the end of the stream. Raises `TimeoutError` after too long a silence."""
        if self.is_cut:
            return b""
        try:
            async with asyncio.timeout(_RESTING_S if self.is_ending else self.idle_s or None) as self._patience:
                return await self.reader.read(PIECE_BYTES)
        except TimeoutError:
            if not self._is_ended_by_us():
                raise
            self.is_cut = True
            return b""
        finally:
            self._patience = None

    def _is_ended_by_us(self) -> bool:
        return self.is_cut or self.is_ending

    async def send(self, data: bytes) -> None:
        """Wait until the client has taken most of it; raises `TimeoutError` after too long."""
        self.writer.write(data)
        async with asyncio.timeout(self.idle_s or None):
            await self.writer.drain()

    def end(self) -> None:
        """Read what is there already."""
        self.is_ending = True
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time() + _RESTING_S)

    def cut(self) -> None:
        """Read no more."""
        self.is_cut = True
        if self._patience is not None:
            self._patience.reschedule(0.0)


Take = Callable[[Frames, bool], Awaitable[None]]


async def read_frames(
    connection: Connection, framer: Framer, take: Take, bad_input: BadInput, is_settled: Callable[[], bool]
) -> None:
    """Have frames taken as they come; `take` is also told when these are the last.

    A client that is silent because it waits for us is not silent for too long.
    """
    progress = bad_input.progress
    while True:
        try:
            data = await connection.read()
        except TimeoutError:
            if is_settled():
                raise
            continue
        if not data and connection.is_cut:  # by us: a frame that is not whole is none
            return
        found = framer.feed(data) if data else framer.finish()
        progress.received += len(found.frames)
        if found.cut:
            progress.more["cut"] = progress.more.get("cut", 0) + len(found.cut)
        if found.problem:
            bad_input.refuse(found.problem, connection.client)
        await take(found, not data)
        if not data or found.problem:
            return


Serve = Callable[[Connection], Awaitable[None]]


class Streams:
    """Listens, and has each connection served in a task of its own."""

    def __init__(self, settings: StreamSettings, serve: Serve, progress: Progress) -> None:
        """Take the port and the path; raises one sentence if somebody else has them."""
        self._settings = settings
        self._serve = serve
        self._progress = progress
        self._is_ending = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: set[Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._sockets: list[tuple[socket.socket, ssl.SSLContext | None]] = []
        self.port: int | None = None
        try:
            if settings.port is not None:
                context = _tls(settings) if settings.certificate else None
                bound = listening(settings.host, settings.port, GatewayError)
                self.port = int(bound.getsockname()[1])
                self._sockets.append((bound, context))
            if settings.unix:
                self._sockets.append((unix_socket(settings.unix, socket.SOCK_STREAM), None))
        except BaseException:
            self.release()
            raise

    @property
    def sources(self) -> list[str]:
        """Where it listens, for people."""
        found = []
        if self.port is not None:
            host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
            found.append(f"{'tls' if self._settings.certificate else 'tcp'}://{host}:{self.port}")
        return found + ([f"unix:{self._settings.unix}"] if self._settings.unix else [])

    async def open(self) -> None:
        for bound, context in self._sockets:
            patience_s = _HANDSHAKE_S if context else None
            if bound.family == socket.AF_UNIX:
                made = await asyncio.start_unix_server(self._accept, sock=bound, limit=PIECE_BYTES, backlog=512)
            else:
                made = await asyncio.start_server(
                    self._accept,
                    sock=bound,
                    ssl=context,
                    limit=PIECE_BYTES,
                    backlog=512,
                    ssl_handshake_timeout=patience_s,
                )
            self._servers.append(made)

    async def read_rest(self) -> None:
        """Take no more connections, and of those there are what was sent by now."""
        self._is_ending = True
        for server in self._servers:
            server.close()
        for connection in self._connections:
            connection.end()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_REST_S)

    def stop_reading(self) -> None:
        """Take no more connections, and no more of those there are."""
        self._is_ending = True
        for server in self._servers:
            server.close()
        for connection in self._connections:
            connection.cut()

    async def end(self, within_s: float) -> None:
        """Give connections so long to end by themselves, and let go of the port."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=within_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        self.release()

    def release(self) -> None:
        """Let go of the port and the path."""
        for bound, _ in self._sockets:
            bound.close()
        if self._settings.unix and any(bound.family == socket.AF_UNIX for bound, _ in self._sockets):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._settings.unix)
        self._sockets.clear()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= self._settings.connections:
            more = self._progress.more
            more["connections_refused"] = more.get("connections_refused", 0) + 1
            _log.debug("connection refused", reason="there are as many as may be", connections=len(self._tasks))
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._run(reader, writer))
        self._tasks.add(task)
        self._progress.connections = len(self._tasks)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._progress.connections = len(self._tasks)

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected: socket.socket = writer.get_extra_info("socket")
        client = "unix"
        if connected.family != socket.AF_UNIX:
            if (peer := writer.get_extra_info("peername")) is None:  # it was reset before we looked
                writer.transport.abort()
                return
            client = str(peer[0])
            with contextlib.suppress(OSError):
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _QUIET_S)
        connection = Connection(reader, writer, client, self._settings.idle_s, self._is_ending)
        self._connections.add(connection)
        try:
            await self._serve(connection)
            writer.close()
            async with asyncio.timeout(1.0):
                await writer.wait_closed()
        except (OSError, TimeoutError, ssl.SSLError):  # gone, or silent for too long: what it sent whole has been taken
            pass
        finally:
            self._connections.discard(connection)
            writer.transport.abort()


def unix_socket(path: str, kind: socket.SocketKind) -> socket.socket:
    """A socket at a path; one that a process left behind when it was killed is replaced."""
    made = socket.socket(socket.AF_UNIX, kind)
    try:
        if _is_left_behind(path, kind):
            os.unlink(path)
        made.bind(path)
        if kind == socket.SOCK_STREAM:
            made.listen(512)
    except OSError as error:
        made.close()
        reason = error.strerror or str(error)
        raise GatewayError(f"cannot listen on {path} ({reason}): choose another path for unix") from error
    return made


def _is_left_behind(path: str, kind: socket.SocketKind) -> bool:
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return False
    except OSError:
        return False
    with socket.socket(socket.AF_UNIX, kind) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def _tls(settings: StreamSettings) -> ssl.SSLContext:
    context = load_certificate(settings.certificate)
    if settings.clients:
        try:
            context.load_verify_locations(settings.clients)
        except (OSError, ssl.SSLError) as error:
            reason = getattr(error, "strerror", None) or "it is not PEM"
            raise GatewayError(
                f"clients {settings.clients} cannot be read ({reason}): give a PEM file of the authorities that sign "
                "clients' certificates"
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


__all__ = [
    "CONNECTIONS",
    "PIECE_BYTES",
    "Connection",
    "StreamSettings",
    "Streams",
    "check_host",
    "read_frames",
    "stream_keys",
    "unix_socket",
]
