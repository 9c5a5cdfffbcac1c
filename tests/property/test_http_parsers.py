"""What an HTTP gateway reads, hostile: nothing but a refusal in one sentence; what it shows is read back as it was."""

import base64
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.gateways.http import cloud_events
from headrace.gateways.http.exact_json import as_json_text, json_bytes, read_exact
from headrace.gateways.http.listening import read_start
from headrace.gateways.http.record_form import Given, read_record, read_records, shown_record
from headrace.gateways.http.rest_v2 import forms
from headrace.gateways.http.socket_messages import read_message
from headrace.records import Header
from headrace.serving.asking import InvalidRequest
from headrace.serving.record_feed import Place, place_text, read_place
from tests.property.storage_model import count_examples

MANY = settings(max_examples=count_examples(300))
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=10), st.floats(allow_nan=True))
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=12), inner, max_size=4)),
)
NAMES = st.sampled_from(
    ["key", "value", "headers", "partition", "timestamp", "records", "type", "id", "record", "value_encoding",
     "key_encoding", "specversion", "source", "data", "data_base64", "time", "datacontenttype", "topics",
     "topic_pattern", "offsets", "partitions", "offset", "topic", "metadata", "name", "format", "auto.offset.reset",
     "fetch.min.bytes", "value_schema", "value_schema_id"]
)  # fmt: skip
LIKELY = st.one_of(
    ANYTHING,
    st.dictionaries(NAMES, ANYTHING, max_size=6),
    st.dictionaries(NAMES, st.lists(st.dictionaries(NAMES, ANYTHING, max_size=4), max_size=3), max_size=4),
)
BODIES = st.one_of(st.binary(max_size=200), LIKELY.map(lambda said: json.dumps(said).encode()))


def refuses_or_reads(read: Any, *given: Any) -> None:
    said = ""
    try:
        read(*given)
    except HeadraceError as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) < 1_000
    said.encode(errors="strict")


@MANY
@given(BODIES)
@example(b"[" * 100_000)
@example(b'{"value":' + b"1" * 10_000 + b"}")
@example(b'{"value":1e999999999}')
@example(b'\xef\xbb\xbf{"value":1}')
@example('{"\ud800":1,"value":1}'.encode(errors="surrogatepass"))
def test_bodies_are_read_or_refused(body: bytes) -> None:
    refuses_or_reads(lambda: read_records(read_exact(body)))
    refuses_or_reads(cloud_events.read_events, {"content-type": cloud_events.STRUCTURED}, body)
    refuses_or_reads(cloud_events.read_events, {"content-type": cloud_events.BATCH}, body)
    for form in (forms.BINARY, forms.JSON):
        refuses_or_reads(forms.read_produce, body, form, "t")
    for read in (forms.read_consumer, forms.read_subscription, forms.read_partitions, forms.read_offsets):
        refuses_or_reads(read, body)
    refuses_or_reads(read_message, body.decode(errors="replace"))


@MANY
@given(st.text(max_size=60), st.dictionaries(st.text(max_size=10).map(lambda name: f"ce-{name}"), st.text(max_size=20)))
def test_texts_of_addresses_and_headers_are_read_or_refused(text: str, headers: dict[str, str]) -> None:
    refuses_or_reads(read_start, text)
    refuses_or_reads(read_place, text)
    refuses_or_reads(forms.embedded_format, text)
    refuses_or_reads(cloud_events.read_events, {"ce-specversion": "1.0", **headers}, b"x")


@MANY
@given(
    st.dictionaries(st.integers(0, 10**8), st.integers(0, 2**62 - 1).map(lambda n: n % 10**18), min_size=1),
    st.text("aZ9_-", max_size=22),
)
def test_a_place_is_read_as_it_was_written(offsets: dict[int, int], topic_id: str) -> None:
    place = Place(offsets, topic_id)
    assert read_place(place_text(place)) == place


@MANY
@given(st.lists(NUMBERS, min_size=1, max_size=5))
def test_numbers_keep_every_digit(numbers: list[str]) -> None:
    text = "[" + ",".join(numbers) + "]"
    written = json_bytes(read_exact(text)).decode()
    assert [Decimal(each) for each in written[1:-1].split(",")] == [Decimal(each) for each in numbers]
    assert [each for each in written[1:-1].split(",") if "." in each] == [each for each in numbers if "." in each]


@MANY
@given(st.binary(max_size=60))
@example(b"null")
@example(b' {"a" :\n1}\r\n')
@example(b"NaN")
def test_what_is_shown_as_json_is_the_value_itself(value: bytes) -> None:
    text = as_json_text(value)
    if text is not None:
        assert json.loads(text) == json.loads(value)
        assert not {"\n", "\r"} & set(text)


HEADERS = st.lists(st.tuples(TEXTS, st.binary(max_size=10)), max_size=3)
KEYS = st.none() | st.binary(max_size=20)
JSON_VALUES = ANYTHING.map(lambda said: json.dumps(said).encode())


@MANY
@given(KEYS, st.none() | st.binary(max_size=40) | JSON_VALUES, HEADERS, st.integers(0, 2**50))
def test_what_was_shown_and_is_sent_again_is_the_same_record(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]], timestamp: int
) -> None:
    shown = shown_record("t", 3, 17, timestamp, key, value, [Header(*each) for each in headers])
    assert "\n" not in shown
    read = read_record(read_exact(shown), "the record")
    assert (read.key, read.partition, read.timestamp) == (key, 3, timestamp)
    assert sorted(read.headers) == sorted(headers)
    if value is not None and read.value != value:  # JSON: spaces between its parts may go
        assert read.value is not None
        assert json.dumps(json.loads(read.value)) == json.dumps(json.loads(value))
    assert (read.value is None) == (value is None)


ATTRIBUTES = st.text(st.characters(min_codepoint=32, exclude_categories=("Cs", "Cc", "Cn")), min_size=1, max_size=15)


@MANY
@given(
    st.fixed_dictionaries(dict.fromkeys(("id", "source", "type"), ATTRIBUTES)),
    st.dictionaries(st.from_regex(r"ext[a-z0-9]{0,5}", fullmatch=True), ATTRIBUTES, max_size=3),
    st.binary(max_size=30) | JSON_VALUES,
)
def test_an_event_comes_back_as_it_was(needed: dict[str, str], more: dict[str, str], data: bytes) -> None:
    sent = {"specversion": "1.0", **needed, **more, "data_base64": base64.b64encode(data).decode()}
    sent["datacontenttype"] = "application/octet-stream"
    (record,), _ = cloud_events.read_events({"content-type": cloud_events.STRUCTURED}, json.dumps(sent).encode())
    assert isinstance(record, Given)
    headers = [Header(*each) for each in record.headers]
    back = json.loads(cloud_events.event_of("t", 0, 1, 2, record.key, record.value, headers))
    assert back == sent


@MANY
@given(KEYS, st.none() | st.binary(max_size=40) | JSON_VALUES)
def test_a_record_of_the_proxy_s_forms_is_json_with_all_its_bytes(key: bytes | None, value: bytes | None) -> None:
    for form in (forms.BINARY, forms.JSON):
        said = json.loads(forms.shown("t", 1, 2, key, value, form, None), parse_constant=lambda text: 1 / 0)
        for what, data in (("key", key), ("value", value)):
            if data is None:
                assert said[what] is None
            elif form == forms.BINARY or said.get(f"{what}_encoding"):
                assert base64.b64decode(said[what]) == data
            else:
                assert json.dumps(said[what]) == json.dumps(json.loads(data))


def test_a_record_of_a_time_without_a_date_is_an_event_all_the_same() -> None:
    for timestamp in (2**62, 253_402_300_800_000, -1):
        assert json.loads(cloud_events.event_of("t", 0, 7, timestamp, None, b"1", ()))["id"] == "0-7"


def test_data_is_no_attribute_of_an_event() -> None:
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": "evil"}
    with pytest.raises(InvalidRequest, match="'data'"):
        cloud_events.read_events({f"ce-{name}": value for name, value in event.items()}, b"good")
    headers = [Header(f"ce_{name}", value.encode()) for name, value in event.items()]
    assert "data" not in json.loads(cloud_events.event_of("t", 0, 7, 0, None, None, headers))
