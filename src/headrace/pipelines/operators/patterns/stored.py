"""Patterns that come, change and go while a query runs, from the records of a topic. Pure.

Every bucket keeps all patterns, in the common table `patterns`, with what is wrong with those that cannot be read. A
record takes effect at the watermark that it comes with: rows after that are matched by what it says, because none of
them has been looked at yet. What an older version had begun is dropped, and counted; so it is when a pattern is paused,
since it would miss rows. A record that says what is known already changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.cep.columnar import ColumnarProgram
from headrace.cep.errors import CepError, InvalidPattern
from headrace.cep.partial import Cap
from headrace.cep.stored import PAUSED, RUNNING, read_name, read_stored
from headrace.pipelines.keyed.operator import Keyed, State, Values
from headrace.pipelines.operators.aggregation.algebra import PREPARED
from headrace.pipelines.operators.patterns.packing import Layout
from headrace.pipelines.operators.patterns.shapes import Named
from headrace.pipelines.operators.patterns.watched import Watched

PATTERNS: Final = "patterns"
CHANGES: Final = "changes of patterns"
FAILED: Final = "failed"
IS_PATTERN, KEY, VALUE, PARTITION, OFFSET = (
    f"{PREPARED}pattern {part}" for part in ("flag", "key", "value", "partition", "offset")
)
_LONGEST_PROBLEM: Final = 1_000
_SCHEMA: Final = pa.schema(
    [
        ("name", pa.string()),
        ("number", pa.int32()),
        ("version", pa.string()),
        ("text", pa.string()),
        ("state", pa.string()),
        ("problem", pa.string()),
    ]
)


@dataclass(frozen=True)
class Known:
    """A pattern as its last record says; `number` is what its state is known by, a new one for each version."""

    name: str
    number: int
    version: str
    text: str
    state: str
    problem: str | None

    @property
    def called(self) -> Named:
        return Named(self.name, self.version, self.state, self.problem, self.text)


class Record(NamedTuple):
    """A record of the topic."""

    key: bytes | None
    value: bytes | None
    offset: int


@dataclass(frozen=True)
class FromTopic:
    """The patterns of a topic, over rows with these columns."""

    schema: pa.Schema
    cap: Cap
    by: tuple[str, ...]
    time: str

    @property
    def common(self) -> tuple[Values, ...]:
        return (Values(PATTERNS, _SCHEMA),)

    def watched(self, state: State) -> Sequence[Watched]:
        """Those that run."""
        return [
            Watched(one.number, self.program(one.text), one.called) for one in self.known(state) if one.state == RUNNING
        ]

    def known(self, state: State) -> list[Known]:
        return [Known(**row) for row in state.read(PATTERNS).rows.to_pylist()]

    def others(self, state: State) -> list[Named]:
        """Those that do not run: paused, and failed ones."""
        return [one.called for one in self.known(state) if one.state != RUNNING]

    def program(self, text: str) -> ColumnarProgram:
        """The pattern of a text, ready to be stepped; `CepError` says what is wrong with it."""
        return _program(self, text)

    def changed(self, records: Sequence[Record], state: State) -> "Changed":
        """What some records, in their order, make of the patterns."""
        known = {one.name: one for one in self.known(state)}
        before, number = dict(known), state.count(CHANGES)
        unnamed = 0
        for record in records:
            number += 1
            try:
                name = read_name(record.key)
            except InvalidPattern:
                unnamed += 1
                continue
            if record.value is None:
                known.pop(name, None)
                continue
            found = self._read(name, number, record)
            if name not in known or (found.text, found.state) != (known[name].text, known[name].state):
                known[name] = found
        numbers = {one.number for one in known.values()}
        gone = frozenset(one.number for one in before.values() if one.number not in numbers)
        return Changed(tuple(known[name] for name in sorted(known)), gone, len(records), unnamed)

    def _read(self, name: str, number: int, record: Record) -> Known:
        text = ""
        try:
            stored = read_stored(name, record.value or b"")
            text = stored.text
            self.program(text)
        except CepError as error:
            return Known(name, number, str(record.offset), text, FAILED, _short(str(error)))
        except Exception as error:  # noqa: BLE001 - whatever one user writes, the patterns of others go on
            problem = _short(f"it cannot be run: {type(error).__name__}: {error}")
            return Known(name, number, str(record.offset), text, FAILED, problem)
        return Known(name, number, str(record.offset), text, PAUSED if stored.state == PAUSED else RUNNING, None)


@dataclass(frozen=True)
class Changed:
    """The patterns there are now, and by their numbers those that are not any more, or are others."""

    known: tuple[Known, ...]
    gone: frozenset[int]
    records: int
    unnamed: int

    def stored(self) -> Keyed:
        rows = [one.__dict__ for one in self.known]
        return Keyed(np.zeros(len(rows), np.int64), pa.RecordBatch.from_pylist(rows, schema=_SCHEMA))


@lru_cache(maxsize=1_000)
def _program(source: FromTopic, text: str) -> ColumnarProgram:
    from headrace.cep.spelling import read_pattern

    pattern = read_pattern(text)
    tree = pattern.tree
    if tree.partition not in ((), source.by):
        raise InvalidPattern(
            f"it has PARTITION BY {', '.join(tree.partition)}, and all patterns here are matched by "
            f"{', '.join(source.by) or 'no key'}: leave it out"
        )
    if tree.order not in (None, source.time):
        raise InvalidPattern(f"it has ORDER BY {tree.order}, and rows here go by {source.time}: leave it out")
    automaton = pattern.compile(source.schema.names)
    if automaton.tree.within_us is None:
        raise InvalidPattern("a pattern from a topic lets its rows go by time: add `within`", tree.place)
    # Which rows a pattern looks at is its own business, and what it is matched by that of the query.
    made = ColumnarProgram(replace(automaton, tree=replace(tree, partition=(), order=None)), source.cap,
                           schema=source.schema)  # fmt: skip
    # What cannot be evaluated or kept is found out now, and not by the first row.
    made.evaluate(pa.RecordBatch.from_arrays([pa.nulls(1, one.type) for one in source.schema], schema=source.schema))
    Layout(made.tables)
    return made


def _short(problem: str) -> str:
    """What is wrong, as text that can be stored, and no longer than what is told with every micro-batch may be."""
    text = problem.encode(errors="backslashreplace").decode()
    return text if len(text) <= _LONGEST_PROBLEM else f"{text[:_LONGEST_PROBLEM]}…"
