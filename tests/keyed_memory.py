"""Runs an operator in this process, without Spark: micro-batches, clocks and restarts are what the caller says.

    runner = MemoryRunner(operator, by=["device"], schema=rows.schema, buckets=4)
    out = runner.batch(rows, watermark_us=…)      # rows first, then the timers that are due, as Spark does it
    out = runner.batch(watermark_us=later)        # a micro-batch without rows
    runner.restart()                              # all that is kept goes through its stored form

It keeps state as it is kept under Spark. With `model=True` it keeps dictionaries instead, slow and plain: the two must
say the same.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.bucket import Bucket, RunCache
from headrace.pipelines.keyed.inspect import contents
from headrace.pipelines.keyed.keys import check_types
from headrace.pipelines.keyed.manifest import Manifest, from_text, to_text
from headrace.pipelines.keyed.operator import NO_WATERMARK, Clock, Longs, Operator, Plan, Times
from headrace.pipelines.keyed.packing import flags_of
from headrace.pipelines.keyed.run import no_rows
from tests.keyed_model import ModelBucket, Row, identity

_CACHE_BYTES = 64 << 20


def digest(key: Row) -> int:
    """A hash that equal keys share, as the JVM's does."""
    name = repr(tuple(map(identity, key.values()))).encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little", signed=True)


class MemoryRunner:
    """An operator over buckets that live in this process.

    `call_rows` cuts a micro-batch's rows of a bucket into several calls; `hashed` says what hash a key has, which is
    how a test makes keys collide. The clocks stand where they were set last.
    """

    def __init__(
        self,
        operator: Operator,
        *,
        by: Sequence[str],
        schema: pa.Schema,
        buckets: int = 1,
        call_rows: int | None = None,
        cache_bytes: int = _CACHE_BYTES,
        hashed: Callable[[Row], int] = digest,
        model: bool = False,
    ) -> None:
        self.schema = schema
        self.by = tuple(by)
        keys = pa.schema([schema.field(name) for name in by])
        check_types(keys)
        self.plan: Plan = operator.plan(keys, schema)
        self.call_rows = call_rows
        self.times = Times()
        self.cache = RunCache(cache_bytes)
        self._hashed = hashed
        self._buckets: list[_Kept] = [
            _Model(ModelBucket(operator, self.plan, self.by, number=number), schema)
            if model
            else _Levels(operator, self.plan, keys, buckets, self, number)
            for number in range(buckets)
        ]

    @property
    def output(self) -> pa.Schema:
        """The columns of what is emitted: the keys', then the operator's."""
        return pa.schema([*(self.schema.field(name) for name in self.by), *self.plan.output])

    def batch(
        self,
        rows: pa.Table | pa.RecordBatch | Sequence[Row] | None = None,
        *,
        watermark_us: int | None = None,
        wall_us: int | None = None,
    ) -> pa.Table:
        """One micro-batch with the clocks as given; what the operator emitted, rows' first, then timers'."""
        self.times = Times(
            max(self.times.watermark_us, NO_WATERMARK if watermark_us is None else watermark_us),
            max(self.times.wall_us, NO_WATERMARK if wall_us is None else wall_us),
        )
        out: list[pa.RecordBatch | None] = []
        if rows is not None:
            given = self._as_batch(rows)
            hashes = np.array([self._hashed(key) for key in given.select(list(self.by)).to_pylist()], np.int64)
            to_all = self.plan.to_all
            everywhere = np.zeros(len(hashes), np.bool_) if to_all is None else flags_of(given, to_all)
            for number, bucket in enumerate(self._buckets):
                mine = np.flatnonzero((hashes % len(self._buckets) == number) | everywhere)
                size = self.call_rows or max(len(mine), 1)
                for at in range(0, len(mine), size):
                    part = mine[at : at + size]
                    out.append(bucket.rows(hashes[part], given.take(pa.array(part)), self.times))
        out += [bucket.timers(self.times) for bucket in self._buckets]
        for bucket in self._buckets:
            bucket.commit()
        return pa.Table.from_batches([told for told in out if told is not None], schema=self.output)

    def restart(self, operator: Operator | None = None) -> None:
        """Begin anew with what is stored: nothing decoded is kept. An operator that is given goes on in its place."""
        self.cache = RunCache(self.cache.limit_bytes)
        if operator is not None:
            for bucket in self._buckets:
                bucket.goes_on(operator)

    def state(self, table: str) -> list[tuple[Row, Row]]:
        """All rows of a table, each with its key."""
        return [found for bucket in self._buckets for found in bucket.table(table)]

    @property
    def counts(self) -> dict[str, int]:
        """The operator's counters, over all buckets."""
        total: dict[str, int] = {}
        for bucket in self._buckets:
            for name, count in bucket.counts().items():
                total[name] = total.get(name, 0) + count
        return total

    def _as_batch(self, rows: Any) -> pa.RecordBatch:
        if isinstance(rows, pa.RecordBatch):
            return rows
        if isinstance(rows, pa.Table):
            parts = rows.combine_chunks().to_batches()
            return parts[0] if parts else no_rows(self.schema)
        return pa.RecordBatch.from_pylist(list(rows), schema=self.schema)


class _Kept(Protocol):
    def rows(self, hashes: Longs, rows: pa.RecordBatch, times: Times) -> pa.RecordBatch | None: ...

    def timers(self, times: Times) -> pa.RecordBatch | None: ...

    def commit(self) -> None: ...

    def table(self, name: str) -> list[tuple[Row, Row]]: ...

    def counts(self) -> dict[str, int]: ...

    def goes_on(self, operator: Operator) -> None: ...


class _Model:
    def __init__(self, bucket: ModelBucket, schema: pa.Schema) -> None:
        self._bucket = bucket
        self._schema = schema

    def rows(self, hashes: Longs, rows: pa.RecordBatch, times: Times) -> pa.RecordBatch | None:
        return self._bucket.rows(rows, times)

    def timers(self, times: Times) -> pa.RecordBatch | None:
        found = [self._bucket.in_order(self._schema, times), self._bucket.timers(self._schema, times)]
        told = [each for each in found if each is not None]
        return pa.concat_batches(told) if told else None

    def commit(self) -> None:
        """Dictionaries are always up to date."""

    def table(self, name: str) -> list[tuple[Row, Row]]:
        return self._bucket.table(name)

    def counts(self) -> dict[str, int]:
        return self._bucket.counts

    def goes_on(self, operator: Operator) -> None:
        self._bucket.operator = operator


class _Levels:
    """Made anew for every micro-batch out of what is stored, as under Spark."""

    def __init__(
        self, operator: Operator, plan: Plan, keys: pa.Schema, buckets: int, runner: MemoryRunner, number: int
    ) -> None:
        self._number = number
        self._operator = operator
        self._plan = plan
        self._keys = keys
        self._runner = runner
        self._text = to_text(Manifest(buckets))
        self._stored: dict[str, bytes] = {}
        self._open: Bucket | None = None

    def rows(self, hashes: Longs, rows: pa.RecordBatch, times: Times) -> pa.RecordBatch | None:
        return self._bucket().rows(hashes, rows, times)

    def timers(self, times: Times) -> pa.RecordBatch | None:
        bucket = self._bucket()
        woken = {Clock.EVENT: times.watermark_us, Clock.WALL: times.wall_us}
        # Spark wakes a bucket only when it asked for that: so it is here.
        return bucket.timers(times) if any(bucket.wake_us(clock) <= now for clock, now in woken.items()) else None

    def commit(self) -> None:
        bucket = self._bucket()
        bucket.flush()
        self._text = to_text(bucket.manifest)
        named = {extent.id for extents in bucket.manifest.tables.values() for extent in extents}
        assert named == set(self._stored), "every stored run is named, and every named run is stored"
        self._open = None

    def table(self, name: str) -> list[tuple[Row, Row]]:
        bucket = self._bucket()
        table = next(each for each in (*self._plan.tables, *self._plan.common) if each.name == name)
        keys = len(self._keys)
        found = contents(bucket.runs(table), table, self._keys, bucket.manifest.bound(name))
        rows = found.select(list(range(keys, found.num_columns))).rename_columns(table.schema.names)
        return list(zip(found.select(list(range(keys))).to_pylist(), rows.to_pylist(), strict=True))

    def counts(self) -> dict[str, int]:
        return dict(self._bucket().manifest.counts)

    def goes_on(self, operator: Operator) -> None:
        self._operator = operator

    def get(self, identity: str) -> bytes:
        return self._stored[identity]

    def put(self, identity: str, data: bytes) -> None:
        self._stored[identity] = data

    def remove(self, identity: str) -> None:
        del self._stored[identity]

    def _bucket(self) -> Bucket:
        if self._open is None:
            self._open = Bucket(
                self._operator,
                self._plan,
                self._keys,
                manifest=from_text(self._text),
                store=self,
                cache=self._runner.cache,
                number=self._number,
            )
        return self._open
