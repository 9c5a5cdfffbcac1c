"""A batch on the driver's disk as Arrow files: read once from Spark, in bounded memory, before any transaction begins.

So the store's lock is held while rows are loaded, not while Spark computes them. With a local master the tasks write
the files themselves, in parallel; on a cluster the partitions come to the driver one after another.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

_PREFIX = "headrace-spool-"


@dataclass(frozen=True)
class Spool:
    """The files of one batch in the order of its partitions, and their schema."""

    schema: pa.Schema
    files: tuple[Path, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, a record batch at a time, mapped from the files."""
        for file in self.files:
            with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as reader:
                for batch in reader:
                    yield _in_utc(batch, self.schema)

    def reader(self) -> pa.RecordBatchReader:
        """All rows as one stream."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())


@contextmanager
def spooled(df: DataFrame) -> Iterator[Spool]:
    """The DataFrame's rows in files that are gone at the end."""
    _remove_abandoned()
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    try:
        schema = _schema_in_utc(to_arrow_schema(df.schema, timezone="UTC"))
        if (df.sparkSession.sparkContext.master or "").startswith("local"):
            files = _written_by_tasks(df, folder)
        else:
            files = _written_by_driver(df, folder)
        yield Spool(schema, files)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned() -> None:
    """Folders of processes that were killed; one whose number was given to another process stays until that ends."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not _is_alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _written_by_tasks(df: DataFrame, folder: Path) -> tuple[Path, ...]:
    directory = str(folder)

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        file = f"{directory}/{task.partitionId():08}-{task.taskAttemptId()}.arrow"
        if _write_stream(file, batches):
            yield pa.RecordBatch.from_arrays([pa.array([file])], names=["file"])

    # Only the attempts whose result Spark took are named here: a task that was run twice left a file nobody reads.
    rows = df.mapInArrow(write, "file string").collect()
    return tuple(sorted(Path(row.file) for row in rows))


def _written_by_driver(df: DataFrame, folder: Path) -> tuple[Path, ...]:
    file = folder / "all.arrow"
    return (file,) if _write_stream(str(file), pa.RecordBatchReader.from_stream(df)) else ()


def _write_stream(file: str, batches: Iterable[pa.RecordBatch]) -> bool:
    """Whether there was anything to write."""
    writer: pa.RecordBatchStreamWriter | None = None
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if writer is None:
                writer = pa.ipc.new_stream(file, batch.schema)
            writer.write_batch(batch)
    finally:
        if writer is not None:
            writer.close()
    return writer is not None


def _schema_in_utc(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_type_in_utc(field.type)) for field in schema])


def _type_in_utc(kind: pa.DataType) -> pa.DataType:
    """The same type with instants in UTC: Spark labels them with the session's zone, and not every store takes that."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_type_in_utc(kind.value_type)))
    if pa.types.is_map(kind):
        item = kind.item_field.with_type(_type_in_utc(kind.item_type))
        return pa.map_(kind.key_field.with_type(_type_in_utc(kind.key_type)), item)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_type_in_utc(field.type)) for field in kind])
    return kind


def _in_utc(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return batch if batch.schema.equals(schema) else batch.cast(schema)
