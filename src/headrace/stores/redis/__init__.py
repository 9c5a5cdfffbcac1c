"""One Redis, not a Redis Cluster: `derived.py` keeps rows by their keys, `view.py` materialized views."""

from typing import Any, Final

from headrace import extras

AT_ONCE: Final = 1_000  # keys in one command, changes in one script: Redis serves nobody else meanwhile


def is_url(url: str) -> bool:
    """Whether it names a Redis."""
    return url.startswith(("redis://", "rediss://", "unix://"))


def connect(url: str) -> Any:
    """A client; it connects with its first command."""
    return extras.load("redis").Redis.from_url(url, socket_timeout=30, socket_connect_timeout=10)
