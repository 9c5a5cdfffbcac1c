"""Patterns over keyed state without Spark: streams as they may come, and what the plain matcher says of them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.cep.automaton import Automaton
from headrace.cep.columnar import ColumnarProgram
from headrace.cep.match import Match
from headrace.cep.matcher import Matcher
from headrace.cep.partial import Cap
from headrace.pipelines.keyed.operator import FINAL_WATERMARK, Ordered
from headrace.pipelines.operators.patterns.operator import Fixed, MatchPatterns
from headrace.pipelines.operators.patterns.shapes import ROWS, TIMED_OUT, Named, Several
from headrace.pipelines.operators.patterns.watched import Watched
from headrace.pipelines.operators.stragglers import ASIDE, drop, side_output
from headrace.pipelines.operators.times import TIMESTAMP
from tests.keyed_memory import MemoryRunner

SCHEMA = pa.schema([("k", pa.string()), ("t", TIMESTAMP), ("x", pa.int64()), ("offset", pa.int64())])
OTHERS = pa.schema([field for field in SCHEMA if field.name != "k"])
Row = dict[str, Any]
Found = tuple[int, tuple[tuple[str, int], ...]]
"""When a match was known, and its rows: variable and offset."""


def watched(automata: Sequence[Automaton], cap: Cap, schema: pa.Schema = SCHEMA) -> tuple[Watched, ...]:
    return tuple(
        Watched(number, ColumnarProgram(one, cap, schema=schema), Named(f"p{number}"))
        for number, one in enumerate(automata)
    )


def operator_of(
    automata: Sequence[Automaton], cap: Cap, *, timed_out: bool = True, hands_on: bool = False
) -> MatchPatterns:
    """Patterns p0, p1, … as one operator."""
    return MatchPatterns(
        Fixed(watched(automata, cap)),
        Several(OTHERS, marks_timed_out=timed_out),
        Ordered("t", ("offset",)),
        SCHEMA,
        side_output() if hands_on else drop(),
        timed_out,
    )


class Stream:
    """An operator fed by micro-batches; what it found, by pattern and key."""

    def __init__(self, operator: MatchPatterns, *, buckets: int = 1, call_rows: int | None = None, model: bool = False):
        self.runner = MemoryRunner(operator, by=["k"], schema=SCHEMA, buckets=buckets, call_rows=call_rows, model=model)
        self.matches: dict[tuple[str, Any], list[Found]] = defaultdict(list)
        self.timed_out: dict[tuple[str, Any], list[Found]] = defaultdict(list)
        self.late = 0
        self.statuses: list[str] = []

    def batch(self, rows: Sequence[Row], watermark_us: int) -> None:
        for row in self.runner.batch(rows, watermark_us=watermark_us).to_pylist():
            if row["_patterns"] is not None:
                self.statuses.append(row["_patterns"])
            elif row[ASIDE] is not None:
                self.late += row[ASIDE]["rows"]
            else:
                target = self.timed_out if row.get(TIMED_OUT) else self.matches
                rows_of = tuple((one["variable"], one["offset"]) for one in row[ROWS])
                target[row["pattern"], row["k"]].append((micros(row["match_time"]), rows_of))

    def end(self, watermark_us: int = FINAL_WATERMARK) -> None:
        """No row will come any more; or none for long."""
        self.batch([], watermark_us)


def micros(value: Any) -> int:
    return int(pa.scalar(value, TIMESTAMP).value)


@dataclass(frozen=True)
class Plain:
    """What the plain matcher finds, by key; which partial matches ran out of time; and how many are left."""

    matches: dict[Any, list[Found]]
    timed_out: dict[Any, list[Found]]
    partial: int


def plain(automaton: Automaton, rows: Sequence[Row], cap: Cap, until_us: int = FINAL_WATERMARK) -> Plain:
    """Rows in their order, until they end; or until the watermark is there."""
    over: list[Match] = []
    matcher = Matcher(
        lambda _: automaton, key=("k",), time="t", unit="us", lateness_us=None, cap=cap, on_timed_out=over.append
    )
    found = [match for row in rows for match in matcher.push(row)]
    found += matcher.finish() if until_us == FINAL_WATERMARK else matcher.advance(until_us)
    return Plain(_by_key(found), _by_key(over), matcher.partial_matches)


def _by_key(matches: Sequence[Match]) -> dict[Any, list[Found]]:
    found: dict[Any, list[Found]] = defaultdict(list)
    for one in matches:
        found[one.key[0]].append((one.time_us, tuple((name, event.values["offset"]) for name, event in one.rows)))
    return found
