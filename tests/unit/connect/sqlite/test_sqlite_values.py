"""SQLite's values as JSON, and in a position."""

import json

import pytest

from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.sqlite.connection import SqliteSettings
from headrace.connect.sqlite.values import codec_of, from_position, to_position
from headrace.connect.table import to_wire


@pytest.mark.parametrize(
    ("declared", "value", "shown"),
    [
        ("INTEGER", -(2**63), "-9223372036854775808"), ("REAL", 0.1, "0.1"), ("REAL", float("-inf"), '"-Infinity"'),
        ("TEXT", 'a"b', '"a\\"b"'), ("TEXT", to_wire("ä"), '"ä"'), ("BLOB", b"\0\xff", '"AP8="'),
        ("TEXT", b"\0\xff", '{"blob":"AP8="}'), ("BLOB", "AP8=", '{"text":"AP8="}'), ("", b"", '{"blob":""}'),
        ("TEXT", "\xff", '{"broken_text":"/w=="}'), ("INTEGER", "no number", '"no number"'), ("BLOB", 7, "7"),
    ],
)  # fmt: skip
def test_each_value_is_told_by_what_it_is(declared: str, value: object, shown: str) -> None:
    written = codec_of(declared).to_json(value)
    assert written.encode("latin-1").decode() == shown
    json.loads(shown)


@pytest.mark.parametrize("value", [0, 2**63 - 1, 0.1, float("inf"), "text", b"\0", b""])
def test_a_key_comes_back_from_json(value: object) -> None:
    assert from_position(json.loads(json.dumps(to_position(value)))) == value


@pytest.mark.parametrize(
    "wrong", [{"capture": "Robert'); DROP"}, {"snapshot": "maybe"}, {"schema_changes": "no"}, {"batch_rows": 0}]
)
def test_settings_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidConnectSetting, match=next(iter(wrong))):
        SqliteSettings("x.db", **wrong)  # type: ignore[arg-type]
