"""What a checkpoint's keyed state holds, as DataFrames, read by Spark's own state reader.

keyed_rows(spark, "checkpoint", "counts").where("device = 'a'").show()
keyed_sizes(spark, "checkpoint").groupBy("table").sum("rows", "size_bytes").show()
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.keys import decode
from headrace.pipelines.keyed.layout import decode_run
from headrace.pipelines.keyed.levels import merge
from headrace.pipelines.keyed.manifest import Manifest, from_text
from headrace.pipelines.keyed.operator import BadState, Table
from headrace.pipelines.keyed.run import Run, no_rows
from headrace.pipelines.keyed.settings import SETTINGS_BUCKET, Settings
from headrace.pipelines.keyed.settings import from_text as settings_from_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SIZES = "bucket int, table string, runs int, entries long, rows long, size_bytes long, expired_before_us long"
_COUNTS = "bucket int, name string, count long"


def keyed_rows(spark: "SparkSession", checkpoint: str, table: str, *, operator_id: int = 0) -> "DataFrame":
    """All rows of a table behind their keys, as of the last micro-batch that was committed."""
    settings = keyed_settings(spark, checkpoint, operator_id=operator_id)
    tables = {each.name: each for each in settings.tables}
    if table not in tables:
        raise BadState(
            f"the state in {checkpoint} has no table {table!r}: it has {', '.join(sorted(tables)) or 'none'}"
        )
    from pyspark.sql.pandas.types import from_arrow_schema

    empty = contents([], tables[table], settings.keys, 0)
    read = _reader(tables[table], settings.keys)
    stored = _stored(spark, checkpoint, operator_id).where(f"bucket <> {SETTINGS_BUCKET}")
    return stored.groupBy("bucket").applyInArrow(read, from_arrow_schema(empty.schema))


def keyed_sizes(spark: "SparkSession", checkpoint: str, *, operator_id: int = 0) -> "DataFrame":
    """How much each bucket holds of each table, timers too: runs, entries, rows, bytes."""

    def sizes(bucket: int, manifest: Manifest) -> list[tuple[Any, ...]]:
        return [
            (
                bucket,
                name,
                len(extents),
                sum(each.entries for each in extents),
                sum(each.rows for each in extents),
                sum(each.size_bytes for each in extents),
                manifest.bounds.get(name),
            )
            for name, extents in manifest.tables.items()
        ]

    return _listed(_manifests(spark, checkpoint, operator_id), sizes, _SIZES)


def keyed_counts(spark: "SparkSession", checkpoint: str, *, operator_id: int = 0) -> "DataFrame":
    """The operator's counters, by bucket."""

    def counts(bucket: int, manifest: Manifest) -> list[tuple[Any, ...]]:
        return [(bucket, name, count) for name, count in manifest.counts.items()]

    return _listed(_manifests(spark, checkpoint, operator_id), counts, _COUNTS)


def keyed_settings(spark: "SparkSession", checkpoint: str, *, operator_id: int = 0) -> Settings:
    """What the state was made with."""
    found = _values(spark, checkpoint, operator_id).where(f"bucket = {SETTINGS_BUCKET}").select("text").first()
    if found is None:
        raise BadState(f"{checkpoint} has no keyed state of operator {operator_id} yet: name another operator_id")
    return settings_from_text(found[0])


def _stored(spark: "SparkSession", checkpoint: str, operator_id: int) -> "DataFrame":
    reader = spark.read.format("statestore").option("operatorId", operator_id).option("stateVarName", "keyed")
    found = reader.option("flattenCollectionTypes", "true").load(checkpoint)
    return found.selectExpr("key.bucket as bucket", "user_map_key.id as id", "user_map_value.data as data")


def _values(spark: "SparkSession", checkpoint: str, operator_id: int) -> "DataFrame":
    found = _stored(spark, checkpoint, operator_id).where("id = 'manifest'")
    return found.selectExpr("bucket", "cast(data as string) as text")


def _manifests(spark: "SparkSession", checkpoint: str, operator_id: int) -> "DataFrame":
    return _values(spark, checkpoint, operator_id).where(f"bucket <> {SETTINGS_BUCKET}")


def _listed(frame: "DataFrame", rows: Callable[[int, Manifest], list[tuple[Any, ...]]], schema: str) -> "DataFrame":
    """Rows out of each bucket's manifest; manifests are few and small."""
    found = [row for each in frame.collect() for row in rows(each["bucket"], from_text(each["text"]))]
    return frame.sparkSession.createDataFrame(found, schema)


def _reader(table: Table, keys: pa.Schema) -> Callable[[pa.Table], pa.Table]:
    def read(rows: pa.Table) -> pa.Table:
        data = {row["id"]: row["data"] for row in rows.to_pylist()}
        manifest = from_text(data["manifest"].decode()) if "manifest" in data else None
        return pa.Table.from_batches([_content(table, keys, manifest, data)])

    return read


def _content(table: Table, keys: pa.Schema, manifest: Manifest | None, data: dict[str, bytes]) -> pa.RecordBatch:
    if manifest is None:
        return no_rows(contents([], table, keys, 0).schema)
    runs = [decode_run(data[extent.id]) for extent in manifest.tables.get(table.name, ())]
    return contents(runs, table, keys, manifest.bound(table.name))


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
