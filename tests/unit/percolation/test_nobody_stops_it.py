"""One query or one document never stops the others: it is taken, or refused in one sentence, in little time."""

import json
from typing import Any

import pytest

from headrace.percolation.catalog import Catalog, Effect
from headrace.percolation.documents import POSITION_GAP, read_document
from headrace.percolation.errors import InvalidDocument, InvalidQuery
from headrace.percolation.evaluate import MOST_HIGHLIGHTS, highlights, matches
from headrace.percolation.index.columns import BatchBuilder
from headrace.percolation.mapping import read_mapping
from headrace.percolation.percolator import AllQueries, Compiled, Percolator
from headrace.percolation.reading import read_query

MAPPING = read_mapping(
    {"fields": {"title": "text", "word": "keyword", "at": "date", "price": "double", "where": "geo_point"}}
)
QUERIES = (
    "title:istanbul", "word:a?b*", "word:/a.*/", "word:hello~2", "at:2020", "at:>2020", "price:>5", "foo:>5", "foo:a",
    "where:within(1, 1, 1km)", "foo:within(1, 1, 1km)", 'tags:"a b"', "*:*", "bar",
)  # fmt: skip
HALF = chr(0xD800)
VALUES = (
    f"a{HALF}b", HALF, f"a{HALF}b c{HALF}", "İstanbul", "hello " * 1_000, 1e308, -1e308, float("inf"), float("nan"),
    10**400, -(10**400), 10**5_000, {"lat": 10**400, "lon": 0}, [10**400, 0], [[[[1]]]], {"": {"": None}}, [], {}, True,
)  # fmt: skip


@pytest.mark.parametrize("field", ["title", "word", "at", "price", "where", "foo", "tags"])
def test_a_value_matches_as_every_query_says_or_refuses_its_document(field: str) -> None:
    both = [Percolator({"default": MAPPING}, index=index) for index in (Compiled, AllQueries)]
    for percolator in both:
        for query in QUERIES:
            percolator.add(query, query)
    for value in VALUES:
        document = {field: value, "title": "bar"} if field != "title" else {field: value}
        try:
            read = read_document(document, MAPPING)
        except InvalidDocument:
            continue
        compiled, every = (percolator.percolate(read) for percolator in both)
        assert compiled == every, document


@pytest.mark.parametrize(
    "text",
    [
        "at:1e308",
        "at:>1e308",
        "title:a" + "?" * 60_000,
        "word:a*" + "?" * 60_000 + "b",
        "title:" + "ab" * 30_000 + "~2",
        'title:"' + "a " * 400 + '"~400',
        f"title:/a{HALF}/",
        f"title:a?{HALF}*b",
    ],
)
def test_a_query_that_costs_too_much_or_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidQuery):
        read_query(text, MAPPING)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"q", b'{"query":"a","boost":1' + b"0" * 400 + b"}"),
        (b"q", b'{"query":"/a\\ud800/"}'),
        (b"q", b'{"query":"a","owner":"\\ud800"}'),
        (b"q", json.dumps({"query": "a", "tags": ["t" * 10_000]}).encode()),
        (b"q", json.dumps({"query": "a", "owner": "o" * 10_000}).encode()),
        (b"mapping:m", b'{"fields":{"a":{"type":"date","unit":["x"]}}}'),
        (b"mapping:m", b'{"fields":{"a.b":"long","a":"long"}}'),
        (b"k" * 1_000_000, b"{"),
        (b"\xff\xfe", b'{"query":"a"}'),
        (None, b'{"query":"a"}'),
    ],
)
def test_a_record_that_cannot_be_taken_is_refused_and_the_reason_is_short(key: bytes | None, value: bytes) -> None:
    catalog = Catalog(index=AllQueries)
    catalog.apply(0, b"good", b'{"query":"a"}')
    (change,) = catalog.apply(1, key, value)
    assert change.effect is Effect.REFUSED
    assert len(change.reason) < 2_000
    assert [stored.id for stored in catalog.percolator] == ["good"]


def test_keys_that_are_no_texts_do_not_stand_for_each_other() -> None:
    catalog = Catalog(index=AllQueries)
    catalog.apply(0, "\ufffd".encode(), b'{"query":"a"}')
    (change,) = catalog.apply(1, b"\xff", None)
    assert change.effect is Effect.NOTHING
    assert "\ufffd" in catalog.percolator


def test_a_mapping_of_very_many_fields_is_read_in_one_go() -> None:
    assert len(read_mapping({"fields": {f"f{each}.x": "text" for each in range(20_000)}}).fields) == 20_000


def test_a_document_has_no_more_values_than_positions_reach() -> None:
    with pytest.raises(InvalidDocument, match="1,000,000 values"):
        read_document({"tags": ["a"] * 1_000_001}, MAPPING)
    assert 1_000_000 * POSITION_GAP < 2**31


def test_a_long_text_has_some_of_its_highlights() -> None:
    document = read_document({"title": "a " * 50_000}, MAPPING)
    for text in ("title:a", 'title:"a a"', 'title:"' + "a " * 64 + '"~400', "title:(a OR a*)"):
        found = highlights(read_query(text, MAPPING), document)
        assert MOST_HIGHLIGHTS <= len(found) < 2 * MOST_HIGHLIGHTS
        assert found[0].start == 0
    assert not matches(read_query('title:"' + "a " * 63 + ' b"~400', MAPPING), document)


def test_a_dotted_capital_i_is_an_i() -> None:
    for text in ("istanbul", "İSTANBUL", "i\u0307stanbul"):
        assert matches(read_query("title:istanbul", MAPPING), read_document({"title": text}, MAPPING)), text
        assert matches(read_query("title:İstanb*", MAPPING), read_document({"title": text}, MAPPING)), text


@pytest.mark.parametrize("removed", [False, True])
def test_who_asks_for_thousands_of_fields_makes_no_document_dearer(
    monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    percolator = Percolator()
    percolator.add("bikes", "title:bike")
    for number in range(300):
        percolator.add(f"q{number}", f"f{number}:x AND g{number}:>3 AND h{number}:*")
    for number in range(300) if removed else ():
        percolator.remove(f"q{number}")
    looked_at: list[str] = []
    tokens_of = BatchBuilder._tokens_of

    def counted(builder: BatchBuilder, name: str, *given: Any) -> Any:
        looked_at.append(name)
        return tokens_of(builder, name, *given)

    monkeypatch.setattr(BatchBuilder, "_tokens_of", counted)
    assert [hit.id for hit in percolator.percolate({"title": "a bike", "other": {"f7": "x"}})] == ["bikes"]
    assert looked_at == ["title"]
    found = percolator.percolate({"f7": "x", "g7": 4, "h7": {"below": 1}})
    assert [hit.id for hit in found] == ([] if removed else ["q7"])
