"""The index against the exact evaluator, asked about every pair of query and document."""

import pyarrow as pa
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from headrace.percolation.documents import Document, read_document
from headrace.percolation.errors import InvalidDocument
from headrace.percolation.evaluate import score
from headrace.percolation.index import Matches, Percolated, QueryIndex, percolate_batch, settle
from headrace.percolation.tree import Boolean, Boost, MatchNone, Prefix, Query, Term
from tests.property.storage_model import count_examples
from tests.property.stored_queries import MAPPING, documents, queries, words

Pairs = dict[tuple[int, int], float]


def by_brute_force(stored: dict[int, Query], rows: list[Document]) -> Pairs:
    """Each pair that matches, with its score."""
    scores = {(row, number): score(query, each) for row, each in enumerate(rows) for number, query in stored.items()}
    return {pair: worth for pair, worth in scores.items() if worth is not None}


def by_index(index: QueryIndex, stored: dict[int, Query], rows: list[Document]) -> Pairs:
    """What the index decides, and of what it does not decide what the evaluator does."""
    found = index.match_documents(rows)
    pairs = list(zip(found.rows.tolist(), found.numbers.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs), "a pair came out twice"
    assert list(found.rows) == sorted(found.rows)
    return as_pairs(settle(found, rows.__getitem__, stored.__getitem__))


def as_pairs(found: Matches | Percolated) -> Pairs:
    return dict(zip(zip(found.rows.tolist(), found.numbers.tolist(), strict=True), found.scores.tolist(), strict=True))


@settings(max_examples=count_examples(200))
@given(st.lists(queries, min_size=1, max_size=12), st.lists(documents, min_size=1, max_size=6))
def test_the_index_finds_what_the_evaluator_matches(asked: list[Query], values: list[dict[str, object]]) -> None:
    index, stored = QueryIndex(), dict(enumerate(asked))
    for number, query in stored.items():
        index.add(number, query)
    rows = [read_document(each, MAPPING) for each in values]
    assert by_index(index, stored, rows) == by_brute_force(stored, rows)


@settings(max_examples=count_examples(150))
@given(st.lists(queries, min_size=1, max_size=8), st.lists(documents, min_size=1, max_size=6))
def test_an_arrow_batch_is_matched_as_its_rows_are(asked: list[Query], values: list[dict[str, object]]) -> None:
    try:
        batch = pa.RecordBatch.from_pylist(values, schema=None)
    except (pa.ArrowException, OverflowError):
        reject()
    index, stored = QueryIndex(), dict(enumerate(asked))
    for number, query in stored.items():
        index.add(number, query)
    found = percolate_batch(index, batch, stored.__getitem__, MAPPING)
    expected: Pairs = {}
    refused: list[int] = []
    for row, value in enumerate(batch.to_pylist()):
        try:
            read = [read_document(value, MAPPING)]
            expected |= {(row, number): worth for (_, number), worth in by_brute_force(stored, read).items()}
        except InvalidDocument:
            refused.append(row)
    assert as_pairs(found) == expected
    assert [each.row for each in found.refused] == refused


changes = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 15), queries),
    st.tuples(st.just("remove"), st.integers(0, 15), st.none()),
    st.tuples(st.just("match"), st.just(0), st.lists(documents, min_size=1, max_size=3)),
)


@settings(max_examples=count_examples(150))
@given(st.lists(changes, min_size=5, max_size=40))
def test_queries_come_and_go_between_batches(steps: list[tuple[str, int, object]]) -> None:
    index, stored = QueryIndex(most_words=5), dict[int, Query]()
    for what, number, given_ in steps:
        if what == "match":
            rows = [read_document(each, MAPPING) for each in given_]  # type: ignore[attr-defined]
            assert by_index(index, stored, rows) == by_brute_force(stored, rows)
            continue
        if stored.pop(number, None) is not None:
            index.remove(number)
        if what == "add":
            stored[number] = given_  # type: ignore[assignment]
            index.add(number, given_)  # type: ignore[arg-type]
        assert len(index) == len(stored)
    for number in stored:
        index.remove(number)
    assert int(index.facts.counts.sum()) == 0
    assert int(index.facts.uses.sum()) == 0


def test_words_that_no_query_asks_for_are_forgotten() -> None:
    index = QueryIndex(most_words=1_000)
    for number in range(100):
        index.add(number, Boolean(must=(Term("title", f"word{number}"), Prefix("body", f"w{number}"))))
    sizes = []
    for batch in range(30):
        rows = [
            {"title": f"word{each} new{batch}x{each}", "body": f"w{each}x{batch} other{batch}x{each}"}
            for each in range(100)
        ]
        found = percolate_batch(index, pa.RecordBatch.from_pylist(rows), lambda number: MatchNone(), MAPPING)
        assert set(zip(range(100), range(100), strict=True)) <= set(
            zip(found.rows.tolist(), found.numbers.tolist(), strict=True)
        )
        sizes.append(len(index.vocabulary))
    assert max(sizes) < 1_500


_some_words = st.builds(
    Boolean,
    must=st.lists(st.builds(Term, st.just("title"), words), max_size=1).map(tuple),
    should=st.lists(
        st.one_of(
            st.builds(Term, st.just("title"), words),
            st.builds(Boost, st.builds(Term, st.just("title"), words), st.sampled_from((0.1, 0.2, 3.0))),
        ),
        min_size=2,
        max_size=5,
    ).map(tuple),
    minimum_should_match=st.integers(1, 2),
)


@settings(max_examples=count_examples(200))
@given(st.lists(_some_words, min_size=1, max_size=8), st.lists(documents, min_size=1, max_size=4))
def test_scores_of_some_of_several_words_are_added_up_without_the_query(
    asked: list[Query], values: list[dict[str, object]]
) -> None:
    index, stored = QueryIndex(), dict(enumerate(asked))
    for number, query in stored.items():
        index.add(number, query)
    rows = [read_document(each, MAPPING) for each in values]
    found = index.match_documents(rows)
    assert found.is_decided.all()
    assert as_pairs(Percolated(found.rows, found.numbers, found.scores)) == by_brute_force(stored, rows)
    for number in stored:
        index.remove(number)
    assert int(index.facts.uses.sum()) == 0
