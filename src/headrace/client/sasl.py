"""Saying who we are: SASL by PLAIN or SCRAM, carried in Kafka's own requests (KIP-152).

A mechanism is a generator of the client's tokens that is sent the broker's; who asks is handed in. OAUTHBEARER and
GSSAPI are not spoken.
"""

import secrets
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from headrace.client.address import Address
from headrace.client.errors import VersionNotSpoken
from headrace.client.scram import HASHES, ScramExchange, ScramFailure
from headrace.client.security_errors import AuthenticationFailed, BadSecurity
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headrace.protocol.schema import Message

M = TypeVar("M", bound=Message)
Tokens = Generator[bytes, bytes, None]

PLAIN = "PLAIN"
MECHANISMS = (PLAIN, *HASHES)
_TOKENS_IN_REQUESTS = 1  # since this version of SaslHandshake; before it they were bare bytes


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we are, and how we show it."""

    mechanism: str
    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            known = f"{', '.join(MECHANISMS[:-1])} or {MECHANISMS[-1]}"
            raise BadSecurity(f"SASL mechanism {self.mechanism!r} is not supported: set sasl.mechanism to {known}")
        if not self.username or not self.password:
            raise BadSecurity(f"{self.mechanism} needs a name and a password: set sasl.username and sasl.password")
        if "\0" in self.username or "\0" in self.password:
            raise BadSecurity("a zero byte ends a name in SASL: leave it out of sasl.username and sasl.password")


class Broker(Protocol):
    """As much of a connection as is needed here."""

    address: Address

    def version_of(self, api_key: int, highest: int | None = None) -> int:
        """The version that both sides speak."""

    def request(self, message: Message, response: type[M]) -> M:
        """The answer to a request."""


def authenticate(
    broker: Broker, credentials: Credentials, fresh_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24)
) -> int:
    """Say who we are; how long the broker believes it, in ms, 0 for as long as the connection lasts (KIP-368)."""
    _choose(broker, credentials.mechanism)
    tokens = _tokens(credentials, fresh_nonce())
    token = next(tokens)
    while True:
        answer = broker.request(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
        if answer.error_code:
            raise _refusal(broker.address, credentials, answer)
        try:
            token = tokens.send(bytes(answer.auth_bytes))
        except StopIteration:
            return answer.session_lifetime_ms
        except ScramFailure as failure:
            remedy = "check the address, and look at the broker's log"
            raise AuthenticationFailed(broker.address, credentials.mechanism, str(failure), remedy) from None


def _choose(broker: Broker, mechanism: str) -> None:
    if broker.version_of(ApiKey.SASL_HANDSHAKE) < _TOKENS_IN_REQUESTS:
        raise VersionNotSpoken(broker.address, "SaslHandshake", "it is older than Kafka 1.0")
    answer = broker.request(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)
    code = ErrorCode.of(answer.error_code)
    if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(answer.mechanisms) or "none"
        remedy = "set sasl.mechanism to one of them, or have the broker offer it"
        raise AuthenticationFailed(broker.address, mechanism, f"it offers {offered}", remedy)
    if code is ErrorCode.ILLEGAL_SASL_STATE:
        reason = "this listener asks nobody who they are"
        remedy = "set security.protocol to PLAINTEXT or SSL, or use the port of a SASL listener"
        raise AuthenticationFailed(broker.address, mechanism, reason, remedy)
    if code is not ErrorCode.NONE:
        raise AuthenticationFailed(broker.address, mechanism, code.meaning, "look at the broker's log")


def _tokens(credentials: Credentials, nonce: str) -> Tokens:
    if credentials.mechanism == PLAIN:
        yield b"\0".join((b"", credentials.username.encode(), credentials.password.encode()))
        return
    exchange = ScramExchange(credentials.mechanism, credentials.username, credentials.password, nonce)
    server_first = yield exchange.first()
    server_final = yield exchange.answer(server_first)
    exchange.finish(server_final)


def _refusal(address: Address, credentials: Credentials, answer: SaslAuthenticateResponse) -> AuthenticationFailed:
    said = (answer.error_message or "").strip().rstrip(".") or ErrorCode.of(answer.error_code).meaning
    remedy = f"check the password of user {credentials.username!r}, and that the broker knows this user"
    return AuthenticationFailed(address, credentials.mechanism, said, remedy)
