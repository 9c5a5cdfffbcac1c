"""Lines of logs in any DataFrame: `parse_logs`, and the level that free text names, `level_in`.

    lines.transform(parse_logs("value", "combined")).where("parse_problem IS NULL").groupBy("status").count()

The same decoders as those of `format("headrace")` read whole columns; a topic is best read with its format at once.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from headrace.log_formats.levels import GLOG, NAMES, PATTERN
from headrace.pipelines.columns.decoders import FIXED, decoder_for
from headrace.pipelines.columns.decoding import Decoder
from headrace.pipelines.columns.logs.lines import line_schema
from headrace.pipelines.columns.records import RecordColumns
from headrace.pipelines.operators.errors import BadField, nearest, require
from headrace.pipelines.operators.frames import Transform
from headrace.pipelines.operators.times import times_of

PROBLEM = "parse_problem"
_FORMATS = (*FIXED, "logfmt", "json")
_PARSED = "_parsed_line"
_GROUPS = 5  # of the pattern of levels, of which one is what was found


def parse_logs(
    column: str,
    format: str,  # noqa: A002 (the word of the option that means the same)
    *,
    schema: str | StructType | None = None,
    time: str | Column | None = None,
    problem: str = PROBLEM,
    **options: str,
) -> Transform:
    """The fields of the lines in a column, as columns behind those there are.

    `format` is `common`, `combined`, `syslog`, `logfmt` or `json`. `schema` names the fields that are wanted, which
    logfmt and JSON need. A line that is not of that form has nulls in them, and the reason in the column `problem`,
    which is null for all others; so nothing is left out unless you leave it out. Syslog's times without a year are
    resolved against `time`, when each line was received: a column, such as a topic's `timestamp`. `options` are those
    of the format: `timeZone` for syslog, `epochUnit` for logfmt and JSON.
    """
    if format not in _FORMATS:
        raise BadField(f"parse_logs: there is no format {format!r}: {nearest(format, _FORMATS)}")
    if format == "syslog" and time is None:
        raise BadField(
            "parse_logs: times of syslog have no year, and it is resolved against when a line was received: name the "
            'column that says so, as in time="timestamp"'
        )
    declared = _declared(schema, format)
    lowered = {name.lower(): text for name, text in options.items()}
    decoder_for(format, to_arrow_schema(declared, timezone="UTC"), lowered)  # a mistake is raised before anything runs

    def apply(frame: DataFrame) -> DataFrame:
        require([column], frame.columns, "parse_logs")
        kind = frame.schema[column].dataType.simpleString()
        if kind not in ("string", "binary"):
            raise BadField(f"parse_logs: column {column!r} is {kind}, and lines are string or binary")
        taken = [name for name in (*declared.fieldNames(), problem) if name in frame.columns]
        if taken:
            raise BadField(
                f"parse_logs: there is a column {taken[0]!r} already: rename or drop it, or leave it out of the schema"
            )
        received = fn.lit(0).cast("timestamp") if time is None else fn.col(time) if isinstance(time, str) else time
        output = StructType([*declared.fields, StructField(problem, StringType())])
        parse = arrow_udf(  # type: ignore[call-overload]
            _parser(format, declared.json(), tuple(sorted(lowered.items())), problem), output
        )
        parsed = frame.withColumn(_PARSED, parse(fn.col(f"`{column}`"), received.cast("timestamp")))
        fields = [fn.col(f"{_PARSED}.`{name}`").alias(name) for name in output.fieldNames()]
        return parsed.select(*(f"`{name}`" for name in frame.columns), *fields)

    return apply


def level_in(text: str | Column) -> Column:
    """The level that a line of free text names, as `headrace.log_formats.level_of` finds it; null if it names none."""
    column = fn.col(text) if isinstance(text, str) else text
    words = [fn.nullif(fn.regexp_extract(column, PATTERN, group), fn.lit("")) for group in range(1, _GROUPS + 1)]
    found = fn.lower(fn.coalesce(*words[:-1]))
    meant = fn.create_map(*(fn.lit(part) for pair in NAMES.items() for part in pair))
    glog = fn.create_map(*(fn.lit(part) for pair in GLOG.items() for part in pair))
    return fn.coalesce(fn.try_element_at(meant, found), fn.try_element_at(glog, fn.lower(words[-1])))


def _declared(schema: str | StructType | None, name: str) -> StructType:
    if schema is None:
        if name not in FIXED:
            raise BadField(
                f'parse_logs: the fields of {name} have to be declared: write schema="name type, …", as "level string"'
            )
        return from_arrow_schema(line_schema(name))
    try:
        found = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    except AnalysisException as error:
        raise BadField(f"parse_logs: {schema!r} is not a schema: write name type, …, as in level string") from error
    assert isinstance(found, StructType)
    return found


def _parser(name: str, schema: str, options: tuple[tuple[str, str], ...], problem: str) -> Callable[..., pa.Array]:
    """What Spark's Python workers call with a batch of lines."""

    def parse(lines: pa.Array, received: pa.Array) -> pa.Array:
        decoder, fields = _decoder(name, schema, options)
        records = records_of(lines, received)
        decoded = decoder.decode(records)
        reasons = pa.array([decoded.broken.get(row) for row in range(len(records))] if decoded.broken else
                           pa.nulls(len(records), pa.string()), pa.string())  # fmt: skip
        children = [*fields, pa.field(problem, pa.string())]
        return pa.StructArray.from_arrays([*decoded.columns, reasons], fields=children)

    # Spark reads the annotations, and strings tell it nothing.
    parse.__annotations__ = {"lines": pa.Array, "received": pa.Array, "return": pa.Array}
    return parse


@lru_cache(maxsize=16)
def _decoder(name: str, schema: str, options: tuple[tuple[str, str], ...]) -> tuple[Decoder, list[pa.Field]]:
    import json

    found = to_arrow_schema(StructType.fromJson(json.loads(schema)), timezone="UTC")
    return decoder_for(name, found, dict(options)), list(found)


def records_of(lines: pa.Array, received: pa.Array) -> RecordColumns:
    """Lines as the values of records that came at these times; nothing is copied."""
    lines = pc.cast(lines, pa.binary())
    _, ends_buffer, data = lines.buffers()
    ends = np.frombuffer(ends_buffer, np.int32)[lines.offset : lines.offset + len(lines) + 1].astype(np.int64)
    arena = np.frombuffer(data if data is not None and data.size else b"\0", np.uint8)
    arena.flags.writeable = False
    sizes = np.where(np.asarray(lines.is_valid()), np.diff(ends), -1)
    none = np.zeros(len(lines), np.int64)
    times = times_of(received)[0] // 1000
    return RecordColumns(
        arena, none, times, none, none - 1, ends[:-1], sizes, none, none, np.zeros(len(lines), np.bool_)
    )


__all__ = ["PROBLEM", "level_in", "parse_logs", "records_of"]
