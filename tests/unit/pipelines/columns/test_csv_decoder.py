"""CSV: types, null, quotes, and each reason for which a line does not decode."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

from headrace.pipelines.columns.csv import CsvDecoder
from tests.value_columns import rows_of, value_columns

SCHEMA = pa.schema(
    [("i", pa.int32()), ("s", pa.string()), ("b", pa.bool_()), ("d", pa.date32()), ("t", pa.timestamp("us", "UTC")),
     ("m", pa.decimal128(6, 2)), ("x", pa.float64())]
)  # fmt: skip


def test_every_type_null_and_line_end():
    data = [
        b"1,a,true,2024-02-29,2024-01-01T00:00:00Z,1.50,2.5",
        b',"",0,,2024-01-01 01:00:00+01:00,,\n',
        b'3,"say ""hi"",\r\nyou",FALSE,,20240101T000000,-1,1e3\r\n',
        None,
    ]
    decoded = CsvDecoder(SCHEMA).decode(value_columns(data))
    assert decoded.broken == {}
    time = datetime(2024, 1, 1, tzinfo=UTC)
    assert rows_of(decoded) == [
        [1, "a", True, date(2024, 2, 29), time, Decimal("1.50"), 2.5],
        [None, "", False, None, time, None, None],
        [3, 'say "hi",\r\nyou', False, None, time, Decimal("-1.00"), 1000.0],
        [None] * 7,
    ]


def test_every_reason_beside_good_lines():
    good = b"1,a,,,,,"
    bad = {
        b"x,a,,,,,": "field 'i' is 'x', which is not int32",
        b"1,\xff,,,,,": "field 's' is '�', which is not UTF-8",
        b"1,a,,,yesterday,,": "field 't' is 'yesterday', which is not a time",
        b"1,a,,2023-02-29,,,": "field 'd' is '2023-02-29', which is not date32[day]",
        b"1,a,,,,1.005,": "field 'm' is '1.005', which does not fit decimal128(6, 2)",
        b"1,a": "the line has 2 fields, the schema 7",
        b"": "the line has 1 field, the schema 7",
        b'1,"a,,,,,': "a quote is not closed",
        b"1,a,,\n,,,": "more than one line",
    }
    data = [piece for line in bad for piece in (good, line)]
    decoded = CsvDecoder(SCHEMA).decode(value_columns(data))
    assert sorted(decoded.broken) == list(range(1, len(data), 2))
    for row, words in zip(range(1, len(data), 2), bad.values(), strict=True):
        assert words in decoded.broken[row]
    assert rows_of(decoded) == [[1, "a", *[None] * 5], [None] * 7] * len(bad)


def test_options():
    schema = pa.schema([("a", pa.string()), ("b", pa.int64()), ("c", pa.binary())])
    decoded = CsvDecoder(schema, delimiter=";", quote="'", null_text="NULL").decode(
        value_columns([b"'x;''y';NULL;\xff", b"NULL;7;NULL", b"'NULL';7;"])
    )
    assert rows_of(decoded) == [["x;'y", None, b"\xff"], [None, 7, None], ["NULL", 7, b""]]


def test_one_column_may_be_an_empty_line():
    decoded = CsvDecoder(pa.schema([("a", pa.string())])).decode(value_columns([b"", b'""', b"x", b"\n"]))
    assert decoded.broken == {}
    assert rows_of(decoded) == [[None], [""], ["x"], [None]]


def test_no_records_and_only_nulls():
    decoder = CsvDecoder(SCHEMA)
    assert rows_of(decoder.decode(value_columns([]))) == []
    assert rows_of(decoder.decode(value_columns([None, None]))) == [[None] * 7] * 2
