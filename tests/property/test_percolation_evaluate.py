"""What a query matches, against the definitions of `tree.py` written out as slowly as they read."""

import itertools
import re
from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from headrace.percolation.analysis import _ASCII_WORDS, STANDARD, Analyzer, _words
from headrace.percolation.documents import read_document
from headrace.percolation.errors import InvalidQuery
from headrace.percolation.evaluate import edit_distance, highlights, matches, phrase_positions, score, token_test
from headrace.percolation.explain import explain
from headrace.percolation.percolator import Percolator
from headrace.percolation.reading import read_query
from headrace.percolation.tree import (
    Boolean,
    Boost,
    ConstantScore,
    Either,
    Nested,
    Phrase,
    PhraseTerm,
    Term,
    Wild,
    Wildcard,
    children,
    walk,
)
from tests.property.percolation_strategies import DOCUMENTS, MAPPING, QUERIES
from tests.property.storage_model import examples


def read(text):
    try:
        return read_query(text, MAPPING)
    except InvalidQuery as error:
        assert re.search("leaves out all|leave out the @", error.sentence)  # noqa: PT017 (what is generated may be empty)
        return None


def reference(query, document):
    """The value of a tree, as its nodes say it."""
    match query:
        case Boolean():
            parts = [
                [reference(each, document) for each in some] for some in (query.must, query.should, query.must_not)
            ]
            must, should, must_not = ([worth for worth in some if worth is not None] for some in parts)
            if len(must) < len(query.must) or must_not or len(should) < query.minimum_should_match:
                return None
            return sum(must) + sum(should) if query.must or query.should else 1
        case Either():
            return max((w for each in query.queries if (w := reference(each, document)) is not None), default=None)
        case Nested():
            inner = [reference(query.query, each) for each in document.objects(query.path)]
            return max((worth for worth in inner if worth is not None), default=None)
        case Boost():
            worth = reference(query.query, document)
            return None if worth is None else worth * query.factor
        case ConstantScore():
            return None if reference(query.query, document) is None else query.score
        case Phrase():
            return 1 if phrase_holds(query, document.tokens(query.field).positions) else None
        case _:
            return score(query, document)


def phrase_holds(phrase, positions):
    """Every way to give the words positions."""
    for taken in itertools.product(*(positions.get(term.text, ()) for term in phrase.terms)):
        differences = [at - term.position for at, term in zip(taken, phrase.terms, strict=True)]
        if len(set(taken)) == len(taken) and max(differences) - min(differences) <= phrase.slop:
            return True
    return False


@given(text=QUERIES, value=DOCUMENTS)
@examples(1_500)
def test_a_query_is_worth_what_its_parts_are(text, value):
    query = read(text)
    if query is None:
        return
    document = read_document(value, MAPPING)
    worth = reference(query, document)
    assert score(query, document) == worth
    said = explain(query, document)
    assert (said.matches, said.score) == (worth is not None, worth)
    assert list(said.lines())
    found = highlights(query, document)
    assert worth is not None or not found
    for each in found:
        assert document.text(each.field, each.value)[each.start : each.end] == each.text


@given(text=QUERIES, value=DOCUMENTS)
@examples(500)
def test_whatever_holds_for_one_object_holds_for_the_whole_document(text, value):
    query = read(text)
    document = read_document(value, MAPPING)
    for nested in (each for each in walk(query) if isinstance(each, Nested)) if query else ():
        positive = all(not (isinstance(each, Boolean) and each.must_not) for each in walk(nested.query))
        if positive and matches(nested, document):
            assert all(matches(each, document) for each in children(nested))


WORDS = st.sampled_from("abc")


@given(
    terms=st.lists(st.tuples(WORDS, st.integers(1, 2)), min_size=2, max_size=5),
    words=st.lists(st.sampled_from("abcddddddd"), max_size=30),
    slop=st.integers(0, 9),
)
@examples(3_000)
def test_a_phrase_matches_as_it_is_defined(terms, words, slop):
    at, placed = 0, []
    for text, step in terms:
        placed.append(PhraseTerm(text, at))
        at += step
    phrase = Phrase("f", tuple(placed), slop)
    positions = {text: [at for at, word in enumerate(words) if word == text] for text in set(words)}
    assert (next(phrase_positions(phrase, positions), None) is not None) == phrase_holds(phrase, positions)
    for taken in phrase_positions(phrase, positions):
        assert sorted(words[at] for at in taken) == sorted(term.text for term in placed)


@cache
def distance(a, b, transpositions):
    """Optimal string alignment, as its recurrence says."""
    if not a or not b:
        return len(a) + len(b)
    found = min(
        distance(a[:-1], b, transpositions) + 1,
        distance(a, b[:-1], transpositions) + 1,
        distance(a[:-1], b[:-1], transpositions) + (a[-1] != b[-1]),
    )
    if transpositions and a[-2:-1] == b[-1:] and a[-1:] == b[-2:-1] != "":
        found = min(found, distance(a[:-2], b[:-2], transpositions) + 1)
    return found


@given(a=st.text("abc", max_size=7), b=st.text("abc", max_size=7), most=st.integers(0, 3), swaps=st.booleans())
@examples(2_000)
def test_edits_are_counted_as_they_are_defined(a, b, most, swaps):
    assert edit_distance(a, b, most, swaps) == min(distance(a, b, swaps), most + 1)


@given(
    parts=st.lists(st.sampled_from(["a", "b", ".", Wild.ANY, Wild.ONE]), max_size=6), token=st.text("ab.\n", max_size=6)
)
@examples(1_000)
def test_wildcards_stand_for_letters(parts, token):
    def fits(parts, token):
        if not parts:
            return not token
        if parts[0] is Wild.ANY:
            return any(fits(parts[1:], token[at:]) for at in range(len(token) + 1))
        return bool(token) and parts[0] in (Wild.ONE, token[0]) and fits(parts[1:], token[1:])

    assert token_test(Wildcard("f", tuple(parts)))(token) == fits(parts, token)


@given(text=st.text("aB9_.,:;'\"- é", max_size=12))
@examples(2_000)
def test_both_ways_of_finding_words_agree(text):
    plain = text.replace("é", "e")
    assert _ASCII_WORDS.findall(plain) == _words().findall(plain)
    for analyzer in (STANDARD, Analyzer(stop=frozenset({"a"}), stem="english")):
        tokens = analyzer.tokens(text)
        assert [token.text for token in tokens] == analyzer.terms(text)
        assert all(text[token.start : token.end] for token in tokens)


@given(text=st.text(max_size=20))
@examples(1_000)
def test_any_text_has_words_in_their_places(text):
    tokens = STANDARD.tokens(text)
    assert [token.text for token in tokens] == STANDARD.terms(text)
    assert all(token.text for token in tokens)
    assert all(before.end <= after.start for before, after in itertools.pairwise(tokens))


@given(
    texts=st.lists(QUERIES, max_size=6),
    steps=st.lists(
        st.tuples(st.sampled_from(["add", "change", "pause", "resume", "remove"]), st.integers(0, 5)), max_size=12
    ),
    values=st.lists(DOCUMENTS, min_size=1, max_size=3),
)
@examples(300)
def test_a_percolator_has_the_hits_of_the_queries_that_stand(texts, steps, values):
    held, standing = Percolator({"default": MAPPING}), {}
    texts = [text for text in texts if read(text) is not None]
    for step, number in steps:
        name = str(number)
        text = texts[number % len(texts)] if texts else "*:*"
        if step == "add" and name not in standing:
            held.add(name, text)
            standing[name] = (text, True)
        elif name in standing:
            if step == "change":
                held.change(name, text=text)
                standing[name] = (text, standing[name][1])
            elif step in ("pause", "resume"):
                getattr(held, step)(name)
                standing[name] = (standing[name][0], step == "resume")
            elif step == "remove":
                held.remove(name)
                del standing[name]
    expected = [
        [
            name
            for name, (text, runs) in sorted(standing.items())
            if runs and matches(read_query(text, MAPPING), document)
        ]
        for document in (read_document(value, MAPPING) for value in values)
    ]
    found = held.percolate_many(values)
    assert [[hit.id for hit in hits] for hits in found] == expected
    for hits, value in zip(found, values, strict=True):
        document = read_document(value, MAPPING)
        for hit in hits:
            query = read_query(standing[hit.id][0], MAPPING)
            assert (hit.score, hit.highlights) == (score(query, document), highlights(query, document))


def test_the_generated_queries_match_some_documents():
    """The tests above are worth something only if both answers occur."""
    answers = set()

    @given(text=QUERIES, value=DOCUMENTS)
    @examples(200)
    def look(text, value):
        query = read(text)
        if query is not None and not isinstance(query, Term):
            answers.add(matches(query, read_document(value, MAPPING)))

    look()
    assert answers == {True, False}
