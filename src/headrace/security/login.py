"""A client's login by SASL, the broker's side: which request may come when, and what is answered. Pure.

The exchange is Kafka's (KIP-43, KIP-152): ApiVersions if the client likes, SaslHandshake to choose a mechanism, then
the mechanism's tokens, in SaslAuthenticate or (after a handshake of version 0) bare. Anything else before that is over
ends the connection. Later a client may log in again on the same connection (KIP-368), as the same user, by the same
mechanism.

What always holds: nobody is a user who has not shown that he is, and what is answered to who has not does not tell
whether there is such a user.
"""

import hmac
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from headrace.protocol.messages.sasl_handshake import SaslHandshakeResponse
from headrace.security.principal import Principal
from headrace.security.scram import HASHES, ClientFirst, ScramCredential, ScramServer, stand_in

SOONEST_RENEWAL_S = 1.0
_TOKENS_IN_REQUESTS = 1  # since this version of SaslHandshake; before it they were bare bytes


class LoginRefused(HeadraceError):
    """Why a client is not let in, in words that it may read."""


class Reply(NamedTuple):
    """What a mechanism answers to a token; with a user, the exchange is over."""

    token: bytes = b""
    user: str | None = None
    expires_ms: int | None = None  # by the wall clock, where the credentials have an end


class Mechanism(Protocol):
    """The broker's side of one exchange. A `HeadraceError` refuses; only a `LoginRefused` is told to the client."""

    is_slow: bool  # takes milliseconds of work, or waits for somebody: not for the event loop
    waits: bool  # for somebody else, as long as that may take
    claimed: str  # the name that the client says is its own, once it has

    def step(self, token: bytes, now_ms: int) -> Reply: ...


class State(Enum):
    BEGUN = auto()
    VERSIONS_TOLD = auto()
    TOKENS = auto()  # in SaslAuthenticate
    BARE_TOKENS = auto()
    OTHER_MECHANISM = auto()  # was chosen to log in again: the next token is refused
    OPEN = auto()
    REFUSED = auto()


MAX_TOKEN_BYTES: Final = 32 * 1024  # a JWT of that size would not fit into the headers of HTTP either


class Outcome(NamedTuple):
    response: SaslAuthenticateResponse
    refusal: str = ""  # for our log


class Login:
    """One connection's way in."""

    def __init__(self, mechanisms: Mapping[str, Callable[[], Mechanism]], max_session_ms: int) -> None:
        self._mechanisms = mechanisms
        self._max_session_ms = max_session_ms
        self._name = self._other = ""
        self._exchange: Mechanism | None = None
        self._began_s = -math.inf
        self.state = State.BEGUN
        self.principal: Principal | None = None
        self.claimed = ""  # by whoever was refused
        self.expires_s = math.inf  # by the monotonic clock; whoever ends it sets it to the past

    @property
    def is_open(self) -> bool:
        return self.state is State.OPEN

    @property
    def is_slow(self) -> bool:
        return self._exchange is not None and self._exchange.is_slow

    @property
    def waits(self) -> bool:
        """Whether the next step may wait for somebody else."""
        return self._exchange is not None and self._exchange.waits

    @property
    def mechanism(self) -> str:
        """By which the client logs in, or has."""
        return self._name

    def ask_versions(self) -> bool:
        """Whether ApiVersions may be answered: once, and first."""
        if self.state is not State.BEGUN:
            return False
        self.state = State.VERSIONS_TOLD
        return True

    def begin_again(self, now_s: float) -> bool:
        """Whether a client that is in may log in again now; not twice in a second."""
        if now_s - self._began_s < SOONEST_RENEWAL_S and self._began_s > -math.inf:
            return False
        self._began_s = now_s
        self.state = State.VERSIONS_TOLD
        return True

    def choose(self, mechanism: str, version: int) -> SaslHandshakeResponse | None:
        """The answer to SaslHandshake, which refuses if it holds an error; None if none may come now."""
        if self.state not in (State.BEGUN, State.VERSIONS_TOLD):
            return None
        offered = list(self._mechanisms)
        if mechanism not in self._mechanisms:
            self.state = State.REFUSED
            return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered)
        if self.principal is not None and mechanism != self._name:
            self.state = State.OTHER_MECHANISM
            self._other = mechanism
        else:
            self._exchange = self._mechanisms[mechanism]()
            self._name = mechanism
            self.state = State.TOKENS if version >= _TOKENS_IN_REQUESTS else State.BARE_TOKENS
        return SaslHandshakeResponse(mechanisms=offered)

    def step(self, token: bytes, now_ms: int, now_s: float) -> Outcome:
        """The answer to a token; the login is open, refused, or goes on."""
        if self.state is State.OTHER_MECHANISM:
            told = f"SASL mechanism '{self._other}' requested by client is not supported for re-authentication of "
            return self._refuse(f"{told}mechanism '{self._name}'", "another mechanism to log in again")
        assert self._exchange is not None
        doing = "authentication" if self.principal is None else "re-authentication"
        try:
            reply = self._exchange.step(token, now_ms)
            if reply.user is None:
                return Outcome(SaslAuthenticateResponse(auth_bytes=reply.token))
            return Outcome(self._open(Principal(reply.user), reply, now_ms, now_s))
        except LoginRefused as refused:
            return self._refuse(str(refused), str(refused))
        except HeadraceError as error:
            # Not to the client: it may tell whether there is such a user.
            told = f"Authentication failed during {doing} due to invalid credentials with SASL mechanism {self._name}"
            return self._refuse(told, str(error))

    def _open(self, principal: Principal, reply: Reply, now_ms: int, now_s: float) -> SaslAuthenticateResponse:
        before = self.principal
        if before is not None and before != principal:
            raise LoginRefused(
                f"Cannot change principals during re-authentication from {before.kind}.{before.name}: "
                f"{principal.kind}.{principal.name}"
            )
        lifetimes = [self._max_session_ms] if self._max_session_ms > 0 else []
        lifetimes += [max(0, reply.expires_ms - now_ms)] if reply.expires_ms is not None else []
        lifetime_ms = min(lifetimes, default=0)
        self.expires_s = now_s + lifetime_ms / 1000 if lifetimes else math.inf
        self.principal = principal
        self.state = State.OPEN
        self._exchange = None
        return SaslAuthenticateResponse(auth_bytes=reply.token, session_lifetime_ms=lifetime_ms)

    def _refuse(self, told: str, reason: str) -> Outcome:
        self.state = State.REFUSED
        self.claimed = self._exchange.claimed if self._exchange else ""
        self._exchange = None
        answer = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=told)
        return Outcome(answer, f"{self._name}: {reason}")


# --- mechanisms

FindCredential = Callable[[str, str], ScramCredential | None]  # by mechanism and name


@dataclass(slots=True)
class Users:
    """Who may log in by a password, and what hides who may not."""

    find: FindCredential
    secret: bytes = b""  # of this broker, for the salts of users who do not exist

    def credential(self, mechanism: str, name: str) -> ScramCredential:
        return self.find(mechanism, name) or stand_in(mechanism, name, self.secret)

    def has(self, name: str) -> bool:
        """Whether somebody of that name can log in by a password."""
        return any(self.find(mechanism, name) for mechanism in HASHES)


class Plain:
    """RFC 4616: the password itself, held against what SCRAM keeps of it, by each mechanism: how long that takes does
    not tell by which of them a user has a password, or whether it has any."""

    is_slow = True
    waits = False

    def __init__(self, users: Users) -> None:
        self._users = users
        self.claimed = ""

    def step(self, token: bytes, now_ms: int) -> Reply:  # noqa: ARG002 - passwords have no end
        parts = token.split(b"\0")
        if len(parts) != 3:
            raise LoginRefused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(parts), 4)}")
        if not parts[1] or not parts[2]:
            what = "username" if not parts[1] else "password"
            raise LoginRefused(f"Authentication failed: {what} not specified")
        try:
            asked, name, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise InvalidLogin("the client's message is not UTF-8") from None
        self.claimed = name
        if not any([self._users.credential(each, name).fits(each, password) for each in HASHES]):  # noqa: C419 - all
            raise LoginRefused("Authentication failed: Invalid username or password")
        _check_authorization_id(asked, name)
        return Reply(user=name)


class InvalidLogin(HeadraceError):
    """A client's token breaks the rules of its mechanism."""


def _check_authorization_id(asked: str, name: str) -> None:
    if asked and asked != name:
        raise LoginRefused(
            "Authentication failed: Client requested an authorization id that is different from username"
        )


class Scram:
    is_slow = False
    waits = False

    def __init__(self, mechanism: str, users: Users, nonce: str) -> None:
        self.claimed = ""
        self._mechanism = mechanism
        self._users = users
        self._nonce = nonce
        self._first: ClientFirst | None = None
        self._credential: ScramCredential | None = None
        self._server: ScramServer | None = None

    def step(self, token: bytes, now_ms: int) -> Reply:  # noqa: ARG002 - passwords have no end
        if self._first is None or self._server is None:
            self._first = first = ClientFirst.parse(token)
            self.claimed = first.username
            _check_authorization_id(first.authorization_id, first.username)
            self._credential = self._users.credential(self._mechanism, first.username)
            self._server = ScramServer(self._mechanism, first, self._credential, self._nonce)
            return Reply(self._server.answer())
        if self._users.credential(self._mechanism, self._first.username) != self._credential:
            # An exchange can be begun and kept: whoever is removed would finish it later.
            raise InvalidLogin("the user's password was changed or removed during the login")
        return Reply(self._server.finish(token), self._first.username)


class TokenUser(NamedTuple):
    """Who a token names, and when it ends."""

    name: str
    expires_ms: int


_BEARER = re.compile(
    rb"n,(?:a=(?P<asked>[^,]*))?,\x01auth=(?P<scheme>\w+) +(?P<token>[-_.a-zA-Z0-9]+)"
    rb"(?:\x01[A-Za-z]+=[\x20-\x7e\t\r\n]+)*\x01\x01"
)
_INVALID_TOKEN = b'{"status":"invalid_token"}'
_END_OF_FAILURE = b"\x01"


class OAuthBearer:
    """RFC 7628: a token that somebody else has signed; after one that is refused the client has a last word."""

    is_slow = True
    waits = True  # the keys may have to be fetched
    claimed = ""  # what a token says that is not valid is not even a claim

    def __init__(self, verify: Callable[[str, int], TokenUser]) -> None:
        """`verify` is given the token and the time; a `HeadraceError` refuses it."""
        self._verify = verify
        self._refusal: HeadraceError | None = None

    def step(self, token: bytes, now_ms: int) -> Reply:
        if self._refusal is not None:
            if hmac.compare_digest(token, _END_OF_FAILURE):
                raise LoginRefused(_INVALID_TOKEN.decode())
            raise InvalidLogin("the client goes on after its token was refused")
        found = _BEARER.fullmatch(token)
        if found is None or found["scheme"].lower() != b"bearer":
            raise InvalidLogin("the client's message is not OAUTHBEARER")
        try:
            user = self._verify(found["token"].decode(), now_ms)
        except HeadraceError as refusal:
            self._refusal = refusal
            return Reply(_INVALID_TOKEN)
        if found["asked"] and found["asked"] != user.name.encode():
            asked = found["asked"].decode(errors="replace")
            raise LoginRefused(
                f"Authentication failed: Client requested an authorization id ({asked}) "
                f"that is different from the token's principal name ({user.name})"
            )
        return Reply(user=user.name, expires_ms=user.expires_ms)
