"""One bucket's state in levels: calls the operator, keeps what it says, and knows when to be woken.

Nothing is stored before `flush`: runs that a later call of the same micro-batch merged away are never written.
"""

import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipelines.keyed import levels
from headrace.pipelines.keyed.checking import check_changes, check_emitted
from headrace.pipelines.keyed.keys import Keys, decode, distinct, encode, join_keys
from headrace.pipelines.keyed.layout import decode_run, encode_run
from headrace.pipelines.keyed.manifest import Manifest, Woken
from headrace.pipelines.keyed.operator import (
    NEVER,
    BadState,
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
    Values,
)
from headrace.pipelines.keyed.order import (
    HASHES,
    ORDERED,
    WAITING,
    check_ordered,
    due_rows,
    no_key,
    order_rows,
    split_arrivals,
    waiting_table,
)
from headrace.pipelines.keyed.run import Run, make_run, times_of

_AT = pa.schema([pa.field("at_us", pa.int64(), nullable=False)])
TIMERS: Mapping[Clock, Values] = {
    Clock.EVENT: Values("(event timers)", _AT, "at_us"),
    Clock.WALL: Values("(wall timers)", _AT, "at_us"),
}
"""The tables of timers: a row for each key that has one."""
_NONE = np.empty(0, np.int64)


class Store(Protocol):
    """Where the bytes of runs are kept."""

    def get(self, identity: str) -> bytes:
        """The bytes of a run."""
        ...

    def put(self, identity: str, data: bytes) -> None:
        """Keep a run."""
        ...

    def remove(self, identity: str) -> None:
        """A run that no manifest names any more."""
        ...


class RunCache:
    """The decoded runs that a process used last, as many as fit into a number of bytes.

    Runs never change and no two have one id, so what is kept under an id is right whichever query, partition or attempt
    asks for it, and nothing need ever be declared stale.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0
        self._runs: OrderedDict[str, tuple[Run, int]] = OrderedDict()

    def get(self, identity: str, load: Callable[[str], Run]) -> Run:
        """The run of that id, loaded if it is not here."""
        if (held := self._runs.get(identity)) is not None:
            self._runs.move_to_end(identity)
            self.hits += 1
            return held[0]
        self.misses += 1
        run = load(identity)
        self.put(identity, run)
        return run

    def put(self, identity: str, run: Run) -> None:
        """Keep a run; those not used for longest go, and one that is too large alone is not kept."""
        size = run.size_bytes
        self.drop(identity)
        self._runs[identity] = (run, size)
        self.size_bytes += size
        while self.size_bytes > self.limit_bytes:
            _, (_, gone) = self._runs.popitem(last=False)
            self.size_bytes -= gone

    def drop(self, identity: str) -> None:
        """Forget a run, which was merged into another."""
        if (held := self._runs.pop(identity, None)) is not None:
            self.size_bytes -= held[1]


def fresh_identity() -> str:
    """An id that no other run has, in no query and no attempt."""
    return uuid.uuid4().hex


class Bucket:
    """A bucket as it stands in one micro-batch; `manifest` and what `flush` writes are all that lives on."""

    def __init__(
        self,
        operator: Operator,
        plan: Plan,
        keys: pa.Schema,
        *,
        manifest: Manifest,
        store: Store,
        cache: RunCache,
        identity: Callable[[], str] = fresh_identity,
        number: int = 0,
    ) -> None:
        self.manifest = manifest
        self.number = number
        self._operator = operator
        self._plan = plan
        self._keys = keys
        self._store = store
        self._cache = cache
        self._identity = identity
        self._tables: dict[str, Table] = {table.name: table for table in (*plan.tables, *plan.common, *TIMERS.values())}
        self._common = {table.name for table in plan.common}
        check_ordered(plan)
        self._unwritten: dict[str, Run] = {}
        self._removed: list[str] = []
        self._more: Iterator[pa.RecordBatch] = iter(())

    def rows(self, hashes: Longs, rows: pa.RecordBatch, times: Times) -> pa.RecordBatch | None:
        """What the operator emits for new rows; `hashes` are those of their keys."""
        found = [*self.parts(hashes, rows, times)]
        return pa.concat_batches(found) if len(found) > 1 else found[0] if found else None

    def parts(self, hashes: Longs, rows: pa.RecordBatch, times: Times) -> Iterator[pa.RecordBatch]:
        """The same, one part after another, to be taken before the next call."""
        first = self._first_part(hashes, rows, times)
        if first is not None:
            yield first
        yield from self._taken_more()

    def _taken_more(self) -> Iterator[pa.RecordBatch]:
        more, self._more = self._more, iter(())
        return more

    def _first_part(self, hashes: Longs, rows: pa.RecordBatch, times: Times) -> pa.RecordBatch | None:
        if self._plan.ordered is None:
            return self._given(hashes, rows, times)
        at_once = split_arrivals(rows, self._plan, times.watermark_us)
        if at_once.all():
            return self._given(hashes, rows, times)
        chosen = np.flatnonzero(~at_once)
        waits = rows if len(chosen) == rows.num_rows else rows.take(pa.array(chosen))
        table = waiting_table(self._plan.ordered, rows.schema)
        held = pa.RecordBatch.from_arrays([*waits.columns, pa.array(hashes[chosen])], schema=table.schema)
        self._write(table, self._no_key, Keyed(np.zeros(len(chosen), np.int64), held), _NONE)
        chosen = np.flatnonzero(at_once)
        return self._given(hashes[chosen], rows.take(pa.array(chosen)), times) if len(chosen) else None

    def _given(self, hashes: Longs, rows: pa.RecordBatch, times: Times) -> pa.RecordBatch | None:
        mine = encode(rows.select(self._keys.names), hashes)
        everyone = self._everyone() if is_for_all(rows, self._plan.to_all) else ()
        keys, numbers = distinct(join_keys([mine, *everyone]))
        numbers = numbers[: rows.num_rows]
        batch = Batch(decode(keys, self._keys), numbers, rows)
        view = _View(self, keys)
        operator = self._operator
        if self._plan.ordered is None:
            return self._keep(keys, batch.keys, operator.on_rows(batch, view, times))
        return self._keep(keys, batch.keys, cast(OrderedOperator, operator).on_arrival(batch, view, times))

    def timers(self, times: Times) -> pa.RecordBatch | None:
        """What the operator emits for rows that the watermark has passed, and timers that have come; None: nothing."""
        in_order, expire = self._in_order(times)
        found = [each for each in (in_order, self._come(times), *self._taken_more()) if each is not None]
        self._expire(expire)
        return pa.concat_batches(found) if len(found) > 1 else found[0] if found else None

    def _in_order(self, times: Times) -> tuple[pa.RecordBatch | None, Mapping[str, int]]:
        """Rows that the watermark has passed, in their order; and what expires behind the timers of this watermark.

        A timer may have come before the first of these rows: what it asks for has to be there still.
        """
        ordered, extents = self._plan.ordered, self.manifest.tables.get(WAITING, ())
        watermark_us = times.watermark_us
        if ordered is None or not any(extent.first_us <= watermark_us for extent in extents):
            return None, {}
        first = self._run(None, extents[0].id).rows.schema
        table = waiting_table(ordered, first.remove(first.get_field_index(HASHES)))
        runs = [self._run(table, extent.id) for extent in extents if extent.first_us <= watermark_us]
        rows = due_rows(runs, table, self.manifest.bound(WAITING), watermark_us)
        self.manifest = replace(self.manifest, bounds={**self.manifest.bounds, WAITING: watermark_us + 1})
        self._write(table, self._no_key, None, _NONE)
        if rows is None:
            return None, {}
        place = rows.schema.get_field_index(HASHES)
        hashes = np.asarray(rows.column(place))
        keys, numbers = distinct(encode(rows.select(self._keys.names), hashes))
        rows = rows.select([index for index in range(rows.num_columns) if index != place])
        if (order := order_rows(rows, ordered, numbers)) is not None:
            numbers, rows = numbers[order], rows.take(pa.array(order))
        given = self.manifest.counts.get(ORDERED, 0)
        self.manifest = replace(self.manifest, counts={**self.manifest.counts, ORDERED: given + len(numbers)})
        batch = Batch(decode(keys, self._keys), numbers, rows, given)
        changes = self._operator.on_rows(batch, _View(self, keys), times)
        check_changes(changes, self._plan, len(keys))
        return self._keep(keys, batch.keys, replace(changes, expire={})), changes.expire

    def _come(self, times: Times) -> pa.RecordBatch | None:
        due = {clock: self._due(clock, now) for clock, now in _now(times).items()}
        found = [keys for keys in due.values() if keys is not None]
        if not found:
            return None
        keys, _ = distinct(join_keys(found))
        view = _View(self, keys)
        at = {clock: view.timers(clock) for clock in TIMERS}
        for clock, now in _now(times).items():
            at[clock][at[clock] > now] = NEVER
        told = Due(decode(keys, self._keys), at[Clock.EVENT], at[Clock.WALL])
        for clock, table in TIMERS.items():
            # A timer that went off is no longer set, unless the operator sets it again.
            self._write(table, keys, None, np.flatnonzero(at[clock] != NEVER))
        return self._keep(keys, told.keys, self._operator.on_timers(told, view, times))

    def wake_us(self, clock: Clock) -> int:
        """When the bucket must look for timers on that clock next; not after the first that is due."""
        woken = self.manifest.woken[clock]
        if woken.overdue:
            return woken.upto_us
        table = TIMERS[clock]
        first = NEVER
        if clock is Clock.EVENT:
            # A row that waits is behind the watermark that it came with.
            bound = self.manifest.bound(WAITING)
            for extent in self.manifest.tables.get(WAITING, ()):
                if extent.last_us >= bound:
                    first = min(first, max(extent.first_us, bound))
        for extent in self.manifest.tables.get(table.name, ()):
            if extent.rows and extent.last_us > woken.upto_us:
                at = np.array([extent.first_us])
                if extent.first_us <= woken.upto_us:
                    at = times_of(self._run(table, extent.id).rows, table)
                    at = at[at > woken.upto_us]
                first = min(first, int(at.min()))
        return first

    def runs(self, table: Table) -> list[Run]:
        """A table's runs, from the oldest to the newest."""
        return [self._run(table, extent.id) for extent in self.manifest.tables.get(table.name, ())]

    def _everyone(self) -> list[Keys]:
        """All keys that anything is kept of, some of them several times."""
        return [run.keys for table in self._plan.tables for run in self.runs(table)]

    def read(self, table: str, keys: Keys) -> Keyed:
        """What a table has of some keys; one that is common, what the bucket has."""
        declared = self._tables[table]
        if table in self._common:
            keys = self._no_key
        return levels.read(self.runs(declared), declared, keys, self.manifest.bound(table))

    def flush(self) -> None:
        """Write what is new, and remove what is no longer needed."""
        for identity, run in self._unwritten.items():
            self._store.put(identity, encode_run(run))
            self._cache.put(identity, run)
        for identity in self._removed:
            self._store.remove(identity)
            self._cache.drop(identity)
        self._unwritten, self._removed = {}, []

    @property
    def _no_key(self) -> Keys:
        return no_key(len(self._keys))

    def _run(self, table: Table | None, identity: str) -> Run:
        if identity in self._unwritten:
            return self._unwritten[identity]
        run = self._cache.get(identity, lambda name: decode_run(self._store.get(name)))
        if table is not None and not run.rows.schema.equals(table.schema):
            raise BadState(
                f"the stored rows of table {table.name!r} have columns {run.rows.schema.names}, and the operator now "
                f"has {table.schema.names} or other types: rebuild the job from its topics, or run the old operator"
            )
        return run

    def _due(self, clock: Clock, now_us: int) -> Keys | None:
        """Keys that may have a timer not after `now_us`; a newer setting may have hidden it."""
        table = TIMERS[clock]
        woken = self.manifest.woken[clock]
        if now_us <= woken.upto_us and not woken.overdue:
            return None
        self.manifest = replace(self.manifest, woken={**self.manifest.woken, clock: Woken(max(now_us, woken.upto_us))})
        found = []
        for extent in self.manifest.tables.get(table.name, ()):
            if not extent.rows or extent.first_us > now_us:
                continue
            run = self._run(table, extent.id)
            rows = np.flatnonzero(times_of(run.rows, table) <= now_us)
            found.append(run.keys.take(np.searchsorted(run.row_ends, rows, side="right")))
        if not found:
            return None
        keys, _ = distinct(join_keys(found))
        held = self.read(table.name, keys)
        due = held.key[times_of(held.rows, table) <= now_us]
        return keys.take(due) if len(due) else None

    def _keep(self, keys: Keys, columns: pa.RecordBatch, changes: Changes) -> pa.RecordBatch | None:
        check_changes(changes, self._plan, len(keys))
        self._expire(changes.expire)
        for table in (*self._plan.tables, *self._plan.common):
            given = changes.put.get(table.name, changes.append.get(table.name))
            gone = np.asarray(changes.delete.get(table.name, _NONE), np.int64)
            self._write(table, self._no_key if table.name in self._common else keys, given, gone)
        self._set(Clock.EVENT, keys, changes.event_timers)
        self._set(Clock.WALL, keys, changes.wall_timers)
        if changes.counts:
            counts = dict(self.manifest.counts)
            for name, count in changes.counts.items():
                counts[name] = counts.get(name, 0) + int(count)
            self.manifest = replace(self.manifest, counts=counts)
        self._more = (self._emitted(columns, check_emitted(each, self._plan, len(keys))) for each in changes.more)
        if changes.emit is None or not len(changes.emit):
            return None
        return self._emitted(columns, changes.emit)

    def _emitted(self, columns: pa.RecordBatch, emit: Keyed) -> pa.RecordBatch:
        taken = columns.take(pa.array(emit.key))
        schema = pa.schema([*columns.schema, *self._plan.output])
        return pa.RecordBatch.from_arrays([*taken.columns, *emit.rows.columns], schema=schema)

    def _expire(self, bounds: Mapping[str, int]) -> None:
        for table, bound in bounds.items():
            if bound > self.manifest.bound(table):
                self.manifest = replace(self.manifest, bounds={**self.manifest.bounds, table: bound})

    def _set(self, clock: Clock, keys: Keys, timers: Timers | None) -> None:
        if timers is None or not len(timers.key):
            return
        at = np.asarray(timers.at_us, np.int64)
        is_set = at != NEVER
        rows = pa.RecordBatch.from_arrays([pa.array(at[is_set], pa.int64())], schema=_AT)
        self._write(TIMERS[clock], keys, Keyed(timers.key[is_set], rows), timers.key[~is_set])
        woken = self.manifest.woken[clock]
        if is_set.any() and at.min() <= woken.upto_us:
            self.manifest = replace(self.manifest, woken={**self.manifest.woken, clock: replace(woken, overdue=True)})

    def _write(self, table: Table, keys: Keys, given: Keyed | None, gone: Longs) -> None:
        """Add a run with what changed, and merge if it is time."""
        extents = list(self.manifest.tables.get(table.name, ()))
        bound = self.manifest.bound(table.name)
        kept = [extent for extent in extents if not levels.is_gone(extent, bound)]
        self._forget(extent for extent in extents if levels.is_gone(extent, bound))
        if (run := make_run(table, keys, given, gone, replaces=isinstance(table, Values))) is not None:
            kept.append(self._added(run, table))
        start = levels.merge_from(kept, bound)
        if start < len(kept):
            merged = levels.merge([self._run(table, each.id) for each in kept[start:]], table, bound, oldest=start == 0)
            self._forget(kept[start:])
            kept[start:] = [] if merged is None else [self._added(merged, table)]
        if kept != extents:
            self.manifest = self.manifest.with_table(table.name, tuple(kept))

    def _added(self, run: Run, table: Table) -> levels.Extent:
        identity = self._identity()
        self._unwritten[identity] = run
        return levels.extent_of(run, table, identity, run.size_bytes)

    def _forget(self, extents: Iterable[levels.Extent]) -> None:
        for extent in extents:
            if self._unwritten.pop(extent.id, None) is None:
                self._removed.append(extent.id)


class _View:
    """What is kept of the keys of a call."""

    def __init__(self, bucket: Bucket, keys: Keys) -> None:
        self._bucket = bucket
        self._keys = keys

    def read(self, table: str, some: Longs | None = None) -> Keyed:
        """A table's rows of these keys."""
        if some is None:
            return self._bucket.read(table, self._keys)
        held = self._bucket.read(table, self._keys.take(some))
        return Keyed(some[held.key], held.rows)

    def timers(self, clock: Clock) -> Longs:
        """When each has its timer."""
        held = self._bucket.read(TIMERS[clock].name, self._keys)
        at = np.full(len(self._keys), NEVER, np.int64)
        at[held.key] = held.rows.column(0).to_numpy()
        return at

    def count(self, name: str) -> int:
        """A counter of the bucket."""
        return self._bucket.manifest.counts.get(name, 0)

    @property
    def bucket(self) -> int:
        """The bucket's number."""
        return self._bucket.number


def is_for_all(rows: pa.RecordBatch, to_all: str | None) -> bool:
    """Whether a row is for all keys."""
    return to_all is not None and bool(pc.any(rows.column(to_all)).as_py())


def _now(times: Times) -> dict[Clock, int]:
    return {Clock.EVENT: times.watermark_us, Clock.WALL: times.wall_us}
