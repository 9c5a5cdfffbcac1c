"""A source that does an operator's first step itself: its batches leave it as cells of bytes, a cell for each.

What Spark reads row by row it takes apart and puts together again, which for envelopes of changes costs more than all
else that is done with them. So an operator that stands right behind a source may have it hand on what the operator's
first step makes of a batch (`operators/tables/straight.py`), and only who takes it on opens it. The source still has a
row for each record, for whoever counts them; the cell lies in the first one of a batch, the others are empty.
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
Step = Callable[[pa.RecordBatch], pa.RecordBatch]


def write_step(schema: StructType, step: Step) -> str:
    """The option: the columns that the source is to read, and what is to be made of them."""
    return json.dumps({"schema": schema.jsonValue(), "step": base64.b64encode(pickle.dumps(step)).decode()})


def columns_read(option: str) -> StructType:
    """The columns that the source reads; planning looks at no more, so the step is not loaded."""
    return StructType.fromJson(json.loads(option)["schema"])


def in_cells(batches: Iterable[pa.RecordBatch], option: str) -> Iterator[pa.RecordBatch]:
    """What the step makes of each batch, in cells."""
    step: Step = pickle.loads(base64.b64decode(json.loads(option)["step"]))  # noqa: S301 - packed by ourselves
    for batch in batches:
        if batch.num_rows:
            yield _cell(step(batch), batch.num_rows)


_SCHEMA: Final = pa.schema([(CELL, pa.binary())])


def _cell(made: pa.RecordBatch, rows: int) -> pa.RecordBatch:
    data = rows_to_bytes(made)
    is_there = np.zeros(rows, np.bool_)
    is_there[0] = made.num_rows > 0
    bounds = np.full(rows + 1, data.size if is_there[0] else 0, np.int32)
    bounds[0] = 0
    buffers = [validity(is_there), pa.py_buffer(bounds), data]
    return pa.RecordBatch.from_arrays([pa.Array.from_buffers(pa.binary(), rows, buffers)], schema=_SCHEMA)
