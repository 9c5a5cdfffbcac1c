"""All that a table holds, as columns: the keys', then its own."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.keys import decode
from headrace.pipelines.keyed.levels import merge
from headrace.pipelines.keyed.operator import Table
from headrace.pipelines.keyed.run import Run, no_rows


def contents(runs: Sequence[Run], table: Table, keys: pa.Schema, bound: int) -> pa.RecordBatch:
    """The rows of all keys, each behind its key; a column that is called like a key's is named `table.column`."""
    fields = [
        field.with_name(f"{table.name}.{field.name}") if field.name in keys.names else field for field in table.schema
    ]
    schema = pa.schema([*keys, *fields])
    merged = merge(runs, table, bound, oldest=True) if runs else None
    if merged is None:
        return no_rows(schema)
    counts = merged.row_ends - merged.row_begins
    owners = decode(merged.keys, keys).take(pa.array(np.repeat(np.arange(len(counts)), counts)))
    return pa.RecordBatch.from_arrays([*owners.columns, *merged.rows.columns], schema=schema)
