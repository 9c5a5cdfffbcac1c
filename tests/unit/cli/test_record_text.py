"""Records as text and back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.record_text import InvalidLine, as_coloured_line, as_json, as_line, from_json
from headrace.client.reader import ReadRecord
from headrace.model import TopicPartition
from headrace.records import Header, Record


def read(key=b"k", value=b"v", headers=(), *, timestamp=1_700_000_000_123):
    return ReadRecord(TopicPartition("orders", 2), Record(42, timestamp, key, value, tuple(headers)))


def test_a_line_for_people():
    assert as_line(read(), with_headers=True) == "2:42  2023-11-14 22:13:20.123  k  v"
    assert as_line(read(None, None), with_headers=False).endswith("  –  ∅ (tombstone)")
    assert as_line(read(b"\xff", b"\x00\xfe"), with_headers=False).endswith("  0xff  0x00fe")
    shown = as_line(read(headers=[Header("a", b"1"), Header("b", None)]), with_headers=True)
    assert shown.endswith("  k  a=1 b=  v")


def test_a_terminal_is_not_obeyed_to_by_a_record():
    shown = as_coloured_line(read(b"\x1b[2J", b"\x1b]0;title\x07 fine\nline"), with_headers=False)
    assert "\x1b" not in shown.plain
    assert "\x07" not in shown.plain
    assert shown.plain.endswith("\\x1b]0;title\\x07 fine\nline")


def test_json_is_coloured():
    plain = as_coloured_line(read(value=b"text"), with_headers=False)
    coloured = as_coloured_line(read(value=b'{"a": 1}'), with_headers=False)
    assert len(coloured.spans) > len(plain.spans)
    assert coloured.plain.endswith('{"a": 1}')


bytes_or_none = st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=8).map(lambda text: text.encode()))
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(bytes_or_none, bytes_or_none, st.lists(st.builds(Header, names, bytes_or_none), max_size=3))
def test_what_is_written_as_json_is_read_back(key, value, headers):
    described = json.dumps(as_json(read(key, value, headers)))
    back = from_json(described, now_ms=5)
    assert (back.key, back.value, list(back.headers)) == (key, value, headers)
    assert (back.timestamp, back.partition) == (1_700_000_000_123, 2)


def test_what_may_be_left_out():
    record = from_json('{"value": {"a": [1, "ü"]}}', now_ms=5)
    assert (record.key, record.timestamp, record.headers, record.partition) == (None, 5, (), None)
    assert record.value == '{"a":[1,"ü"]}'.encode()
    assert from_json('{"key": 7, "value": null, "headers": {"a": "b"}}', now_ms=5).key == b"7"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "not JSON"),
        ("nonsense", "not JSON"),
        ("[1]", "not an object"),
        ('{"vlaue": 1}', "field 'vlaue' is unknown"),
        ('{"key": "k"}', "it has no value"),
        ('{"value": {"$base64": "?"}}', "its value is not valid base64"),
        ('{"value": {"$base64": 5}}', "its value is not valid base64"),
        ('{"value": "\\ud800"}', "surrogate"),
        ('{"value": 1, "timestamp": "now"}', "its timestamp 'now' is not a whole number"),
        ('{"value": 1, "timestamp": -1}', "its timestamp -1"),
        ('{"value": 1, "partition": true}', "its partition True"),
        ('{"value": 1, "headers": 5}', "its headers are neither"),
        ('{"value": 1, "headers": ["a"]}', "its headers are neither"),
        ('{"value": 1, "headers": [[1, "a"]]}', "its headers are neither"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_lines_that_describe_no_record(line, says):
    with pytest.raises(InvalidLine, match=says):
        from_json(line, now_ms=5)


@given(
    st.recursive(st.one_of(st.none(), st.integers(), st.text(max_size=5)), lambda inner: st.lists(inner, max_size=3))
)
def test_any_headers_are_read_or_refused(headers):
    line = json.dumps({"value": "v", "headers": headers})
    try:
        from_json(line, now_ms=0)
    except InvalidLine as error:
        assert str(error)  # noqa: PT017 - either outcome is right
