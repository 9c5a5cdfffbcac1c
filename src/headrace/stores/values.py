"""Values of the log as those of a column, and values of a column in a form that can be compared. Pure.

A column's type belongs to a family. `reader_of` turns what JSON has into what a driver takes; `canonical` turns either
into a text, number or truth value that is equal for equal values. Times without a zone come as numbers (`units.py` says
of what) or as ISO texts; both are understood.
"""

import base64
import binascii
import json
import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from enum import Enum
from functools import cache
from typing import Any, Final, TypeAlias

Reader: TypeAlias = Callable[[Any], Any]


class Family(Enum):
    """What kind of values a column holds."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    TEXT = "text"
    JSON = "json"
    BINARY = "binary"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    INSTANT = "instant"  # a timestamp with a zone
    BITS = "bits"  # of a fixed number
    ARRAY = "array"
    OTHER = "other"  # the database reads it from a text


# What JSON has for these is what every driver takes.
NATIVE: Final = {Family.TEXT: str, Family.INTEGER: int, Family.FLOAT: float, Family.BOOLEAN: bool}
_MIDNIGHT: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - timestamps without a zone are counted from here
EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)  # Python's own rounds to 28 digits
_LARGEST: Final = 10**28  # what every store's decimals hold before the point
_MOST_DIGITS: Final = 200_000  # more than PostgreSQL has; 1E+999999999 is not written out
_FROM_MICROS: Final = 10**14  # 1973 in microseconds, the year 5138 in milliseconds
_FROM_NANOS: Final = 10**17  # 1973 in nanoseconds, 5138 in microseconds
_NO_TIME, _DAY = timedelta(), timedelta(days=1)


class Days(int):
    """Days since 1970."""


class Millis(int):
    """Milliseconds."""


class Micros(int):
    """Microseconds."""


class Nanos(int):
    """Nanoseconds."""


class Misfit(ValueError):
    """A value that a column cannot hold."""


def family_of_value(value: object) -> Family | None:
    """The family for a new column whose first value this is; None tells nothing."""
    if value is None:
        return None
    if isinstance(value, bool):
        return Family.BOOLEAN
    if isinstance(value, int):
        return Family.INTEGER if -(2**63) <= value < 2**63 else Family.DECIMAL if abs(value) < _LARGEST else Family.TEXT
    if isinstance(value, float):
        return Family.FLOAT
    return Family.TEXT if isinstance(value, str) else Family.JSON


def widen(family: Family, value: object) -> Family:
    """The family for a column that holds values of this one and gets this value too: integer, double, text.

    Only for a column whose family was taken from values: what a user or a database declared is not to be changed.
    """
    own = family_of_value(value)
    if own is None or own is family or family in (Family.TEXT, Family.JSON):
        return family
    is_beyond = family is Family.INTEGER and isinstance(value, int | float) and not -(2**63) <= value < 2**63
    with suppress(Misfit):
        if not is_beyond:
            reader_of(family)(value)
            return family
    return own if family is Family.INTEGER and own in (Family.FLOAT, Family.DECIMAL) else Family.TEXT


encode_row = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # its columns in their order
encode_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode
"""JSON that is the same for the same value."""


def _integer(value: Any) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise Misfit(f"{value!r} is not a whole number")
    return int(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool | int) and value in (0, 1):
        return bool(value)
    if isinstance(value, bytes) and len(value) == 1:
        return value != b"\0"
    if str(value).lower() in ("true", "t", "1"):
        return True
    if str(value).lower() in ("false", "f", "0"):
        return False
    raise Misfit(f"{value!r} is neither true nor false")


def _float(value: Any) -> float:
    read = float(value)
    if isinstance(value, int) and read != value:
        raise Misfit(f"{value!r} has more digits than a double holds")
    return read


def _decimal(value: Any) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(repr(value) if isinstance(value, float) else value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return encode_compact(value) if isinstance(value, dict | list | bool) else str(value)


def _json(value: Any) -> str:
    """A text that is JSON already stays as it is: that is how the log writes columns of JSON."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            return encode_compact(value)
        return value
    return encode_compact(value)


def _binary(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return base64.b64decode(value, validate=True)


def _bits(value: Any) -> int:
    """A bit string as a number: truth of a single bit, base64 with the lowest byte first, or `b` and the bits."""
    if isinstance(value, bool | int):
        return int(value)
    if value[:1] == "b" and set(value[1:]) <= {"0", "1"}:
        return int(value[1:] or "0", 2)
    return int.from_bytes(base64.b64decode(value, validate=True), "little")


def _date(value: Any) -> date:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    if isinstance(value, Millis | Micros | Nanos):
        return (_MIDNIGHT + since_1970(value)).date()
    return date(1970, 1, 1) + timedelta(days=value) if isinstance(value, int) else date.fromisoformat(value[:10])


def _timestamp(value: Any) -> datetime:
    if isinstance(value, int):
        return _MIDNIGHT + since_1970(value)
    read = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return read.astimezone(UTC).replace(tzinfo=None) if read.tzinfo else read


def _instant(value: Any) -> datetime:
    if isinstance(value, int):
        return (_MIDNIGHT + since_1970(value)).replace(tzinfo=UTC)
    read = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return read.astimezone(UTC) if read.tzinfo else read.replace(tzinfo=UTC)


def _time(value: Any) -> time | str:
    if isinstance(value, int):
        value = of_day(value)
    if isinstance(value, timedelta):  # as MariaDB's driver has it, too
        # MySQL's TIME reaches from -838 hours to 838: what is no time of a day is a text, and the database decides.
        return (_MIDNIGHT + value).time() if _NO_TIME <= value < _DAY else duration_text(value)
    return value if isinstance(value, time) else time.fromisoformat(value)


_READERS: Final[dict[Family, Reader]] = {
    Family.BOOLEAN: _boolean,
    Family.INTEGER: _integer,
    Family.FLOAT: _float,
    Family.DECIMAL: _decimal,
    Family.TEXT: _text,
    Family.JSON: _json,
    Family.BINARY: _binary,
    Family.BITS: _bits,
    Family.DATE: _date,
    Family.TIME: _time,
    Family.TIMESTAMP: _timestamp,
    Family.INSTANT: _instant,
    Family.ARRAY: lambda value: value,
    Family.OTHER: _text,
}


@cache
def reader_of(family: Family) -> Reader:
    """A function from a value of the log, which is not null, to a driver's; it raises `Misfit`.

    A date that Python cannot hold (before the year 1, `infinity`) stays the text that it was, and the database decides.
    """
    read = _READERS[family]
    by_text = family in (Family.DATE, Family.TIME, Family.TIMESTAMP, Family.INSTANT)

    def converted(value: Any) -> Any:
        try:
            return read(value)
        except Misfit:
            raise
        except (ValueError, TypeError, OverflowError, InvalidOperation, binascii.Error) as error:
            if by_text and isinstance(value, str):
                return value
            raise Misfit(f"{value!r} does not fit a column of type {family.value}") from error

    return converted


def canonicalize(value: Any, family: Family) -> Any:
    """A value, from the log or from the table, as something that compares and that JSON can hold.

    One of the log that the column cannot hold, so that its row was refused, equals none that it has.
    """
    if value is None:
        return None
    if family is Family.ARRAY:
        return encode_compact(_plain(value))
    try:
        read = reader_of(family)(value)
    except Misfit:
        return encode_compact(_plain(value))
    match family:
        case Family.FLOAT:
            return repr(read) if math.isnan(read) or math.isinf(read) else read
        case Family.DECIMAL:
            if read.is_finite() and abs(read.adjusted()) < _MOST_DIGITS:
                return f"{read.normalize(EXACT):f}"
            return str(read)
        case Family.JSON:
            return encode_compact(json.loads(read))
        case Family.BINARY:
            return read.hex()
        case Family.DATE | Family.TIME | Family.TIMESTAMP | Family.INSTANT:
            return read if isinstance(read, str) else read.isoformat()
    return read


def _plain(value: Any) -> Any:
    """An array's values, whichever side they come from."""
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, datetime):
        return canonicalize(value, Family.INSTANT if value.tzinfo else Family.TIMESTAMP)
    if isinstance(value, Decimal):
        return canonicalize(value, Family.DECIMAL)
    return value.isoformat() if isinstance(value, date | time) else str(value)


def since_1970(count: int) -> timedelta:
    """How long after the beginning of 1970 a number is that stands for a date or a timestamp."""
    if isinstance(count, Days):
        return timedelta(days=int(count))
    return timedelta(microseconds=_micros(count, Millis, Micros, Nanos))


def of_day(count: int) -> timedelta:
    """How long after midnight; a number without a unit counts microseconds, because its size tells nothing."""
    return timedelta(microseconds=_micros(count, Micros, Micros, Micros))


def duration_text(value: timedelta) -> str:
    """Hours, minutes and seconds, as MariaDB and MySQL write them, also where they are more than a day or negative."""
    total = abs(value) // timedelta(microseconds=1)
    seconds, micros = divmod(total, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{'-' if value < timedelta() else ''}{text}{f'.{micros:06d}' if micros else ''}"


def _micros(count: int, small: type[int], middle: type[int], large: type[int]) -> int:
    unit = count.__class__
    if unit not in (Millis, Micros, Nanos):
        unit = small if abs(count) < _FROM_MICROS else middle if abs(count) < _FROM_NANOS else large
    if unit is Millis:
        return int(count) * 1_000
    return int(count) // 1_000 if unit is Nanos else int(count)
