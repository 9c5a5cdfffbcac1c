"""What a query matches in a document, what that is worth, and which words it is for."""

import pytest

from headrace.percolation.documents import read_document
from headrace.percolation.evaluate import highlights, matches, score
from headrace.percolation.explain import explain
from headrace.percolation.language import Policy
from headrace.percolation.mapping import read_mapping
from headrace.percolation.reading import read_query

MAPPING = read_mapping(
    {
        "fields": {
            "title": {"type": "text", "analyzer": "english"},
            "tags": "keyword",
            "price": "double",
            "at": "date",
            "where": "geo_point",
            "colour": "text",
        },
        "default_fields": ["title"],
    }
)
CAR = {
    "title": "The very fast, red Café cars of Jürgen",
    "tags": ["sale", "New York"],
    "price": [80, 250],
    "at": "2030-05-17T10:00:00Z",
    "where": {"lat": 52.52, "lon": 13.405},
    "colour": ["deep red", "blue"],
    "parts": [{"name": "wheel", "price": 90}, {"name": "door", "price": 400}],
    "note": "call 555-1234",
}
POLICY = Policy(leading_wildcards=True)


def value_of(text, value=CAR):
    return score(read_query(text, MAPPING, policy=POLICY), read_document(value, MAPPING))


@pytest.mark.parametrize(
    ("text", "worth"),
    [
        # words
        ("fast", 1), ("Fasting", 1), ("slow", None), ("cafe", 1), ("CAFÉS", 1), ("juergen", None), ("jurgen", 1),
        ("tags:sale", 1), ("tags:sales", None), ('tags:"New York"', 1), ("tags:York", None),
        # phrases
        ('"fast red"', 1), ('"red fast"', None), ('"red fast"~2', 1), ('"red fast"~1', None), ('"fast cars"', None),
        ('"fast cars"~2', 1), ('"very red"~1', 1), ('colour:"red blue"~500', None), ("note:555-1234", 1),
        ('"cars jurgen"', None),
        # parts of words
        ("fas*", 1), ("f?st", 1), ("*ur*n", 1), ("f*x", None), ("ca*", 1), ("tags:New*", 1), ("tags:new*", None),
        ("fsat~1", 1), ("colour:rad~1", 1), ("colour:rad~0", None), ("colour:der~1", None), ("colour:red~1,2", 1),
        ("colour:bed~1,1", None), ("/f[aeiou]st/", 1), ("/FAST/", 1), ("/fas/", None), ("tags:/SALE/", None),
        # ranges
        ("price:[100 TO 200]", None), ("price:[250 TO *]", 1), ("price:{250 TO *]", None), ("price:80", 1),
        ("price:<80", None), ("price:<=80", 1), ("at:2030-05", 1), ("at:[2030-05-18 TO *]", None),
        ("at:<2030-05", None),
        ("tags:[s TO t]", 1), ("tags:{sale TO t]", None), ("colour:[q TO s]", 1),
        # places
        ("where:within(52.5,13.4,5km)", 1), ("where:within(52.5,13.4,1km)", None), ("where:box(53,13,52,14)", 1),
        ("where:box(53,14,52,13)", None),
        # fields
        ("price:*", 1), ("size:*", None), ("parts:*", 1), ("*:*", 1), ("parts.name:wheel", 1), ("parts.price:400", 1),
        ("parts:nested(name:wheel AND price:90)", 2), ("parts:nested(name:wheel AND price:400)", None),
        ("parts:nested(name:(wheel door)^3)", 3), ("parts:nested(-name:wheel)", 1),
        # together
        ("fast slow", 1), ("fast red", 2), ("fast AND slow", None), ("fast AND NOT slow", 1), ("fast -red", None),
        ("-slow", 1), ("-fast", None), ("+fast red slow", 2), ("(fast red slow)@2", 2), ("(fast red slow)@3", None),
        ("fast OR NOT fast", 1), ("slow OR NOT slow", 1), ("fast^2 red^0.5", 2.5), ("(fast red)^=7", 7),
        ("slow^=7", None), ("+fast slow^10", 1), ("NOT (slow OR NOT fast)", 1),
    ],
)  # fmt: skip
def test_what_matches_and_what_it_is_worth(text, worth):
    assert value_of(text) == worth
    said = explain(read_query(text, MAPPING, policy=POLICY), read_document(CAR, MAPPING))
    assert (said.matches, said.score) == (worth is not None, worth)


def test_a_word_in_any_field_is_in_one_that_is_not_described():
    document = read_document({"a": "fast car", "b": ["slow", 12], "title": "boat"}, MAPPING)
    for text, worth in (("fast", 1), ("12", 1), ("boat", None), ('"fast car"', 1), ('"car slow"~9', None), ("sl*", 1)):
        assert score(read_query(text, MAPPING, fields=["*"]), document) == worth


def test_the_best_of_several_fields_counts():
    document = read_document({"title": "red", "colour": "red red"}, MAPPING)
    assert score(read_query("red", MAPPING, fields=["title", "colour"]), document) == 1
    assert score(read_query("title:red^3 OR colour:red", MAPPING), document) == 4


def marked(text, value=CAR):
    query, document = read_query(text, MAPPING, policy=POLICY), read_document(value, MAPPING)
    found = highlights(query, document)
    for each in found:
        assert document.text(each.field, each.value)[each.start : each.end] == each.text
    return [(each.field, each.value, each.text) for each in found]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fast slow", [("title", 0, "fast")]),
        ("fast AND slow", []),
        ("fast -slow", [("title", 0, "fast")]),
        ('"red fast"~2', [("title", 0, "fast"), ("title", 0, "red")]),
        ("cafe", [("title", 0, "Café")]),
        ("c*", [("title", 0, "Café"), ("title", 0, "cars")]),
        ("tags:New*", [("tags", 1, "New York")]),
        ("colour:blue", [("colour", 1, "blue")]),
        ("price:80 title:/r.d/^2", [("title", 0, "red")]),
        ("parts:nested(name:door AND price:>300)", [("parts.name", 1, "door")]),
        ("parts:nested(name:door AND price:<300)", []),
        ("parts.name:(wheel door)", [("parts.name", 0, "wheel"), ("parts.name", 1, "door")]),
    ],
)
def test_highlights_are_the_words_that_match(text, words):
    assert marked(text) == words


def test_a_phrase_with_a_word_twice_needs_it_twice():
    query = read_query('title:"red red"~3', MAPPING)
    assert not matches(query, read_document({"title": "red"}, MAPPING))
    assert matches(query, read_document({"title": "red and red"}, MAPPING))


def test_an_explanation_says_what_is_missing():
    query = read_query('+slow +fasten "red fast"~1 price:[300 TO *] where:within(0,0,1km) -title:red', MAPPING)
    first, *lines = explain(query, read_document(CAR, MAPPING)).lines()
    assert first == (
        "no  all that must be, what may be adds to the score, nothing that must not be: "
        "2 of 2 that must be are missing, 1 that must not be is there"
    )
    assert lines == [
        "    no  must: title has 'slow': cafe, car, fast, jurgen, of and 3 more",
        "    no  must: title has 'fasten': not among its 8 words; near it 'fast'",
        "    no  may: title has 'red fast', up to 1 out of place: its words are there, 2 out of place",
        "    no  may: price has a number from 300: 80, 250",
        "    no  may: where is within 1 km of 0,0: 5972.02 km away",
        "    yes must not: title has 'red' (1)",
    ]
