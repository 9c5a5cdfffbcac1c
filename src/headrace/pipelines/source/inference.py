"""The columns of values where the user declared none: of lines of logs all that there are, of JSON a sample's.

What a sample shows today need not be what it shows at the next start, and a query's schema must not change under its
checkpoint. So with `schemaFile` the first answer is written to a file, and later starts read it from there.
"""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.json as arrow_json
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.pipelines.clusters import cluster_at
from headrace.pipelines.columns.decoders import FIXED
from headrace.pipelines.errors import BadSchema
from headrace.pipelines.source.columns import layout_of, raw_schema
from headrace.pipelines.source.offsets import EARLIEST, LATEST, find_offsets, select_partitions
from headrace.pipelines.source.options import SourceOptions
from headrace.pipelines.source.planning import ranges
from headrace.pipelines.source.reading import read_range
from headrace.stores.folders import replace_text


def infer_schema(options: SourceOptions) -> StructType:
    """All columns of a form of lines; for JSON the pinned schema, or a sample's, pinned if there is a place for it."""
    if options.format in FIXED:
        from headrace.pipelines.columns.logs.lines import line_schema

        return from_arrow_schema(line_schema(options.format))
    if options.format != "json":
        raise BadSchema(
            f'the columns of {options.format} values have to be declared: write .schema("name type, …") before .load()'
        )
    file = Path(options.schema_file) if options.schema_file else None
    if file and file.exists():
        return StructType.fromJson(json.loads(file.read_text()))
    schema = _of_sample(options)
    if file:
        replace_text(file, schema.json())
    return schema


def _of_sample(options: SourceOptions) -> StructType:
    """What the first records say; a field that only comes later is not among the columns."""
    values = [value for value in _sample(options) if value is not None and _is_object(value)]
    if not values:
        raise BadSchema(
            f"{options.described} holds no JSON object to learn the columns from: declare them with "
            '.schema("name type, …") before .load()'
        )
    # No string in JSON holds a bare line break, so those between tokens may become spaces.
    lines = b"\n".join(value.replace(b"\n", b" ").replace(b"\r", b" ") for value in values)
    try:
        table = arrow_json.read_json(
            pa.BufferReader(lines), read_options=arrow_json.ReadOptions(block_size=max(len(lines) + 1, 1024))
        )
    except pa.ArrowInvalid as error:
        raise BadSchema(
            f"the first {len(values)} records of {options.described} are not of one shape ({error}): declare columns "
            'with .schema("name type, …") before .load()'
        ) from error
    return from_arrow_schema(_plain(table.schema))


def _is_object(value: bytes) -> bool:
    """One bad record must not decide about the columns: reading will set it aside."""
    try:
        return isinstance(json.loads(value), dict)
    except ValueError:
        return False


def _sample(options: SourceOptions) -> list[bytes | None]:
    cluster = cluster_at(options.bootstrap, options.connection)
    where = select_partitions(cluster, options)
    starts = find_offsets(cluster, where, EARLIEST, committed=options.committed)
    ends = find_offsets(cluster, where, LATEST, committed=options.committed)
    each = max(options.sample_records // max(len(where), 1), 1)
    ends = {place: min(end, starts[place] + each) for place, end in ends.items()}
    raw = SourceOptions(
        options.bootstrap, topics=options.topics, committed=options.committed, connection=options.connection
    )
    layout = layout_of(StructType([raw_schema(include_headers=False)["value"]]), raw)
    found: list[bytes | None] = []
    for wanted in ranges(starts, ends, min_tasks=1, records_per_task=options.sample_records):
        for batch in read_range(wanted, layout, raw):
            found += batch.column(0).to_pylist()
    return found


def _plain(schema: pa.Schema) -> pa.Schema:
    """Arrow's guess, in types that Spark has; a field that was null throughout becomes text."""
    return pa.schema([pa.field(field.name, _plain_type(field.type)) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain_type(field.type)) for field in kind])
    return kind
