"""Stored queries as records, and a percolator that holds them while documents flow past."""

import json

import pytest

from headrace.percolation.documents import read_document
from headrace.percolation.errors import (
    InvalidDocument,
    InvalidMapping,
    InvalidQuery,
    InvalidStoredQuery,
    UnknownQuery,
)
from headrace.percolation.evaluate import Highlight
from headrace.percolation.mapping import read_mapping
from headrace.percolation.percolator import Hit, Percolator
from headrace.percolation.stored import StoredQuery, read_stored

HOUR_US = 3_600_000_000


def percolator():
    return Percolator({"default": read_mapping({"fields": {"title": {"type": "text", "analyzer": "english"}}})})


def ids(hits):
    return [hit.id for hit in hits]


def test_a_stored_query_is_a_record_and_back():
    whole = StoredQuery(
        "cars", 'title:"fast cär"', "listings", ("title",), True, ("a", "b"), "ann", 2.0, True, 3, 24 * HOUR_US
    )
    assert json.loads(whole.as_json()) == {
        "query": 'title:"fast cär"', "mapping": "listings", "fields": ["title"], "words": "all", "tags": ["a", "b"],
        "owner": "ann", "boost": 2.0, "paused": True, "version": 3, "also_match_last": "1 day",
    }  # fmt: skip
    assert StoredQuery("x", "a").as_json() == b'{"query":"a"}'
    for stored in (whole, StoredQuery("x", "a")):
        assert read_stored(stored.id, stored.as_json()) == stored


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (b"{", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "'query' is missing"),
        (b'{"query": 5}', "'query' is missing or not a text"),
        (b'{"query": "a", "tag": []}', "did you mean 'tags'?"),
        (b'{"query": "a", "tags": "x"}', "'tags' is a list of texts"),
        (b'{"query": "a", "boost": -1}', "'boost' is a number from 0"),
        (b'{"query": "a", "boost": NaN}', "'boost' is a number from 0"),
        (b'{"query": "a", "boost": true}', "'boost' is a number from 0"),
        (b'{"query": "a", "words": "some"}', "'any' or 'all'"),
        (b'{"query": "a", "paused": 1}', "'paused' is true or false"),
        (b'{"query": "a", "version": 0}', "'version' is a whole number"),
        (b'{"query": "a", "owner": 7}', "'owner' is a text"),
        (b'{"query": "a", "also_match_last": "1 month"}', "write days"),
        (b'{"query": "a", "also_match_last": "0 s"}', "longer than nothing"),
    ],
)
def test_a_record_that_is_no_query_is_one_sentence(value, sentence):
    with pytest.raises(InvalidStoredQuery) as caught:
        read_stored("cars", value)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "cars" in str(caught.value)


@pytest.mark.parametrize("query_id", ["", "a" * 257, "a\nb"])
def test_an_id_can_be_shown(query_id):
    with pytest.raises(InvalidStoredQuery, match="printable characters"):
        StoredQuery(query_id, "a")


def test_queries_come_and_go_while_documents_flow():
    held = percolator()
    held.add("b", "title:fast", tags=("cars",), owner="ann", boost=3)
    held.add("a", "title:car*")
    car = {"title": "Fast cars"}
    assert held.percolate(car) == [
        Hit("a", 1.0, highlights=(Highlight("title", 0, 5, 9, "cars"),)),
        Hit("b", 3.0, ("cars",), "ann", 1, (Highlight("title", 0, 0, 4, "Fast"),)),
    ]
    held.change("b", text="title:slow")
    assert ids(held.percolate(car)) == ["a"]
    held.pause("a")
    assert held.percolate(car) == []
    assert len(held) == 2
    assert held.get("a").paused
    held.resume("a")
    assert [(hit.id, hit.version) for hit in held.percolate(car)] == [("a", 3)]
    held.remove("a")
    assert "a" not in held
    assert held.percolate(car) == []
    assert [stored.id for stored in held] == ["b"]


def test_what_is_refused_changes_nothing():
    held = percolator()
    held.add("a", "title:fast")
    for refused in (
        lambda: held.add("a", "title:slow"),
        lambda: held.add("b", "title:(slow"),
        lambda: held.add("b", "title:slow", mapping="other"),
        lambda: held.change("a", text="title:["),
        lambda: held.change("a", boost=-1),
        lambda: held.change("x", text="b"),
        lambda: held.remove("x"),
    ):
        with pytest.raises((InvalidQuery, InvalidMapping, InvalidStoredQuery, UnknownQuery)):
            refused()
    assert ids(held.percolate({"title": "fast slow"})) == ["a"]
    assert [stored.version for stored in held] == [1]
    with pytest.raises(InvalidDocument):
        held.percolate({"title": {"no": "text"}})
    with pytest.raises(InvalidQuery) as caught:
        held.add("b", "title:(slow")
    assert str(caught.value).startswith("query 'b': a parenthesis is opened here and never closed\n  title:(slow\n")


def test_each_mapping_has_its_queries():
    held = Percolator({"cars": read_mapping({}), "news": read_mapping({"fields": {"t": "keyword"}})})
    held.add("a", "t:fast", mapping="cars")
    held.add("b", "t:fast", mapping="news")
    assert ids(held.percolate({"t": "Fast car"}, "cars")) == ["a"]
    assert ids(held.percolate({"t": "fast"}, "news")) == ["b"]
    assert [ids(each) for each in held.percolate_many([{"t": "x"}, {"t": "fast"}], "cars")] == [[], ["a"]]
    with pytest.raises(InvalidMapping, match="did you mean 'news'"):
        held.percolate({}, "new")


def test_queries_that_every_document_is_held_against_are_counted():
    held = percolator()
    held.add("a", "title:fast")
    held.add("b", "-title:fast")
    held.add("c", "*:*", paused=True)
    assert held.unselective == 1


def test_why_a_document_does_not_match():
    held = percolator()
    held.add("a", 'title:"fast car"')
    said = held.explain("a", {"title": "car fast"})
    assert list(said.lines()) == ["no  title has 'fast car': its words are there, 2 out of place"]
    assert said.as_json() == {
        "matches": False,
        "asks": "title has 'fast car'",
        "has": "its words are there, 2 out of place",
    }


def test_why_says_of_very_many_objects_a_few_and_those_that_match_first():
    percolator = Percolator({"default": read_mapping({"fields": {"parts.name": "keyword", "parts.price": "long"}})})
    percolator.add("wheels", "parts:nested(name:wheel AND price:>100)")
    parts = [{"name": "bell", "price": 5}] * 5_000
    said = percolator.explain("wheels", {"parts": [*parts, {"name": "wheel", "price": 200}]})
    assert said.has == "there are 5,001, of which 5 are shown"
    assert [part.matches for part in said.parts] == [True, False, False, False, False]
    assert len(percolator.explain("wheels", {"parts": parts}).parts) == 5
    assert len(percolator.explain("wheels", {"parts": parts[:2]}).parts) == 2


def test_objects_are_read_once_for_all_queries_and_kept_of_one_document_at_a_time():
    first, second = (read_document({"parts": [{"name": "bell", "bolts": [{"size": 3}]}]}) for _ in range(2))
    parts = first.objects("parts")
    assert parts[0].objects("parts.bolts") is parts[0].objects("parts.bolts")
    assert first.objects("parts") is parts
    assert second.objects("parts") is second.objects("parts")
    assert first.objects("parts") is not parts


def test_a_batch_has_the_hits_of_its_rows():
    pyarrow = pytest.importorskip("pyarrow")
    held = percolator()
    held.add("fast", "title:fast", boost=3)
    held.add("gone", "title:fast")
    held.remove("gone")
    held.add("either", 'title:"red car" OR price:>5')
    held.add("not", "-title:fast", paused=True)
    rows = [{"title": "Fast red cars", "price": 9}, {"title": "slow", "price": 1}, {"title": None, "price": 7}]
    batch = pyarrow.RecordBatch.from_pylist(rows)
    found = held.percolate_batch(batch)
    assert [
        (row, held.numbered(number).id, score)
        for row, number, score in zip(found.rows.tolist(), found.numbers.tolist(), found.scores.tolist(), strict=True)
    ] == [(0, "fast", 1.0), (0, "either", 2.0), (2, "either", 1.0)]
    assert found.refused == ()
    assert [ids(hits) for hits in held.percolate_many(rows)] == [["either", "fast"], [], ["either"]]


def test_numbers_are_given_again():
    held = percolator()
    for turn in range(50):
        held.add("a", f"title:w{turn}")
        assert ids(held.percolate({"title": f"w{turn}"})) == ["a"]
        held.change("a", text=f"title:x{turn}")
        assert held.percolate({"title": f"w{turn}"}) == []
        held.remove("a")
    with pytest.raises(UnknownQuery):
        held.numbered(0)
    held.add("a", "title:a")
    held.add("b", "title:b")
    assert {held.numbered(number).id for number in (0, 1)} == {"a", "b"}
