"""One blocking connection to one broker.

The first thing said on it is ApiVersions; after that each request goes in the highest version that both sides know.
Several requests may be on their way at once: `send` gives a ticket, `receive` waits for that ticket's answer and keeps
the others' until they are asked for. A broker answers one connection in the order of its requests, so whoever sends a
long poll makes everything behind it on the same connection wait.

What always holds: a connection on which a wait ran out or an answer made no sense is closed, because what comes next on
it could be taken for the answer to another request. No byte is read ahead of the frame that is wanted, so a readable
socket means an answer; only TLS decrypts in whole records, and `has_answer` tells what it holds.

Where the broker lets a login last for a while only (KIP-368), it is renewed on the same connection, before the first
request that is sent when most of that while is over: no request is lost to it, not even one that may not be repeated.
"""

import math
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar

from headrace.client.address import Address
from headrace.client.errors import (
    BadSecurity,
    BrokerUnreachable,
    ClientError,
    ConnectionClosed,
    NotKafka,
    RequestTimedOut,
    SecureConnectionClosed,
    VersionNotSpoken,
)
from headrace.client.sasl import Credentials, authenticate
from headrace.client.tls_settings import BY_DEFAULT, TlsSettings
from headrace.protocol.api import APIS, ApiKey
from headrace.protocol.errors import ErrorCode, NotRepresentable, ProtocolError
from headrace.protocol.frame import MAX_FRAME_BYTES, decode_response, encode_request
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.schema import Message
from headrace.version import version as software_version

if TYPE_CHECKING:
    import ssl

M = TypeVar("M", bound=Message)

PLAINTEXT = "PLAINTEXT"
TLS_PROTOCOLS = ("SSL", "SASL_SSL")
SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
SECURITY_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_RENEW_LOGIN_AT = 0.8  # of its lifetime: what is left is for a long poll that is on its way
_SOONEST_RENEWAL_S = 1.0  # a broker takes a renewal within the first second for a mistake
_SIZE_BYTES = 4
_TLS_ALERT = b"\x15\x03"  # how TLS begins to complain of a client that speaks none
_LARGEST_CORRELATION_ID = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """How to reach a broker, the same for all brokers of a cluster; `security.settings_from` reads it from options."""

    client_id: str = "headrace"
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    max_response_bytes: int = MAX_FRAME_BYTES
    security_protocol: str = PLAINTEXT
    tls: TlsSettings = BY_DEFAULT  # used if the protocol says so
    credentials: Credentials | None = None

    def __post_init__(self) -> None:
        if self.security_protocol not in SECURITY_PROTOCOLS:
            known = f"{', '.join(SECURITY_PROTOCOLS[:-1])} or {SECURITY_PROTOCOLS[-1]}"
            raise BadSecurity(f"security protocol {self.security_protocol!r} is not supported: use {known}")
        if self.security_protocol in SASL_PROTOCOLS and self.credentials is None:
            raise BadSecurity(f"{self.security_protocol} needs to know who connects: give credentials")


PLAIN = ConnectionSettings()


class Ticket(NamedTuple):
    """A request on its way: what its answer will be."""

    correlation_id: int
    response: type[Message]
    version: int
    deadline: float
    timeout_s: float


class Connection:
    """A socket, the versions agreed on, and the requests that wait for their answers."""

    def __init__(self, address: Address, settings: ConnectionSettings = PLAIN) -> None:
        """Connect, and learn what the broker speaks."""
        self.address = address
        self._settings = settings
        self._correlation_id = 0
        self._waiting: dict[int, Ticket] = {}
        self._arrived: dict[int, bytearray] = {}
        self._versions: dict[int, range] = {}
        self.features: dict[str, int] = {}  # what the broker can do beyond single APIs, up to which level (KIP-584)
        self._is_open = False
        self._login_until = math.inf
        self._tls: ssl.SSLSocket | None = None
        try:
            self._socket: socket.socket = socket.create_connection(address, timeout=settings.connect_timeout_s)
        except TimeoutError:
            reason = f"no answer within {settings.connect_timeout_s:g} s"
            raise BrokerUnreachable((address,), reason) from None
        except (OSError, UnicodeError) as error:  # a host name may be none that can be looked up at all
            raise BrokerUnreachable((address,), getattr(error, "strerror", None) or str(error)) from error
        self._is_open = True
        try:
            self._secure()
            self._negotiate()
            self._authenticate()
        except BaseException:
            self.close()
            raise

    def _secure(self) -> None:
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        settings = self._settings
        if settings.security_protocol in TLS_PROTOCOLS:
            from headrace.client.tls import secure  # OpenSSL takes longer to load than most commands to run

            self._tls = secure(self._socket, self.address, settings.tls, settings.security_protocol)
            self._socket = self._tls

    def _authenticate(self) -> None:
        credentials = self._settings.credentials
        if credentials is None or self._settings.security_protocol not in SASL_PROTOCOLS:
            return
        self._login_until = math.inf  # the requests to follow are the login
        began = time.monotonic()
        lifetime_s = authenticate(self, credentials) / 1000
        if lifetime_s > 0:
            self._login_until = began + max(lifetime_s * _RENEW_LOGIN_AT, _SOONEST_RENEWAL_S)

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def request_timeout_s(self) -> float:
        """How long an answer may take that needs no waiting on the broker's side."""
        return self._settings.request_timeout_s

    def fileno(self) -> int:
        """The socket's descriptor, for `select`."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket; whatever is on its way is given up."""
        self._is_open = False
        self._waiting.clear()
        self._arrived.clear()
        self._socket.close()

    # --- versions

    def _negotiate(self) -> None:
        theirs = self._api_versions(APIS[ApiKey.API_VERSIONS].versions[-1])
        self._versions = {api.api_key: range(api.min_version, api.max_version + 1) for api in theirs.api_keys}
        self.features = {feature.name: feature.max_version for feature in theirs.supported_features}

    def _api_versions(self, version: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name="headrace", client_software_version=software_version())
        frame = self._frame_of(self._send(request, ApiVersionsResponse, version, self._settings.connect_timeout_s))
        # A broker that does not know the version says so in version 0, whatever was asked, and in the same place.
        code = int.from_bytes(frame[4:6], "big", signed=True)
        try:
            if code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
                _, answer = decode_response(ApiVersionsResponse, 0, frame)
                known = [api.max_version for api in answer.api_keys if api.api_key == ApiKey.API_VERSIONS]
                return self._api_versions(min(version - 1, *known) if known else 0)
            _, answer = decode_response(ApiVersionsResponse, version, frame)
        except ProtocolError as error:
            raise NotKafka(self.address, str(error)) from error
        if answer.error_code:
            raise NotKafka(self.address, f"ApiVersions is answered with {ErrorCode.of(answer.error_code).name}")
        return answer

    def version_of(self, api_key: int, highest: int | None = None) -> int:
        """The highest version of an API that both sides know, and that is no higher than `highest`."""
        ours = APIS[api_key].versions
        theirs = self._versions.get(api_key)
        name = _name_of(api_key)
        if theirs is None:
            raise VersionNotSpoken(self.address, name, "the broker does not offer it")
        last = min(ours[-1], theirs[-1] if theirs else -1, ours[-1] if highest is None else highest)
        if last < max(ours[0], theirs.start):
            mine = f"{ours[0]} to {ours[-1] if highest is None else min(highest, ours[-1])}"
            raise VersionNotSpoken(
                self.address,
                name,
                f"the broker speaks versions {theirs.start} to {theirs.stop - 1} of it and this client {mine}",
            )
        return last

    # --- requests

    def request(
        self, message: Message, response: type[M], *, highest: int | None = None, timeout_s: float | None = None
    ) -> M:
        return self.receive(self.send(message, response, highest=highest, timeout_s=timeout_s), response)

    def send(
        self, message: Message, response: type[Message], *, highest: int | None = None, timeout_s: float | None = None
    ) -> Ticket:
        """Send a request without waiting; its answer has to come within the time, counted from now."""
        api_key = type(message).__schema__.api_key
        assert api_key is not None
        if time.monotonic() > self._login_until and self._is_open:
            self._renew_login()
        version = self.version_of(api_key, highest)
        return self._send(
            message, response, version, self._settings.request_timeout_s if timeout_s is None else timeout_s
        )

    def _renew_login(self) -> None:
        try:
            self._authenticate()
        except BaseException:
            self.close()  # a broker answers nothing more to somebody it did not recognise
            raise

    def send_unanswered(self, message: Message, *, highest: int | None = None) -> None:
        """Send a request to which no answer will come: produce with `acks=0`."""
        ticket = self.send(message, type(message), highest=highest)
        del self._waiting[ticket.correlation_id]

    def _send(self, message: Message, response: type[Message], version: int, timeout_s: float) -> Ticket:
        doing = _doing(response)
        if not self._is_open:
            raise ConnectionClosed(self.address, doing)
        correlation_id = self._correlation_id
        self._correlation_id = 0 if correlation_id == _LARGEST_CORRELATION_ID else correlation_id + 1
        try:
            data = encode_request(message, version, correlation_id, self._settings.client_id)
        except NotRepresentable as error:
            raise VersionNotSpoken(self.address, doing, f"version {version} is too old for this ({error})") from error
        deadline = time.monotonic() + timeout_s
        ticket = Ticket(correlation_id, response, version, deadline, timeout_s)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(data)
        except TimeoutError:
            self._fail(RequestTimedOut(self.address, doing, timeout_s))
        except OSError as error:
            self._fail(self._broken(error, doing))
        self._waiting[correlation_id] = ticket
        return ticket

    def receive(self, ticket: Ticket, response: type[M]) -> M:
        """Wait for a request's answer; record batches in it are views into memory of its own."""
        frame = self._frame_of(ticket)
        try:
            _, answer = decode_response(response, ticket.version, frame)
        except ProtocolError as error:
            self._fail(NotKafka(self.address, str(error)))
        return answer

    def has_answer(self, ticket: Ticket) -> bool:
        """Whether the answer came while another one was waited for, so that the socket will not tell of it.

        Under TLS also when the beginning of some answer was decrypted together with the one before.
        """
        held = self._tls is not None and self._is_open and self._tls.pending() > 0
        return held or ticket.correlation_id in self._arrived

    def _frame_of(self, ticket: Ticket) -> bytearray:
        while (frame := self._arrived.pop(ticket.correlation_id, None)) is None:
            if not self._is_open:
                raise ConnectionClosed(self.address, _doing(ticket.response))
            self._read_frame(ticket)
        return frame

    def _read_frame(self, ticket: Ticket) -> None:
        announced = self._read(_SIZE_BYTES, ticket)
        size = int.from_bytes(announced, "big", signed=True)
        # The size is the first thing to look wrong where somebody else is listening: "HTTP" is 1.2 GB.
        if not _SIZE_BYTES <= size <= self._settings.max_response_bytes:
            tls = "it speaks TLS, so set security.protocol to SSL or SASL_SSL"
            self._fail(
                NotKafka(
                    self.address, tls if announced.startswith(_TLS_ALERT) else f"it announces an answer of {size} bytes"
                )
            )
        frame = self._read(size, ticket)
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if self._waiting.pop(correlation_id, None) is None:
            self._fail(NotKafka(self.address, f"it answers request {correlation_id}, which was not asked"))
        self._arrived[correlation_id] = frame

    def _read(self, size: int, ticket: Ticket) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        filled = 0
        while filled < size:
            left_s = ticket.deadline - time.monotonic()
            try:
                if left_s <= 0:
                    raise TimeoutError
                self._socket.settimeout(left_s)
                count = self._socket.recv_into(view[filled:])
            except TimeoutError:
                self._fail(RequestTimedOut(self.address, _doing(ticket.response), ticket.timeout_s))
            except OSError as error:
                self._fail(self._broken(error, _doing(ticket.response)))
            if not count:
                self._fail(self._closed(_doing(ticket.response)))
            filled += count
        return data

    def _broken(self, error: OSError, doing: str) -> ClientError:
        # In TLS 1.3 a broker's verdict on our certificate comes when the handshake is over for us.
        if self._tls is not None:
            from headrace.client.tls import failure

            return failure(error, self.address, doing, self._settings.security_protocol)
        return self._closed(doing, error.strerror or str(error))

    def _closed(self, doing: str, reason: str = "") -> ConnectionClosed:
        if self._settings.security_protocol == PLAINTEXT:
            return ConnectionClosed(self.address, doing, reason)
        return SecureConnectionClosed(self.address, doing, self._settings.security_protocol, reason)

    def _fail(self, error: Exception) -> NoReturn:
        self.close()
        raise error


def _name_of(api_key: int) -> str:
    return APIS[api_key].request.__name__.removesuffix("Request")


def _doing(message: type[Message]) -> str:
    return message.__name__.removesuffix("Response").removesuffix("Request")
