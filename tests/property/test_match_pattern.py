"""Patterns over keyed state find what the plain matcher finds, however the rows came, were cut, and were restarted."""

import json
from typing import Any

import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.cep import Pattern
from headrace.cep.automaton import Automaton
from headrace.cep.checking import check
from headrace.cep.columnar import ColumnarProgram, NotColumnar
from headrace.cep.compiling import compile_tree
from headrace.cep.errors import InvalidPattern
from headrace.cep.partial import Cap
from headrace.cep.tree import PatternTree
from headrace.pipelines.keyed.operator import NO_WATERMARK
from headrace.pipelines.operators.patterns.shapes import coordinates, ties_of
from tests.property.storage_model import examples
from tests.property.test_cep import columnar_trees as trees
from tests.unit.pipelines.operators.pattern_runs import SCHEMA, Found, Stream, operator_of, plain

CAP = Cap(3_000)
START = 1_000  # before it nothing is
LONG_AFTER = 1_000_000
# A gap may be so long that the watermark jumps over times at which keys had to be woken.
row = st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 2), st.sampled_from([0, 1, 2, 40]))
streams = st.lists(row, min_size=1, max_size=14)
# Where a micro-batch ends, and whether everything is read back from what is stored.
cuts = st.lists(st.tuples(st.integers(0, 14), st.booleans()), max_size=5)


def automaton_of(tree: PatternTree) -> Automaton:
    try:
        found = check(compile_tree(tree), bounded=True)
        ColumnarProgram(found, CAP, schema=SCHEMA)
    except (InvalidPattern, NotColumnar):
        assume(False)
        raise
    return found


def rows_of(given_rows: list[tuple[str | None, int, int]]) -> list[dict[str, Any]]:
    at = START
    rows = []
    for offset, (key, x, gap) in enumerate(given_rows):
        at += gap
        rows.append({"k": key, "t": at, "x": x, "offset": offset})
    return rows


def feed(stream: Stream, rows: list[dict[str, Any]], arrival: list[int], where: list[tuple[int, bool]]) -> None:
    """Rows as they arrive, in micro-batches; the watermark is behind all that are still to come."""
    came = [rows[place] for place in arrival]
    bounds = [*sorted(where), (len(came), False)]
    begin = 0
    for end, restarts in bounds:
        end = min(end, len(came))
        if restarts:
            stream.runner.restart()
        watermark = min((one["t"] for one in came[begin:]), default=rows[-1]["t"] + 1) - 1
        stream.batch(came[begin:end], watermark)
        begin = end
    stream.end(LONG_AFTER)


@examples(400)
@given(
    st.lists(trees, min_size=1, max_size=2),
    streams,
    st.data(),
    cuts,
    st.integers(1, 3),
    st.sampled_from([None, 1, 4]),
    st.booleans(),
)
def test_the_same_as_the_plain_matcher(
    given_trees: list[PatternTree],
    given_rows: list[tuple[str | None, int, int]],
    data: st.DataObject,
    where: list[tuple[int, bool]],
    buckets: int,
    call_rows: int | None,
    timed_out: bool,
) -> None:
    automata = [automaton_of(tree) for tree in given_trees]
    rows = rows_of(given_rows)
    arrival = data.draw(st.permutations(range(len(rows))))
    stream = Stream(operator_of(automata, CAP, timed_out=timed_out), buckets=buckets, call_rows=call_rows)
    feed(stream, rows, arrival, where)
    assert stream.late == 0
    expected = [plain(automaton, rows, CAP, LONG_AFTER) for automaton in automata]
    for number, one in enumerate(expected):
        assert by_key(stream.matches, number) == one.matches
        if timed_out:
            assert by_key(stream.timed_out, number) == one.timed_out
    # What is counted is what came out, and what is left.
    last = {json.loads(text)["bucket"]: json.loads(text) for text in stream.statuses}
    for number, one in enumerate(expected):
        told = [each["patterns"][number] for each in last.values()]
        assert sum(each["matches"] for each in told) == sum(map(len, one.matches.values()))
        partial = sum(each["partial"] for each in told)
        assert partial >= one.partial
        assert sum(count for each in told for _, count in each["keys"]) == partial
        if timed_out:
            assert partial == one.partial
    assert sum(each["events"] for each in last.values()) == len(rows)


@examples(100)
@given(trees, streams, st.integers(1, 3), st.booleans())
def test_rows_that_end_are_matched_to_the_end(
    tree: PatternTree, given_rows: list[tuple[str | None, int, int]], buckets: int, timed_out: bool
) -> None:
    automaton = automaton_of(tree)
    rows = rows_of(given_rows)
    stream = Stream(operator_of([automaton], CAP, timed_out=timed_out), buckets=buckets)
    stream.batch(rows, NO_WATERMARK)
    stream.end()
    expected = plain(automaton, rows, CAP)
    assert by_key(stream.matches, 0) == expected.matches
    if timed_out:
        assert by_key(stream.timed_out, 0) == expected.timed_out


def by_key(found: dict[tuple[str, Any], list[Found]], number: int) -> dict[Any, list[Found]]:
    return {key: one for (name, key), one in found.items() if name == f"p{number}"}


@examples(100)
@given(trees, streams, cuts, st.booleans())
def test_what_is_kept_is_what_dictionaries_keep(
    tree: PatternTree,
    given_rows: list[tuple[str | None, int, int]],
    where: list[tuple[int, bool]],
    timed_out: bool,
) -> None:
    automaton = automaton_of(tree)
    rows = rows_of(given_rows)
    both = [Stream(operator_of([automaton], CAP, timed_out=timed_out), model=model) for model in (True, False)]
    for stream in both:
        feed(stream, rows, list(range(len(rows))), where)
    assert both[0].matches == both[1].matches
    assert both[0].timed_out == both[1].timed_out


@examples(150)
@given(trees, streams, cuts, st.integers(1, 3), st.sampled_from(["drop_oldest", "drop_newest"]))
def test_at_the_cap_the_same_is_dropped(
    tree: PatternTree,
    given_rows: list[tuple[str | None, int, int]],
    where: list[tuple[int, bool]],
    most: int,
    choice: str,
) -> None:
    cap = Cap(most, choice)
    automaton = automaton_of(tree)
    rows = rows_of(given_rows)
    stream = Stream(operator_of([automaton], cap, timed_out=False))
    feed(stream, rows, list(range(len(rows))), where)
    assert by_key(stream.matches, 0) == plain(automaton, rows, cap, LONG_AFTER).matches


def test_rows_behind_the_watermark_are_late_and_handed_on() -> None:
    automaton = Pattern.begin("a", "x < 1").within("5 microseconds").compile(SCHEMA.names)
    for hands_on in (False, True):
        stream = Stream(operator_of([automaton], CAP, timed_out=False, hands_on=hands_on))
        rows = rows_of([("a", 0, 0), ("b", 0, 1), ("a", 0, 1)])
        stream.batch(rows, START)  # the first is at the watermark
        stream.batch([{**rows[0], "t": None}], START)
        stream.end(LONG_AFTER)
        assert stream.late == 2
        assert {key for _, key in stream.matches} == {"a", "b"}
        assert [offset for found in stream.matches.values() for _, ((_, offset),) in found] == [1, 2]


def test_a_timer_before_the_next_rows_finds_its_own() -> None:
    """The rows that the watermark has passed begin long after a time that comes with the same watermark."""
    automaton = check(Pattern.begin("a", "x = 0").not_followed_by("b", "x = 1").within("5 microseconds").compile())
    rows = [{"k": key, "t": START + gap, "x": 0, "offset": gap} for key, gap in (("a", 0), ("b", 100), ("b", 101))]
    stream = Stream(operator_of([automaton], CAP, timed_out=False))
    stream.batch(rows[:1], START - 1)
    stream.batch(rows[1:], START + 1)
    stream.end(START + 102)
    assert by_key(stream.matches, 0) == {"a": [(START + 5, (("a", 0),))]}


def test_a_watermark_that_jumps_leaves_the_rows_of_keys_that_it_wakes() -> None:
    """A key is silent, its time runs out within the jump, and rows of another come right before the jump's end."""
    automaton = Pattern.begin("a", "x = 1").followed_by("b", "x = 2").within("20 microseconds").compile()
    stream = Stream(operator_of([automaton], CAP))
    stream.batch([{"k": "silent", "t": 1_095, "x": 1, "offset": 7}, {"k": "old", "t": 1_095, "x": 1, "offset": 8}], 0)
    stream.batch([], 1_100)
    stream.batch([{"k": "other", "t": 1_500, "x": 1, "offset": 9}], 1_100)
    stream.batch([], 1_990)
    assert {key: [rows for _, rows in found] for (_, key), found in stream.timed_out.items()} == {
        "silent": [(("a", 7),)],
        "old": [(("a", 8),)],
        "other": [(("a", 9),)],
    }


def test_rows_with_equal_times_are_in_the_order_of_partition_and_offset() -> None:
    """By columns that are what their names say; an `offset` from UTC, or a `topic` of a text, is a user's own."""
    place = [("partition", pa.int32()), ("offset", pa.int64())]
    raw = [(f"_{name}", kind) for name, kind in place]
    cases = [
        ([*place], ("partition", "offset"), ("partition", "offset")),
        ([("topic", pa.string()), *place], ("topic", "partition", "offset"), ("partition", "offset")),
        ([*raw], ("_partition", "_offset"), ("_partition", "_offset")),
        ([("topic", pa.string()), ("offset", pa.string()), *raw], ("_partition", "_offset"), ("_partition", "_offset")),
        ([("offset", pa.float64())], (), ()),
        ([("offset", pa.int64())], ("offset",), ("offset",)),
    ]
    for columns, where, ties in cases:
        assert coordinates(pa.schema(columns)) == where
        assert ties_of(pa.schema(columns)) == ties
