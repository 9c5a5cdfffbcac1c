"""What queries mean under a mapping, and what a mapping makes of them cannot be asked."""

import pytest

from headrace.percolation.errors import InvalidMapping, InvalidQuery
from headrace.percolation.language import Policy
from headrace.percolation.mapping import read_mapping
from headrace.percolation.reading import is_selective, read_query
from headrace.percolation.tree import (
    Boolean,
    Boost,
    ConstantScore,
    Either,
    Exists,
    Fuzzy,
    GeoBox,
    GeoDistance,
    MatchAll,
    Nested,
    Phrase,
    PhraseTerm,
    Prefix,
    Range,
    Regexp,
    Scale,
    Term,
    Wild,
    Wildcard,
    fields,
)

DAY_US = 86_400_000_000
LISTINGS = read_mapping(
    {
        "fields": {
            "title": {"type": "text", "analyzer": "english"},
            "body": {"type": "text", "analyzer": "mine"},
            "tag": "keyword",
            "price": "double",
            "count": "long",
            "at": "date",
            "sold": "boolean",
            "where": "geo_point",
        },
        "analyzers": {"mine": {"stop": ["the", "of"]}},
        "default_fields": ["title"],
    }
)


def term(text, field="title"):
    return Term(field, text)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Running", term("run")),
        ("wi-fi", Phrase("title", (PhraseTerm("wi", 0), PhraseTerm("fi", 1)))),
        ('body:"king of the hill"~1', Phrase("body", (PhraseTerm("king", 0), PhraseTerm("hill", 3)), 1)),
        ("body:(the king)", term("king", "body")),
        ("body:(+the king)", term("king", "body")),
        ("body:(a the of)@3", term("a", "body")),
        ("a b", Boolean(should=(term("a"), term("b")), minimum_should_match=1)),
        ("+a b", Boolean(must=(term("a"),), should=(term("b"),))),
        ("a AND NOT b", Boolean(must=(term("a"),), must_not=(term("b"),))),
        ("-a", Boolean(must_not=(term("a"),))),
        ("a OR -b", Boolean(should=(term("a"), Boolean(must_not=(term("b"),))), minimum_should_match=1)),
        ("(a b c)@2", Boolean(should=(term("a"), term("b"), term("c")), minimum_should_match=2)),
        ("(a b c d)@60%", Boolean(should=tuple(map(term, "abcd")), minimum_should_match=2)),
        ("(+a b c)@1", Boolean(must=(term("a"),), should=(term("b"), term("c")), minimum_should_match=1)),
        ("a^2", Boost(term("a"), 2.0)),
        ("a^=2", ConstantScore(term("a"), 2.0)),
        ("title:Run*", Prefix("title", "run")),
        ("title:Crè?e*x", Wildcard("title", ("cre", Wild.ONE, "e", Wild.ANY, "x"))),
        ("title:runing~1", Fuzzy("title", "rune", 1)),
        ("title:ab~", Fuzzy("title", "ab", 0)),
        ("tag:colour~", Fuzzy("tag", "colour", 2)),
        ("title:fast~1,2", Fuzzy("title", "fast", 1, 2)),
        ("title:/Jo.n/", Regexp("title", "Jo.n", ignores_case=True)),
        ("tag:/Jo.n/", Regexp("tag", "Jo.n")),
        ("tag:New\\ York", term("New York", "tag")),
        ('tag:"New York"', term("New York", "tag")),
        ("price:100", Range("price", Scale.NUMBER, 100, 100)),
        ("price:[1.5 TO 2}", Range("price", Scale.NUMBER, 1.5, 2, True, False)),
        ("count:>9007199254740993", Range("count", Scale.NUMBER, 9007199254740993, None, False, True)),
        ("price:[* TO *]", Exists("price")),
        ("at:1970-01-02", Range("at", Scale.DATE, DAY_US, 2 * DAY_US, True, False)),
        ("at:[1970-01-02 TO 1970-01-03]", Range("at", Scale.DATE, DAY_US, 3 * DAY_US, True, False)),
        ("at:{1970-01-02 TO 1970-01-04}", Range("at", Scale.DATE, 2 * DAY_US, 3 * DAY_US, True, False)),
        ("at:>=1970", Range("at", Scale.DATE, 0, None, True, True)),
        ("at:86400000", Range("at", Scale.DATE, DAY_US, DAY_US + 1000, True, False)),
        ("tag:[a TO m}", Range("tag", Scale.TEXT, "a", "m", True, False)),
        ("title:[A TO M]", Range("title", Scale.TEXT, "a", "m")),
        ("sold:true", term("true", "sold")),
        ("where:within(52.5, 13.4, 10 km)", GeoDistance("where", 52.5, 13.4, 10_000.0)),
        ("where:box(53,13,52,14)", GeoBox("where", 53.0, 13.0, 52.0, 14.0)),
        ("tag:*", Exists("tag")),
        ("*:*", MatchAll()),
        ("p:nested(name:a AND tag:*)", Nested("p", Boolean(must=(term("a", "p.name"), Exists("p.tag"))))),
        ("other:abc", term("abc", "other")),
        ("other:100", Either((term("100", "other"), Range("other", Scale.NUMBER, 100, 100)))),
        ("other:[1 TO 5]", Range("other", Scale.NUMBER, 1, 5)),
        ("other:[1970-01-02 TO *]", Range("other", Scale.DATE, DAY_US, None, True, True)),
        ("other:[5 TO a]", Range("other", Scale.TEXT, "5", "a")),
    ],
)  # fmt: skip
def test_a_query_means_what_its_fields_make_of_it(text, query):
    assert read_query(text, LISTINGS) == query


@pytest.mark.parametrize(
    ("text", "sentence", "marked"),
    [
        ("body:the", "leaves out all its words", "body:the"),
        ("price:cheap", "'cheap' is not a number", "cheap"),
        ("price:10*", "it has no letters", "10*"),
        ("price:[1 TO x]", "'x' is not a number", "[1 TO x]"),
        ("price:[5 TO 1]", "nothing lies in this range", "[5 TO 1]"),
        ("price:{5 TO 5]", "nothing lies in this range", "{5 TO 5]"),
        ("at:soon", "'soon' is not a date", "soon"),
        ("at:2030-13-01", "is not a date", "2030-13-01"),
        ("at:[now-1d TO *]", "has no now", "[now-1d TO *]"),
        ("sold:yes", "true or false", "yes"),
        ("sold:[a TO b]", "no order", "[a TO b]"),
        ("where:Berlin", "is a point", "Berlin"),
        ("where:within(52, 13)", "written as within(", "within(52, 13)"),
        ("where:within(13, 252, 1km)", "a latitude is from", "within(13, 252, 1km)"),
        ("where:within(52, 13, far)", "not a distance", "within(52, 13, far)"),
        ("where:box(52, 13, 53, 14)", "top below its bottom", "box(52, 13, 53, 14)"),
        ("title:within(52, 13, 1km)", "not a point", "within(52, 13, 1km)"),
        ("title:*fast", "a wildcard in front", "*fast"),
        ("title:fast~3", "too many", "fast~3"),
        ("title:a~1", "make anything", "a~1"),
        ("title:/a(/", "missing )", "/a(/"),
        ("title:/(?=a)b/", "RE2", "/(?=a)b/"),
        ("title:/((a{100}){100}){10}/", "RE2", None),
        ("title://", "is empty", "//"),
        ('title:"a b"~600', "slop is at most", '"a b"~600'),
        ("(a b)@3", "would never match", "(a b)@3"),
        ("parts:nested(a)", "each word names its own", "a"),
        ("tag:nested(x:a)", "does not hold objects", "nested(x:a)"),
        ("[a TO b] x..y:a", "is not in mapping", "x..y:a"),
        (" ".join(f"a{n}*" for n in range(65)), "more than 64 wildcards", "a64*"),
    ],
)  # fmt: skip
def test_what_a_field_cannot_be_asked_is_refused(text, sentence, marked):
    with pytest.raises(InvalidQuery) as caught:
        read_query(text, LISTINGS)
    assert sentence in caught.value.sentence
    if marked is not None:
        place = caught.value.place
        assert place is not None
        assert place.text[place.start : place.end] == marked


def test_a_word_without_a_field_is_looked_for_in_the_default_fields():
    assert read_query("Cars", LISTINGS, fields=["title", "tag"]) == Either((term("car"), term("Cars", "tag")))
    assert read_query("Cars", LISTINGS, fields=["title", "price"]) == term("car")
    assert fields(read_query("a b")) == {"*"}
    assert read_query("a b", LISTINGS, all_words=True) == Boolean(must=(term("a"), term("b")))


def test_a_field_that_is_not_described_is_refused_where_none_may_come():
    closed = read_mapping({"fields": {"title": "text", "parts.name": "text"}, "dynamic": False})
    assert read_query("parts:nested(name:a)", closed) == Nested("parts", term("a", "parts.name"))
    with pytest.raises(InvalidQuery, match="did you mean 'title'"):
        read_query("titel:a", closed)
    with pytest.raises(InvalidQuery, match="is not in mapping"):
        read_query("a", closed, fields=["titel"])


def test_a_policy_refuses_what_is_held_against_every_document():
    strict = Policy(unselective=False)
    assert read_query("a AND -b", policy=strict)
    for text in ("-a", "*:*", "price:*", "/a.*/", "a OR price:*", "(a b price:* c:*)@2"):
        with pytest.raises(InvalidQuery, match="held against every document"):
            read_query(text, policy=strict)
    assert is_selective(read_query("(a b price:*)@2"))


def test_leading_wildcards_can_be_allowed():
    assert read_query("title:*fast", LISTINGS, policy=Policy(leading_wildcards=True)) == Wildcard(
        "title", (Wild.ANY, "fast")
    )


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "as an object"),
        ({"field": {}}, "did you mean 'fields'?"),
        ({"fields": {"a": "txt"}}, "did you mean 'text'?"),
        ({"fields": {"a": {"type": "text", "analyzer": "englsh"}}}, "did you mean 'english'?"),
        ({"fields": {"a": {"type": "double", "analyzer": "english"}}}, "has no setting 'analyzer'"),
        ({"fields": {"a": {"type": "keyword", "analyzer": "english"}}}, "a keyword is one token"),
        ({"fields": {"a": {"type": "date", "unit": "h"}}}, "counts since 1970"),
        ({"fields": {"a": "text", "a.b": "text"}}, "no field 'a.b' below it"),
        ({"fields": {"a..b": "text"}}, "named by words"),
        ({"fields": {"*": "text"}}, "named by words"),
        ({"default_fields": "title"}, "list of field names"),
        ({"default_fields": ["title"], "dynamic": False}, "is not described"),
        ({"dynamic": "yes"}, "true or false"),
        ({"malformed": "drop"}, "'refuse' or 'ignore'"),
    ],
)
def test_a_mapping_that_is_none_is_refused(given, sentence):
    with pytest.raises(InvalidMapping) as caught:
        read_mapping(given)
    assert sentence in str(caught.value)
