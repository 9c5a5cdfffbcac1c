"""An automaton as boxes and arrows with the words on them: what every drawing of it says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from headrace.cep.automaton import ACCEPT, Automaton, Bar, Edge, State
from headrace.cep.errors import CepError
from headrace.cep.expressions import TRUE, show
from headrace.cep.tree import Contiguity, Skip
from headrace.durations import in_words
from headrace.errors import harmless

MOST_BOXES: Final = 120
_LONGEST: Final = 300  # characters of a condition that goes to other processes
START: Final = 0


class TooLarge(CepError):
    """An automaton that nobody could follow in a picture."""


class Kind(Enum):
    START = "start"
    ROW = "row"
    MATCH = "match"


@dataclass(frozen=True)
class Box:
    kind: Kind
    title: str
    condition: str = ""
    """Of a row; at the start and the match what holds for the whole pattern."""
    is_excluded: bool = False


class Tone(Enum):
    """What a line on an arrow is about."""

    PLAIN = "plain"
    TIME = "time"
    NOT = "not"


@dataclass(frozen=True)
class Arrow:
    source: int
    target: int
    label: tuple[tuple[Tone, str], ...]
    contiguity: Contiguity
    """Strict at the start and at the end, where nothing lies between."""
    is_timed: bool = False
    """It is followed when a time is over, and not because a row came."""


@dataclass(frozen=True)
class Diagram:
    """Box 0 is the start, the last one the match, and those between are the automaton's states in their order."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    summary: str


def diagram_of(automaton: Automaton) -> Diagram:
    if len(automaton.states) > MOST_BOXES:
        raise TooLarge(
            f"this automaton has {len(automaton.states)} states, every repetition and order written out, and a picture "
            f"shows {MOST_BOXES} at most: read it in words"
        )
    rows = [_box(automaton, number, state) for number, state in enumerate(automaton.states)]
    within_us, after = automaton.tree.within_us, automaton.tree.after
    start = Box(Kind.START, "start", "" if within_us is None else f"all within {in_words(within_us)}")
    skip = " ".join(("then skip", after.skip.value, *sorted(after.variables))) if after.skip is not Skip.NONE else ""
    boxes = (start, *rows, Box(Kind.MATCH, "match", harmless(skip)))
    edges = [
        *((START, edge, len(automaton.starts)) for edge in automaton.starts),
        *(
            (number + 1, edge, len(state.edges))
            for number, state in enumerate(automaton.states)
            for edge in state.edges
        ),
    ]
    ranks: dict[int, int] = {}
    arrows = []
    for source, edge, siblings in edges:
        ranks[source] = ranks.get(source, 0) + 1
        rank = ranks[source] if automaton.tree.chooses_one and siblings > 1 else None
        arrows.append(_arrow(automaton, source, edge, len(boxes) - 1, rank))
    return Diagram(boxes, tuple(arrows), _summary(automaton))


def as_json(automaton: Automaton) -> dict[str, Any] | None:
    """The diagram for programs and other processes; None if it is too large."""
    try:
        diagram = diagram_of(automaton)
    except TooLarge:
        return None
    return {
        "summary": diagram.summary,
        "start": diagram.boxes[0].condition,
        "match": diagram.boxes[-1].condition,
        "boxes": [[box.title, _cut(box.condition), box.is_excluded] for box in diagram.boxes[1:-1]],
        "arrows": [
            [
                one.source,
                one.target,
                one.contiguity.name,
                one.is_timed,
                [[tone.name, _cut(text)] for tone, text in one.label],
            ]
            for one in diagram.arrows
        ],
    }


def from_json(given: Mapping[str, Any]) -> Diagram:
    """The diagram that `as_json` described; `ValueError` for anything else."""
    try:
        rows = [Box(Kind.ROW, str(title), str(condition), bool(out)) for title, condition, out in given["boxes"]]
        start, match = (str(given.get(name) or "") for name in ("start", "match"))
        boxes = (Box(Kind.START, "start", start), *rows, Box(Kind.MATCH, "match", match))
        arrows = tuple(
            Arrow(
                _number(source, boxes), _number(target, boxes), tuple((Tone[tone], str(text)) for tone, text in label),
                Contiguity[contiguity], bool(timed),
            )
            for source, target, contiguity, timed, label in given["arrows"]
        )  # fmt: skip
        return Diagram(boxes, arrows, str(given["summary"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"this describes no diagram: {error!r}") from None


def _number(given: object, boxes: Sequence[Box]) -> int:
    if not isinstance(given, int) or not 0 <= given < len(boxes):
        raise ValueError(f"there is no box {given!r}")
    return given


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def name_of(automaton: Automaton, number: int) -> str:
    """A state by its variable; numbered if the variable has several."""
    variable = automaton.states[number].variable
    same = [index for index, state in enumerate(automaton.states) if state.variable == variable]
    return variable if len(same) == 1 else f"{variable} {same.index(number) + 1}"


def condition_of(automaton: Automaton, test: int) -> str:
    """What its author wrote, in one line; nothing where any row will do."""
    found = automaton.tests[test]
    if found.condition == TRUE:
        return ""
    place = found.place
    written = "" if place is None else " ".join(place.text[place.start : place.end].split())
    return harmless(written or show(found.condition))


def _box(automaton: Automaton, number: int, state: State) -> Box:
    condition = condition_of(automaton, state.test)
    return Box(Kind.ROW, harmless(name_of(automaton, number)), condition or "any row", state.is_excluded)


def _arrow(automaton: Automaton, source: int, edge: Edge, match: int, rank: int | None) -> Arrow:
    label: list[tuple[Tone, str]] = []
    is_timed = edge.target == ACCEPT and not edge.is_immediate and not edge.next_bars
    if is_timed:
        length_us = edge.wait_us or automaton.tree.within_us
        label.append((Tone.TIME, f"when {in_words(length_us)} are over" if length_us else "when the time is over"))
    elif edge.target != ACCEPT and source != START:
        within = f", within {in_words(edge.within_us)}" if edge.within_us is not None else ""
        label.append((Tone.PLAIN, f"{edge.contiguity.value}{within}"))
    label += [(Tone.NOT, f"the next row is not {_bar(automaton, Bar(test))}") for test in edge.next_bars]
    label += [
        (Tone.NOT, f"no {_bar(automaton, Bar(test))}" + ("" if is_timed else f" for {in_words(for_us)}"))
        for test, for_us in edge.absences
    ]
    label += [(Tone.NOT, f"no {_bar(automaton, bar)} {'until then' if is_timed else 'before'}") for bar in edge.bars]
    if rank is not None:
        tone, text = label[0] if label else (Tone.PLAIN, "the end" if edge.target == ACCEPT else "")
        label[:1] = [(tone, f"{rank}. {text}".rstrip())]
    target = match if edge.target == ACCEPT else edge.target + 1
    contiguity = Contiguity.STRICT if edge.target == ACCEPT else edge.contiguity
    return Arrow(source, target, tuple(label), contiguity, is_timed)


def _bar(automaton: Automaton, bar: Bar) -> str:
    test = automaton.tests[bar.test]
    condition = condition_of(automaton, bar.test)
    if test.variable == "until" and condition:
        said = f"row with {condition}"
    else:
        said = f"{harmless(test.variable)} ({condition})" if condition else harmless(test.variable)
    if bar.unless is None:
        return said
    return f"{said} unless ({condition_of(automaton, bar.unless) or 'any row'})"


def _summary(automaton: Automaton) -> str:
    names: Sequence[str] = automaton.variables
    within = automaton.tree.within_us
    return f"{', '.join(map(harmless, names))}" + (f" within {in_words(within)}" if within else "")
