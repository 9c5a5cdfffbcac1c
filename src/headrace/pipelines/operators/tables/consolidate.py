"""A batch of weighted rows as what it does to a view: for each key the row that is there now, or that it is gone.

Weights of equal rows are added up first, so what a batch brings and takes back again is never seen. Of a key that has
rows left over, one is put; a key whose rows were only taken back is deleted. The versions and times of the form do
not count: a row that came back as it was is no change.

One rule serves both forms: in *changes* (-old, +new) and in *upserts*, where a +1 row alone is the key's row from now
on and a -1 row alone deletes it.
"""

import operator
from collections.abc import Sequence
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from headrace.pipelines.operators.errors import BadField
from headrace.pipelines.operators.tables.form import WEIGHT, row_names
from headrace.stores.views.store import COMPLETE, COUNT, DELETED, KEY, KNOWN

_NET: Final = "headrace_net"


def consolidate(df: DataFrame, key: Sequence[str]) -> DataFrame:
    """A row for each key that the batch changes: the row's columns, then the `FLAGS`."""
    from headrace.stores.frames import as_json, named

    if WEIGHT not in df.columns:
        raise BadField(
            f"a view is kept from rows with a column {WEIGHT}, +1 for a row that appears and -1 for one that "
            f"disappears, and there are only {', '.join(df.columns)}: begin with .transform(table_changes(key=[…]))"
        )
    names = row_names(df.columns)
    missing = [name for name in key if name not in names]
    if missing:
        raise BadField(f"the view's key names {missing[0]!r}, and its rows have only {', '.join(names)}")
    columns = [named(name) for name in names]
    keys = [named(name) for name in key]
    # Shared out by the key alone, rows need to move only once: what is equal as a whole has equal keys.
    shared = df.select(*columns, named(WEIGHT)).repartition(*keys)
    net = shared.groupBy(*columns).agg(fn.sum(named(WEIGHT)).alias(_NET)).where(fn.col(_NET) != 0)
    put = fn.when(fn.col(_NET) > 0, fn.col(_NET))
    rest = [named(name) for name in names if name not in key]
    kept = [fn.max_by(fn.struct(*rest), put).alias("headrace_rest")] if rest else []
    found = net.groupBy(*keys).agg(
        fn.coalesce(fn.sum(put), fn.lit(0)).cast("long").alias(COUNT),
        fn.max(fn.col(_NET) < 0).alias(KNOWN),
        *kept,
    )
    return found.select(
        *(named(name) if name in key else fn.col("headrace_rest")[name].alias(name) for name in names),
        fn.col(COUNT),
        fn.col(KNOWN),
        (fn.col(COUNT) == 0).alias(DELETED),
        reduce(operator.and_, (named(name).isNotNull() for name in key)).alias(COMPLETE),
        as_json(found, key).alias(KEY),
    )


def first_doubled(part: pa.RecordBatch) -> str | None:
    """The key, as JSON, of the first that is left with more than one row; None if there is none."""
    return _first(part, pc.greater(part.column(COUNT), 1))


def first_without(part: pa.RecordBatch) -> str | None:
    """The key, as JSON, of the first that is incomplete; None if there is none."""
    return _first(part, pc.invert(part.column(COMPLETE)))


def _first(part: pa.RecordBatch, mask: pa.Array) -> str | None:
    where = pc.index(mask, True).as_py()
    return None if where < 0 else str(part.column(KEY)[where].as_py())
