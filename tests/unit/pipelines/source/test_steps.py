"""A source that does an operator's first step, without Spark."""

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from headrace.pipelines.keyed.layout import rows_from_bytes
from headrace.pipelines.source.steps import in_cells, write_step


def _as_it_is(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def test_a_large_batch_is_cells_of_some_megabytes_at_the_rows_they_are_made_of() -> None:
    texts = [f"{number:07}" * 1000 for number in range(3000)]
    batch = pa.RecordBatch.from_pydict({"text": texts})
    option = write_step(StructType().add("text", StringType()), _as_it_is)
    cells = list(in_cells([batch, batch.slice(0, 0), batch.slice(7, 1)], option))
    assert sum(part.num_rows for part in cells) == 3001  # a row for each record
    assert [part.column(0).null_count for part in cells] == [part.num_rows - 1 for part in cells]
    assert max(part.nbytes for part in cells) < 5 << 20
    read = [text for part in cells for text in rows_from_bytes(part.column(0)[0].as_buffer()).column(0).to_pylist()]
    assert read == [*texts, texts[7]]
