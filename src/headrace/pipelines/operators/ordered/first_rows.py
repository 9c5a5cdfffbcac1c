"""`first_rows`: of each key the first rows by event time, as they are.

State: `begun`, the time of each key's first row and how many were let through, for ever.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.pipelines.keyed.operator import NEVER, Keyed, State, Table, Values
from headrace.pipelines.operators.errors import BadWindow, as_names
from headrace.pipelines.operators.frames import Transform
from headrace.pipelines.operators.grouping import lowest
from headrace.pipelines.operators.ordered.in_order import Ready, Stepped, check_stragglers, put_in_order, time_of
from headrace.pipelines.operators.ordered.rolling import check_rows
from headrace.pipelines.operators.stragglers import ASIDE, Stragglers, drop
from headrace.pipelines.operators.times import Interval, in_words, positive


def first_rows(
    rows: int | None = None,
    *,
    within: Interval | None = None,
    by: str | Sequence[str] = (),
    time: str | None = None,
    stragglers: Stragglers | None = None,
    buckets: int | None = None,
) -> Transform:
    """The first `rows` rows of each key by event time, or those that are less than `within` behind the first; or both.

    They come out as they are, when the watermark has reached them. Every key is remembered for ever. The last rows
    instead of the first: `latest`, and `top_rows` on a table. The first of a window: `top_n`.
    """
    count = None if rows is None else check_rows(rows, "first_rows")
    within_us = None if within is None else positive(within, "within in first_rows")
    if count is None and within_us is None:
        raise BadWindow("first_rows has no end: write how many rows, or within='1 hour'")
    keys, choice = as_names(by), stragglers or drop()
    check_stragglers(choice, "first_rows")

    def apply(frame: DataFrame) -> DataFrame:
        mark = time_of(frame, time, keys, "first_rows")
        timed, at = mark.at_hand(frame)
        carried = tuple(name for name in frame.columns if name not in keys)
        found = put_in_order(timed, at, carried, keys, choice, buckets,
                             lambda schema: FirstRows(count, within_us, carried, schema))  # fmt: skip
        names = [*frame.columns, *(name for name in found.columns if name == ASIDE)]
        return found.select(*(f"`{name}`" for name in names)).transform(mark.put)

    return apply


BEGUN = "begun"
_BEGUN = pa.schema([("at", pa.int64()), ("rows", pa.int64())])


@dataclass(frozen=True)
class FirstRows:
    """The step."""

    count: int | None
    within: int | None
    carried: tuple[str, ...]
    rows: pa.Schema

    @property
    def parameters(self) -> Mapping[str, object]:
        return {"within": "ever" if self.within is None else in_words(self.within)}

    @property
    def tables(self) -> tuple[Table, ...]:
        return (Values(BEGUN, _BEGUN),)

    @property
    def output(self) -> pa.Schema:
        return pa.schema([self.rows.field(name) for name in self.carried])

    def run(self, ready: Ready, state: State) -> Stepped:
        old = state.read(BEGUN)
        begun = lowest(ready.keys, old.key, np.asarray(old.rows.column(0)), NEVER)
        before = np.zeros(ready.keys, np.int64)
        before[old.key] = np.asarray(old.rows.column(1))
        begun = np.where(begun == NEVER, lowest(ready.keys, ready.key, ready.time, NEVER), begun)
        through = np.ones(len(ready.key), np.bool_)
        if self.within is not None:
            through &= ready.time - begun[ready.key] < self.within
        if self.count is not None:
            rank = np.arange(len(ready.key)) - np.searchsorted(ready.key, ready.key)
            through &= before[ready.key] + rank < self.count
        chosen = np.flatnonzero(through)
        total = before + np.bincount(ready.key[chosen], minlength=ready.keys)
        known = np.flatnonzero(begun != NEVER)
        kept = pa.RecordBatch.from_arrays([pa.array(begun[known]), pa.array(total[known])], schema=_BEGUN)
        emit = Keyed(ready.key[chosen], ready.rows.select(self.carried).take(pa.array(chosen)))
        return Stepped(emit, np.full(ready.keys, NEVER, np.int64), put={BEGUN: Keyed(known, kept)})
