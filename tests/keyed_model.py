"""One bucket's state as plain dictionaries: slow, and plain enough to see that it is right.

It is what the levels are tested against, and a way to try an operator without Spark.
"""

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.checking import check_changes
from headrace.pipelines.keyed.operator import (
    NEVER,
    NO_WATERMARK,
    Batch,
    Changes,
    Clock,
    Due,
    Keyed,
    Longs,
    Operator,
    OrderedOperator,
    Plan,
    Table,
    Timers,
    Times,
)

Row = dict[str, Any]


def identity(value: Any) -> Hashable:
    """A key's value as a dictionary can hold it, with NaN equal to itself and -0.0 equal to 0.0."""
    if isinstance(value, float):
        return ("nan",) if math.isnan(value) else (value + 0.0)
    if isinstance(value, dict):
        return ("row", *((name, identity(part)) for name, part in value.items()))
    if isinstance(value, list | tuple):
        return ("list", *map(identity, value))
    return value if isinstance(value, Hashable) else repr(value)


def microseconds(value: Any) -> int:
    """A cell of a table's time column."""
    return int(pa.scalar(value, pa.timestamp("us")).value) if hasattr(value, "year") else int(value)


@dataclass
class ModelBucket:
    """The keys seen, each with its rows a table and its timers."""

    operator: Operator
    plan: Plan
    by: tuple[str, ...]
    keys: dict[Hashable, Row] = field(default_factory=dict)
    tables: dict[str, dict[Hashable, list[Row]]] = field(default_factory=dict)
    bounds: dict[str, int] = field(default_factory=dict)
    due: dict[Clock, dict[Hashable, int]] = field(default_factory=lambda: {Clock.EVENT: {}, Clock.WALL: {}})
    counts: dict[str, int] = field(default_factory=dict)
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    given: int = 0
    number: int = 0
    expiring: Mapping[str, int] = field(default_factory=dict)

    def rows(self, rows: pa.RecordBatch, times: Times) -> pa.RecordBatch:
        """What the operator says to new rows."""
        if self.plan.ordered is None:
            return self._given(rows, times, self.operator.on_rows)
        time, to_all = self.plan.ordered.time, self.plan.to_all
        at_once = [
            row[time] is None or microseconds(row[time]) <= times.watermark_us or bool(to_all and row[to_all])
            for row in rows.to_pylist()
        ]
        self.waiting += [rows.slice(number, 1) for number, one in enumerate(at_once) if not one]
        chosen = rows.take(pa.array([number for number, one in enumerate(at_once) if one], pa.int64()))
        operator = cast(OrderedOperator, self.operator)
        return self._given(chosen, times, operator.on_arrival) if len(chosen) else self._nothing(rows.schema)

    def _nothing(self, schema: pa.Schema) -> pa.RecordBatch:
        return emitted(self._key_rows(schema, []), None, self.plan)

    def in_order(self, schema: pa.Schema, times: Times) -> pa.RecordBatch | None:
        """What the operator says to rows that the watermark has passed."""
        ordered = self.plan.ordered
        if ordered is None:
            return None

        def place(row: Row) -> tuple[Any, ...]:
            ties = (-(2**63) if row[name] is None else row[name] for name in ordered.ties)
            return (microseconds(row[ordered.time]), *ties)

        due = [one for one in self.waiting if place(one.to_pylist()[0])[0] <= times.watermark_us]
        if not due:
            return None
        self.waiting = [one for one in self.waiting if one not in due]
        due.sort(key=lambda one: place(one.to_pylist()[0]))
        names = list(dict.fromkeys(self._name(one) for one in due))
        due.sort(key=lambda one: names.index(self._name(one)))
        rows = pa.concat_batches(list(due))
        number, self.given = self.given, self.given + len(due)

        def ask(batch: Batch, view: "_View", at: Times) -> Changes:
            changes = self.operator.on_rows(replace(batch, number=number), view, at)
            self.expiring = changes.expire  # behind the timers of this watermark
            return replace(changes, expire={})

        return self._given(rows, times, ask)

    def _name(self, one: pa.RecordBatch) -> Hashable:
        return tuple(map(identity, one.select(list(self.by)).to_pylist()[0].values()))

    def _given(
        self, rows: pa.RecordBatch, times: Times, ask: Callable[[Batch, "_View", Times], Changes]
    ) -> pa.RecordBatch:
        names: dict[Hashable, int] = {}
        numbers = []
        for key in rows.select(list(self.by)).to_pylist():
            name = tuple(map(identity, key.values()))
            self.keys.setdefault(name, key)
            numbers.append(names.setdefault(name, len(names)))
        if self.plan.to_all is not None and any(rows.column(self.plan.to_all).to_pylist()):
            for known in (known for table in self.plan.tables for known in self.tables.get(table.name, ())):
                names.setdefault(known, len(names))
        batch = Batch(self._key_rows(rows.schema, list(names)), np.array(numbers, np.int64), rows)
        view = _View(self, list(names))
        return self._keep(view, batch.keys, ask(batch, view, times))

    def timers(self, rows: pa.Schema, times: Times) -> pa.RecordBatch | None:
        """What the operator says to timers that have come, if any has; then what rows in order let expire is gone."""
        emitted = self._come(rows, times)
        for table in self.plan.tables:
            self._keep_table(table, [], Changes(expire=self.expiring))
        self.expiring = {}
        return emitted

    def _come(self, rows: pa.Schema, times: Times) -> pa.RecordBatch | None:
        clocks = {Clock.EVENT: times.watermark_us, Clock.WALL: times.wall_us}
        come = {clock: {n: at for n, at in self.due[clock].items() if at <= now} for clock, now in clocks.items()}
        names = list(dict.fromkeys([*come[Clock.EVENT], *come[Clock.WALL]]))
        if not names:
            return None
        at = {clock: np.array([come[clock].get(name, NEVER) for name in names], np.int64) for clock in come}
        for clock, gone in come.items():
            for name in gone:
                del self.due[clock][name]
        due = Due(self._key_rows(rows, names), at[Clock.EVENT], at[Clock.WALL])
        view = _View(self, names)
        return self._keep(view, due.keys, self.operator.on_timers(due, view, times))

    def table(self, name: str) -> list[tuple[Row, Row]]:
        """All that a table holds: keys and rows; what is common belongs to no key."""
        return [(self.keys.get(key, {}), row) for key, rows in self.tables.get(name, {}).items() for row in rows]

    def _key_rows(self, schema: pa.Schema, names: list[Hashable]) -> pa.RecordBatch:
        kinds = pa.schema([schema.field(name) for name in self.by])
        return pa.RecordBatch.from_pylist([self.keys[name] for name in names], schema=kinds)

    def _keep(self, view: "_View", keys: pa.RecordBatch, changes: Changes) -> pa.RecordBatch:
        check_changes(changes, self.plan, len(view.names))
        for table in self.plan.tables:
            self._keep_table(table, view.names, changes)
        for table in self.plan.common:
            self._keep_table(table, [()], changes)
        self._set(Clock.EVENT, view.names, changes.event_timers)
        self._set(Clock.WALL, view.names, changes.wall_timers)
        for name, count in changes.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        found = [emitted(keys, each, self.plan) for each in (changes.emit, *changes.more)]
        return pa.concat_batches(found)

    def _keep_table(self, table: Table, names: list[Hashable], changes: Changes) -> None:
        held = self.tables.setdefault(table.name, {})
        for number in changes.delete.get(table.name, ()):
            held.pop(names[number], None)
        if put := changes.put.get(table.name):
            for number in np.unique(put.key):
                held.pop(names[number], None)
        for given in (changes.put.get(table.name), changes.append.get(table.name)):
            if given is not None:
                for number, row in zip(given.key, given.rows.to_pylist(), strict=True):
                    held.setdefault(names[number], []).append(row)
        if table.time is None:
            return
        time = table.time
        bound = max(self.bounds.get(table.name, NO_WATERMARK), changes.expire.get(table.name, NO_WATERMARK))
        self.bounds[table.name] = bound
        for name, rows in list(held.items()):
            kept = sorted((r for r in rows if microseconds(r[time]) >= bound), key=lambda row: microseconds(row[time]))
            held[name] = kept
            if not kept:
                del held[name]

    def _set(self, clock: Clock, names: list[Hashable], timers: Timers | None) -> None:
        if timers is None:
            return
        for number, at in zip(timers.key.tolist(), timers.at_us.tolist(), strict=True):
            self.due[clock].pop(names[number], None)
            if at != NEVER:
                self.due[clock][names[number]] = at


class _View:
    """The state of some keys."""

    def __init__(self, bucket: ModelBucket, names: list[Hashable]) -> None:
        self._bucket = bucket
        self.names = names

    def read(self, table: str, some: Longs | None = None) -> Keyed:
        """Their rows of a table."""
        if table in {each.name for each in self._bucket.plan.common}:
            mine = next(each for each in self._bucket.plan.common if each.name == table)
            rows = self._bucket.tables.get(table, {}).get((), [])
            return Keyed(np.zeros(len(rows), np.int64), pa.RecordBatch.from_pylist(rows, schema=mine.schema))
        asked = range(len(self.names)) if some is None else some.tolist()
        schema = next(each.schema for each in self._bucket.plan.tables if each.name == table)
        held = self._bucket.tables.get(table, {})
        found = [(number, row) for number in asked for row in held.get(self.names[number], ())]
        rows = pa.RecordBatch.from_pylist([row for _, row in found], schema=schema)
        return Keyed(np.array([number for number, _ in found], np.int64), rows)

    def timers(self, clock: Clock) -> Longs:
        """Their timers."""
        return np.array([self._bucket.due[clock].get(name, NEVER) for name in self.names], np.int64)

    def count(self, name: str) -> int:
        """A counter."""
        return self._bucket.counts.get(name, 0)

    @property
    def bucket(self) -> int:
        """The bucket's number."""
        return self._bucket.number


def emitted(keys: pa.RecordBatch, emit: Keyed | None, plan: Plan) -> pa.RecordBatch:
    """The rows to emit, behind the columns of their keys."""
    schema = pa.schema([*keys.schema, *plan.output])
    if emit is None:
        return pa.RecordBatch.from_pylist([], schema=schema)
    taken = keys.take(pa.array(emit.key))
    return pa.RecordBatch.from_arrays([*taken.columns, *emit.rows.columns], schema=schema)
