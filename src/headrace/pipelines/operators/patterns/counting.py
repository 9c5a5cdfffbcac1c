"""What can be said of patterns while they run, counted exactly once and cheaply. Pure.

A bucket leaves one text a call beside its results: how many rows its patterns have looked at, how many matches each has
found, and how many partial matches it has now. The last is not counted by looking at all keys. Partial matches that
nobody has to be woken for expire together in slots of time, so the bucket keeps, for each pattern and slot, how many
there are (`due`); and the keys that had most when they were stepped last (`crowded`).
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.cep.columnar import Stepped
from headrace.pipelines.keyed.operator import Keyed, State, Times, Values
from headrace.pipelines.operators.grouping import Longs
from headrace.pipelines.operators.patterns.shapes import Named

STATUS: Final = pa.field("_patterns", pa.string())
EVENTS: Final = "events"
MATCHES, TIMED_OUT, DROPPED = "matches", "timed out", "dropped"
_MOST_KEYS: Final = 10
_LONGEST_TEXT: Final = 4_000  # what is published with every micro-batch is small
_DUE: Final = pa.schema([("pattern", pa.int32()), ("until", pa.int64()), ("count", pa.int64())])
_CROWDED: Final = pa.schema(
    [("pattern", pa.int32()), ("key", pa.string()), ("count", pa.int64()), ("until", pa.int64())]
)


@dataclass
class Tally:
    """The numbers of one call."""

    keys: int
    found: Counter[str] = field(default_factory=Counter)
    due: Counter[tuple[int, int]] = field(default_factory=Counter)
    sizes: dict[int, tuple[Longs, Longs]] = field(default_factory=dict)
    """Of each pattern, how many partial matches each key has now, and until when."""

    def was(self, pattern: Longs, until: Longs, sizes: Longs) -> None:
        """What keys had before the call."""
        self._add(pattern, until, -sizes)

    def now(self, pattern: int, key: Longs, until: Longs, sizes: Longs) -> None:
        """What they have behind it."""
        self._add(np.full(len(until), pattern), until, sizes)
        mine = self.sizes[pattern] = np.zeros(self.keys, np.int64), np.zeros(self.keys, np.int64)
        mine[0][key], mine[1][key] = sizes, until

    def counted(self, pattern: int, done: Stepped) -> None:
        self.found[f"{MATCHES} {pattern}"] += len(done.matches)
        self.found[f"{TIMED_OUT} {pattern}"] += len(done.timed_out)
        self.found[f"{DROPPED} {pattern}"] += done.dropped

    def counts(self, rows: int) -> dict[str, int]:
        return {EVENTS: rows, **{name: count for name, count in self.found.items() if count}}

    def _add(self, pattern: Longs, until: Longs, sizes: Longs) -> None:
        for number in np.flatnonzero(np.bincount(pattern)).tolist() if len(pattern) else ():
            mine = pattern == number
            # There are few slots, and most often one: that is looked for before anything is sorted.
            times, counts = until[mine], sizes[mine]
            while len(times):
                at = int(times[0])
                here = times == at
                self.due[number, at] += int(counts[here].sum())
                times, counts = times[~here], counts[~here]


COUNTS: Final = (Values("due", _DUE), Values("crowded", _CROWDED))
"""The bucket's tables for it."""


@dataclass(frozen=True)
class Counted:
    """What to keep, and what to publish."""

    status: str
    put: dict[str, Keyed]
    delete: dict[str, Longs]


def count_all(
    names: Mapping[int, Named],
    others: Sequence[Named],
    changes: int,
    tally: Tally,
    keys: pa.RecordBatch,
    state: State,
    times: Times,
    rows: int,
) -> Counted:
    """The bucket's numbers behind a call; patterns that have no name any more are left out.

    `others` are patterns that do not run; `changes` is how many records of patterns were seen.
    """
    due = _due(names, tally, state, times)
    crowded = _crowded(names, tally, keys, state, times)
    kept = {"due": _common([(*place, count) for place, count in due.items()], _DUE)}
    kept["crowded"] = _common(crowded, _CROWDED)
    gone = {name: np.zeros(1, np.int64) for name, rows_of in kept.items() if not len(rows_of)}
    told = [_told(number, called, tally, state, due, crowded) for number, called in names.items()]
    told += [_told(-1, called, tally, state, {}, []) for called in others]
    status = {"bucket": state.bucket, "events": state.count(EVENTS) + rows, "changed": changes, "patterns": told}
    return Counted(
        json.dumps(status, ensure_ascii=False), {name: one for name, one in kept.items() if name not in gone}, gone
    )


def _told(
    number: int,
    called: Named,
    tally: Tally,
    state: State,
    due: Mapping[tuple[int, int], int],
    crowded: list[tuple[int, str, int, int]],
) -> dict[str, Any]:
    counts = {
        name: state.count(f"{what} {number}") + tally.found[f"{what} {number}"]
        for name, what in (("matches", MATCHES), ("timed_out", TIMED_OUT), ("dropped", DROPPED))
    }
    return {
        "name": called.name,
        "version": called.version,
        "state": called.state,
        "problem": called.problem,
        "text": called.text if called.text is not None and len(called.text) <= _LONGEST_TEXT else None,
        **counts,
        "partial": sum(count for (of, _), count in due.items() if of == number),
        "new": tally.found[f"{MATCHES} {number}"],
        "keys": [[key, count] for of, key, count, _ in crowded if of == number],
    }


def _due(names: Mapping[int, Named], tally: Tally, state: State, times: Times) -> dict[tuple[int, int], int]:
    """Of each pattern, how many partial matches are there until when; what is over has expired."""
    held = zip(*(column.to_pylist() for column in state.read("due").rows.columns), strict=True)
    found = Counter({(number, until): count for number, until, count in held})
    found.update(tally.due)
    return {
        (number, until): count
        for (number, until), count in sorted(found.items())
        if count > 0 and until > times.watermark_us and number in names
    }


def _crowded(
    names: Mapping[int, Named], tally: Tally, keys: pa.RecordBatch, state: State, times: Times
) -> list[tuple[int, str, int, int]]:
    """The keys with most partial matches of each pattern, most first, and until when they have them."""
    held = zip(*(column.to_pylist() for column in state.read("crowded").rows.columns), strict=True)
    found = {(number, key): (count, until) for number, key, count, until in held if number in names}
    texts = _texts(keys)
    chosen = {number: _largest(sizes) for number, (sizes, _) in tally.sizes.items()}
    if found:
        # What the call says of those that are remembered is newer.
        known = pa.array(sorted({key for _, key in found}), pa.string())
        again = np.flatnonzero(np.asarray(pc.is_in(texts, known)))
        chosen = {number: np.union1d(places, again) for number, places in chosen.items()}
    for number, places in chosen.items():
        sizes, until = tally.sizes[number]
        for place in places.tolist():
            found[number, texts[place].as_py()] = int(sizes[place]), int(until[place])
    kept: Counter[int] = Counter()
    told = []
    for (number, key), (count, until) in sorted(found.items(), key=lambda one: (-one[1][0], one[0])):
        if count and until > times.watermark_us and kept[number] < _MOST_KEYS:
            kept[number] += 1
            told.append((number, key, count, until))
    return told


def _largest(sizes: Longs) -> Longs:
    most = np.argpartition(-sizes, _MOST_KEYS)[:_MOST_KEYS] if len(sizes) > _MOST_KEYS else np.arange(len(sizes))
    return most[sizes[most] > 0]


def _texts(keys: pa.RecordBatch) -> pa.Array:
    """Keys for people to read."""
    columns = []
    for column in keys.columns:
        text = column if pa.types.is_string(column.type) else _as_text(column)
        columns.append(text.fill_null("NULL"))
    return columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, " · ")


def _as_text(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return pa.array([None if cell is None else str(cell) for cell in column.to_pylist()], pa.string())


def _common(rows: list[tuple[Any, ...]], schema: pa.Schema) -> Keyed:
    columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(schema)]
    return Keyed(np.zeros(len(rows), np.int64), pa.RecordBatch.from_arrays(columns, schema=schema))
