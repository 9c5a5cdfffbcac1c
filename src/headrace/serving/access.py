"""How a server that answers HTTP is reached, and who may use it: the users of the broker, and programs with tokens.

A user is whom the broker lets in by name and password, asked each time somebody logs in: nothing about users is kept
here. Who may alter the cluster is an admin, who may describe it may look, and nobody else comes in. A program has a
token, which stands as its hash in a file of lines `NAME ROLE SHA-256`; a change of the file holds at once.

What always holds: an address that others than this machine can reach asks who they are, and takes passwords under TLS
alone, unless `is_insecure` allows it otherwise; a file of tokens that cannot be read lets in nobody.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from headrace.client.address import Address
from headrace.client.cluster import PATIENT, Cluster
from headrace.client.connection import PLAIN, SASL_PROTOCOLS, ConnectionSettings
from headrace.client.errors import AuthenticationFailed
from headrace.client.sasl import OAUTHBEARER, Credentials
from headrace.client.surroundings import reached_as
from headrace.errors import HeadraceError
from headrace.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from headrace.secret_files import ExposedSecret, changing, check_private, write_private
from headrace.security.acl import Operation
from headrace.security.principal import is_public
from headrace.security.scram import HASHES
from headrace.serving.sessions import Role, fresh_key
from headrace.telemetry.audit import AuditLog
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)

LOOPBACK: Final = "127.0.0.1"
SHORTEST_TOKEN: Final = 16
_NAME: Final = re.compile(r"[^\s#][^\s]{0,254}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_MOST_CHARACTERS: Final = 1024  # of a name, of a password
_QUICK: Final = PATIENT.at_most(1)


class NotSafe(HeadraceError):
    """A way to start a server that would leave it open to others."""


class LoginRefused(HeadraceError):
    """Why somebody is not let in, in words for him."""


# --- programs


class Token(NamedTuple):
    name: str
    role: Role
    digest: str  # of SHA-256: a token is long and random, so that slow hashes would add nothing


class InvalidTokens(HeadraceError):
    """A file of tokens that cannot be read, or a name that it does not have."""


def parse_tokens(text: str, where: str) -> tuple[Token, ...]:
    """From lines of `NAME ROLE SHA-256`; raises `InvalidTokens`."""
    tokens = []
    roles = {role.value: role for role in Role}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 3 or words[1] not in roles or not _DIGEST.fullmatch(words[2]):
            raise InvalidTokens(
                f"{where}:{number} is not NAME ROLE SHA-256: use headrace user token add, or remove the line"
            )
        tokens.append(Token(words[0], roles[words[1]], words[2]))
    return tuple(tokens)


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


class TokensFile:
    """The tokens in a file that others cannot read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._seen = self._look()
        self._tokens = {token.digest: token for token in self.read()}

    def find(self, token: str) -> Token | None:
        """Whose token it is."""
        if (found := self._look()) != self._seen:
            self._seen = found
            try:
                self._tokens = {each.digest: each for each in self.read()}
            except HeadraceError as error:
                self._tokens = {}
                _log.error("tokens cannot be read: nobody is let in by one", reason=str(error))
        return self._tokens.get(digest_of(token))

    def read(self) -> tuple[Token, ...]:
        """All tokens; raises `InvalidTokens` or `ExposedSecret`."""
        check_private(self.path, "the file of tokens")
        try:
            return parse_tokens(self.path.read_text(encoding="utf-8"), str(self.path))
        except (OSError, UnicodeDecodeError):
            raise ExposedSecret(f"the file of tokens {self.path} cannot be read: check it") from None

    def _look(self) -> tuple[int, int, int, int] | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


def read_tokens(path: Path) -> tuple[Token, ...]:
    """The tokens of a file that need not be there."""
    return TokensFile(path).read() if path.exists() else ()


def add_token(path: Path, name: str, role: Role) -> str:
    """A new token, which is kept nowhere; another of the same name is valid no more."""
    if not _NAME.fullmatch(name):
        raise InvalidTokens(f"{name!r} cannot be a token's name: use no spaces, no # at its beginning, 255 characters")
    token = fresh_key()
    with changing(path):
        others = [each for each in read_tokens(path) if each.name != name]
        _write_tokens(path, [*others, Token(name, role, digest_of(token))])
    return token


def remove_token(path: Path, name: str) -> None:
    if name not in {each.name for each in read_tokens(path)}:
        raise InvalidTokens(f"{path} has no token {name!r}: headrace user token list shows those there are")
    with changing(path):
        _write_tokens(path, [each for each in read_tokens(path) if each.name != name])


def _write_tokens(path: Path, tokens: Iterable[Token]) -> None:
    write_private(path, "".join(f"{each.name} {each.role.value} {each.digest}\n" for each in tokens))


# --- users


class Users(Protocol):
    def role_of(self, name: str, password: str) -> Role:
        """What somebody may do; raises `LoginRefused` for who is not let in. May wait for a broker."""


class BrokerUsers:
    """Those whom a broker lets in by name and password."""

    def __init__(self, bootstrap: Sequence[Address], connection: ConnectionSettings) -> None:
        """`connection` is how we ourselves log in there."""
        own = connection.credentials.mechanism if connection.credentials else OAUTHBEARER
        self._mechanism = next(reversed(HASHES)) if own == OAUTHBEARER else own
        self._bootstrap = tuple(bootstrap)
        self._connection = replace(
            connection, client_id="headrace-login", connect_timeout_s=5.0, request_timeout_s=10.0
        )

    def role_of(self, name: str, password: str) -> Role:
        wrong = LoginRefused("Wrong name or password.")
        if (
            not 0 < len(name) <= _MOST_CHARACTERS
            or not 0 < len(password) <= _MOST_CHARACTERS
            or "\0" in name + password
        ):
            raise wrong
        shown = replace(self._connection, credentials=Credentials(self._mechanism, name, password))
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        try:
            with Cluster(self._bootstrap, shown, retry=_QUICK) as cluster:
                allowed = cluster.any_broker().request(request, DescribeClusterResponse).cluster_authorized_operations
        except AuthenticationFailed:
            raise wrong from None
        if allowed & 1 << Operation.ALTER:
            return Role.ADMIN
        if allowed & 1 << Operation.DESCRIBE:
            return Role.READ_ONLY
        raise LoginRefused(
            f"The broker knows {name!r}, who may not look at the cluster: headrace acl add {name} describe --cluster"
        )


def users_of(bootstrap: Sequence[Address], given: ConnectionSettings = PLAIN) -> BrokerUsers | None:
    """The users of a cluster; None where we need not log in ourselves."""
    connection = reached_as(bootstrap, given)
    return BrokerUsers(bootstrap, connection) if connection.security_protocol in SASL_PROTOCOLS else None


# --- a server


@dataclass(frozen=True, slots=True)
class Access:
    """Where a server listens, under which names it answers, and who is let in: anybody, if nothing says who."""

    host: str = LOOPBACK
    host_names: tuple[str, ...] = ()  # besides the machine itself: the names under which others come
    token: str | None = field(default=None, repr=False)  # one for the whole server: whoever has it is an admin
    tokens: TokensFile | None = None
    users: Users | None = None
    certificate: str = ""  # a PEM file of a private key and its certificates
    is_insecure: bool = False
    audit: AuditLog = field(default_factory=AuditLog, compare=False)  # who changed what, and who was not let in

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            raise NotSafe(f"the token is too easy to guess: use at least {SHORTEST_TOKEN} characters")
        if self.is_insecure or not self.is_public:
            return
        if not self.asks:
            raise NotSafe(
                f"{self.host} can be reached from other machines, and nobody has to log in: give tokens (--tokens), "
                "use a broker with logins, or allow it with --insecure"
            )
        if self.users and not self.certificate:
            raise NotSafe(
                f"{self.host} can be reached from other machines, so passwords need TLS: give a certificate "
                "(--certificate), or allow it with --insecure"
            )

    @property
    def is_public(self) -> bool:
        return is_public(self.host)

    @property
    def asks(self) -> bool:
        """Whether somebody has to show who he is."""
        return bool(self.token or self.tokens or self.users)

    def url(self, port: int) -> str:
        """Where the server is found, without a slash at the end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{port}"


ON_LOOPBACK: Final = Access()
