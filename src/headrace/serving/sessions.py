"""What a guard remembers: who is logged in, and how often a login was tried. Pure: the time is an argument.

What always holds: both have an upper bound, whoever asks and however often. A session is kept under the hash of its
key, so that what is in memory opens nothing; when there are too many, the oldest ends. Whoever tries too often waits
until the window ends, and a right password does not count.
"""

import hashlib
import ipaddress
import secrets
from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple


class Role(Enum):
    """What somebody may do; the values are the words for it."""

    READ_ONLY = "read-only"
    ADMIN = "admin"


class Session(NamedTuple):
    user: str
    role: Role
    csrf: str = ""  # what a form has to carry; empty where no cookie is involved, which browsers send by themselves
    until_s: float = float("inf")


def fresh_key() -> str:
    return secrets.token_urlsafe(32)


class Sessions:
    """Sessions by their keys; `fixed` ones are always there."""

    def __init__(
        self,
        lifetime_s: float,
        most: int = 1_000,
        fixed: Mapping[str, Session] | None = None,
        fresh: Callable[[], str] = fresh_key,
    ) -> None:
        self._lifetime_s = lifetime_s
        self._most = most
        self._fresh = fresh
        self._fixed = {_hash(key): session for key, session in (fixed or {}).items()}
        self._held: dict[bytes, Session] = {}  # all last equally long, so the first is the first to end

    def __len__(self) -> int:
        return len(self._held)

    def begin(self, user: str, role: Role, now_s: float, key: str | None = None) -> tuple[str, Session]:
        """A session under a key of its own, or the one given."""
        key = key or self._fresh()
        session = Session(user, role, self._fresh(), now_s + self._lifetime_s)
        self._held.pop(_hash(key), None)
        self._held[_hash(key)] = session
        while len(self._held) > self._most or next(iter(self._held.values())).until_s <= now_s:
            del self._held[next(iter(self._held))]
        return key, session

    def find(self, key: str, now_s: float) -> Session | None:
        hashed = _hash(key)
        session = self._fixed.get(hashed) or self._held.get(hashed)
        return session if session and session.until_s > now_s else None

    def end(self, key: str) -> None:
        self._held.pop(_hash(key), None)


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="replace")).digest()


class Attempts:
    """So many tries in a window by each key, then none until it ends."""

    def __init__(self, most: int, window_s: float, most_keys: int = 10_000) -> None:
        self._most = most
        self._window_s = window_s
        self._most_keys = most_keys
        self._windows: dict[str, tuple[float, int]] = {}  # when it ends, and how often; the first ends first

    def __len__(self) -> int:
        return len(self._windows)

    def wait_s(self, key: str, now_s: float) -> float:
        """How long the next try has to wait; 0 if it need not."""
        end_s, count = self._windows.get(key, (0.0, 0))
        return max(0.0, end_s - now_s) if count >= self._most else 0.0

    def count(self, key: str, now_s: float) -> None:
        """One more that failed."""
        end_s, count = self._windows.get(key, (0.0, 0))
        if end_s > now_s:
            self._windows[key] = (end_s, count + 1)
            return
        self._windows.pop(key, None)
        self._windows[key] = (now_s + self._window_s, 1)
        while len(self._windows) > self._most_keys or next(iter(self._windows.values()))[0] <= now_s:
            del self._windows[next(iter(self._windows))]


def neighbourhood(host: str) -> str:
    """Whom tries from an address are counted for: one address of IPv4, the 2**64 that one household has of IPv6."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
