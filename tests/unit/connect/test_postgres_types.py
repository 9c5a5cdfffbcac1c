"""Each type's text as PostgreSQL writes it, and what becomes of it."""

import base64
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.json_form import image_writer
from headrace.connect.postgres.types import TypeInfo, TypeModes, codec_of
from headrace.connect.table import UNAVAILABLE_TEXT, UNCHANGED, Column, to_wire

DEFAULT = TypeModes()
PRECISE = TypeModes(decimal="precise", time="isostring", interval="numeric", binary="hex")


def written(type_id: int, text: str | None, modifier: int = -1, modes: TypeModes = DEFAULT) -> Any:
    """The JSON of a value, by way of the code that is made for its column."""
    column = Column("c", *codec_of(type_id, modifier, modes, lambda _: None))
    image = image_writer([(0, column)])((None if text is None else to_wire(text),))
    return json.loads(image.encode("latin-1"))["c"]


def read(type_id: int, text: str, modifier: int = -1) -> Any:
    return codec_of(type_id, modifier, DEFAULT, lambda _: None)[1].to_python(to_wire(text))


def numeric(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


@pytest.mark.parametrize(
    ("type_id", "text", "expected"),
    [
        (16, "t", True),
        (16, "f", False),
        (21, "-32768", -32768),
        (20, "9223372036854775807", 9223372036854775807),
        (25, "", ""),
        (25, 'a "quote", a \\ and\na line\x01', 'a "quote", a \\ and\na line\x01'),
        (25, "żółć 🦉", "żółć 🦉"),
        (701, "0.1", 0.1),
        (701, "1e+300", 1e300),
        (701, "NaN", "NaN"),
        (701, "-Infinity", "-Infinity"),
        (1700, "123456789012345678901234567890.123456789", "123456789012345678901234567890.123456789"),
        (1700, "NaN", "NaN"),
        (790, "-$1,234.50", "-1234.50"),
        (17, "\\x00ff10", base64.b64encode(b"\x00\xff\x10").decode()),
        (17, "\\x", ""),
        (1082, "1970-01-02", 1),
        (1082, "1969-12-31", -1),
        (1082, "0044-03-15 BC", -735160),
        (1082, "20000-01-01", 6585322),
        (1082, "infinity", 2**31 - 1),
        (1083, "24:00:00", 86_400_000_000),
        (1083, "00:00:00.000001", 1),
        (1114, "1970-01-01 00:00:00", 0),
        (1114, "2024-02-29 12:34:56.5", 1709210096500000),
        (1114, "1969-12-31 23:59:59.999999", -1),
        (1114, "infinity", 9223372036825200000),
        (1184, "2024-02-29 12:34:56.5+00", "2024-02-29T12:34:56.5Z"),
        (1184, "infinity", "infinity"),
        (1266, "04:05:06.789-08", "04:05:06.789-08:00"),
        (1266, "04:05:06+00", "04:05:06Z"),
        (1266, "04:05:06+05:30", "04:05:06+05:30"),
        (1186, "P1Y2M3DT4H5M6.789S", "P1Y2M3DT4H5M6.789S"),
        (2950, "6f9619ff-8b86-d011-b42d-00cf4fc964ff", "6f9619ff-8b86-d011-b42d-00cf4fc964ff"),
        (3802, '{"a": [1, "ż"]}', '{"a": [1, "ż"]}'),
        (3904, "[1,5)", "[1,5)"),
        (1562, "1000000001", base64.b64encode(b"\x01\x02").decode()),
        (1007, "{1,2,NULL}", [1, 2, None]),
        (1007, "{}", []),
        (1007, "[0:1]={1,2}", [1, 2]),
        (1007, "{{1,2},{3,NULL}}", [[1, 2], [3, None]]),
        (
            1009,
            '{plain,"with \\"quote\\" and \\\\","NULL",NULL,"żó"}',
            ["plain", 'with "quote" and \\', "NULL", None, "żó"],
        ),
        (1000, "{t,f}", [True, False]),
        (1231, "{1.10,NULL}", ["1.10", None]),
        (999_999, "whatever", "whatever"),
    ],
)
def test_the_default_json(type_id: int, text: str, expected: object) -> None:
    assert written(type_id, text) == expected
    assert written(type_id, None) is None


def test_short_precisions_are_milliseconds() -> None:
    assert written(1114, "1970-01-01 00:00:00.123", 3) == 123
    assert written(1083, "00:00:01.5", 1) == 1500


def test_a_single_bit_is_a_boolean() -> None:
    assert written(1560, "1", 1) is True
    assert written(1560, "101", 3) == base64.b64encode(b"\x05").decode()


@pytest.mark.parametrize(
    ("text", "modifier", "unscaled"),
    [
        ("12.50", numeric(10, 2), 1250),
        ("-12.50", numeric(10, 2), -1250),
        ("0.00", numeric(10, 2), 0),
        ("-1.28", numeric(10, 2), -128),
        ("1.28", numeric(10, 2), 128),
        ("12300", numeric(3, -2), 123),
    ],
)
def test_precise_decimals_are_unscaled_numbers(text: str, modifier: int, unscaled: int) -> None:
    told = base64.b64decode(written(1700, text, modifier, PRECISE))
    assert int.from_bytes(told, "big", signed=True) == unscaled
    assert len(told) <= (unscaled.bit_length() + 8) // 8


def test_precise_decimals_of_no_scale_carry_it() -> None:
    told = written(1700, "-0.001", -1, PRECISE)
    assert told["scale"] == 3
    assert int.from_bytes(base64.b64decode(told["value"]), "big", signed=True) == -1
    assert written(1700, "NaN", -1, PRECISE) is None


def test_the_other_modes() -> None:
    assert written(1700, "0.5", modes=TypeModes(decimal="double")) == 0.5
    assert written(1082, "2024-02-29", modes=PRECISE) == "2024-02-29"
    assert written(1114, "2024-02-29 12:34:56", modes=PRECISE) == "2024-02-29T12:34:56"
    assert written(1083, "12:34:56", modes=PRECISE) == "12:34:56"
    assert written(17, "\\x00ff", modes=PRECISE) == "00ff"
    assert written(1186, "P1DT2H", modes=PRECISE) == 26 * 3_600_000_000
    assert written(1186, "P1M", modes=PRECISE) == int(30.4375 * 86_400_000_000)
    assert written(1186, "PT-1.5S", modes=PRECISE) == -1_500_000
    with pytest.raises(InvalidConnectSetting, match=r"types\.decimal cannot be 'exact'"):
        TypeModes(decimal="exact")


def test_python_values() -> None:
    assert read(1700, "1.10") == Decimal("1.10")
    assert read(1184, "2024-02-29 12:34:56.5+00") == datetime(2024, 2, 29, 12, 34, 56, 500_000, UTC)
    assert read(1114, "2024-02-29 12:34:56") == datetime(2024, 2, 29, 12, 34, 56)  # noqa: DTZ001 - it has no zone
    assert read(1082, "2024-02-29") == date(2024, 2, 29)
    assert read(1082, "0044-03-15 BC") == "0044-03-15 BC"
    assert read(1083, "12:34:56.5") == time(12, 34, 56, 500_000)
    assert read(17, "\\x00ff") == b"\x00\xff"
    assert read(2950, "6f9619ff-8b86-d011-b42d-00cf4fc964ff") == UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff")
    assert read(3802, '{"a": "ż"}') == {"a": "ż"}
    assert read(1007, "{1,NULL}") == [1, None]
    assert read(790, "$1,234.50") == Decimal("1234.50")


def test_types_that_only_the_catalog_knows() -> None:
    known = {
        20_001: TypeInfo(20_001, "mood", "e", labels=("sad", "ok")),
        20_002: TypeInfo(20_002, "_mood", "b", element=20_001),
        20_003: TypeInfo(20_003, "price", "d", base=1700, modifier=numeric(10, 2)),
    }
    name, mood = codec_of(20_001, -1, DEFAULT, known.get)
    assert (name, mood.schema["parameters"]) == ("mood", {"allowed": "sad,ok"})
    name, moods = codec_of(20_002, -1, DEFAULT, known.get)
    assert (name, moods.to_json("{sad,NULL}")) == ("mood[]", '["sad",null]')
    _, price = codec_of(20_003, -1, PRECISE, known.get)
    assert price.schema["parameters"]["scale"] == "2"


@pytest.mark.parametrize(
    ("type_id", "expected"),
    [
        (25, UNAVAILABLE_TEXT),
        (1700, UNAVAILABLE_TEXT),
        (17, base64.b64encode(UNAVAILABLE_TEXT.encode()).decode()),
        (1009, [UNAVAILABLE_TEXT]),
    ],
)
def test_what_was_not_sent_again_is_told_apart_from_null(type_id: int, expected: object) -> None:
    column = Column("c", *codec_of(type_id, -1, DEFAULT, lambda _: None))
    assert json.loads(image_writer([(0, column)])((UNCHANGED,))) == {"c": expected}
