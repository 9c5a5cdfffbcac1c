"""The language of queries: what is written is read back, and no text does harm."""

import re
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from headrace.percolation.errors import InvalidQuery
from headrace.percolation.language import Policy, parse
from headrace.percolation.reading import read_query
from headrace.percolation.syntax import show
from tests.property.percolation_strategies import MAPPING, NODES, QUERIES
from tests.property.storage_model import examples

PIECES = [
    "a", "title", ":", "price", "(", ")", "[", "]", "{", "}", " TO ", '"', "~", "^", "@", "2", "%", "*", "?", "/",
    "\\", "+", "-", "!", " AND ", " OR ", " NOT ", "&&", "||", "<", ">", "=", "within(", "box(", "nested(", "where:",
    "1,2,3km)", ",", "now-1d", "2030-01-01", "\n", "é", "\x00", "\\u0041", "_exists_:", "*:*", ".",
]  # fmt: skip


@given(node=NODES)
@examples(500)
def test_a_query_that_is_written_is_read_back(node):
    assert parse(show(node), Policy(nesting=64)) == node


def refusal(read: Callable[[], object]) -> InvalidQuery | None:
    try:
        read()
    except InvalidQuery as error:
        return error
    return None


@given(text=st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=30).map("".join)))
@examples(1_500)
def test_any_text_is_a_query_or_refused_with_its_place(text):
    error = refusal(lambda: parse(text))
    if error is None:
        node = parse(text)
        assert parse(show(node), Policy(nesting=64)) == node
        error = refusal(lambda: read_query(text, MAPPING))
    if error is not None:
        assert "\n" not in error.sentence
        assert error.place is None or error.place.text == text
        assert error.place is None or 0 <= error.place.start <= error.place.end <= len(text) + 1


@given(text=QUERIES)
@examples(300)
def test_what_is_shown_means_the_same(text):
    error = refusal(lambda: read_query(text, MAPPING))
    if error is not None:
        assert re.search("leaves out all|leave out the @", error.sentence)
        return
    assert read_query(show(parse(text)), MAPPING, policy=Policy(nesting=64)) == read_query(text, MAPPING)
