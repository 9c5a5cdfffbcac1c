"""What is refused before anything runs, though it can be read.

- columns that the rows do not have;
- a pattern that can never match: a condition that contradicts itself, an absence longer than its window, a look back at
  rows that only come later, a match of no row at all;
- a pattern that would keep something for ever: partial matches that wait without `within`, or may grow without end.
"""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final

from headrace.cep.automaton import ACCEPT, Automaton, Edge
from headrace.cep.errors import InvalidPattern
from headrace.cep.evaluation import constant, is_constant
from headrace.cep.expressions import TRUE, At, Call, Column, Expression, Literal, columns, conjuncts, walk
from headrace.cep.tree import Contiguity, Skip
from headrace.cep.values import order
from headrace.durations import in_words
from headrace.errors import nearest
from headrace.places import Place


def check(automaton: Automaton, known: Iterable[str] | None = None, *, bounded: bool = False) -> Automaton:
    """The automaton itself, if nothing is wrong with it."""
    if known is not None:
        _check_columns(automaton, list(known))
    _check_can_match(automaton)
    _check_references(automaton)
    _check_skip(automaton)
    if not bounded:
        _check_bounded(automaton)
    return automaton


# --- columns


def _check_columns(automaton: Automaton, known: list[str]) -> None:
    names = set(known)
    for expression in _expressions(automaton):
        for column in columns(expression):
            if column.name not in names:
                if len(column.path) > 1 and (meant := _likely(column.name, automaton.variables)):
                    raise InvalidPattern(
                        f"unknown variable {column.name!r}: did you mean {meant!r}? No column is called so either",
                        column.place,
                    )
                raise InvalidPattern(
                    f"unknown column {column.name!r}: {nearest(column.name, known, 'the rows have')}", column.place
                )
    tree = automaton.tree
    for name in (*tree.partition, *((tree.order,) if tree.order else ())):
        if name not in names:
            raise InvalidPattern(f"unknown column {name!r}: {nearest(name, known, 'the rows have')}", tree.place)


def _likely(name: str, variables: Iterable[str]) -> str | None:
    return next(iter(get_close_matches(name, list(variables), n=1)), None)


def _expressions(automaton: Automaton) -> Iterator[Expression]:
    yield from (test.condition for test in automaton.tests)
    yield from (measure.value for measure in automaton.tree.output.measures)
    if automaton.tree.distinct is not None:
        yield automaton.tree.distinct.value


# --- patterns that can never match


def _check_can_match(automaton: Automaton) -> None:
    if any(edge.target == ACCEPT for edge in automaton.starts):
        raise InvalidPattern(
            "this pattern can match without any row: one part has to be there at least once", automaton.tree.place
        )
    impossible = {number for number, test in enumerate(automaton.tests) if is_contradiction(test.condition)}
    whys: list[tuple[str, Place | None]] = []
    reached: set[int] = set()
    todo = [edge for edge in automaton.starts if _can_take(automaton, edge, impossible, whys)]
    while todo:
        target = todo.pop().target
        if target == ACCEPT:
            return
        if target not in reached:
            reached.add(target)
            todo += [edge for edge in automaton.states[target].edges if _can_take(automaton, edge, impossible, whys)]
    why, place = whys[0] if whys else ("nothing can follow", automaton.tree.place)
    raise InvalidPattern(f"this pattern can never match: {why}", place)


def _can_take(automaton: Automaton, edge: Edge, impossible: set[int], whys: list[tuple[str, Place | None]]) -> bool:
    bounds = [bound for bound in (edge.within_us, automaton.tree.within_us) if bound is not None]
    if edge.absences and bounds and edge.wait_us > (min(bounds) if edge.target == ACCEPT else min(bounds) - 1):
        test = automaton.tests[edge.absences[0][0]]
        whys.append(
            (
                f"nothing may come for {in_words(edge.wait_us)}, and all has to be over within {in_words(min(bounds))}",
                test.place,
            )
        )
        return False
    if edge.target == ACCEPT:
        return True
    own = automaton.states[edge.target].test
    if own in impossible:
        whys.append(("no row can be like this", automaton.tests[own].place))
        return False
    is_next = edge.contiguity is Contiguity.STRICT and not edge.absences
    for number in (*edge.next_bars, *(bar.test for bar in edge.bars if bar.unless is None)):
        bar = automaton.tests[number]
        always = bar.condition == TRUE
        same = not bar.rest and bar.rows & ~automaton.tests[own].rows == 0
        if always or (same and (is_next or number not in edge.next_bars)):
            whys.append((f"the row for {automaton.tests[own].variable} is also one that must not come", bar.place))
            return False
    return True


def is_contradiction(expression: Expression) -> bool:
    """Whether it is plain that no row makes this true: a constant, or bounds of one column that leave nothing."""
    bounds: dict[Column, list[tuple[str, Any]]] = {}
    for part in conjuncts(expression):
        if is_constant(part):
            if constant(part) is not True:
                return True
        elif isinstance(part, Call):
            found = _bound(part)
            if found is not None:
                bounds.setdefault(found[0], []).append(found[1:])
    return any(_is_empty(tests) for tests in bounds.values())


_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def _bound(call: Call) -> tuple[Column, str, Any] | None:
    """`column < 5` and the like."""
    if call.name == "is null" and isinstance(call.args[0], Column):
        return call.args[0], "is null", None
    if call.name not in _TURNED:
        return None
    left, right = call.args
    if isinstance(left, Column) and isinstance(right, Literal):
        return left, call.name, right.value
    if isinstance(right, Column) and isinstance(left, Literal):
        return right, _TURNED[call.name], left.value
    return None


def _is_empty(tests: list[tuple[str, Any]]) -> bool:
    for name, value in tests:
        for other, limit in tests:
            if name == "is null":
                if other != "is null":
                    return True
                continue
            if other == "is null" or value is None or limit is None:
                continue
            compared = order(value, limit)
            if compared is None:
                continue
            # `value` bounds from below or is the value, `limit` from above.
            if name in (">", ">=", "=") and other in ("<", "<=", "="):
                if compared > 0 or (compared == 0 and not (name in (">=", "=") and other in ("<=", "="))):
                    return True
                if name == other == "=" and compared != 0:
                    return True
    return any(value is None for name, value in tests if name != "is null")


def _check_references(automaton: Automaton) -> None:
    """A condition may look at the last row of another variable only if such a row can have come before."""
    after: list[set[int]] = [
        {edge.target for edge in state.edges if edge.target != ACCEPT} for state in automaton.states
    ]
    earlier = [set[str]() for _ in automaton.states]
    for number in range(len(automaton.states)):
        reached, todo = set[int](), [number]
        while todo:
            for target in after[todo.pop()] - reached:
                reached.add(target)
                todo.append(target)
        for target in reached:
            earlier[target].add(automaton.states[number].variable)
    for number, state in enumerate(automaton.states):
        possible = earlier[number] | {state.variable}
        for rest in automaton.tests[state.test].rest:
            for part in walk(rest):
                if isinstance(part, At) and part.variables is not None and not part.variables & possible:
                    names = " or ".join(sorted(part.variables))
                    raise InvalidPattern(
                        f"{state.variable} looks at {names}, of which no row can come before: test it where both are",
                        part.place or automaton.tests[state.test].place,
                    )


def _check_skip(automaton: Automaton) -> None:
    after = automaton.tree.after
    if after.skip is Skip.TO_FIRST and all(
        automaton.states[edge.target].variable in after.variables for edge in automaton.starts
    ):
        raise InvalidPattern(
            "to skip to the row at which a match began would give it for ever: skip to the next row, or to a variable "
            "that comes later",
            after.place,
        )


# --- patterns that would keep something for ever


def _check_bounded(automaton: Automaton) -> None:
    tree = automaton.tree
    if tree.distinct is not None and tree.distinct.expires_us is None:
        raise InvalidPattern(
            "every value that a match began with would be kept for ever: say with `expires` for how long it counts"
        )
    if tree.within_us is not None:
        return
    for _, edge in automaton.edges():
        if edge.target == ACCEPT and edge.bars:
            raise InvalidPattern(
                "what must not come at the end has to be over some time: add `within`",
                automaton.tests[edge.bars[0].test].place,
            )
    for source, edge in automaton.edges():
        if (
            source is None
            or edge.target == ACCEPT
            or edge.contiguity is Contiguity.STRICT
            or edge.within_us is not None
        ):
            continue
        test = automaton.tests[automaton.states[edge.target].test]
        raise InvalidPattern(
            f"a partial match would wait for {test.variable} for ever: add `within`, of the whole or of this part",
            test.place,
        )
    looping = _find_loop(automaton)
    if looping is not None:
        test = automaton.tests[automaton.states[looping].test]
        raise InvalidPattern(
            f"a partial match could take {test.variable} for ever: add `within`, or say how often at most", test.place
        )


def _find_loop(automaton: Automaton) -> int | None:
    """A state that can be reached again from itself."""
    for number in range(len(automaton.states)):
        reached, todo = set[int](), [number]
        while todo:
            for edge in automaton.states[todo.pop()].edges:
                if edge.target == number:
                    return number
                if edge.target != ACCEPT and edge.target not in reached:
                    reached.add(edge.target)
                    todo.append(edge.target)
    return None
