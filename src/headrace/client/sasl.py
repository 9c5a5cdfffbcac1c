"""Saying who we are: SASL by PLAIN or SCRAM, carried in Kafka's own requests (KIP-152).

A mechanism is a generator of the client's tokens that is sent the broker's; who asks is handed in. OAUTHBEARER and
GSSAPI are not spoken.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from headrace.client.address import Address
from headrace.client.errors import AuthenticationFailed, BadSecurity, VersionNotSpoken
from headrace.errors import HeadraceError
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headrace.protocol.schema import Message

# The client's side of SCRAM (RFC 5802, and RFC 7677 for SHA-256): three messages out of four, and no IO.
#
# What always holds: the password never leaves, and `finish` returns only if the broker has shown that it knows the
# password's hash too. A broker cannot make us give away a cheap hash (fewer rounds than Kafka itself allows) or work
# for ever.
#
# The RFC prepares names and passwords with SASLprep before they are hashed. Kafka does not: its tools and its Java
# client hash the UTF-8 bytes as they are, and so must whoever wants to get in with a password that SASLprep would
# change.

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
FEWEST_ROUNDS = 4096  # as Kafka has it for both mechanisms
MOST_ROUNDS = 1_000_000  # about a second of work; Kafka's tools give 16,384 at most
_NO_CHANNEL_BINDING = b"n,,"


class ScramFailure(HeadraceError):
    """The broker's message is none, or it refuses us, or it is not the broker that it should be."""


class ScramExchange:
    """One exchange: `first`, then `answer`, then `finish`, each with what the broker said to the one before."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        """`nonce` is fresh, random and printable, without a comma."""
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}".encode()
        self._server_signature = b""

    def first(self) -> bytes:
        """Who we are, and our half of the nonce."""
        return _NO_CHANNEL_BINDING + self._first_bare

    def answer(self, server_first: bytes) -> bytes:
        """The proof that we know the password, for the salt and rounds that the broker names."""
        fields = _fields(server_first)
        nonce = _require(fields, "r")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramFailure("the broker did not keep to the nonce of this exchange")
        salt = _decode(_require(fields, "s"))
        rounds = _rounds(_require(fields, "i"))
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, rounds)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        final = b"c=" + base64.b64encode(_NO_CHANNEL_BINDING) + b",r=" + nonce.encode()
        signed = b",".join((self._first_bare, server_first, final))
        signature = self._hmac(stored_key, signed)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return final + b",p=" + base64.b64encode(proof)

    def finish(self, server_final: bytes) -> None:
        fields = _fields(server_final)
        if "e" in fields:
            raise ScramFailure(f"the broker says {fields['e']}")
        if not self._server_signature or not hmac.compare_digest(
            _decode(_require(fields, "v")), self._server_signature
        ):
            raise ScramFailure("the broker could not show that it knows the password")

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def _fields(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise ScramFailure("the broker's message is not SCRAM") from None
    if any(part[1:2] != "=" for part in parts):
        raise ScramFailure("the broker's message is not SCRAM")
    if parts[0].startswith("m="):
        raise ScramFailure("the broker demands an extension of SCRAM that no client knows")
    return {part[0]: part[2:] for part in parts}


def _require(fields: dict[str, str], name: str) -> str:
    if name not in fields:
        raise ScramFailure(f"the broker's message has no {name!r}")
    return fields[name]


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramFailure("the broker's message is not SCRAM: it holds no base64 where it should") from None


def _rounds(text: str) -> int:
    # By length first: turning a number of a million digits into an int is work too.
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(MOST_ROUNDS)):
        raise ScramFailure("the broker asks for a number of rounds that makes no sense")
    rounds = int(text)
    if not FEWEST_ROUNDS <= rounds <= MOST_ROUNDS:
        raise ScramFailure(f"the broker asks for {rounds} rounds, not {FEWEST_ROUNDS} to {MOST_ROUNDS}")
    return rounds


# A name and a password out of `sasl.jaas.config`, the way Kafka's Java clients are told them.
#
# org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="…";
#
# No error here shows any of the text, because the password is in it.

_JAAS = "sasl.jaas.config"
_SPEAKABLE = ("PlainLoginModule", "ScramLoginModule")
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
    tokens = _split_tokens(text)
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS or tokens[-1] != ";":
        raise BadSecurity(f"{_JAAS} cannot be read: {_JAAS_FORM}")
    module = tokens[0].rpartition(".")[2]  # the package differs where Spark comes with a Kafka of its own
    if module not in _SPEAKABLE:
        # Shown only if it looks like a class: what stands there by mistake may be the password.
        named = module if module.isidentifier() and module.endswith("LoginModule") else "another module"
        raise BadSecurity(f"{_JAAS} names {named}, which is not supported: use {' or '.join(_SPEAKABLE)}")
    options = _read_options(tokens[2:-1])
    if options.get("tokenauth", "false").lower() == "true":
        raise BadSecurity(f"{_JAAS} has tokenauth, but delegation tokens are not supported: give a user's password")
    if not options.get("username") or not options.get("password"):
        raise BadSecurity(f"{_JAAS} has no username or no password: {_JAAS_FORM}")
    return options["username"], options["password"]


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
MECHANISMS = (PLAIN, *HASHES)
_TOKENS_IN_REQUESTS = 1  # since this version of SaslHandshake; before it they were bare bytes


@dataclass(frozen=True, slots=True)
class Credentials:
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
