"""What Spark brings to a store: the rows of a batch, reduced, with the store's types, on the driver's disk.

A batch of changes is reduced to the last one of each key by Spark itself, in parallel: writing only the last state of a
key gives the same table as writing all of them in order, since every change carries the whole row. Rows without a key,
and two rows of one key with nothing to tell which is the last, are errors: choosing would make the result depend on
chance. Whether columns fit a table that is there is asked before anything is written.

The spool is a batch as Arrow files, read once from Spark in bounded memory before any transaction begins: so the
store's lock is held while rows are loaded, not while Spark computes them. With a local master the tasks write the files
themselves, in parallel; on a cluster the partitions come to the driver one after another.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType, VariantType

from headrace.stores.batch import DELETED, TableColumn, Target
from headrace.stores.errors import ColumnMismatch, SinkMisconfigured
from headrace.stores.folders import make_scratch_folder
from headrace.stores.views.store import FLAGS, ROW


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
def spool_rows(df: DataFrame) -> Iterator[Spool]:
    """The DataFrame's rows in files that are gone at the end."""
    folder = make_scratch_folder("headrace-spool-")
    try:
        schema = _schema_in_utc(to_arrow_schema(df.schema, timezone="UTC"))
        if (df.sparkSession.sparkContext.master or "").startswith("local"):
            files = _written_by_tasks(df, folder)
        else:
            files = _written_by_driver(df, folder)
        yield Spool(schema, files)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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


OUTSIDE = "no-query"  # a sink called by hand, outside a streaming query


def read_query_id(df: DataFrame) -> str:
    """The id in the query's checkpoint: the same after a restart, another after the checkpoint was deleted."""
    found = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    return found or OUTSIDE


def reduce_changes(df: DataFrame, target: Target) -> DataFrame:
    """The rows to write: all of them to append, else one row a key with the flag `DELETED`."""
    columns = target.choose_columns(df.columns)
    if not target.keys:
        return df.select(*(named(name) for name in columns))
    deleted = F.coalesce(F.expr(target.delete_when), F.lit(False)) if target.delete_when else F.lit(False)
    change = F.struct(*(named(name) for name in columns), deleted.alias(DELETED))
    keys = [_present(df, key, target).alias(key) for key in target.keys]
    order = target.choose_order(df.columns)
    if order:
        last = F.max_by(change, F.struct(*(named(name) for name in order)))
    else:
        twice = F.raise_error(
            F.lit(
                f"sink {target.name!r}: a batch has two rows of one key, and nothing says which is the last: "
                "give order_by=... (a column that grows)"
            )
        )
        last = F.when(F.count(F.lit(1)) > 1, twice).otherwise(F.first(change))
    chosen = df.groupBy(*keys).agg(last.alias("headrace_change"))
    return chosen.select("headrace_change.*")


def _present(df: DataFrame, key: str, target: Target) -> Column:
    """The key column, which fails where it is null."""
    missing = F.raise_error(
        F.lit(f"sink {target.name!r}: a row has no {key!r}, which is a key: filter such rows out before the sink")
    )
    return F.coalesce(named(key), missing.cast(df.schema[key].dataType))


def named(name: str) -> Column:
    """A column by its very name, also when the name has dots or blanks."""
    return F.col("`" + name.replace("`", "``") + "`")


# A null field is not the same as no field; and what Spark would leave out could not be told apart any more.
_AS_IT_IS = {"ignoreNullFields": "false"}


def is_json(kind: DataType, keep_scalar_arrays: bool) -> bool:
    """Whether a column of this type becomes JSON."""
    if isinstance(kind, ArrayType):
        return not keep_scalar_arrays or isinstance(kind.elementType, ArrayType | MapType | StructType | VariantType)
    return isinstance(kind, MapType | StructType | VariantType)


def encode_nested(df: DataFrame, *, keep_scalar_arrays: bool) -> DataFrame:
    """The same rows, with nested columns as JSON text; the column's metadata says so."""
    columns = []
    for field in df.schema.fields:
        column = named(field.name)
        if is_json(field.dataType, keep_scalar_arrays):
            column = F.to_json(column, _AS_IT_IS).alias(field.name, metadata={"headrace": "json"})
        columns.append(column)
    return df.select(*columns)


# Every value as `headrace.stores.views.shape` shows it; decimals are made texts before.
_AS_VALUES = {
    **_AS_IT_IS,
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSxxx",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def as_json(df: DataFrame, names: Sequence[str]) -> Column:
    """Columns as one JSON object."""

    def column(name: str) -> Column:
        exact = isinstance(df.schema[name].dataType, DecimalType)
        return (named(name).cast("string") if exact else named(name)).alias(name)

    return F.to_json(F.struct(*(column(name) for name in names)), _AS_VALUES)


def with_row_json(changed: DataFrame) -> DataFrame:
    """What a view's store of texts wants: the key, the row as JSON (null if it is gone), and the flags."""
    names = [name for name in changed.columns if name not in FLAGS]
    return changed.select(*FLAGS, F.when(~F.col(DELETED), as_json(changed, names)).alias(ROW))


def choose_types(
    schema: StructType, target: Target, named: Callable[[DataType], str | None], where: str, json: str
) -> dict[str, str]:
    """The store's type for every column that is written, in the DataFrame's order."""
    types = {}
    for field in schema.fields:
        if target.keys and field.name == DELETED:
            continue
        kind = json if field.metadata.get("headrace") == "json" else named(field.dataType)
        if kind is None:
            raise ColumnMismatch(
                f"{where} has no type for the column {field.name!r} ({field.dataType.simpleString()}): cast it to "
                "another type or leave it out",
                field.name,
            )
        types[field.name] = kind
    return types


def check_columns(
    where: str, wanted: Mapping[str, str], found: Iterable[TableColumn], fits: Callable[[str, str], bool]
) -> None:
    """`wanted` maps each column of the batch to the type the store would have given it."""
    by_name = {column.name: column for column in found}
    for name, kind in wanted.items():
        column = by_name.get(name)
        if column is None:
            raise ColumnMismatch(
                f"{where} has no column {name!r}: add it to the table, or leave it out with columns=[...] or a select",
                name,
            )
        if not fits(kind, column.type):
            raise ColumnMismatch(
                f"{where}: the column {name!r} is {column.type} in the table and {kind} in the DataFrame; cast it "
                "before the sink or alter the table",
                name,
            )
    for column in by_name.values():
        if column.required and column.name not in wanted:
            raise ColumnMismatch(
                f"{where}: the column {column.name!r} must not be null and has no default, and the DataFrame does not "
                "have it",
                column.name,
            )


def check_unique(where: str, keys: tuple[str, ...], uniques: Iterable[frozenset[str]]) -> None:
    """An upsert needs the table to know that the keys are unique."""
    if keys and frozenset(keys) not in set(uniques):
        raise SinkMisconfigured(
            f"{where} has no primary key or unique index on exactly ({', '.join(keys)}), which an upsert "
            "needs: create it"
        )


def refuse_missing(where: str, create: bool) -> None:
    """A table that is not there is made, unless the user said not to."""
    if not create:
        raise SinkMisconfigured(f"{where} does not exist, and create=False: create it first")
