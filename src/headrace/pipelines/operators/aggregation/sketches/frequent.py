"""`frequent_items` and `frequent_sketch`: the values that many rows have, with counts that miss a bounded number.

As long as there are no more different values than counters, all is exact. Beyond that the smallest counts are taken off
(`tally`): which of the values near the edge are kept may then depend on how rows were cut; what is promised does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipelines.operators.aggregation.algebra import Aggregate, Arrays, Loaded, valid_in
from headrace.pipelines.operators.aggregation.cells import Sum
from headrace.pipelines.operators.aggregation.ordered import lists_of
from headrace.pipelines.operators.aggregation.ordering import is_ordered, ranks
from headrace.pipelines.operators.aggregation.sketches.tally import ADD, Tally, as_lists, singles, tally_of
from headrace.pipelines.operators.errors import BadAggregate
from headrace.pipelines.operators.grouping import Longs

_PARTS = ("n", "missed", "values", "counts")


@dataclass(frozen=True)
class Frequent(Aggregate):
    """Values that more than `share` of the rows have; with `merged` of a column of sketches, with `given` as one."""

    is_native = False

    error: float
    share: float = 0.0
    merged: bool = False
    given: bool = False

    @property
    def named(self) -> str:
        return f"{'frequent_sketch' if self.given else 'frequent_items'}({self.field})"

    @property
    def counters(self) -> int:
        return ceil(1 / self.error)

    def _value(self, kind: pa.DataType) -> pa.DataType:
        if not self.merged:
            return kind
        if not pa.types.is_struct(kind) or [field.name for field in kind] != list(_PARTS):
            raise self._refuse(kind, "sketches of frequent values are rows, as frequent_sketch makes them")
        return kind.field("values").type.value_type

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        value = self._value(kind)
        if not is_ordered(value):
            raise self._refuse(kind, "its values cannot be compared: take a field of it")
        kinds = (pa.int64(), pa.int64(), pa.list_(value), pa.list_(pa.int64()))
        return list(zip(_PARTS, kinds, strict=True))

    def result(self, kind: pa.DataType) -> pa.DataType:
        if self.given:
            return pa.struct(self.state(kind))
        item = [("value", self._value(kind)), ("count", pa.int64()), ("at_most", pa.int64())]
        return pa.list_(pa.struct(item))

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        if self.merged:
            value = self._value(values.type)
            n, missed, held, counts = (pc.struct_field(values, name) for name in _PARTS)
            sizes = np.asarray(held.value_lengths().fill_null(0))
            flat = counts.flatten()
            fits = (sizes == np.asarray(counts.value_lengths().fill_null(0))).all()
            if not fits or flat.null_count or pc.any(pc.less(flat, 1)).as_py():
                raise BadAggregate(f"{self.named}: a sketch has not a count above 0 for each of its values, as "
                                   "frequent_sketch makes them")  # fmt: skip
            return [
                n.fill_null(0), missed.fill_null(0),
                lists_of(sizes, held.flatten().cast(value)), lists_of(sizes, flat.cast(pa.int64())),
            ]  # fmt: skip
        valid = valid_in(values)
        one = valid.astype(np.int64)
        counts = as_lists(singles(valid), np.ones(int(one.sum()), np.int64), pa.int64())
        return [pa.array(one), pa.array(np.zeros(len(one), np.int64)), lists_of(valid, values.drop_null()), counts]

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        n, missed, values, counts = columns
        flat = values.flatten()
        places, rows = ranks([flat])
        sizes = np.asarray(values.value_lengths().fill_null(0))
        tally = tally_of(lists_of(sizes, pa.array(places)), counts, ADD, self.counters)
        # Rising within each row, as a tally is; they may have been put down in another order.
        order = np.lexsort((tally.places, tally.owners))
        tally = replace(tally, places=tally.places[order], numbers=tally.numbers[order],
                        missed=np.asarray(missed, np.int64))  # fmt: skip
        return Loaded((Sum(np.asarray(n, np.int64)), tally), (flat.take(pa.array(rows)),))

    def store(self, loaded: Loaded, kind: pa.DataType) -> Arrays:
        n, tally = self._read(loaded)
        values = lists_of(tally.sizes, loaded.rows[0].take(pa.array(tally.places)))
        return [pa.array(n), pa.array(tally.missed), values, as_lists(tally.starts, tally.numbers, pa.int64())]

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        if self.given:
            return pa.StructArray.from_arrays(self.store(loaded, kind), fields=list(self.result(kind)))
        n, tally = self._read(loaded)
        owner = tally.owners
        most = tally.numbers + tally.missed[owner]
        kept = np.flatnonzero(most > self.share * n[owner])
        kept = kept[np.lexsort((tally.places[kept], -tally.numbers[kept], owner[kept]))]
        cells = [
            loaded.rows[0].take(pa.array(tally.places[kept])),
            pa.array(tally.numbers[kept]),
            pa.array(most[kept]),
        ]
        made = pa.StructArray.from_arrays(cells, fields=list(self.result(kind).value_type))
        return lists_of(np.bincount(owner[kept], minlength=len(n)), made)

    def _read(self, loaded: Loaded) -> tuple[Longs, Tally]:
        total, tally = loaded.cells
        assert isinstance(total, Sum)
        assert isinstance(tally, Tally)
        return np.asarray(total.values, np.int64), tally
