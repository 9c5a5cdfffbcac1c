"""How far a search has come, as records."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.searches.hits import Piece, SearchHit, read_hit, write_hit
from headrace.searches.places import Backfill, Places, changes, is_of, read_places

numbers = st.integers(0, 2**40)
parts = st.dictionaries(st.integers(0, 9), st.tuples(numbers, numbers), min_size=1, max_size=3)
backfills = st.dictionaries(
    st.text(min_size=1, max_size=4), st.tuples(st.integers(1, 9), numbers, parts), max_size=3
).map(lambda found: {query: Backfill(query, *rest) for query, rest in found.items()})
documents = st.dictionaries(st.integers(0, 9), numbers, min_size=1)
places = st.builds(Places, numbers, st.just("q"), documents, st.just("d"), st.just("docs"), backfills)


@given(st.lists(places, min_size=1, max_size=4))
def test_what_was_changed_is_read_again(steps: list[Places]) -> None:
    kept: dict[bytes, bytes] = {}
    before = Places()
    for step in steps:
        for key, value in changes("s", before, step):
            assert is_of("s", key)
            assert not is_of("other", key)
            if value is None:
                del kept[key]
            else:
                kept[key] = value
        assert read_places(kept) == step
        assert changes("s", step, step) == []
        before = step


def test_places_that_do_not_say_their_topic_are_read() -> None:
    found = read_places({b'{"search":"s","partition":0}': b'{"offset":17,"id":"d"}'})
    assert (found.documents, found.documents_id, found.documents_topic) == ({0: 17}, "d", "")


def test_a_hit_is_read_as_it_was_written_and_nothing_else_is() -> None:
    hit = SearchHit(
        "q", 2, "ann", ("a", "b"), 1.5, (Piece("title", "a bike", ((2, 6),)),), "t", 1, 7, 9, "k", 3, True, {"x": 1}
    )
    key, value, headers = write_hit(hit)
    assert read_hit(key, value) == hit
    assert headers == (("queries-offset", b"3"),)
    for other in (None, b"", b"[]", b"{}", b"{" * 100_000, value.replace(b'"tags"', b'"bags"')):
        assert read_hit(key, other) is None
