"""What the JSON decoder does that a reader of its documentation would want to see."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from headrace.pipelines.columns.json import JsonDecoder, supported
from tests.value_columns import rows_of, value_columns

TIME = pa.timestamp("us", "UTC")


def decode(kind, *texts, unit=None):
    decoder = JsonDecoder(pa.schema([("a", kind)]), epoch_unit=unit)
    return decoder.decode(value_columns([b'{"a": ' + text.encode() + b"}" for text in texts]))


def values(kind, *texts, unit=None):
    decoded = decode(kind, *texts, unit=unit)
    assert decoded.broken == {}
    return [row[0] for row in rows_of(decoded)]


def test_every_type():
    assert values(pa.string(), '"x"', "1.0", '{"b": 1}', "true", "null") == ["x", "1.0", '{"b": 1}', "true", None]
    assert values(pa.int8(), "-128", "127") == [-128, 127]
    assert values(pa.float64(), "0.1", "1e308", "3.141592653589793238462643") == [0.1, 1e308, 3.141592653589793]
    assert values(pa.decimal128(38, 0), "9" * 38, '"7"') == [Decimal("9" * 38), Decimal(7)]
    assert values(pa.date32(), '"2024-02-29"') == [date(2024, 2, 29)]
    assert values(TIME, '"2024-01-01T01:00:00+01:00"') == [datetime(2024, 1, 1, tzinfo=UTC)]
    assert values(TIME, "1", unit="s") == [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]
    assert values(pa.binary(), '"Zm9v"') == [b"foo"]
    assert values(pa.list_(pa.binary()), '["Zm9v", null]') == [[b"foo", None]]
    assert values(pa.map_(pa.string(), pa.int32()), '{"x": 1}') == [[("x", 1)]]


def test_decimals_keep_every_digit_wherever_they_stand():
    money = pa.decimal128(38, 10)
    whole = Decimal("1234567890123456789012345678.0123456789")
    assert values(pa.list_(money), f"[{whole}, 1, null]") == [[whole, Decimal(1), None]]
    assert values(pa.struct([("b", money)]), f'{{"b": {whole}}}') == [{"b": whole}]
    assert values(pa.map_(pa.string(), money), f'{{"b": "{whole}"}}') == [[("b", whole)]]
    assert values(pa.list_(pa.string()), "[1.50, [1e400]]") == [["1.50", "[1e400]"]]


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        (pa.int8(), "128", "too large"),
        (pa.int64(), "1.5", "not a whole number"),
        (pa.float32(), "1e39", "too large"),
        (pa.float64(), "1e309", "too large"),
        (pa.decimal128(4, 2), "1.005", "does not fit"),
        (pa.decimal128(4, 2), '"1_0"', "does not fit"),
        (pa.decimal128(10, 2), "1E-100000000", "does not fit"),
        (pa.decimal128(10, 2), "1E-77", "does not fit"),
        (pa.decimal128(10, 0), str(2**128 + 5), "does not fit"),
        (pa.decimal128(38, 18), "43864730784291090085254673546243869678", "does not fit"),
        (pa.list_(pa.decimal128(10, 2)), "[1.005]", "does not fit"),
        (pa.list_(pa.float64()), "[1e400]", "too large"),
        (pa.date32(), '"2023-02-29"', "not a date"),
        (TIME, "5", "epochUnit"),
        (pa.string(), r'"\ud800"', "half a surrogate pair"),
        (pa.map_(pa.string(), pa.int32()), r'{"\ud800": 1}', "half a surrogate pair"),
        (pa.binary(), '"?"', "base64"),
        (pa.int64(), "1}, {", "follow"),
        (pa.int64(), "NaN", "not valid JSON"),
    ],
)
def test_what_does_not_fit_is_said(kind, text, words):
    decoded = decode(kind, text, '"ok"' if kind == pa.string() else "null")
    assert list(decoded.broken) == [0]
    assert words in decoded.broken[0]
    assert rows_of(decoded)[0] == [None]


def test_one_bad_decimal_or_list_leaves_the_others_as_they_are():
    decoded = decode(pa.decimal128(6, 2), *["1.25"] * 50, "x".join('""'), *["2.50"] * 50)
    assert list(decoded.broken) == [50]
    assert [row[0] for row in rows_of(decoded)] == [Decimal("1.25")] * 50 + [None] + [Decimal("2.50")] * 50
    decoded = decode(pa.list_(pa.int8()), *["[1, 2]"] * 9, "[300]")
    assert list(decoded.broken) == [9]
    assert [row[0] for row in rows_of(decoded)] == [[1, 2]] * 9 + [None]


def test_a_null_value_is_a_row_of_nulls_and_a_name_that_stands_twice_counts_last():
    decoder = JsonDecoder(pa.schema([("a", pa.int64()), ("b", pa.string())]))
    decoded = decoder.decode(value_columns([None, b'{"a":1,"b":"x","a":2}', b"{}", b'{"a":1,"a":null}']))
    assert rows_of(decoded) == [[None, None], [2, "x"], [None, None], [None, None]]
    assert decoded.broken == {}


def test_supported_types():
    assert supported(pa.list_(pa.struct([("a", TIME)])))
    for kind in (pa.uint8(), pa.timestamp("ms"), pa.float16(), pa.duration("s"), pa.map_(pa.int32(), pa.string())):
        assert not supported(kind)
