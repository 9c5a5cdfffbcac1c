"""TLS: certificates that are read again when they change, and a connection whose bytes OpenSSL turns into others.

The protocol's core is the same as in the open (`channel.py`), and so is the connection around it; what differs is the
stream between it and the socket. OpenSSL works in memory here (`ssl.MemoryBIO`): it never touches the socket, so
nothing of it has to be repeated when the socket would block (`docs/decisions/0029-tls-in-memory.md`).

What always holds:
- a client that does not speak TLS, or shows no certificate that we trust where it must, is closed with one line in the
  log, and touches nothing else; one that takes too long is closed too;
- certificates that cannot be used are refused at the start, and later they leave those in force as they are;
- nothing that is mapped is encrypted: a file that is cut meanwhile would end the process, so slices are read;
- one connection encrypts no more than `TURN_BYTES` before others have their turn, and holds at most a few `CHUNK_BYTES`
  besides what its channel holds.
"""

import contextlib
import os
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Final

from headrace.broker.channel import Sendable
from headrace.broker.config import BrokerConfig, Listener
from headrace.broker.connection import Connection
from headrace.broker.file_views import read_slice
from headrace.broker.metrics import Rejected
from headrace.broker.settings.setting import InvalidSetting
from headrace.errors import HeadraceError
from headrace.secret_files import check_private
from headrace.security.certificates import format_name, map_name, parse_rules
from headrace.security.principal import Principal
from headrace.storage.segment import FileSlice
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)

CHUNK_BYTES: Final = 64 * 1024  # OpenSSL's buffers grow to this and stay so: small, for there is a pair a connection
TURN_BYTES: Final = 1024 * 1024
MOST_UNSENT_BYTES: Final = 2 * CHUNK_BYTES  # encrypted: a chunk of answers, and what TLS itself has to say
_UNEXPECTED_MESSAGE: Final = bytes.fromhex("15 0303 0002 02 0a")  # a fatal alert
_LOOK_AGAIN_S: Final = 1.0
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {"required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}


class TlsFailed(HeadraceError):
    """The other side breaks the rules of TLS, or is not whom we trust."""


class Certificates:
    """What a listener shows and whom it trusts; a change of the files holds from the next connection on."""

    def __init__(self, listener: Listener, config: BrokerConfig) -> None:
        self._listener = listener
        self._config = config
        stores = (self._text("ssl.keystore.location"), self._text("ssl.truststore.location"))
        self._files = [path for path in stores if path]
        self._seen = self._look()
        self._look_at = time.monotonic() + _LOOK_AGAIN_S
        self._context = self._load()
        self.rules = parse_rules(self._text("ssl.principal.mapping.rules"))

    @property
    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_AGAIN_S
            if self._look() != self._seen:
                self.reload()
        return self._context

    def reload(self) -> None:
        """Read the files again; if they cannot be used, those in force stay, and the log says why."""
        self._seen = self._look()
        try:
            self._context = self._load()
        except HeadraceError as error:
            _log.error("certificates not reloaded", listener=self._listener.name, reason=str(error))
        else:
            _log.info("certificates reloaded", listener=self._listener.name)

    def _text(self, name: str) -> str:
        return self._config.text_for(self._listener, name)

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_identity_of(path) for path in self._files]

    def _load(self) -> ssl.SSLContext:
        store, trusted = self._text("ssl.keystore.location"), self._text("ssl.truststore.location")
        client_auth = self._config.client_auth(self._listener)
        if not store:
            raise InvalidSetting(
                f"listener {self._listener} needs a certificate: set ssl.keystore.location to a PEM file of its "
                "private key and certificates"
            )
        if client_auth != "none" and not trusted:
            raise InvalidSetting(
                f"ssl.client.auth is {client_auth}, but nobody is trusted: set ssl.truststore.location to a PEM file "
                "of the authorities that sign clients' certificates"
            )
        check_private(store, "ssl.keystore.location")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        versions = [_VERSIONS[version.strip()] for version in self._text("ssl.enabled.protocols").split(",")]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        password = self._text("ssl.key.password")
        try:
            context.load_cert_chain(store, password=lambda: password)
        except (OSError, ValueError) as error:  # a ValueError is a password of more than 1,024 bytes
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "it is not PEM"
            raise InvalidSetting(
                f"ssl.keystore.location {store}: no private key with its certificate can be read "
                f"({reason.lower().replace('_', ' ')}): give both in PEM, and ssl.key.password if the key has one"
            ) from None
        context.verify_mode = _CLIENT_AUTH[client_auth]
        if trusted:
            try:
                context.load_verify_locations(cafile=trusted)
            except OSError:
                raise InvalidSetting(f"ssl.truststore.location {trusted} holds no certificates in PEM") from None
        return context


def _identity_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _do_nothing() -> None: ...


class TlsSocket:
    """A socket's bytes, encrypted on the way out and decrypted on the way in; not blocking, as the socket."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unsent = memoryview(b"")  # encrypted, and not taken by the socket yet
        self.fileno = sock.fileno
        self.getsockname, self.getpeername = sock.getsockname, sock.getpeername
        self._is_shut = False
        self.is_secure = False
        self.on_secure: Callable[[], None] = _do_nothing  # called before anything is decrypted; may refuse
        self.has_more = False  # decrypted or to be decrypted without another look at the socket
        self.allowance = TURN_BYTES  # what may be encrypted in this turn

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    @property
    def subject(self) -> Any:
        """The name in the client's certificate; None if it showed none."""
        return (self._tls.getpeercert() or {}).get("subject")

    def recv_into(self, buffer: memoryview, /) -> int:
        """As a socket's; `BlockingIOError` also if what came does not make a whole record, or was the handshake's."""
        if self._is_shut:
            return self._socket.recv_into(buffer)
        if not self.has_more:
            data = self._socket.recv(CHUNK_BYTES)
            if not data:
                return 0
            self._incoming.write(data)
        try:
            if not self.is_secure:
                self._tls.do_handshake()
                self.is_secure = True
                self.on_secure()
            filled = self._decrypt(buffer)
        except ssl.SSLWantReadError:
            self._flush_own()
            self._check_taken()
            raise BlockingIOError from None
        except ssl.SSLError as error:
            if not self.is_secure and not self._outgoing.pending:
                # OpenSSL keeps silent to who does not speak TLS at all; Java's and our clients know an alert as a hint.
                with contextlib.suppress(OSError):
                    self._socket.send(_UNEXPECTED_MESSAGE)
            self._flush_own()  # the alert, so that the other side knows
            raise TlsFailed(_describe(error)) from None
        self._flush_own()
        self._check_taken()
        return filled

    def _check_taken(self) -> None:
        """Refuse who has TLS itself answer, as each change of keys does, and does not take the answers."""
        if len(self._unsent) > MOST_UNSENT_BYTES:
            raise TlsFailed("the client asks for new keys, and does not take the answers")

    def getsockopt(self, level: int, name: int, /) -> int:
        return self._socket.getsockopt(level, name)

    def setsockopt(self, level: int, name: int, value: int, /) -> None:
        self._socket.setsockopt(level, name, value)

    def shutdown(self, how: int, /) -> None:
        """As a socket's, after saying so under TLS; what still comes is not decrypted any more."""
        self._is_shut = True
        with contextlib.suppress(ssl.SSLError):  # it wants the client's answer, which nobody waits for
            self._tls.unwrap()
        self._flush_own()
        self._socket.shutdown(how)

    def close(self) -> None:
        self.on_secure = _do_nothing  # whose it is knows us, and both would be a cycle
        self._socket.close()

    def _decrypt(self, buffer: memoryview) -> int:
        filled, size = 0, len(buffer)
        self.has_more = False
        try:
            while filled < size:
                count: int = self._tls.read(size - filled, buffer[filled:])  # type: ignore[assignment]  # with a buffer
                if not count:
                    return filled  # the client has closed its side; the socket tells so too
                filled += count
        except ssl.SSLWantReadError:
            if not filled:
                raise
        except ssl.SSLZeroReturnError:
            pass
        else:
            self.has_more = True
        return filled

    def _flush_own(self) -> None:
        """Send what TLS itself has to say: handshake, tickets, alerts. What the socket does not take goes later."""
        if self._outgoing.pending:
            with contextlib.suppress(BlockingIOError, InterruptedError):
                self.flush()

    def flush(self) -> None:
        """Send what is encrypted already; `BlockingIOError` if the socket does not take all of it."""
        if self._outgoing.pending:
            self._unsent = memoryview(bytes(self._unsent) + self._outgoing.read())
        while self._unsent:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def sendmsg(self, parts: list[Sendable], /) -> int:
        """Encrypt and send; how much of the parts was taken, which is not to be given again."""
        self.flush()
        if self.allowance <= 0:
            raise BlockingIOError
        data = parts[0]
        if len(data) < CHUNK_BYTES and len(parts) > 1:
            data = b"".join(_first(parts, CHUNK_BYTES))
        taken = self._tls.write(memoryview(data)[:CHUNK_BYTES]) if data else 0
        self.allowance -= max(taken, 1)
        self._flush_own()
        return taken


def _first(parts: list[Sendable], size: int) -> list[Sendable]:
    fitting: list[Sendable] = []
    for part in parts:
        fitting.append(memoryview(part)[:size])
        size -= len(part)
        if size <= 0:
            break
    return fitting


def _describe(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused ({error.verify_message})"
    reason = (error.reason or str(error)).lower().replace("_", " ")
    if "http request" in reason or "wrong version number" in reason or "unknown protocol" in reason:
        return "the client does not speak TLS: have it set security.protocol to SSL or SASL_SSL"
    if "peer did not return a certificate" in reason:
        return "the client shows no certificate, and this listener wants one"
    if "unknown ca" in reason or "bad certificate" in reason or "certificate unknown" in reason:
        return f"the client does not trust the broker's certificate ({reason}): give it the authority's"
    return reason


def read_chunk(part: FileSlice) -> memoryview:
    """The first bytes of a slice, copied: OpenSSL reads them, and a mapping may be cut under it."""
    return read_slice(part, min(part.size, 2 * CHUNK_BYTES))


class TlsConnection(Connection):
    __slots__ = ("_is_waiting_for_more", "_tls")

    max_parts = 8
    lends = False

    def __init__(self, sock: TlsSocket, *rest: Any) -> None:
        self._tls = sock
        sock.on_secure = self._secured
        self._is_waiting_for_more = False
        super().__init__(sock, *rest)
        self._view_of = read_chunk

    def _secured(self) -> None:
        """The handshake is over: a client that does not log in besides is whom its certificate names."""
        endpoint = self._endpoint
        if endpoint.listener.has_sasl:
            return
        self._end_setup()
        subject = self._tls.subject
        if subject:
            name = format_name(subject)
            assert endpoint.certificates is not None
            user = map_name(name, endpoint.certificates.rules)
            if user is None:
                raise TlsFailed(f"no rule of ssl.principal.mapping.rules fits the certificate of {name!r}")
            self._principal = Principal(user)
            self._record_login("TLS")

    @property
    def _is_under_way(self) -> bool:
        return self._tls.has_unsent or super()._is_under_way

    def _read(self) -> None:
        super()._read()
        if self._tls.has_more and not self._is_waiting_for_more and not self.is_closed:
            # The socket does not become readable for what OpenSSL holds already.
            self._is_waiting_for_more = True
            self._turns.later(self._read_more)

    def _read_more(self) -> None:
        self._is_waiting_for_more = False
        if self._is_reading:  # else it is read when the client has taken its answers
            self._on_readable()

    def _on_readable(self) -> None:
        try:
            super()._on_readable()
        except TlsFailed as error:
            self._refuse(str(error), Rejected.TLS)
            return
        if self._tls.has_unsent and not self.is_closed:
            self._wait_to_write()

    def _send(self) -> None:
        self._tls.allowance = TURN_BYTES
        try:
            self._tls.flush()
        except (BlockingIOError, InterruptedError):
            self._wait_to_write()
            return
        except OSError:
            self.close()
            return
        super()._send()
        if self._tls.has_unsent and not self.is_closed:
            self._wait_to_write()
