"""Stored queries as their topic tells them: what stands after each record, whatever was in it."""

import json

import pytest

from headrace.percolation.catalog import Catalog, Effect
from headrace.percolation.percolator import AllQueries

LISTINGS = json.dumps({"fields": {"title": {"type": "text", "analyzer": "english"}, "price": "double"}}).encode()


def query(text, **more):
    return json.dumps({"query": text, **more}).encode()


class Topic:
    """Records in the order in which they are written, and what each did."""

    def __init__(self):
        self.records = []
        self.catalog = Catalog(index=AllQueries)

    def write(self, key, value):
        self.records.append((len(self.records), key.encode(), value))
        return [(change.id, change.effect.value) for change in self.catalog.apply(*self.records[-1])]

    def hits(self, value, mapping="default"):
        return [hit.id for hit in self.catalog.percolator.percolate(value, mapping)]


@pytest.fixture
def topic():
    return Topic()


def test_queries_are_added_changed_paused_and_removed(topic):
    assert topic.write("a", query("fast")) == [("a", "added")]
    assert topic.hits({"t": "fast"}) == ["a"]
    assert topic.write("a", query("fast")) == [("a", "nothing")]
    assert topic.write("a", query("slow", version=2)) == [("a", "changed")]
    assert topic.hits({"t": "fast"}) == []
    assert topic.write("a", query("slow", paused=True)) == [("a", "changed")]
    assert topic.hits({"t": "slow"}) == []
    assert topic.write("a", None) == [("a", "removed")]
    assert topic.write("a", None) == [("a", "nothing")]
    assert topic.catalog.offset == 6


def test_a_record_that_is_known_does_nothing(topic):
    topic.write("a", query("fast"))
    assert topic.catalog.apply(0, b"a", query("slow")) == []
    assert topic.hits({"t": "fast"}) == ["a"]
    topic.catalog.apply(7, b"b", query("fast"))
    assert topic.catalog.offset == 8


def test_a_record_that_is_refused_stops_nothing(topic):
    topic.write("a", query("fast"))
    for value in (b"{", query("(fast"), query("*fast"), query("fast", boost=-1), query("fast", mapping="x"), b"\xff"):
        assert topic.write("a", value) == [("a", "refused")]
        assert topic.hits({"t": "fast"}) == []
        assert topic.catalog.refused["a"].reason
    assert topic.write("", query("fast")) == [("", "refused")]
    assert topic.write("b", query("fast")) == [("b", "added")]
    assert topic.write("a", query("fast")) == [("a", "changed")]
    assert topic.hits({"t": "fast"}) == ["a", "b"]
    assert list(topic.catalog.refused) == [""]
    topic.write("c", b"{")
    assert topic.write("c", None) == [("c", "removed")]


def test_a_query_stands_once_its_mapping_does(topic):
    assert topic.write("a", query("title:Bikes", mapping="listings")) == [("a", "refused")]
    assert "listings" in topic.catalog.refused["a"].reason
    assert topic.write("mapping:listings", LISTINGS) == [("mapping:listings", "added"), ("a", "changed")]
    assert topic.hits({"title": "bike"}, "listings") == ["a"]
    assert topic.write("mapping:listings", LISTINGS) == [("mapping:listings", "nothing")]
    assert topic.write("mapping:listings", b"{") == [("mapping:listings", "refused"), ("a", "refused")]
    assert topic.write("mapping:listings", LISTINGS) == [("mapping:listings", "added"), ("a", "changed")]
    assert topic.write("mapping:listings", b"{")[0] == ("mapping:listings", "refused")
    assert topic.write("mapping:listings", None) == [("mapping:listings", "removed")]
    assert topic.write("mapping:listings", LISTINGS) == [("mapping:listings", "added"), ("a", "changed")]
    assert topic.write("mapping:listings", None) == [("mapping:listings", "removed"), ("a", "refused")]
    assert topic.write("mapping:listings", None) == [("mapping:listings", "nothing")]
    assert topic.write("mapping:listings", LISTINGS) == [("mapping:listings", "added"), ("a", "changed")]


def test_a_mapping_that_changes_is_met_by_its_queries_anew(topic):
    topic.write("mapping:listings", LISTINGS)
    topic.write("a", query("price:>5", mapping="listings"))
    topic.write("b", query("price:cheap", mapping="listings"))
    as_words = json.dumps({"fields": {"price": "boolean"}}).encode()
    assert topic.write("mapping:listings", as_words)[1:] == [("a", "refused"), ("b", "refused")]
    as_words = json.dumps({"fields": {"price": "text"}}).encode()
    assert sorted(topic.write("mapping:listings", as_words)) == [
        ("a", "changed"), ("b", "changed"), ("mapping:listings", "changed"),
    ]  # fmt: skip
    assert topic.hits({"price": "cheap"}, "listings") == ["a", "b"]


def test_what_stands_depends_on_the_records_alone(topic):
    topic.write("mapping:default", LISTINGS)
    topic.write("a", query("title:bikes"))
    topic.write("b", query("(bad"))
    topic.write("mapping:default", None)
    topic.write("c", query("title:bikes", paused=True))
    topic.write("mapping:listings", LISTINGS)
    topic.write("d", query("title:bikes", mapping="listings"))
    topic.write("mapping:listings", b"{")
    again = Catalog(index=AllQueries)
    last = {key: (offset, key, value) for offset, key, value in topic.records}
    for record in sorted(last.values()):
        again.apply(*record)
    assert list(again.percolator) == list(topic.catalog.percolator)
    assert set(again.refused) == set(topic.catalog.refused)
    assert again.offset == topic.catalog.offset
    assert Effect.REFUSED in {change.effect for change in again.refused.values()}
