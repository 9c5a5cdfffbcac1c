"""The side of a connection that lets clients in: logins step by step, and how somebody is closed who may not stay.

What always holds:
- a client that has to log in is answered nothing before it has, and one request at a time until then;
- whoever is refused waits for it a while, so that guessing is slow, and has a line in the audit log;
- whatever goes wrong, a malformed frame or a mistake of ours, closes this connection with a log line, and nothing else.
"""

import asyncio
import math
from time import monotonic
from typing import Any

from headrace.broker.answers import AnsweringConnection, Stream
from headrace.broker.channel import Slot
from headrace.broker.config import PLAINTEXT, Address
from headrace.broker.endpoint import Endpoint
from headrace.broker.limits import MAX_IN_FLIGHT
from headrace.broker.load import Share
from headrace.broker.metrics import Rejected
from headrace.broker.runtime import Runtime
from headrace.errors import HeadraceError
from headrace.protocol.api import ApiKey
from headrace.protocol.codec import decode_prefix
from headrace.protocol.errors import FrameTooLarge
from headrace.protocol.frame import RequestHeader, decode_request_header, encoding_response_parts
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headrace.security.login import MAX_TOKEN_BYTES, Login, Outcome, State
from headrace.security.principal import ANONYMOUS, Principal
from headrace.security.scram import HASHES
from headrace.telemetry import audit
from headrace.telemetry.audit import Caller
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)

_FIRST_REQUEST_S = 30.0  # until somebody who need not log in asks for something
_TOO_LATE = "TLS, the login or the first request took too long"
_BY_PASSWORD = ("PLAIN", *HASHES)
_TLS_BEGINS = 0x1603  # the first bytes of a TLS handshake, where a frame has its size


class AdmittedConnection(AnsweringConnection):
    __slots__ = (
        "_client",
        "_endpoint",
        "_evaluated",
        "_login",
        "_max_under_way",
        "_metrics",
        "_principal",
        "_setup",
        "host",
        "listener",
    )

    def __init__(
        self,
        sock: Stream,
        share: Share,
        endpoint: Endpoint,
        runtime: Runtime,
        loop: asyncio.AbstractEventLoop,
        shared: bytearray,
    ) -> None:
        super().__init__(sock, share, runtime, loop, shared)
        self._channel.max_under_way = self._max_under_way = runtime.config.number(MAX_IN_FLIGHT)
        self._endpoint = endpoint
        client, client_port = sock.getpeername()[:2]
        self._client = (str(client).removeprefix("::ffff:"), client_port)  # ACLs name an IPv4 host as such
        self.host = self._client[0]
        self.listener = endpoint.listener.name
        self._metrics = runtime.metrics
        self._principal = ANONYMOUS
        self._login = self._begin_login(endpoint)
        self._evaluated: asyncio.Future[Outcome] | None = None  # the token that a thread looks at
        setup_s = (
            endpoint.setup_s if endpoint.listener.protocol != PLAINTEXT else max(endpoint.setup_s, _FIRST_REQUEST_S)
        )
        self._setup: asyncio.TimerHandle | None = None
        self._setup = loop.call_later(setup_s, self._refuse, _TOO_LATE, Rejected.SETUP_TIMEOUT)

    def __repr__(self) -> str:
        return f"{self._client}"

    def _begin_login(self, endpoint: Endpoint) -> Login | None:
        if endpoint.logins is None:
            return None
        self._channel.max_frame_bytes = endpoint.logins.max_request_bytes
        self._channel.max_under_way = 1
        return endpoint.logins.begin()

    # --- logins

    def _log_in(self, login: Login, frame: memoryview) -> bool:
        """Take a step of a login; whether the request is to be handled as any other."""
        if login.state is State.BARE_TOKENS:
            self._take_token(login, bytes(frame), None)
            return False
        api, header, position = decode_request_header(frame)
        if api.key == ApiKey.API_VERSIONS and not login.is_open:
            if login.ask_versions():
                return True
        elif api.key == ApiKey.SASL_HANDSHAKE:
            if login.is_open and not login.begin_again(monotonic()):
                return True
            self._channel.max_under_way = 1
            request, _ = decode_prefix(SaslHandshakeRequest, header.request_api_version, frame, position)
            answer = login.choose(request.mechanism, header.request_api_version)
            if answer is not None:
                self._answer_login(answer, header, f"mechanism {request.mechanism!r}" if answer.error_code else "")
                return False
        elif api.key == ApiKey.SASL_AUTHENTICATE and login.state in (State.TOKENS, State.OTHER_MECHANISM):
            token, _ = decode_prefix(SaslAuthenticateRequest, header.request_api_version, frame, position)
            self._take_token(login, bytes(token.auth_bytes), header)
            return False
        self._refuse("the login has expired" if login.is_open else f"{api.key.name} before the login is over")
        return False

    def _take_token(self, login: Login, token: bytes, header: RequestHeader | None) -> None:
        """Evaluate a token, in a thread if that is work; the next request waits until it is answered."""
        logins = self._endpoint.logins
        assert logins is not None
        now_ms = self._runtime.now_ms()
        if len(token) > MAX_TOKEN_BYTES:  # those that wait for a thread are kept until then
            self._refuse(f"a token of {len(token):,} bytes: {MAX_TOKEN_BYTES:,} are the most")
            return
        if not login.is_slow:
            self._end_step(login, login.step(token, now_ms, monotonic()), header)
            return
        slot = self._channel.open_slot()  # keeps the next request waiting
        self._evaluated = future = self._loop.run_in_executor(
            logins.threads_for(login), login.step, token, now_ms, monotonic()
        )

        def done(outcome: asyncio.Future[Outcome]) -> None:
            if self.is_closed or outcome.cancelled():
                return
            if error := outcome.exception():
                self._fail(error)  # type: ignore[arg-type]  # an Exception
            else:
                self._end_step(login, outcome.result(), header, slot)

        future.add_done_callback(done)

    def _end_step(self, login: Login, outcome: Outcome, header: RequestHeader | None, slot: Slot | None = None) -> None:
        if login.is_open and login.principal is not None:
            user, logins = self.password_user, self._endpoint.logins
            if user is not None and logins is not None and not logins.users.has(user):
                self._refuse("the user was removed during the login")  # while a thread looked at the password
                return
            self._principal = login.principal
            self._channel.max_frame_bytes = self._runtime.config.number("socket.request.max.bytes")
            self._channel.max_under_way = self._max_under_way
            self._end_setup()
            self._record_login(login.mechanism)
        self._answer_login(outcome.response, header, outcome.refusal, slot)

    def _answer_login(
        self,
        answer: SaslHandshakeResponse | SaslAuthenticateResponse,
        header: RequestHeader | None,
        refusal: str,
        slot: Slot | None = None,
    ) -> None:
        """Answer; somebody who is refused waits for it a while, so that guessing is slow, and is closed then."""
        slot = slot or self._channel.open_slot()
        parts: list[Any] = []
        if header is not None:
            for _ in encoding_response_parts(answer, header.request_api_version, header.correlation_id, parts):
                pass
        elif isinstance(answer, SaslAuthenticateResponse) and not refusal:
            parts = [len(answer.auth_bytes).to_bytes(4, "big") + bytes(answer.auth_bytes)]
        if not refusal:
            self._fill(slot, parts)
            return
        logins = self._endpoint.logins
        assert logins is not None

        def end() -> None:
            self._fill(slot, parts)
            self._refuse(f"the login failed: {refusal}")

        self._loop.call_later(logins.delay_s, end)

    # --- who may not stay

    def _end_setup(self) -> None:
        if self._setup:
            self._setup.cancel()
            self._setup = None

    def _refuse(self, reason: str, kind: Rejected = Rejected.LOGIN) -> None:
        """Close on somebody who does not get in; there may be many of them, so not each has a line in the log."""
        if not self.is_closed:
            self._metrics.rejected[kind] += 1
            listener = self._endpoint.listener.name
            self._endpoint.refusals.warning("connection refused", client=repr(self), listener=listener, reason=reason)
            self._record_refusal(reason)
            self.close()

    def _fail(self, error: Exception) -> None:
        """Close because of an error: the client's own, which it is told in the log, or a mistake of ours."""
        if self.is_closed:
            return
        is_tls = isinstance(error, FrameTooLarge) and error.size >> 16 == _TLS_BEGINS
        if isinstance(error, HeadraceError) and self._login is not None and not self._login.is_open and not is_tls:
            self._refuse(str(error))
            return
        is_large, is_ours = isinstance(error, FrameTooLarge), not isinstance(error, HeadraceError)
        kind = Rejected.FRAME_TOO_LARGE if is_large else Rejected.FAILURE if is_ours else Rejected.INVALID_REQUEST
        self._metrics.rejected[kind] += 1
        if is_tls:
            self._endpoint.refusals.warning(
                "connection closed: the client speaks TLS, and this listener does not",
                client=repr(self),
                hint="have it use the port of an SSL or SASL_SSL listener",
            )
        elif isinstance(error, HeadraceError):
            _log.warning("connection closed", client=repr(self), reason=str(error))
        else:
            _log.failure("connection closed: a request failed", error, client=repr(self))
        self.close()

    # --- what is recorded of it

    @property
    def password_user(self) -> str | None:
        """Who has logged in here by a password."""
        login = self._login
        return login.principal.name if login and login.principal and login.mechanism in _BY_PASSWORD else None

    def end_login(self) -> None:
        """Answer what is under way, and nothing that comes after it."""
        if self._login:
            self._login.expires_s = -math.inf

    def _caller(self, principal: str) -> Caller:
        return Caller(principal, str(Address(*self._client)), None, self.listener)

    def _record_login(self, how: str) -> None:
        if self._runtime.audit.wants(audit.LOGINS):
            self._runtime.audit.record(audit.LOGIN, audit.OK, self._caller(str(self._principal)), mechanism=how)

    def _record_refusal(self, reason: str) -> None:
        login = self._login
        name = (login.claimed or (login.principal.name if login.principal else "")) if login else ""
        caller = self._caller(str(Principal(name)) if name else "")
        key = (name, self._client[0], self.listener, reason)
        record = self._runtime.audit.record_often
        record(audit.FAILED_LOGINS, audit.LOGIN, audit.DENIED, caller, key, reason=reason)
