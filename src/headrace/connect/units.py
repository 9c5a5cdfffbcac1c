"""What a number counts that stands for a time: days, milli-, micro- or nanoseconds. Pure.

Debezium writes a time without a zone as a number, in the unit that the column's precision asks for, and only a schema
says which. JSON without schemas has none, so our captures name the units in a header of the record; the value stays
what Debezium would write. Where a record has no such header either (another program wrote it, or a Headrace before
this), a timestamp's unit is known by its size: a number that means 1973 or later as microseconds is far beyond the
calendar as milliseconds.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from headrace.connect.table import Column
from headrace.stores.values import Days, Micros, Millis, Nanos

HEADER: Final = "headrace.units"


_UNITS: Final[dict[str, type[int]]] = {"d": Days, "ms": Millis, "us": Micros, "ns": Nanos}
PER_SECOND: Final = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
TIMES: Final = {  # by the name of a schema: what it is, and its unit
    "io.debezium.time.Date": ("date", "d"), "org.apache.kafka.connect.data.Date": ("date", "d"),
    "io.debezium.time.Timestamp": ("moment", "ms"), "org.apache.kafka.connect.data.Timestamp": ("moment", "ms"),
    "io.debezium.time.Time": ("time", "ms"), "org.apache.kafka.connect.data.Time": ("time", "ms"),
    "io.debezium.time.MicroTimestamp": ("moment", "us"), "io.debezium.time.MicroTime": ("time", "us"),
    "io.debezium.time.NanoTimestamp": ("moment", "ns"), "io.debezium.time.NanoTime": ("time", "ns"),
}  # fmt: skip


def units_header(columns: Iterable[Column]) -> tuple[tuple[str, bytes], ...]:
    """The header of records with these columns; none if none of them is a time that is written as a number."""
    times = {column.name: TIMES.get(str(column.codec.schema.get("name"))) for column in columns}
    known = {name: time[1] for name, time in times.items() if time is not None}
    return ((HEADER, json.dumps(known, ensure_ascii=False, separators=(",", ":")).encode()),) if known else ()


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
    known = {name: unit(row[name]) for name, unit in units.items() if row.get(name).__class__ is int}
    return {**row, **known} if known else row
