"""What values stand for that mean more than their type: times, decimals, what the database left out. Pure."""

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from headrace.connect.avro.types import MARK_BITS, MARK_CODES, mark_arrays
from headrace.connect.errors import ConnectError
from headrace.connect.table import UNAVAILABLE_BYTES, UNAVAILABLE_TEXT
from headrace.connect.units import PER_SECOND, TIMES
from headrace.stores.values import EXACT, duration_text

_IN_TEXTS: Final = (UNAVAILABLE_TEXT, UNAVAILABLE_BYTES.strip('"'))
JSON_MARKS: Final = tuple(mark.encode() for mark in _IN_TEXTS)
AVRO_MARKS: Final = (UNAVAILABLE_TEXT.encode(), *mark_arrays())
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - Debezium's timestamps without a zone are counted from here


class UnreadableRecord(ConnectError):
    """A record that says nothing about a row; it goes to the dead letters."""


def is_unavailable(value: object) -> bool:
    """Whether a value only stands for one that the database did not send again."""
    if isinstance(value, list):
        return is_unavailable(value[0]) if len(value) == 1 else value in (MARK_CODES, MARK_BITS)
    return value in _IN_TEXTS if isinstance(value, str) else False


def decimal_text(unscaled: bytes, scale: int) -> str:
    """A decimal of an unscaled value in two's complement."""
    return f"{Decimal(int.from_bytes(unscaled, 'big', signed=True)).scaleb(-scale, EXACT):f}"


def _date(days: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=days)).isoformat()


def _moments(per_second: int) -> Callable[[int], str]:
    return lambda count: (_EPOCH + timedelta(microseconds=count * 1_000_000 // per_second)).isoformat()


def _times(per_second: int) -> Callable[[int], str]:
    return lambda count: duration_text(timedelta(microseconds=count * 1_000_000 // per_second))


def _converter(kind: str, unit: str) -> Callable[[Any], str]:
    if kind == "date":
        return _date
    return (_moments if kind == "moment" else _times)(PER_SECOND[unit])


CONVERTERS: Final[dict[str, Callable[[Any], str]]] = {name: _converter(*time) for name, time in TIMES.items()}
