"""A time is the same time in every form of record, whatever the precision of its column."""

from typing import Any

import pytest

from headrace.connect.avro.reading import AvroReader
from headrace.connect.change import CREATE, DELETE, Change, Origin
from headrace.connect.envelope import EnvelopeSettings, EnvelopeWriter, OutRecord, TopicNames
from headrace.connect.filters import Filters
from headrace.connect.mysql.settings import TypeModes as MysqlModes
from headrace.connect.mysql.shape import ShapeColumn
from headrace.connect.mysql.types import codec_of as mysql_codec
from headrace.connect.sync.decoding import RecordFormat
from headrace.connect.sync.reduction import LogRecord, reduce_records
from headrace.connect.table import Column, Table
from headrace.records import Header, Record
from headrace.stores.derived import RowChange
from headrace.stores.values import Family, canonicalize
from tests.unit.connect.avro.avro_records import Schemas
from tests.unit.connect.avro.avro_records import column as postgres_column


def _mysql(name: str, kind: str, time: str = "adaptive") -> Column:
    return Column(name, kind, mysql_codec(ShapeColumn(name, kind), MysqlModes(time=time)))


# A column, a raw value of it, what a target's column holds, and the value there. All of 1971 too: where a number is too
# small to be told by its size.
TIMES = [
    *((_mysql("at", f"datetime({digits})" if digits else "datetime"), text, Family.TIMESTAMP, iso)
      for digits in range(7)
      for text, iso in [
          ("2023-11-14 22:13:20" + (".500000"[: digits + 1] if digits else ""),
           "2023-11-14T22:13:20" + (".500000" if digits else "")),
          ("1971-02-03 04:05:06" + (".000000"[: digits + 1] if digits else ""), "1971-02-03T04:05:06"),
          ("1066-10-14 00:00:00" + (".000000"[: digits + 1] if digits else ""), "1066-10-14T00:00:00"),
      ]),
    *((_mysql("at", "datetime(3)", "isostring"), text, Family.TIMESTAMP, "2023-11-14T22:13:20.123000")
      for text in ["2023-11-14 22:13:20.123"]),
    *((_mysql("at", kind), text, Family.INSTANT, "2023-11-14T22:13:20+00:00")
      for kind, text in [("timestamp", "2023-11-14 22:13:20"), ("timestamp(6)", "2023-11-14 22:13:20.000000")]),
    (_mysql("at", "date"), "1971-02-03", Family.DATE, "1971-02-03"),
    (_mysql("at", "date"), "1971-02-03", Family.TIMESTAMP, "1971-02-03T00:00:00"),
    (_mysql("at", "datetime"), "1971-02-03 04:05:06", Family.DATE, "1971-02-03"),
    *((_mysql("at", kind), text, Family.TIME, expected)
      for kind, text, expected in [
          ("time", "00:00:30", "00:00:30"), ("time(3)", "22:13:20.123", "22:13:20.123000"),
          ("time", "838:59:59", "838:59:59"), ("time", "-01:00:00", "-01:00:00"),
      ]),
    *((postgres_column("at", 1114, modifier=digits), text, Family.TIMESTAMP, iso)
      for digits in (-1, 0, 3, 6)
      for text, iso in [
          ("2023-11-14 22:13:20", "2023-11-14T22:13:20"), ("1971-02-03 04:05:06", "1971-02-03T04:05:06"),
      ]),
    *((postgres_column("at", 1083, modifier=digits), "00:00:30", Family.TIME, "00:00:30") for digits in (-1, 0, 3, 6)),
    (postgres_column("at", 1082), "2023-11-14", Family.DATE, "2023-11-14"),
    (postgres_column("at", 1184), "2023-11-14 22:13:20+00", Family.INSTANT, "2023-11-14T22:13:20+00:00"),
]  # fmt: skip


def _read(column: Column, raw: str, op: str = CREATE, **form: Any) -> RowChange:
    """A row with this value alone, which is its key, written and read in one form."""
    table = Table("shop", "orders", (column,), (0,))
    schemas = Schemas()
    settings = EnvelopeSettings("mysql", "shop", "1", TopicNames("shop"), **form)
    row = (raw,)
    event = Change(
        table,
        op,
        row if op == DELETE else None,
        None if op == DELETE else row,
        Origin("1", 1, "false", own=("pos",)),
        1,
    )
    written = list(EnvelopeWriter(settings, Filters(), schemas).write([event], 1))
    reader = AvroReader(schemas.text) if settings.format == "avro" else None
    how = RecordFormat(
        value="plain" if settings.unwrap else "envelope", format=settings.format, reader=reader
    )  # fmt: skip
    reduced = reduce_records([LogRecord(0, _stored(at, out)) for at, out in enumerate(written)], how)
    assert not reduced.broken
    (change,) = reduced.changes
    return change


def _stored(at: int, out: OutRecord) -> Record:
    return Record(at, out.timestamp_ms, out.key, out.value, tuple(Header(*header) for header in out.headers))


FORMS: list[dict[str, Any]] = [
    {}, {"schemas": True}, {"format": "avro"}, {"unwrap": "drop"}, {"unwrap": "rewrite"},
    {"unwrap": "drop", "format": "avro"},
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(
    ("column", "raw", "family", "expected"), TIMES, ids=lambda each: getattr(each, "type_name", each)
)
def test_a_time(column: Column, raw: str, family: Family, expected: str, form: dict[str, Any]) -> None:
    change = _read(column, raw, **form)
    assert change.row is not None
    assert canonicalize(change.row["at"], family) == expected
    assert canonicalize(change.key["at"], family) == expected
    gone = _read(column, raw, DELETE, **form)
    assert gone.row is None
    assert canonicalize(gone.key["at"], family) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1_700_000_000_000, "2023-11-14T22:13:20"),
        (1_700_000_000_000_000, "2023-11-14T22:13:20"),
        (1_700_000_000_000_000_000, "2023-11-14T22:13:20"),
        (0, "1970-01-01T00:00:00"),
    ],
)
def test_a_number_without_a_unit_is_told_by_its_size(number: int, expected: str) -> None:
    assert canonicalize(number, Family.TIMESTAMP) == expected


def test_a_number_stays_a_number_where_no_time_is_asked_for() -> None:
    change = _read(_mysql("at", "datetime"), "2023-11-14 22:13:20")
    assert change.key_text == "1700000000000"
    assert canonicalize((change.row or {})["at"], Family.INTEGER) == 1_700_000_000_000
