"""Records as changes of rows."""

import base64
import json
from typing import Any

import pytest

from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.sync.decoding import RecordFormat, read_key, read_value
from headrace.connect.sync.meanings import UnreadableRecord
from headrace.connect.table import unscaled_bytes

ENVELOPE = RecordFormat()
PLAIN = RecordFormat(value="plain")


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_an_envelope_tells_the_row_after_it() -> None:
    read = read_value(_json({"op": "u", "before": {"id": 1, "n": 1}, "after": {"id": 1, "n": 2}}), ENVELOPE)
    assert (read.after, read.before) == ({"id": 1, "n": 2}, {"id": 1, "n": 1})


@pytest.mark.parametrize("value", [None, _json({"op": "d", "before": {"id": 1}, "after": None})])
def test_tombstones_and_deletes_say_that_the_row_is_gone(value: bytes | None) -> None:
    assert read_value(value, ENVELOPE).after is None


def test_a_truncate_has_a_moment_that_grows() -> None:
    moments = [
        read_value(_json({"op": "t", "source": {"lsn": lsn, "ts_ms": 5}}), ENVELOPE).truncates for lsn in (10, 11)
    ]
    assert moments[0] is not None
    assert moments[1] is not None
    assert moments[0] < moments[1]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"{", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (_json([1]), "not a change envelope"),
        (_json({"id": 1}), "not a change envelope"),
        (_json({"op": "x"}), "unknown op 'x'"),
        (_json({"op": "c", "after": None}), "no row in 'after'"),
    ],
)
def test_what_says_nothing_about_a_row_is_told_in_a_sentence(value: bytes, why: str) -> None:
    with pytest.raises(UnreadableRecord, match=why):
        read_value(value, ENVELOPE)


def test_plain_rows() -> None:
    assert read_value(_json({"n": 1}), PLAIN).after == {"n": 1}
    assert read_value(_json({"n": 1, "__deleted": "false"}), PLAIN).after == {"n": 1}
    assert read_value(_json({"n": 1, "__deleted": "true"}), PLAIN).after is None
    assert read_value(_json(5), PLAIN).after == {"value": 5}


def test_keys() -> None:
    assert read_key(_json({"a": 1, "b": "x"}), ENVELOPE) == {"a": 1, "b": "x"}
    assert read_key(_json(7), ENVELOPE) == {"key": 7}
    assert read_key(b"x-1", RecordFormat(key="text", key_column="id")) == {"id": "x-1"}


@pytest.mark.parametrize("key", [None, b"{}", b"\xff", b"abc"])
def test_keys_that_find_no_row(key: bytes | None) -> None:
    with pytest.raises(UnreadableRecord):
        read_key(key, ENVELOPE)


def test_a_schema_makes_times_and_decimals_readable() -> None:
    fields: list[dict[str, Any]] = [
        {"type": "int32", "name": "io.debezium.time.Date", "field": "day"},
        {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "field": "at"},
        {"type": "int64", "name": "io.debezium.time.Timestamp", "field": "at_ms"},
        {"type": "int64", "name": "io.debezium.time.MicroTime", "field": "time"},
        {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2"},
            "field": "price",
        },
        {"type": "string", "field": "text"},
    ]
    fields.append(fields[4] | {"field": "long"})
    row = {"type": "struct", "fields": fields, "field": "after"}
    after: dict[str, Any] = {
        "day": 19_000,
        "at": 1_500_000,
        "at_ms": 1_500,
        "time": 3_600_000_000,
        "price": "/w==",
        "text": "x",
    }
    after["long"] = base64.b64encode(unscaled_bytes(10**40 + 1)).decode()
    value = {
        "schema": {"type": "struct", "fields": [row, {"type": "string", "field": "op"}]},
        "payload": {"op": "c", "after": after},
    }
    assert read_value(_json(value), ENVELOPE).after == {
        "day": "2022-01-08",
        "at": "1970-01-01T00:00:01.500000",
        "at_ms": "1970-01-01T00:00:01.500000",
        "time": "01:00:00",
        "price": "-0.01",
        "text": "x",
        "long": "1" + "0" * 38 + ".01",  # every digit, though Python calculates with 28
    }


def test_settings_that_cannot_be_meant() -> None:
    with pytest.raises(InvalidConnectSetting, match="choose 'envelope' or 'plain'"):
        RecordFormat(value="xml")
    with pytest.raises(InvalidConnectSetting, match="choose 'json' or 'text'"):
        RecordFormat(key="avro")
