"""How a dashboard is started: where it looks, where it listens, and what it may do."""

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass

from headrace.client.address import Address
from headrace.client.connection import PLAIN, ConnectionSettings
from headrace.client.offsets import Start
from headrace.client.resets import Shift
from headrace.dashboard.errors import NotSafe

DEFAULT_PORT = 8088


@dataclass(frozen=True, slots=True)
class Language:
    """How texts that people write are read: the same way as on the command line, which hands its readers in."""

    condition: Callable[[str], Callable[[object], bool]]  # a condition on a JSON document
    start: Callable[[str, int], Start]  # a place in a log, as of a time
    target: Callable[[str, int], Start | Shift]  # where a group shall go on
    time: Callable[[str, int], int]


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything about one dashboard; with a token, only who has it is let in."""

    bootstrap: tuple[Address, ...]
    language: Language
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    allow_writes: bool = False
    token: str | None = None
    host_names: tuple[str, ...] = ()  # besides the machine itself: the names under which others come
    interval_s: float = 2.0
    connection: ConnectionSettings = PLAIN
    registry: str = ""  # the URL of a schema registry; without one, schemas are read from the cluster's own topic

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.token:
            raise NotSafe(
                f"{self.host} can be reached from other machines: give a token (--token or HEADRACE_DASHBOARD_TOKEN), "
                "or listen on 127.0.0.1"
            )
        if self.allow_writes and not self.token:
            raise NotSafe("a dashboard that may write needs a token: give one, or leave --allow-writes out")
        if self.token is not None and len(self.token) < 16:
            raise NotSafe("the token is too easy to guess: use at least 16 characters")

    @property
    def cluster_name(self) -> str:
        """The cluster as people call it: by its addresses."""
        return ",".join(map(str, self.bootstrap))


def is_loopback(host: str) -> bool:
    """Whether only this machine can come in there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
