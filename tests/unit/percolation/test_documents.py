"""Documents as leaves see them: values by field, whatever objects and arrays they are in."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from headrace.percolation.dates import date_text, read_date
from headrace.percolation.documents import POSITION_GAP, parse_document, read_document
from headrace.percolation.errors import InvalidDocument
from headrace.percolation.mapping import read_mapping
from headrace.percolation.points import distance_m, read_distance, read_points

MAPPED = read_mapping(
    {
        "fields": {
            "title": "text",
            "tag": "keyword",
            "price": "double",
            "count": "long",
            "at": "date",
            "seen": {"type": "date", "unit": "s"},
            "sold": "boolean",
            "where": "geo_point",
        }
    }
)
DAY_US = 86_400_000_000


def test_objects_are_fields_within_fields_and_arrays_are_several_values():
    document = read_document({"a": {"b": [{"c": 1}, {"c": [2, 3]}], "n": None}, "d.e": "x", "f": [], "g": {}, "h": ""})
    assert document.numbers("a.b.c") == (1, 2, 3)
    assert document.terms("d.e") == {"x"}
    assert [field for field in ("a", "a.b", "a.b.c", "a.n", "d", "f", "g", "h") if document.exists(field)] == [
        "a", "a.b", "a.b.c", "d", "h",
    ]  # fmt: skip
    assert [inner.numbers("a.b.c") for inner in document.objects("a.b")] == [(1,), (2, 3)]


def test_a_value_without_a_description_is_what_it_looks_like():
    document = read_document({"a": ["Fast car", 12, 2.5, True, "2030-05-01", "7"]})
    assert document.terms("a") == {"fast", "car", "true", "2030", "05", "01", "7"}
    assert document.numbers("a") == (12, 2.5)
    assert document.dates("a") == (read_date("2030-05-01")[0],)
    assert document.terms("*") == {"fast", "car", "12", "2.5", "true", "2030", "05", "01", "7"}
    assert read_document({"a": {"lat": 1, "lon": 2}}).points("a") == ((1.0, 2.0),)
    assert read_document({"a": math.nan}).numbers("a") == ()


def test_a_described_value_is_of_its_type():
    document = read_document(
        {"title": ["A b", 5], "tag": "New York", "price": "2.5", "count": 3.0, "at": ["1970-01-02", DAY_US // 1000],
         "seen": 86_400, "sold": "true", "where": [13.4, 52.5]},
        MAPPED,
    )  # fmt: skip
    assert document.terms("title") == {"a", "b", "5"}
    assert document.terms("tag") == {"New York"}
    assert document.numbers("price") == (2.5,)
    assert document.numbers("count") == (3,)
    assert document.dates("at") == (DAY_US, DAY_US)
    assert document.dates("seen") == (DAY_US,)
    assert document.terms("sold") == {"true"}
    assert document.points("where") == ((52.5, 13.4),)
    assert document.terms("*") == frozenset()
    rows = read_document({"at": [datetime(1970, 1, 2, tzinfo=UTC), date(1970, 1, 2)], "price": Decimal("1.5")}, MAPPED)
    assert rows.dates("at") == (DAY_US, DAY_US)
    assert rows.numbers("price") == (1.5,)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"price": "cheap"}, "price"),
        ({"price": True}, "price"),
        ({"count": 1.5}, "count"),
        ({"at": "soon"}, "at"),
        ({"sold": 1}, "sold"),
        ({"where": "Berlin"}, "where"),
        ({"where": {"lat": 99, "lon": 0}}, "where"),
        ({"title": {"en": "x"}}, "title"),
        ({"tag": ["a", b"b"]}, "tag"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_or_left_out(value, field):
    with pytest.raises(InvalidDocument) as caught:
        read_document(value, MAPPED)
    assert caught.value.field == field
    assert field in str(caught.value)
    lenient = read_mapping({"fields": {name: each.kind.value for name, each in MAPPED.fields.items()},
                            "malformed": "ignore"})  # fmt: skip
    document = read_document(value, lenient)
    assert document.exists(field) == (field == "tag")


def test_a_document_is_an_object_and_not_too_deep():
    for value in ([], "x", 5, None):
        with pytest.raises(InvalidDocument, match="an object with fields"):
            read_document(value)
    deep: object = 1
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(InvalidDocument, match="more than 100"):
        read_document(deep)


def test_two_values_are_far_apart():
    tokens = read_document({"a": ["x y", None, 5, "y"]}).tokens("a")
    assert tokens.positions == {"x": [0], "y": [1, 1 + POSITION_GAP]}
    assert tokens.place(1 + POSITION_GAP) == (2, 0, 1)


def test_fields_that_are_not_described_are_left_out_if_none_may_come():
    closed = read_mapping({"fields": {"a.b": "text"}, "dynamic": False})
    document = read_document({"a": {"b": "x", "c": "y"}, "d": 1}, closed)
    assert set(document.fields()) == {"a.b"}


@pytest.mark.parametrize(
    ("text", "first", "length_us"),
    [
        ("1970", 0, 365 * DAY_US),
        ("1972-02", 2 * 365 * DAY_US + 31 * DAY_US, 29 * DAY_US),
        ("1970-12", 334 * DAY_US, 31 * DAY_US),
        ("1970-01-02", DAY_US, DAY_US),
        ("1970-01-01T01", 3_600_000_000, 3_600_000_000),
        ("1970-01-01T00:01", 60_000_000, 60_000_000),
        ("1970-01-01 00:00:01Z", 1_000_000, 1_000_000),
        ("1970-01-01T00:00:00.5", 500_000, 100_000),
        ("1970-01-01T00:00:00.000001Z", 1, 1),
        ("1970-01-01T00:00:00.123456789Z", 123_456, 1),
        ("1970-01-01T02:00:00+02:00", 0, 1_000_000),
        ("1970-01-01T00:00:00-0130", 5_400_000_000, 1_000_000),
        ("1969-12-31", -DAY_US, DAY_US),
        ("1970-01-01T23:59:60Z", DAY_US, 1_000_000),
        ("9999-12", read_date("9999-12-01")[0], 31 * DAY_US),
    ],
)
def test_a_date_says_a_stretch_of_time(text, first, length_us):
    assert read_date(text) == (first, first + length_us)


def test_what_is_not_a_date():
    for text in ("", "now", "70", "1970-13", "1970-02-30", "1970-01-01T25", "1970-1-1", "0000", "1970-01-01T00:00:61"):
        assert read_date(text) is None
    assert date_text(0) == "1970-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("value", "points"),
    [
        ({"lat": 52.5, "lon": 13.4}, [(52.5, 13.4)]),
        ({"latitude": "52.5", "longitude": 13}, [(52.5, 13.0)]),
        ({"type": "Point", "coordinates": [13.4, 52.5]}, [(52.5, 13.4)]),
        ("52.5, 13.4", [(52.5, 13.4)]),
        ("POINT (13.4 52.5)", [(52.5, 13.4)]),
        ([13.4, 52.5], [(52.5, 13.4)]),
        ([[13.4, 52.5], "1,2", None, {"lat": 3, "lon": 4}], [(52.5, 13.4), (1.0, 2.0), (3.0, 4.0)]),
        ([], []),
        ("x", None),
        ({"lat": 91, "lon": 0}, None),
        ([[[1, 2]]], None),
        ({"lat": True, "lon": 0}, None),
        ({"lat": math.nan, "lon": 0}, None),
    ],
)
def test_points_are_written_in_many_ways(value, points):
    assert read_points(value) == points


def test_distances():
    assert distance_m((52.5200, 13.4050), (48.8566, 2.3522)) == pytest.approx(877_464, abs=5)
    assert distance_m((0, 179.5), (0, -179.5)) == pytest.approx(111_195, abs=1)
    assert [read_distance(text) for text in ("500m", "10 km", "1mi", "7", ".5km", "x", "5 furlongs", "")] == [
        500, 10_000, 1_609.344, 7, 500, None, None, None,
    ]  # fmt: skip


@pytest.mark.parametrize("digits", [1, 150, 209, 210, 299, 309])
def test_a_number_that_is_larger_than_any_is_refused_however_it_is_written(digits: int) -> None:
    for text in (f"{'9' * digits}e99", f"{'9' * digits}.0", f"-{'9' * digits}E+{308 - digits + 1:02}"):
        found = float(text)
        if math.isfinite(found):
            assert parse_document(f'{{"n": {text}}}').numbers("n") == (found,)
        else:
            with pytest.raises(InvalidDocument):
                parse_document(f'{{"n": {text}}}')
