"""The plain matcher against the definition, on patterns and rows of any kind."""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.cep.checking import check
from headrace.cep.columnar import ColumnarProgram, Kept
from headrace.cep.compiling import compile_tree
from headrace.cep.errors import InvalidPattern
from headrace.cep.match import Event, Taken, path
from headrace.cep.matcher import Describer
from headrace.cep.partial import Cap, Counts, Emitted
from headrace.cep.program import Program
from headrace.cep.reading import Scope, read_expression
from headrace.cep.stepping import KeyRuns
from headrace.cep.tree import (
    Absence,
    AfterMatch,
    Alternation,
    Contiguity,
    Distinct,
    Exclusion,
    Greed,
    Link,
    Measure,
    Node,
    Output,
    PatternTree,
    Permutation,
    Repeat,
    Skip,
    Variable,
)
from headrace.cep.tree import Sequence as SequenceNode
from tests.property.cep_reference import Reference, Rows
from tests.property.storage_model import examples

NAMES = ["a", "b", "c"]
SCOPE = {name: frozenset({name}) for name in NAMES}
ROW_CONDITIONS = ["x = 0", "x = 1", "x <= 1", "x >= 1", "true", "x <> 1"]
LOOKING_BACK = [
    "x >= LAST(a.x)",
    "x > FIRST(b.x)",
    "COUNT(a.*) < 2",
    "x >= PREV(x)",
    "SUM(x) <= 3",
    "MAX(b.x) > x",
    "x = 1 AND COUNT(*) > 1",
    "PREV(LAST(a.x), 2) = x",
    "b.x = x OR x = 2",
    "s > LAST(a.s) OR s = FIRST(b.s)",
    "AVG(y) >= 0.5 AND y IS NOT NULL",
    "COUNT(DISTINCT b.x) < 2 OR SUM(DISTINCT x) = 3",
    "CASE WHEN x > a.x THEN x * 2 ELSE y END > MIN(y)",
    "coalesce(LAST(b.y, 1), x) <= greatest(x, FIRST(a.x, 1))",
    "sqrt(pow(x - a.x, 2) + sin(a.y)) < 1.5",
    "t - FIRST(t) < INTERVAL 4 MICROSECONDS",
    "PREV(s) <> s",
    "x = 2 OR PREV(x, 2) IS NULL",
    "lower(a.s) = s AND x % 2 = a.x % 2",
    "nullif(x, a.x) IS NULL OR x div 2 = b.x",
    "MAX(a.s) >= s AND a.x <=> b.x",
    "x IN (a.x, b.x + 1, PREV(b.x))",
    "-x / a.x > -2 OR abs(y - b.y) > 0.25",
]
SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.float64()), ("s", pa.string()), ("t", pa.timestamp("us", "UTC"))])


def values_of(x: int, time_us: int) -> dict[str, object]:
    """The columns of a row; all come from one number, so that rows stay small."""
    at = datetime(2030, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
    return {"x": x if x < 3 else None, "y": [0.5, math.nan, None, 1.5][x], "s": ["b", "a", "B", None][x], "t": at}


def condition_of(name: str, text: str):
    return read_expression(text, Scope(SCOPE, name))


def variables(texts: Sequence[str]) -> st.SearchStrategy[Variable]:
    return st.builds(
        lambda name, text: Variable(name, condition_of(name, text)), st.sampled_from(NAMES), st.sampled_from(texts)
    )


lengths = st.integers(1, 6)
links = st.builds(Link, st.sampled_from(list(Contiguity)), st.none() | st.none() | lengths)


def nodes(texts: Sequence[str], link: st.SearchStrategy[Link], absences: bool) -> st.SearchStrategy[Node]:
    leaf = variables(texts)
    absence = st.builds(Absence, leaf, st.booleans(), st.none() | lengths).filter(
        lambda one: not (one.is_next and one.for_us)
    )

    def grow(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        bounds = st.sampled_from([(0, 1), (1, None), (0, None), (2, 2), (1, 2), (0, 2), (2, None)])
        item = st.tuples(link, inner | absence if absences else inner)
        return st.one_of(
            st.builds(
                lambda first, rest: SequenceNode((first, *rest)), st.tuples(link, inner), st.lists(item, max_size=3)
            ),
            st.builds(lambda branches: Alternation(tuple(branches)), st.lists(inner, min_size=2, max_size=2)),
            st.builds(lambda items, one: Permutation(tuple(items), one), st.lists(inner, min_size=2, max_size=3), link),
            st.builds(
                lambda body, bound, greed, one, until: Repeat(body, *bound, greed, one, until),
                inner,
                bounds,
                st.sampled_from(list(Greed)),
                link,
                st.none() | leaf if absences else st.none(),
            ),
        )

    return st.recursive(leaf, grow, max_leaves=4)


def may_be_empty(node: Node | Absence) -> bool:
    if isinstance(node, Absence):
        return True
    if isinstance(node, Variable):
        return False
    if isinstance(node, SequenceNode):
        return all(may_be_empty(item) for _, item in node.items)
    if isinstance(node, Alternation):
        return any(map(may_be_empty, node.branches))
    if isinstance(node, Permutation):
        return all(map(may_be_empty, node.items))
    return (isinstance(node, Repeat) and node.least == 0) or may_be_empty(node.body)


def has_empty_turns(node: Node | Absence) -> bool:
    """Whether something is repeated that may take no row: with greed that has no meaning of its own."""
    if isinstance(node, Variable | Absence):
        return False
    if isinstance(node, SequenceNode):
        return any(has_empty_turns(item) for _, item in node.items)
    if isinstance(node, Alternation):
        return any(map(has_empty_turns, node.branches))
    if isinstance(node, Permutation):
        return any(map(has_empty_turns, node.items))
    return (isinstance(node, Repeat) and may_be_empty(node.body)) or has_empty_turns(node.body)


afters = st.sampled_from(
    [Skip.NONE, Skip.NONE, Skip.TO_NEXT, Skip.PAST_LAST, Skip.TO_FIRST, Skip.TO_LAST, Skip.TO_NONE]
)
distincts = st.sampled_from(
    [None, None, None, Distinct(condition_of("a", "x % 2")), Distinct(condition_of("a", "x"), 3)]
)
rows = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=7)


def after_match(skip: Skip) -> AfterMatch:
    return AfterMatch(skip, frozenset({"b"}) if skip in (Skip.TO_FIRST, Skip.TO_LAST) else frozenset())


in_python = st.builds(
    lambda root, within, skip, distinct: PatternTree(root, within, after_match(skip), False, distinct),
    nodes(ROW_CONDITIONS + LOOKING_BACK, links, True),
    st.none() | st.integers(1, 12),
    afters,
    distincts,
)
in_sql = st.builds(
    lambda root, within, skip: PatternTree(root, within, after_match(skip), True),
    nodes(ROW_CONDITIONS + LOOKING_BACK, st.just(Link()), False),
    st.none() | st.integers(1, 12),
    afters.filter(lambda skip: skip not in (Skip.NONE, Skip.TO_NONE)),
)


def program_of(tree: PatternTree) -> Program:
    try:
        return Program(check(compile_tree(tree), bounded=True))
    except InvalidPattern:
        assume(False)
        raise


def events_of(given_rows: Sequence[tuple[int, int]], back: int) -> list[Event]:
    events: list[Event] = []
    time_us = 0
    for number, (x, gap) in enumerate(given_rows):
        time_us += gap
        event = Event(values_of(x, time_us), time_us, number)
        event.before = tuple(earlier.values for earlier in reversed(events[max(0, number - back) : number]))
        events.append(event)
    return events


def rows_of(taken: Taken) -> Rows:
    return tuple((row.variable, row.event.number) for row in path(taken))


def run(program: Program, events: Sequence[Event]) -> Emitted:
    counts, emitted = Counts(), Emitted()
    runs = KeyRuns(program, Cap(3_000), counts)
    for event in events:
        fresh = Event(event.values, event.time_us, event.number)
        runs.step(fresh, emitted)
    runs.finish(emitted)
    assert runs.size == 0
    assume(not counts.dropped)
    return emitted


def compare(tree: PatternTree, given_rows: Sequence[tuple[int, int]]) -> None:
    assume(not has_empty_turns(tree.root))
    program = program_of(tree)
    events = events_of(given_rows, program.automaton.back)
    expected = [(found.rows, found.at_us) for found in Reference(tree, events).matches()]
    found = [(rows_of(taken), at_us) for taken, at_us in run(program, events).matches]
    assert found == expected


@given(in_python, rows)
@examples(700)
def test_every_match_of_the_definition_is_found_and_no_other(tree, given_rows):
    compare(tree, given_rows)


@given(in_sql, rows)
@examples(700)
def test_the_preferred_match_from_each_row_is_found(tree, given_rows):
    compare(tree, given_rows)


@given(in_python.filter(lambda tree: tree.within_us is not None), rows)
@examples(300)
def test_partial_matches_whose_window_is_over_are_handed_out(tree, given_rows):
    assume(not has_empty_turns(tree.root))
    tree = PatternTree(_without_links(tree.root), tree.within_us)
    program = program_of(tree)
    events = events_of(given_rows, program.automaton.back)
    emitted = run(program, events)
    complete = {rows_of(taken) for taken, _ in emitted.matches}
    assert {rows_of(taken) for taken, _ in emitted.timed_out} - complete == Reference(tree, events).timed_out()


def batch_of(events: Sequence[Event]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(event.values) for event in events], schema=SCHEMA)


def run_columns(tree: PatternTree, keys: Sequence[Sequence[tuple[int, int]]], cuts: Sequence[int], is_stored: bool):
    """The matches of several keys by the compiled loops, rows given in several calls; and those of the matcher."""
    program = program_of(tree)
    columnar = ColumnarProgram(program.automaton, Cap(3_000), schema=SCHEMA)
    events = [events_of(one, 0) for one in keys]
    kept = Kept.nothing(len(keys))
    found, over, shown = [[] for _ in keys], [[] for _ in keys], [[] for _ in keys]
    bounds = [*sorted(cuts), 100]
    for begin, end in zip([-1, *bounds], bounds, strict=False):
        now = [[event for event in one if begin < event.time_us <= end] for one in events]
        if is_stored and columnar.relevant_masks is not None:
            masks = [columnar.evaluate(batch_of(one)).masks.tolist() for one in now]
            now = [
                [event for event, mask in zip(one, own, strict=True) if is_relevant(columnar, mask)]
                for one, own in zip(now, masks, strict=True)
            ]
        flat = [event for one in now for event in one]
        evaluated = columnar.evaluate(batch_of(flat))
        if is_stored:
            tables = columnar.to_tables(kept)
            assert {name: rows.schema for name, (_, rows) in tables.items()} == columnar.tables
            # Rows come back in any order.
            turned = {
                name: (owners[::-1], rows.take(pa.array(range(len(rows))[::-1], pa.int64())))
                for name, (owners, rows) in tables.items()
            }
            kept = columnar.from_tables(len(keys), turned)
        stepped = columnar.step(
            kept,
            np.cumsum([len(one) for one in now]),
            np.array([event.number for event in flat], np.int64),
            np.array([event.time_us for event in flat], np.int64),
            evaluated.masks,
            evaluated.facts,
            watermark_us=end + 1,
            is_final=end == 100,
        )
        kept = stepped.kept
        assume(not stepped.dropped)
        for target, source in ((found, stepped.matches), (over, stepped.timed_out)):
            for key, at_us, taken in source:
                target[key].append((tuple((columnar.variables[name], number) for name, number in taken), at_us))
        output = columnar.output(stepped.matches)
        rows = zip(output.matches.tolist(), output.rows.tolist(), output.measures.to_pylist(), strict=True)
        for match, row, measures in rows if tree.output.measures else ():
            shown[stepped.matches.keys[match]].append((row, measures))
    assert len(kept.runs) == len(kept.waiting) == len(kept.nodes) == 0
    plain = [run(program, one) for one in events]
    expected = [[(rows_of(taken), at_us) for taken, at_us in one.matches] for one in plain]
    expected_over = [[(rows_of(taken), at_us) for taken, at_us in one.timed_out] for one in plain]
    expected_shown = [shown_by(program, one) for one in plain]
    return (found, over, spelled(shown)), (expected, expected_over, spelled(expected_shown))


def is_relevant(columnar: ColumnarProgram, mask: int) -> bool:
    return any(mask & wanted == wanted for wanted in columnar.relevant_masks or ())


def spelled(shown: object) -> str:
    """Values by their spelling: 1 is not 1.0, and NaN is NaN."""
    if isinstance(shown, list | tuple):
        return "[" + ", ".join(map(spelled, shown)) + "]"
    if isinstance(shown, dict):
        return "{" + ", ".join(f"{name}: {spelled(value)}" for name, value in shown.items()) + "}"
    return shown.isoformat() if isinstance(shown, datetime) else repr(shown)


def shown_by(program: Program, emitted: Emitted) -> list[tuple[int, dict[str, object]]]:
    """The rows that the matcher shows: their numbers, and the measures."""
    output = program.automaton.tree.output
    if not output.measures:
        return []
    describe = Describer(program, ())
    found = []
    for number, (taken, at_us) in enumerate(emitted.matches, start=1):
        match = describe((), taken, at_us, number)
        states = program.automaton.states
        rows = (
            [row for row in path(taken) if not states[row.state].is_excluded] if output.all_rows else [path(taken)[-1]]
        )
        names = [measure.name for measure in output.measures]
        found += [
            (row.event.number, {name: values[name] for name in names})
            for row, values in zip(rows, match.output, strict=True)
        ]
    return found


MEASURES = [
    "CLASSIFIER()",
    "MATCH_NUMBER()",
    "FIRST(a.x)",
    "LAST(s, 1)",
    "SUM(x) + COUNT(*)",
    "AVG(a.y)",
    "MAX(s)",
    "MIN(b.t)",
    "COUNT(DISTINCT x)",
    "PREV(y)",
    "x > a.x",
    "LAST(t) - FIRST(t)",
    "upper(c.s)",
]
outputs = st.builds(
    lambda measures, all_rows: Output(
        tuple(
            Measure(f"m{number}", read_expression(text, Scope(SCOPE)), is_final or not all_rows)
            for number, (text, is_final) in enumerate(measures)
        ),
        all_rows,
    ),
    st.lists(st.tuples(st.sampled_from(MEASURES), st.booleans()), max_size=4),
    st.booleans(),
)
row_only = nodes(ROW_CONDITIONS, links, True)
columnar_trees = st.builds(
    lambda root, within, skip: PatternTree(root, within, after_match(skip)),
    row_only,
    st.none() | st.integers(1, 12),
    afters,
) | st.builds(
    lambda root, within, skip: PatternTree(root, within, after_match(skip), True),
    nodes(ROW_CONDITIONS, st.just(Link()), False),
    st.none() | st.integers(1, 12),
    afters.filter(lambda skip: skip not in (Skip.NONE, Skip.TO_NONE)),
)


@given(columnar_trees, st.lists(rows, min_size=1, max_size=3), st.lists(st.integers(0, 14), max_size=3), st.booleans())
@examples(500)
def test_compiled_loops_find_what_the_matcher_finds(tree, keys, cuts, is_stored):
    ours, expected = run_columns(tree, keys, cuts, is_stored)
    assert ours == expected


looking_back = st.builds(
    lambda root, within, skip, distinct: PatternTree(root, within, after_match(skip), False, distinct),
    nodes(ROW_CONDITIONS + LOOKING_BACK, links, True),
    st.none() | st.integers(1, 12),
    afters,
    distincts | st.just(Distinct(condition_of("a", "s"), 2)),
)
in_sql_with_measures = st.builds(
    lambda tree, output, excluded: replace(
        tree, root=SequenceNode(((Link(), tree.root), (Link(), Exclusion(excluded)))), output=output
    ),
    in_sql,
    outputs,
    variables(ROW_CONDITIONS),
) | st.builds(lambda tree, output: replace(tree, output=output), in_sql, outputs)


@given(looking_back, st.lists(rows, min_size=1, max_size=3), st.lists(st.integers(0, 14), max_size=3), st.booleans())
@examples(1000)
def test_compiled_conditions_look_at_earlier_rows_as_the_matcher_does(tree, keys, cuts, is_stored):
    ours, expected = run_columns(tree, keys, cuts, is_stored)
    assert ours == expected


@given(
    in_sql_with_measures,
    st.lists(rows, min_size=1, max_size=3),
    st.lists(st.integers(0, 14), max_size=3),
    st.booleans(),
)
@examples(1000)
def test_compiled_measures_are_the_matchers(tree, keys, cuts, is_stored):
    ours, expected = run_columns(tree, keys, cuts, is_stored)
    assert ours == expected


def _without_links(node):
    """The pattern without a time between neighbours: the reference knows windows of the whole only."""
    if isinstance(node, SequenceNode):
        return SequenceNode(tuple((Link(link.contiguity), _without_links(item)) for link, item in node.items))
    if isinstance(node, Alternation):
        return Alternation(tuple(map(_without_links, node.branches)))
    if isinstance(node, Permutation):
        return Permutation(tuple(map(_without_links, node.items)), Link(node.link.contiguity))
    if isinstance(node, Repeat):
        return Repeat(
            _without_links(node.body), node.least, node.most, node.greed, Link(node.link.contiguity), node.until
        )
    return node
