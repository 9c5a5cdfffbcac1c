"""Pieces of documents with the words for which they matched."""

from headrace.percolation.documents import read_document
from headrace.percolation.evaluate import highlights
from headrace.percolation.reading import read_query
from headrace.percolation.snippets import snippets

LONG = " ".join(f"word{n}" for n in range(50)) + " a fast red car, and " + " ".join(f"more{n}" for n in range(50))


def shown(text, value, width=60):
    document = read_document(value)
    return [each.marked("<", ">") for each in snippets(document, highlights(read_query(text), document), width)]


def test_words_are_marked_where_they_stand():
    assert shown("fast Café", {"t": "Fast food at the café."}) == ["<Fast> food at the <café>."]
    assert shown("slow", {"t": "Fast"}) == []
    assert shown("t:fa*", {"t": ["fast", "x", "faster"], "u": "fast"}) == ["<fast>", "<faster>"]


def test_a_long_value_is_cut_between_words():
    assert shown('"red car"', {"t": LONG}) == ["… word46 word47 word48 word49 a fast <red> <car>, and more0 more1 …"]
    assert shown("more49", {"t": LONG}) == ["… more44 more45 more46 more47 more48 <more49>"]
    assert shown("word0", {"t": LONG}, width=10) == ["<word0> …"]


def test_a_word_longer_than_the_snippet_is_whole():
    assert shown("a*", {"t": "x " * 40 + "a" * 100}, width=20)[0].endswith(f"<{'a' * 100}>")
