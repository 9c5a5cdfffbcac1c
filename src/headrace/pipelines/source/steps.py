"""A source that does an operator's first step itself: its batches leave it as cells of bytes.

What Spark reads row by row it takes apart and puts together again, which for envelopes of changes costs more than all
else that is done with them. So an operator that stands right behind a source may have it hand on what the operator's
first step makes of a batch (`operators/tables/straight.py`), and only who takes it on opens it. The source still has a
row for each record, for whoever counts them; a cell lies in the first row of the records that it is made of, the others
are empty. They stay on the way to Python: for that Spark collects ten thousand rows, be they of cells alone, and would
have all that a task reads in memory.
"""

import base64
import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.pipelines.columns.arrow import validity
from headrace.pipelines.keyed.layout import rows_to_bytes

CELL: Final = "cell"
CELLS_DDL: Final = f"{CELL} binary"
# What a cell is made of at most: Spark copies a cell whole, and a batch of records that were compressed well is large.
_BYTES: Final = 4 << 20
Step = Callable[[pa.RecordBatch], pa.RecordBatch]


def write_step(schema: StructType, step: Step) -> str:
    """The option: the columns that the source is to read, and what is to be made of them."""
    return json.dumps({"schema": schema.jsonValue(), "step": base64.b64encode(pickle.dumps(step)).decode()})


def columns_read(option: str) -> StructType:
    """The columns that the source reads; planning looks at no more, so the step is not loaded."""
    return StructType.fromJson(json.loads(option)["schema"])


def in_cells(batches: Iterable[pa.RecordBatch], option: str) -> Iterator[pa.RecordBatch]:
    """What the step makes of each batch, in cells of some megabytes."""
    step: Step = pickle.loads(base64.b64decode(json.loads(option)["step"]))  # noqa: S301 - packed by ourselves
    for batch in batches:
        rows = max(1, batch.num_rows * _BYTES // max(batch.nbytes, 1))
        for at in range(0, batch.num_rows, rows):
            part = batch.slice(at, rows)
            yield _cell(step(part), part.num_rows)


_SCHEMA: Final = pa.schema([(CELL, pa.binary())])


def _cell(made: pa.RecordBatch, rows: int) -> pa.RecordBatch:
    data = rows_to_bytes(made)
    is_there = np.zeros(rows, np.bool_)
    is_there[0] = made.num_rows > 0
    bounds = np.full(rows + 1, data.size if is_there[0] else 0, np.int32)
    bounds[0] = 0
    buffers = [validity(is_there), pa.py_buffer(bounds), data]
    return pa.RecordBatch.from_arrays([pa.Array.from_buffers(pa.binary(), rows, buffers)], schema=_SCHEMA)
