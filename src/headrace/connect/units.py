"""What a number counts that stands for a time: days, milli-, micro- or nanoseconds. Pure.

Debezium writes a time without a zone as a number, in the unit that the column's precision asks for, and only a schema
says which. JSON without schemas has none, so our captures name the units in a header of the record; the value stays
what Debezium would write. Where a record has no such header either (another program wrote it, or a Headrace before
this), a timestamp's unit is told by its size: a number that means 1973 or later as microseconds is far beyond the
calendar as milliseconds.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

from headrace.connect.table import Column

HEADER: Final = "headrace.units"
_FROM_MICROS: Final = 10**14  # 1973 in microseconds, the year 5138 in milliseconds
_FROM_NANOS: Final = 10**17  # 1973 in nanoseconds, 5138 in microseconds


class Days(int):
    """Days since 1970."""


class Millis(int):
    """Milliseconds."""


class Micros(int):
    """Microseconds."""


class Nanos(int):
    """Nanoseconds."""


_UNITS: Final[dict[str, type[int]]] = {"d": Days, "ms": Millis, "us": Micros, "ns": Nanos}
_OF_SCHEMA: Final = {
    "io.debezium.time.Date": "d", "org.apache.kafka.connect.data.Date": "d",
    "io.debezium.time.Timestamp": "ms", "org.apache.kafka.connect.data.Timestamp": "ms",
    "io.debezium.time.Time": "ms", "org.apache.kafka.connect.data.Time": "ms",
    "io.debezium.time.MicroTimestamp": "us", "io.debezium.time.MicroTime": "us",
    "io.debezium.time.NanoTimestamp": "ns", "io.debezium.time.NanoTime": "ns",
}  # fmt: skip


def units_header(columns: Iterable[Column]) -> tuple[tuple[str, bytes], ...]:
    """The header of records with these columns; none if none of them is a time that is written as a number."""
    units = {column.name: _OF_SCHEMA.get(str(column.codec.schema.get("name"))) for column in columns}
    told = {name: unit for name, unit in units.items() if unit is not None}
    return ((HEADER, json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()),) if told else ()


def units_in(headers: Sequence[tuple[str, bytes | None]]) -> Mapping[str, type[int]]:
    """What a record's headers say of its columns."""
    for name, value in headers:
        if name == HEADER and value is not None:
            return _read(bytes(value))
    return {}


@lru_cache(maxsize=256)
def _read(value: bytes) -> Mapping[str, type[int]]:
    try:
        return {name: _UNITS[unit] for name, unit in json.loads(value).items() if unit in _UNITS}
    except (ValueError, AttributeError, TypeError):
        return {}


def with_units(row: dict[str, Any], units: Mapping[str, type[int]]) -> dict[str, Any]:
    """A row whose times know what they count; as JSON they are the numbers that they were."""
    told = {name: unit(row[name]) for name, unit in units.items() if row.get(name).__class__ is int}
    return {**row, **told} if told else row


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
