"""What PostgreSQL writes as text is read back as it was: arrays, lines of COPY, JSON of any characters."""

import json
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.connect.delivery import build
from headrace.connect.json_form import image_writer
from headrace.connect.postgres.relation import tuple_parser
from headrace.connect.postgres.rows import parse_line
from headrace.connect.postgres.values import days_of, parse_array, timestamp_us, unscaled
from headrace.connect.table import UNCHANGED, Column, from_wire, text_codec, to_wire
from headrace.records import Record, build_batch, records_of
from headrace.records.record import Header
from tests.unit.connect.pgoutput_messages import row

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


def array_text(value: Any) -> str:
    """An array as PostgreSQL writes it, everything quoted."""
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return "{" + ",".join(map(array_text, value)) + "}"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def copy_text(value: str | None) -> str:
    """A value in a line of COPY, as PostgreSQL escapes it."""
    if value is None:
        return "\\N"
    for plain, escaped in (
        ("\\", "\\\\"),
        ("\n", "\\n"),
        ("\r", "\\r"),
        ("\t", "\\t"),
        ("\b", "\\b"),
        ("\f", "\\f"),
        ("\v", "\\v"),
    ):
        value = value.replace(plain, escaped)
    return value


@given(st.recursive(st.lists(TEXT | st.none(), min_size=1), lambda inner: st.lists(inner, min_size=1), max_leaves=8))
def test_arrays(value: list[Any]) -> None:
    assert parse_array(array_text(value)) == value


@given(st.lists(TEXT | st.none(), min_size=1))
def test_lines_of_copy(values: list[str | None]) -> None:
    line = to_wire("\t".join(map(copy_text, values)))
    assert [None if value is None else from_wire(value) for value in parse_line(line)] == values


@given(st.lists(TEXT | st.none() | st.just(UNCHANGED), min_size=1, max_size=40))
def test_rows_of_the_log(values: list[Any]) -> None:
    data = b"x" + row(values)
    found, end = tuple_parser(len(values))(data, data.decode("latin-1"), 1)
    assert end == len(data)
    assert [from_wire(value) if isinstance(value, str) else value for value in found] == values


@given(st.dictionaries(TEXT, TEXT | st.none(), min_size=1, max_size=12))
def test_images_are_json_whatever_names_and_values_hold(values: dict[str, str | None]) -> None:
    view = [(index, Column(name, "text", text_codec())) for index, name in enumerate(values)]
    image = image_writer(view)(tuple(None if value is None else to_wire(value) for value in values.values()))
    assert json.loads(image.encode("latin-1")) == values


@given(st.dates(), st.times())
def test_moments(day: Any, clock: Any) -> None:
    import datetime as dt

    moment = dt.datetime.combine(day, clock)
    text = moment.isoformat(sep=" ")
    assert timestamp_us(text) == (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)  # noqa: DTZ001
    assert days_of(day.isoformat()) == (day - dt.date(1970, 1, 1)).days


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6))
def test_unscaled_numbers(number: Any) -> None:
    scale, value = unscaled(f"{number:f}")
    assert scale == 6
    assert int.from_bytes(value, "big", signed=True) == Fraction(number) * 10**6


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=300),
            st.none() | st.binary(max_size=300),
            st.integers(0, 2**40),
            st.lists(st.tuples(TEXT, st.binary(max_size=20)), max_size=2).map(tuple),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_batches_are_those_of_the_plain_builder(entries: list[Any]) -> None:
    built = build(entries, producer_id=5, producer_epoch=1, base_sequence=3)
    plain = build_batch(
        [
            Record(index, timestamp, key, value, tuple(Header(name, content) for name, content in headers))
            for index, (key, value, timestamp, headers) in enumerate(entries)
        ],
        producer_id=5,
        producer_epoch=1,
        base_sequence=3,
        transactional=True,
    )
    assert built == plain
    assert [(record.key, record.value) for record in records_of(built)] == [entry[:2] for entry in entries]
