"""What the window operators share: when a window is over, and how its results are emitted: once and for good, or again
with a revision. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.pipelines.keyed.operator import (
    NEVER,
    NO_WATERMARK,
    Batch,
    Changes,
    Clock,
    Due,
    Keyed,
    State,
    Timers,
    Times,
)
from headrace.pipelines.operators.aggregation.algebra import Aggregate
from headrace.pipelines.operators.aggregation.fold import Fold, Folded, fold
from headrace.pipelines.operators.grouping import Longs, find, group_rows
from headrace.pipelines.operators.stragglers import ASIDE, Stragglers, aside_field, set_aside
from headrace.pipelines.operators.times import EARLIEST, TIMESTAMP, in_words, timestamps


@dataclass(frozen=True)
class Closing:
    """`grace_us` closes a window so long after its end by the wall clock, whatever the watermark says.

    `early_us` emits what there is of open windows so often, for keys that have new rows.
    """

    grace_us: int | None = None
    early_us: int | None = None

    @property
    def clock(self) -> Clock:
        """What has to wake the operator."""
        return Clock.EVENT if self.grace_us is None and self.early_us is None else Clock.WALL

    def reached(self, times: Times) -> int:
        """Up to where windows are over."""
        found = times.watermark_us
        if self.grace_us is not None and times.wall_us != NO_WATERMARK:
            found = max(found, times.wall_us - self.grace_us)
        return max(found, EARLIEST)

    def waiting(self, state: State) -> Longs:
        """When each key of the call is to be woken for the end of a window."""
        return state.timers(Clock.EVENT)

    def set_timers(self, changes: Changes, at_us: Longs, state: State, times: Times, *, fresh: bool) -> Changes:
        """The changes of a call with the timers of its keys, also by the wall clock: to end a window, to emit early."""
        every = np.arange(len(at_us))
        changes = replace(changes, event_timers=Timers(every, at_us))
        if self.clock is Clock.EVENT:
            return changes
        wanted = np.full(len(at_us), NEVER, np.int64)
        if self.grace_us is not None:
            ends = np.flatnonzero(at_us != NEVER)
            wanted[ends] = at_us[ends] + self.grace_us
        if self.early_us is not None:
            # The first row after an emission sets the time of the next one; later rows do not put it off.
            wanted = np.minimum(wanted, state.timers(Clock.WALL))
            wanted = np.minimum(wanted, times.wall_us + self.early_us) if fresh else wanted
        return replace(changes, wall_timers=Timers(every, wanted))

    def emits_early(self, due: Due) -> NDArray[np.bool_]:
        """The keys of which open windows are emitted now."""
        return np.asarray((due.wall_us != NEVER) & (self.early_us is not None), np.bool_)

    def due_from(self, due: Due, state: State) -> Longs:
        """The earliest end that each key waits for; a key woken by the wall clock still has its event timer set."""
        return np.minimum(due.event_us, state.timers(Clock.EVENT))


REVISION, RETRACTED, FINAL = "revision", "retracted", "final"
Flags = NDArray[np.bool_]
_NOBODY: Longs = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Emission:
    """`corrects` retracts what was emitted before; `early` emits open windows too, marked as not final."""

    corrects: bool
    early: bool

    @property
    def again(self) -> bool:
        """Whether anything is emitted more than once, and so has to be remembered."""
        return self.corrects or self.early

    def emit(
        self,
        output: pa.Schema,
        fold: Fold,
        key: Longs,
        end: Longs,
        start: Longs,
        windows: Folded,
        reached: int,
        emitted: Keyed | None,
    ) -> tuple[Keyed | None, Keyed | None]:
        """The rows to emit for windows, and what to remember of it; `emitted` is what is remembered so far."""
        over = end <= reached
        if emitted is None:
            return (Keyed(key, results_batch(output, start, end, windows)) if len(key) else None), None
        old = fold.load(emitted.rows.columns[3:])
        old_end, revision = (np.asarray(emitted.rows.column(at), np.int64) for at in range(2))
        remembered = Remembered(emitted.key, old_end, revision, np.asarray(emitted.rows.column(2)), old.rows)
        found = news(key, end, windows.rows, over, remembered, corrects=self.corrects)
        fresh, back, last = found.fresh, found.back, found.last
        if not len(fresh):
            return None, None
        windows = windows.take(fresh)
        rows = results_batch(output, start[fresh], end[fresh], windows, found.revision, final=over[fresh])
        if len(back):
            # What is taken back stands before what takes its place.
            gone = results_batch(output, start[back], end[back], old.take(last), revision[last],
                                 final=remembered.final[last], retracted=True)  # fmt: skip
            rows = pa.concat_batches([gone, rows])
        about = [pa.array(end[fresh]), pa.array(found.revision.astype(np.int32)), pa.array(over[fresh])]
        kept = pa.RecordBatch.from_arrays([*about, *windows.stored()], schema=emitted.rows.schema)
        return Keyed(np.concatenate([key[back], key[fresh]]), rows), Keyed(key[fresh], kept)


class Remembered(NamedTuple):
    """Emissions, several of a window among them: a window is known by two numbers, `of` and `at`."""

    of: Longs
    at: Longs
    revision: Longs
    final: Flags
    rows: Longs
    """How many rows of the input it had: only if that has changed is there anything new in it."""


class News(NamedTuple):
    """What to emit of windows, by their place: `fresh` with a revision, `back` retracts the emission `last`."""

    fresh: Longs
    revision: Longs
    back: Longs
    last: Longs


def news(of: Longs, at: Longs, rows: Longs, over: Flags, emitted: Remembered, *, corrects: bool) -> News:
    """Windows that are new, have changed or are over only now, against what was emitted of them."""
    groups = group_rows(emitted.of, emitted.at, then=(emitted.revision,))
    if not len(groups.starts):
        return News(np.arange(len(of)), np.ones(len(of), np.int64), _NOBODY, _NOBODY)
    latest = groups.order[groups.ends - 1]
    place = find(emitted.of[latest], emitted.at[latest], of, at, side="left")
    last = latest[np.minimum(place, len(latest) - 1)]
    known = (place < len(latest)) & (emitted.of[last] == of) & (emitted.at[last] == at)
    final = emitted.final[last]
    same = known & (((emitted.rows[last] == rows) & (final | ~over)) | (final & (not corrects)))
    fresh = np.flatnonzero(~same)
    back = fresh[known[fresh]] if corrects else _NOBODY
    return News(fresh, np.where(known, emitted.revision[last], 0)[fresh] + 1, back, last[back])


def emission_columns(emission: Emission) -> list[pa.Field]:
    """The columns about an emission."""
    columns = [pa.field(REVISION, pa.int32())] if emission.again else []
    columns += [pa.field(RETRACTED, pa.bool_())] if emission.corrects else []
    return columns + ([pa.field(FINAL, pa.bool_())] if emission.early else [])


def results_batch(
    output: pa.Schema,
    start: Longs,
    end: Longs,
    windows: Folded,
    revision: Longs | None = None,
    *,
    final: Flags | None = None,
    retracted: bool = False,
    carried: Sequence[pa.Array] = (),
) -> pa.RecordBatch:
    """Windows as rows of the output, behind the columns `carried`."""
    count = len(start)
    columns = [*carried, timestamps(start), timestamps(end), *windows.results()]
    for field in list(output)[len(columns) :]:
        if field.name == REVISION and revision is not None:
            columns.append(pa.array(revision.astype(np.int32)))
        elif field.name == RETRACTED:
            columns.append(pa.array(np.full(count, retracted)))
        elif field.name == FINAL:
            columns.append(pa.array(final))
        elif field.name == ASIDE:
            columns.append(pa.nulls(count, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=output)


class Windowed:
    """The base of the operators, which are dataclasses with these among their fields."""

    time: str
    aggregates: Mapping[str, Aggregate]
    stragglers: Stragglers
    closing: Closing
    rows: pa.Schema

    @property
    def parameters(self) -> dict[str, object]:
        """What all windows mean by what they keep: whose time, of what, and how long it is kept to be corrected."""
        late = in_words(self.stragglers.allowed_us) if self.stragglers.corrects else "never"
        aggregates = {f"aggregate {name}": each for name, each in self.aggregates.items()}
        return {"time": self.time, "stragglers corrected": late, **aggregates}

    @property
    def fold(self) -> Fold:
        return fold(self.aggregates, self.rows)

    @property
    def emission(self) -> Emission:
        """Whether results are emitted more than once."""
        return Emission(self.stragglers.corrects, self.closing.early_us is not None)

    @property
    def carried(self) -> list[pa.Field]:
        """Columns of a row that come out before its results."""
        return []

    @property
    def output(self) -> pa.Schema:
        """What comes out behind the keys."""
        edges = [pa.field("window_start", TIMESTAMP), pa.field("window_end", TIMESTAMP)]
        about = [*emission_columns(self.emission), aside_field(self.rows, self.stragglers)]
        return pa.schema([*self.carried, *edges, *self.fold.results, *about])

    def set_aside(
        self, batch: Batch, late: Flags, has_time: Flags, window: tuple[Longs, Longs], reached: int
    ) -> Keyed | None:
        """What to emit for rows that are late or have no time."""
        return set_aside(
            self.output, batch.key, batch.rows, late=late, timeless=~has_time, window=window, reached_us=reached
        )
