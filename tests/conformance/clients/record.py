"""A record as every client tells it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

OnRecord = Callable[[int], None]
"""Called with the count of records so far, each time one has come."""


def ignore(_: int) -> None:
    pass


CREATE_TIME, LOG_APPEND_TIME = "CreateTime", "LogAppendTime"


class Seen(NamedTuple):
    """What a consumer got. The time is None where it is the broker's own."""

    partition: int
    offset: int
    timestamp_type: str
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
