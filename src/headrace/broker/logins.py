"""Logins at work: who may log in on a listener and how, from the settings, a file of users, and the keys of tokens.

Users are of two kinds, and the same to a client: those of `users.file`, who are there before any broker runs, and those
that were added by Kafka's own API, who are kept in the metadata log. One of the file goes before one of the same name
in the log. Each may log in by SCRAM and by PLAIN; what is kept of a password is what SCRAM needs.
"""

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from headrace.broker.config import BrokerConfig, Listener
from headrace.broker.settings.setting import InvalidSetting
from headrace.errors import HeadraceError
from headrace.extras import load
from headrace.http_client import HttpServer
from headrace.secret_files import check_private
from headrace.security.login import Login, Mechanism, OAuthBearer, Plain, Scram, TokenUser, Users
from headrace.security.scram import FEWEST_ROUNDS, HASHES, ScramCredential, derive_salt
from headrace.security.tokens import InvalidToken, TokenRules, UnknownKey, verify_token
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)
_MOST_KEYS_BYTES: Final = 1024 * 1024
_FETCH_S: Final = 5.0
_SOONEST_RETRY_S: Final = 2.0  # after an issuer was not to be reached that was never reached before
_SOONEST_REFRESH_S: Final = 10.0  # for keys that are not known: a client could name one after another

T = TypeVar("T")
Credentials = Mapping[tuple[str, str], ScramCredential]  # by mechanism and name


class UsersFile:
    """The users of `users.file`; a file that cannot be read later leaves those in force as they are."""

    def __init__(self, path: str) -> None:
        """Raises if the file cannot be used; who is in it, `load` reads."""
        self._path = path
        self._secret = b""
        self._credentials: Credentials = {}
        if path:
            _parse_users(path)

    def load(self, secret: bytes) -> None:
        """Read who is in the file; their salts are made of the secret, as those of users who do not exist."""
        self._secret = secret
        self._credentials = read_users(self._path, secret) if self._path else {}

    def find(self, mechanism: str, name: str) -> ScramCredential | None:
        return self._credentials.get((mechanism, name))

    def reload(self) -> None:
        if not self._path:
            return
        try:
            self._credentials = read_users(self._path, self._secret)
        except HeadraceError as error:
            _log.error("users not reloaded", reason=str(error))
        else:
            _log.info("users reloaded", users=len({name for _, name in self._credentials}))


def read_users(path: str, secret: bytes) -> Credentials:
    return {
        (mechanism, name): ScramCredential.from_password(
            mechanism, password, derive_salt(mechanism, name, secret), FEWEST_ROUNDS
        )
        for name, password in _parse_users(path).items()
        for mechanism in HASHES
    }


def _parse_users(path: str) -> dict[str, str]:
    """From lines of NAME=PASSWORD. No error shows a line: a password is in it."""
    check_private(path, "users.file")
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"users.file {path} cannot be read ({error.__class__.__name__}): give text") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, password = line.partition("=")
        if not equals or not name.strip() or not password:
            raise InvalidSetting(f"users.file {path}:{number} is not NAME=PASSWORD")
        found[name.strip()] = password
    return found


class LoginThreads:
    """Where logins are looked at that take a while; who waits for an issuer of tokens keeps no password waiting."""

    def __init__(self) -> None:
        self.working = ThreadPoolExecutor(2, thread_name_prefix="headrace-login")
        self.waiting = ThreadPoolExecutor(2, thread_name_prefix="headrace-token")

    def close(self) -> None:
        for threads in (self.working, self.waiting):
            threads.shutdown(wait=False, cancel_futures=True)


class Logins:
    """How clients of one listener log in."""

    def __init__(self, listener: Listener, config: BrokerConfig, users: Users, threads: "LoginThreads") -> None:
        text = partial(config.text_for, listener)
        self.users = users
        self._threads = threads
        self.delay_s = config.number("connection.failed.authentication.delay.ms") / 1000
        self.max_request_bytes = config.number("sasl.server.max.receive.size")
        self._max_session_ms = int(text("connections.max.reauth.ms"))
        names = [name.strip() for name in text("sasl.enabled.mechanisms").split(",") if name.strip()]
        if not names:
            raise InvalidSetting(f"listener {listener} has no way to log in: set sasl.enabled.mechanisms")
        self._mechanisms: dict[str, Callable[[], Mechanism]] = {name: self._prepare(name, text) for name in names}

    def threads_for(self, login: Login) -> ThreadPoolExecutor:
        return self._threads.waiting if login.waits else self._threads.working

    def begin(self) -> Login:
        """For a new connection."""
        return Login(self._mechanisms, self._max_session_ms)

    def _prepare(self, name: str, text: Callable[[str], str]) -> Callable[[], Mechanism]:
        if name == "PLAIN":
            return lambda: Plain(self.users)
        if name in HASHES:
            return lambda: Scram(name, self.users, secrets.token_urlsafe(24))
        load("jwt", "OAUTHBEARER")
        load("cryptography", "OAUTHBEARER")
        rules = TokenRules(
            text("sasl.oauthbearer.expected.issuer"),
            [name.strip() for name in text("sasl.oauthbearer.expected.audience").split(",") if name.strip()],
            text("sasl.oauthbearer.sub.claim.name"),
            int(text("sasl.oauthbearer.clock.skew.seconds")) * 1000,
        )
        refresh_s = int(text("sasl.oauthbearer.jwks.endpoint.refresh.ms")) / 1000
        keys = TokenKeys(text("sasl.oauthbearer.jwks.endpoint.url"), refresh_s)
        return lambda: OAuthBearer(partial(keys.verify, rules))


class TokenKeys:
    """The keys that sign tokens, read again after a while, and when a token names one that is not known."""

    def __init__(self, url: str, refresh_s: float) -> None:
        parts = urlsplit(url)
        self._path = unquote(parts.path) if parts.scheme == "file" else ""
        is_loopback = parts.hostname in ("127.0.0.1", "::1", "localhost")
        if not self._path and not (parts.scheme == "https" or (parts.scheme == "http" and is_loopback)):
            raise InvalidSetting(
                "OAUTHBEARER needs the keys that sign tokens: set sasl.oauthbearer.jwks.endpoint.url to an https:// "
                "address or a file:// on this machine"
            )
        self._server = None if self._path else HttpServer(url, _FETCH_S)
        self._refresh_s = refresh_s
        self._lock = threading.Lock()
        self._asked: Future[Mapping[str, Any]] | None = None  # what is read just now, or was last
        self._keys: Mapping[str, Any] | None = None
        self._read_at = 0.0
        self._tried_at = -_SOONEST_REFRESH_S
        self._failed_at = -_SOONEST_RETRY_S
        if self._path:
            self._read()  # a file that is wrong is a mistake to tell at the start

    def verify(self, rules: TokenRules, token: str, now_ms: int) -> TokenUser:
        """Who the token names; called in a thread, for it may fetch keys."""
        keys = self._current()
        try:
            return verify_token(token, keys, rules, now_ms)
        except UnknownKey:
            newer = self._newer_than(keys)
            if newer is None:
                raise
            return verify_token(token, newer, rules, now_ms)

    def _current(self) -> Mapping[str, Any]:
        now = time.monotonic()
        keys = self._keys
        if keys is None and now - self._failed_at < _SOONEST_RETRY_S:
            raise InvalidToken("no keys to check tokens with")  # or each of a flood would wait for the issuer
        if keys is not None and now - self._read_at < self._refresh_s:
            return keys
        try:
            return self._newest()
        except HeadraceError as error:
            _log.error("keys of tokens not read", reason=str(error))
            self._failed_at = time.monotonic()
            if keys is None:
                raise InvalidToken("no keys to check tokens with") from None
            self._read_at = self._failed_at - self._refresh_s + _SOONEST_REFRESH_S  # those in force stay meanwhile
            return keys

    def _newer_than(self, keys: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if self._keys is not keys:
            return self._keys  # somebody else has fetched them
        if time.monotonic() - self._tried_at < (0 if self._path else _SOONEST_REFRESH_S):
            return None
        try:
            return self._newest()
        except HeadraceError as error:
            _log.error("keys of tokens not read", reason=str(error))
            return None

    def _newest(self) -> Mapping[str, Any]:
        """The keys as they are now. All who want them wait for one answer, and none longer than it may take: an issuer
        that sends a byte now and then would hold them for ever, and the end of the process too."""
        with self._lock:
            if self._asked is None or self._asked.done():
                self._tried_at = time.monotonic()
                self._asked = _begin(self._read)
            asked, until = self._asked, self._tried_at + _FETCH_S
        try:
            return asked.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            raise InvalidToken(f"the issuer has not answered within {_FETCH_S:g} s") from None

    def _read(self) -> Mapping[str, Any]:
        data = self._read_file() if self._server is None else self._fetch(self._server)
        try:
            found: Mapping[str, Any] = json.loads(data)
            if not isinstance(found["keys"], list) or not all(isinstance(key, dict) for key in found["keys"]):
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InvalidSetting(
                "sasl.oauthbearer.jwks.endpoint.url holds no JWKS: it should be a JSON object with a list of keys"
            ) from None
        self._keys = found
        self._read_at = time.monotonic()
        return found

    def _read_file(self) -> bytes:
        try:
            return Path(self._path).read_bytes()[:_MOST_KEYS_BYTES]
        except OSError as error:
            raise InvalidSetting(
                f"sasl.oauthbearer.jwks.endpoint.url: {self._path} cannot be read ({error.strerror})"
            ) from None

    @staticmethod
    def _fetch(server: HttpServer) -> bytes:
        answer = server.ask("GET", server.path, most_bytes=_MOST_KEYS_BYTES)
        if not answer.is_success:
            raise InvalidSetting(f"{server.host} answered {answer.status} instead of keys")
        return answer.body


def _begin(work: Callable[[], T]) -> "Future[T]":
    """Do something in a thread that nobody has to wait for: one of an executor's keeps the process from ending."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - for whoever asks for the result
            future.set_exception(error)

    threading.Thread(target=run, name="headrace-keys", daemon=True).start()
    return future
