"""Saying who we are: SASL by PLAIN, SCRAM or OAUTHBEARER, carried in Kafka's own requests (KIP-152).

A mechanism is a generator of the client's tokens that is sent the broker's; who asks is handed in. GSSAPI is not
spoken. A token of OAUTHBEARER is read or fetched anew for each login, so that one that was renewed is used.
"""

import base64
import json
import re
import secrets
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import quote, unquote, urlencode, urlsplit

from headrace.client.address import Address
from headrace.client.errors import AuthenticationFailed, BadSecurity, VersionNotSpoken
from headrace.http_client import HttpError, HttpServer
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headrace.protocol.schema import Message
from headrace.security.scram import HASHES, ScramExchange, ScramFailure

# A name and a password out of `sasl.jaas.config`, the way Kafka's Java clients are told them.
#
# org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="…";
#
# No error here shows any of the text, because the password is in it.

_JAAS = "sasl.jaas.config"
_SPEAKABLE = ("PlainLoginModule", "ScramLoginModule", "OAuthBearerLoginModule")
_FLAGS = ("required", "requisite", "sufficient", "optional")
_JAAS_FORM = 'write it as …PlainLoginModule required username="…" password="…";'
_TOKEN = re.compile(
    r"""\s*(?: "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>(?:[^'\\]|\\.)*)'
        | (?P<mark>[=;]) | (?P<word>[^\s=;"']+) )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def read_login(text: str) -> tuple[str, str]:
    """The name and the password in a login module's configuration."""
    options = read_module(text)
    if options.get("tokenauth", "false").lower() == "true":
        raise BadSecurity(f"{_JAAS} has tokenauth, but delegation tokens are not supported: give a user's password")
    if not options.get("username") or not options.get("password"):
        raise BadSecurity(f"{_JAAS} has no username or no password: {_JAAS_FORM}")
    return options["username"], options["password"]


def read_module(text: str) -> dict[str, str]:
    """The options in a login module's configuration."""
    tokens = _split_tokens(text)
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS or tokens[-1] != ";":
        raise BadSecurity(f"{_JAAS} cannot be read: {_JAAS_FORM}")
    module = tokens[0].rpartition(".")[2]  # the package differs where Spark comes with a Kafka of its own
    if module not in _SPEAKABLE:
        # Shown only if it looks like a class: what stands there by mistake may be the password.
        named = module if module.isidentifier() and module.endswith("LoginModule") else "another module"
        raise BadSecurity(f"{_JAAS} names {named}, which is not supported: use {' or '.join(_SPEAKABLE)}")
    return _read_options(tokens[2:-1])


def _read_options(tokens: list[str]) -> dict[str, str]:
    names, marks, values = tokens[::3], tokens[1::3], tokens[2::3]
    if len(names) != len(values) or any(mark != "=" for mark in marks) or ";" in names:
        raise BadSecurity(f"{_JAAS} cannot be read: {_JAAS_FORM}")
    return dict(zip(names, values, strict=True))


def _split_tokens(text: str) -> list[str]:
    tokens = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise BadSecurity(f"{_JAAS} cannot be read: {_JAAS_FORM}")
        quoted = found["double"] if found["double"] is not None else found["single"]
        tokens.append(found[found.lastgroup or 0] if quoted is None else _unescape(quoted))
        position = found.end()
    return tokens


def _unescape(quoted: str) -> str:
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), quoted)


M = TypeVar("M", bound=Message)
Tokens = Generator[bytes, bytes, None]

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, *HASHES, OAUTHBEARER)
_TOKEN_S = 10.0
_MOST_TOKEN_BYTES = 256 * 1024
_TOKENS_IN_REQUESTS = 1  # since this version of SaslHandshake; before it they were bare bytes


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """Where tokens come from: a file that somebody keeps fresh, or a server that gives one for a client's secret."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""

    def __post_init__(self) -> None:
        option = "sasl.oauthbearer.token.endpoint.url"
        parts = urlsplit(self.url)
        is_near = parts.hostname in ("127.0.0.1", "::1", "localhost")
        if parts.scheme not in ("file", "https") and not (parts.scheme == "http" and is_near):
            raise BadSecurity(f"OAUTHBEARER needs a token: set {option} to an https:// address or to a file://")
        if parts.scheme != "file" and not (self.client_id and self.client_secret):
            raise BadSecurity(
                f"{option} gives tokens to who it knows: set sasl.oauthbearer.client.credentials.client.id and "
                "sasl.oauthbearer.client.credentials.client.secret"
            )

    def fetch(self) -> str:
        """A token; `BadSecurity` if there is none to be had."""
        parts = urlsplit(self.url)
        if parts.scheme == "file":
            try:
                return Path(unquote(parts.path)).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError):
                raise BadSecurity(f"the token in {unquote(parts.path)} cannot be read: check the path") from None
        secret = base64.b64encode(f"{quote(self.client_id)}:{quote(self.client_secret)}".encode()).decode()
        server = HttpServer(self.url, _TOKEN_S, {"Authorization": f"Basic {secret}"})
        form = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        try:
            headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
            answer = server.ask("POST", server.path, urlencode(form).encode(), headers, most_bytes=_MOST_TOKEN_BYTES)
            token = json.loads(answer.body)["access_token"] if answer.is_success else None
        except HttpError as error:
            raise BadSecurity(f"no token from {server.host}: {error}") from None
        except (ValueError, KeyError, TypeError):
            token = None
        finally:
            server.close()
        if not isinstance(token, str):
            raise BadSecurity(
                f"{server.host} gave no token (status {answer.status}): check the client's id, its secret and the scope"
            )
        return token


@dataclass(frozen=True, slots=True)
class Credentials:
    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    tokens: TokenEndpoint | None = None

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            known = f"{', '.join(MECHANISMS[:-1])} or {MECHANISMS[-1]}"
            raise BadSecurity(f"SASL mechanism {self.mechanism!r} is not supported: set sasl.mechanism to {known}")
        if self.mechanism == OAUTHBEARER:
            if self.tokens is None:
                raise BadSecurity("OAUTHBEARER needs a token: set sasl.oauthbearer.token.endpoint.url")
            return
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
        if credentials.mechanism == OAUTHBEARER and answer.auth_bytes:  # why it is refused (RFC 7628)
            broker.request(SaslAuthenticateRequest(auth_bytes=b"\x01"), SaslAuthenticateResponse)
            raise AuthenticationFailed(
                broker.address,
                credentials.mechanism,
                bytes(answer.auth_bytes).decode(errors="replace"),
                "check the token's issuer, audience and end, and look at the broker's log",
            )
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
    if credentials.mechanism == OAUTHBEARER:
        assert credentials.tokens is not None
        yield f"n,,\x01auth=Bearer {credentials.tokens.fetch()}\x01\x01".encode()
        return
    exchange = ScramExchange(credentials.mechanism, credentials.username, credentials.password, nonce)
    server_first = yield exchange.first()
    server_final = yield exchange.answer(server_first)
    exchange.finish(server_final)


def _refusal(address: Address, credentials: Credentials, answer: SaslAuthenticateResponse) -> AuthenticationFailed:
    said = (answer.error_message or "").strip().rstrip(".") or ErrorCode.of(answer.error_code).meaning
    remedy = f"check the password of user {credentials.username!r}, and that the broker knows this user"
    return AuthenticationFailed(address, credentials.mechanism, said, remedy)
