"""Automata in lines, for people to read."""

from headrace.cep.automaton import ACCEPT, Automaton, Bar, Edge
from headrace.cep.expressions import (
    show,
)
from headrace.cep.tree import (
    Skip,
)
from headrace.durations import in_words


def explain(automaton: Automaton) -> str:
    """The automaton in lines: predicates, then each state with what may come next, the preferred first."""
    tree = automaton.tree
    lines = ["one match from each row, the preferred" if tree.chooses_one else "every match"]
    if tree.within_us is not None:
        lines[0] += f", within {in_words(tree.within_us)}"
    if tree.after.skip is not Skip.NONE:
        lines[0] += f"; after a match skip {tree.after.skip.value}" + "".join(
            f" {name}" for name in sorted(tree.after.variables)
        )
    if tree.distinct is not None:
        lines.append(
            f"begins once for each {show(tree.distinct.value)}"
            + (f", again after {in_words(tree.distinct.expires_us)}" if tree.distinct.expires_us is not None else "")
        )
    if automaton.row_predicates:
        lines.append("row predicates")
        lines += [f"  {number}  {show(predicate)}" for number, predicate in enumerate(automaton.row_predicates)]
    lines.append("start")
    lines += [f"  {_show_edge(automaton, edge, True)}" for edge in automaton.starts]
    for number, state in enumerate(automaton.states):
        lines.append(f"{_name(automaton, number)}{' (excluded)' * state.is_excluded}")
        lines += [f"  {_show_edge(automaton, edge, False)}" for edge in state.edges]
    return "\n".join(lines)


def _name(automaton: Automaton, number: int) -> str:
    """A state by its variable; numbered if the variable has several."""
    variable = automaton.states[number].variable
    same = [index for index, state in enumerate(automaton.states) if state.variable == variable]
    return variable if len(same) == 1 else f"{variable}#{same.index(number) + 1}"


def _show_edge(automaton: Automaton, edge: Edge, is_start: bool) -> str:
    parts = []
    if edge.target == ACCEPT:
        parts.append("match" if edge.is_immediate else "match when the time is over" if not edge.next_bars else "match")
    else:
        kind = "" if is_start else f"{edge.contiguity.value} "
        parts.append(
            f"{kind}{_name(automaton, edge.target)} when {_show_test(automaton, automaton.states[edge.target].test)}"
        )
    if edge.within_us is not None:
        parts.append(f"within {in_words(edge.within_us)}")
    parts += [f"next row not {_show_bar(automaton, Bar(test))}" for test in edge.next_bars]
    parts += [f"for {in_words(for_us)} no {_show_bar(automaton, Bar(test))}" for test, for_us in edge.absences]
    parts += [f"no {_show_bar(automaton, bar)} before" for bar in edge.bars]
    return "→ " + ", ".join(parts)


def _show_bar(automaton: Automaton, bar: Bar) -> str:
    shown = f"{automaton.tests[bar.test].variable} ({_show_test(automaton, bar.test)})"
    return shown if bar.unless is None else f"{shown} unless ({_show_test(automaton, bar.unless)})"


def _show_test(automaton: Automaton, number: int) -> str:
    return show(automaton.tests[number].condition)
