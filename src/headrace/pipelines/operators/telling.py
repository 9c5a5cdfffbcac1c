"""How results are told: once and for good, or again and again with a revision. Pure."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.operator import Keyed
from headrace.pipelines.operators.asides import timestamps
from headrace.pipelines.operators.fold import Fold, Folded
from headrace.pipelines.operators.grouping import Longs, find, grouped
from headrace.pipelines.operators.stragglers import ASIDE

REVISION, RETRACTED, FINAL = "revision", "retracted", "final"


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
            if not len(key):
                return None, None
            return Keyed(key, results_batch(output, start, end, windows)), None
        before_end = np.asarray(told.rows.column(0))
        revision = np.asarray(told.rows.column(1), np.int64)
        # The latest revision of each window told, in the order of keys and ends.
        groups = grouped(told.key, before_end, then=(revision,))
        latest = groups.order[groups.ends - 1] if len(groups.starts) else groups.order
        old_key, old_end = told.key[latest], before_end[latest]
        old = fold.load(told.rows.columns[3:]).take(latest)
        at = find(old_key, old_end, key, end, side="left")
        inside = np.minimum(at, max(len(latest) - 1, 0))
        known = (
            (at < len(latest)) & (old_key[inside] == key) & (old_end[inside] == end) if len(latest) else over & False
        )
        same = np.zeros(len(key), np.bool_)
        last_revision = np.zeros(len(key), np.int64)
        if len(latest):
            was_final = np.asarray(told.rows.column(2))[latest]
            unchanged = (old.rows[inside] == windows.rows) & (was_final[inside] | ~over)
            same = known & (unchanged | (was_final[inside] & (not self.corrects)))
            last_revision = np.where(known, revision[latest][inside], 0)
        news = np.flatnonzero(~same)
        if not len(news):
            return None, None
        windows, now = windows.take(news), last_revision[news] + 1
        rows = results_batch(output, start[news], end[news], windows, now, final=over[news], retracted=False)
        fresh = Keyed(key[news], rows)
        about = [pa.array(end[news]), pa.array(now.astype(np.int32)), pa.array(over[news])]
        kept = pa.RecordBatch.from_arrays([*about, *windows.stored()], schema=told.rows.schema)
        if self.corrects and known[news].any():
            back = news[known[news]]
            taken = old.take(inside[back])
            final = np.asarray(told.rows.column(2))[latest][inside[back]]
            rows = results_batch(
                output, start[back], end[back], taken, last_revision[back], final=final, retracted=True
            )
            # What is taken back stands before what takes its place.
            both = pa.concat_batches([rows, fresh.rows])
            fresh = Keyed(np.concatenate([key[back], fresh.key]), both)
        return fresh, Keyed(key[news], kept)


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
    final: "np.typing.NDArray[np.bool_] | None" = None,
    retracted: bool = False,
) -> pa.RecordBatch:
    """Windows as rows of the output."""
    count = len(start)
    columns = [timestamps(start), timestamps(end), *windows.results()]
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
