"""The plain matcher against the definition, on patterns and rows of any kind."""

from collections.abc import Sequence

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.cep.automaton import compile_tree
from headrace.cep.checking import check
from headrace.cep.columnar import ColumnarProgram, Kept
from headrace.cep.errors import InvalidPattern
from headrace.cep.match import Event, Taken, path
from headrace.cep.program import Program
from headrace.cep.reading import Scope, read_expression
from headrace.cep.stepping import Cap, Counts, Emitted, KeyRuns
from headrace.cep.tree import (
    Absence,
    AfterMatch,
    Alternation,
    Contiguity,
    Distinct,
    Greed,
    Link,
    Node,
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
]


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
rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=7)


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
        event = Event({"x": x}, time_us, number)
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


def masks_of(program: Program, events: Sequence[Event]) -> list[int]:
    return [
        sum(1 << bit for bit, predicate in enumerate(program.predicates) if predicate(event) is True)
        for event in events
    ]


def run_columns(tree: PatternTree, keys: Sequence[Sequence[tuple[int, int]]], cuts: Sequence[int]):
    """The matches of several keys by the compiled loops, rows given in several calls; and those of the matcher."""
    program = program_of(tree)
    columnar = ColumnarProgram(program.automaton, Cap(3_000))
    events = [events_of(one, 0) for one in keys]
    kept = Kept.nothing(len(keys))
    found, over = [[] for _ in keys], [[] for _ in keys]
    bounds = [*sorted(cuts), 100]
    for begin, end in zip([-1, *bounds], bounds, strict=False):
        now = [[event for event in one if begin < event.time_us <= end] for one in events]
        flat = [event for one in now for event in one]
        stepped = columnar.step(
            kept,
            np.cumsum([len(one) for one in now]),
            np.array([event.number for event in flat], np.int64),
            np.array([event.time_us for event in flat], np.int64),
            np.array(masks_of(program, flat), np.int64),
            watermark_us=end + 1,
            is_final=end == 100,
        )
        kept = stepped.kept
        assume(not stepped.dropped)
        for target, source in ((found, stepped.matches), (over, stepped.timed_out)):
            for key, at_us, taken in source:
                target[key].append((tuple((columnar.variables[name], number) for name, number in taken), at_us))
    assert len(kept.runs) == len(kept.waiting) == len(kept.nodes) == 0
    plain = [run(program, one) for one in events]
    expected = [[(rows_of(taken), at_us) for taken, at_us in one.matches] for one in plain]
    expected_over = [[(rows_of(taken), at_us) for taken, at_us in one.timed_out] for one in plain]
    return (found, over), (expected, expected_over)


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


@given(columnar_trees, st.lists(rows, min_size=1, max_size=3), st.lists(st.integers(0, 14), max_size=3))
@examples(1000)
def test_compiled_loops_find_what_the_matcher_finds(tree, keys, cuts):
    ours, expected = run_columns(tree, keys, cuts)
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
