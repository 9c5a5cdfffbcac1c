"""The first rows of windows whose results are corrected: what is no longer among the first is retracted.

State, for each window (and value of `by`): `held`, its results as they are now; `top`, the rows that were emitted and
stand; `said`, how often anything was. It is all dropped when no result of the window can be corrected any more.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.operator import (
    NOTHING,
    Batch,
    Changes,
    Clock,
    Due,
    Keyed,
    Plan,
    State,
    Timers,
    Times,
    Values,
)
from headrace.pipelines.operators.aggregation.heads import RANK_FIELD
from headrace.pipelines.operators.aggregation.ordering import first_ranked, places, ranks
from headrace.pipelines.operators.grouping import Longs, group_rows, highest
from headrace.pipelines.operators.times import EARLIEST, times_of
from headrace.pipelines.operators.windows.results import RETRACTED, REVISION

HELD, TOP, SAID = "held", "top", "said"
_SAID = pa.schema([("revision", pa.int64())])


@dataclass(frozen=True)
class CorrectedRanks:
    """The operator, keyed by window: `order` are names and whether from the greatest down, `columns` all of a row."""

    n: int
    order: tuple[tuple[str, bool], ...]
    ties: str
    columns: tuple[str, ...]
    rows: pa.Schema

    @property
    def _row(self) -> list[pa.Field]:
        return [self.rows.field(name) for name in self.columns]

    @property
    def output(self) -> pa.Schema:
        return pa.schema([*self._row, RANK_FIELD, (REVISION, pa.int32()), (RETRACTED, pa.bool_())])

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        top = pa.schema([*self._row, RANK_FIELD, pa.field(REVISION, pa.int32())])
        tables = (Values(HELD, pa.schema(self._row)), Values(TOP, top), Values(SAID, _SAID))
        parameters = {"columns": " ".join(self.columns)}
        return Plan(self.output, tables, Clock.EVENT, parameters=parameters)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """Results that are there now; ranked when all of the micro-batch have come."""
        if not len(batch):
            return NOTHING
        old = state.read(HELD)
        fresh = batch.rows.select(self.columns)
        rows = pa.concat_batches([old.rows, pa.RecordBatch.from_arrays(fresh.columns, schema=old.rows.schema)])
        key = np.concatenate([old.key, batch.key])
        gone = np.asarray(batch.rows.column(RETRACTED).fill_null(False))
        weight = np.concatenate([np.ones(len(old), np.int64), np.where(gone, -1, 1)])
        groups = group_rows(key, ranks(rows.columns)[0])
        often = np.maximum(np.add.reduceat(weight[groups.order], groups.starts), 0)
        chosen = np.repeat(groups.firsts, often)
        count = batch.keys.num_rows
        every = np.arange(count)
        return Changes(
            put={HELD: Keyed(key[chosen], rows.take(pa.array(chosen)))},
            delete={HELD: np.setdiff1d(every, key[chosen])},
            event_timers=Timers(every, np.full(count, EARLIEST)),
        )

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        """What is among the first now and was not emitted, and the other way round; or the end of a window's time."""
        count, every = len(due), np.arange(len(due))
        held, top, said = state.read(HELD), state.read(TOP), state.read(SAID)
        chosen, rank = self._first(held)
        columns = [column.take(pa.array(chosen)) for column in held.rows.columns]
        now = [*columns, pa.array(rank, RANK_FIELD.type)]
        key = np.concatenate([top.key, held.key[chosen]])
        whole = [pa.concat_arrays([old, new]) for old, new in zip(top.rows.columns[:-1], now, strict=True)]
        is_new = np.arange(len(key)) >= len(top)
        # Equal rows stand for each other, as often as they are there.
        groups = group_rows(key, ranks(whole)[0], then=(is_new,))
        place = np.arange(len(key)) - np.repeat(groups.starts, groups.ends - groups.starts)
        news = is_new[groups.order]
        olds = np.repeat(np.add.reduceat(~news, groups.starts), groups.ends - groups.starts) if len(key) else place
        number = np.empty(len(key), np.int64)
        number[groups.order] = np.where(news, place - olds, place)
        total = np.empty((2, len(key)), np.int64)
        total[:, groups.order] = [olds, np.repeat(groups.ends - groups.starts, groups.ends - groups.starts) - olds]
        fresh = np.flatnonzero((is_new & (number >= total[0]))[len(top) :])
        back = np.flatnonzero((~is_new & (number >= total[1]))[: len(top)])
        stays = np.setdiff1d(np.arange(len(top)), back)
        last = highest(count, said.key, np.asarray(said.rows.column(0)), 0)
        touched = np.zeros(count, np.bool_)
        touched[top.key[back]] = touched[held.key[chosen][fresh]] = True
        revision = last + touched
        whose = held.key[chosen][fresh]
        added = pa.RecordBatch.from_arrays(
            [*(column.take(pa.array(fresh)) for column in now), pa.array(revision[whose], pa.int32())],
            schema=top.rows.schema,
        )
        emit = [self._emitted(top.rows.take(pa.array(back)), retracted=True), self._emitted(added, retracted=False)]
        end, _ = times_of(due.keys.column("window_end"))
        over = end <= times.watermark_us
        keys = np.concatenate([top.key[stays], whose])
        rows = pa.concat_batches([top.rows.take(pa.array(stays)), added])
        kept = np.flatnonzero(~over[keys])
        counted = np.flatnonzero(~over & (revision > 0))
        put_top = Keyed(keys[kept], rows.take(pa.array(kept)))
        put_said = Keyed(counted, pa.RecordBatch.from_arrays([pa.array(revision[counted])], schema=_SAID))
        return Changes(
            emit=Keyed(np.concatenate([top.key[back], whose]), pa.concat_batches(emit)),
            put={TOP: put_top, SAID: put_said},
            delete={
                HELD: np.flatnonzero(over),
                TOP: np.setdiff1d(every, put_top.key),
                SAID: np.setdiff1d(every, counted),
            },
            event_timers=Timers(every[~over], end[~over]),
        )

    def _first(self, held: Keyed) -> tuple[Longs, Longs]:
        """The first rows of each key, and their ranks."""
        names = [name for name, _ in self.order]
        others = [name for name in self.columns if name not in names]
        columns = [held.rows.column(name) for name in (*names, *others)]
        down = [*(down for _, down in self.order), *([False] * len(others))]
        tie = places(columns[: len(names)], down[: len(names)])
        order = np.lexsort((places(columns, down), held.key))
        rows, rank = first_ranked(held.key[order], tie[order], np.ones(len(order), np.int64), self.n, self.ties)
        return order[rows], rank

    def _emitted(self, rows: pa.RecordBatch, *, retracted: bool) -> pa.RecordBatch:
        flags = pa.array(np.full(rows.num_rows, retracted))
        return pa.RecordBatch.from_arrays([*rows.columns, flags], schema=self.output)
