"""How results are told: once and for good, or again and again with a revision. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.pipelines.keyed.operator import Keyed
from headrace.pipelines.operators.asides import timestamps
from headrace.pipelines.operators.fold import Fold, Folded
from headrace.pipelines.operators.grouping import Longs, find, grouped
from headrace.pipelines.operators.stragglers import ASIDE

REVISION, RETRACTED, FINAL = "revision", "retracted", "final"
Flags = NDArray[np.bool_]
_NOBODY: Longs = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Telling:
    """`corrects` takes back what was told before; `early` tells open windows too, marked as not final."""

    corrects: bool
    early: bool

    @property
    def again(self) -> bool:
        """Whether anything is told more than once, and so has to be remembered."""
        return self.corrects or self.early

    def told(
        self,
        output: pa.Schema,
        fold: Fold,
        key: Longs,
        end: Longs,
        start: Longs,
        windows: Folded,
        reached: int,
        told: Keyed | None,
    ) -> tuple[Keyed | None, Keyed | None]:
        """The rows to emit for windows, and what to remember of it; `told` is what is remembered so far."""
        over = end <= reached
        if told is None:
            return (Keyed(key, results_batch(output, start, end, windows)) if len(key) else None), None
        old = fold.load(told.rows.columns[3:])
        old_end, revision = (np.asarray(told.rows.column(at), np.int64) for at in range(2))
        remembered = Remembered(told.key, old_end, revision, np.asarray(told.rows.column(2)), old.rows)
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
        kept = pa.RecordBatch.from_arrays([*about, *windows.stored()], schema=told.rows.schema)
        return Keyed(np.concatenate([key[back], key[fresh]]), rows), Keyed(key[fresh], kept)


class Remembered(NamedTuple):
    """Tellings, several of a window among them: a window is known by two numbers, `of` and `at`."""

    of: Longs
    at: Longs
    revision: Longs
    final: Flags
    rows: Longs
    """How many rows of the input it had: only if that has changed is there anything new in it."""


class News(NamedTuple):
    """What is to be told of windows, by their place: `fresh` with a revision, `back` takes back the telling `last`."""

    fresh: Longs
    revision: Longs
    back: Longs
    last: Longs


def news(of: Longs, at: Longs, rows: Longs, over: Flags, told: Remembered, *, corrects: bool) -> News:
    """Windows that are new, have changed or are over only now, against what was told of them."""
    groups = grouped(told.of, told.at, then=(told.revision,))
    if not len(groups.starts):
        return News(np.arange(len(of)), np.ones(len(of), np.int64), _NOBODY, _NOBODY)
    latest = groups.order[groups.ends - 1]
    place = find(told.of[latest], told.at[latest], of, at, side="left")
    last = latest[np.minimum(place, len(latest) - 1)]
    known = (place < len(latest)) & (told.of[last] == of) & (told.at[last] == at)
    final = told.final[last]
    same = known & (((told.rows[last] == rows) & (final | ~over)) | (final & (not corrects)))
    fresh = np.flatnonzero(~same)
    back = fresh[known[fresh]] if corrects else _NOBODY
    return News(fresh, np.where(known, told.revision[last], 0)[fresh] + 1, back, last[back])


def tells_columns(telling: Telling) -> list[pa.Field]:
    """The columns about a telling."""
    columns = [pa.field(REVISION, pa.int32())] if telling.again else []
    columns += [pa.field(RETRACTED, pa.bool_())] if telling.corrects else []
    return columns + ([pa.field(FINAL, pa.bool_())] if telling.early else [])


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
