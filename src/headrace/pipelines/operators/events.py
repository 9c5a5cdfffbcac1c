"""`read_events`: a topic of events as columns: what each event says of itself, and what it holds by its type.

    topic("shop.events", includeHeaders=True)            # in a @job or a @view; raw, as is the default

    events.transform(read_events({"deposited": "amount long", "account-opened": "owner string"}))
        .where("type = 'deposited'").groupBy("stream").agg(F.sum("deposited.amount"))

Whether the topic is a store or one that a store flows to makes no difference. Everything is an expression of Spark's.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from headrace.delivery import events as wire
from headrace.delivery.headers import CORRELATION_ID
from headrace.eventsourcing import event_records as form
from headrace.pipelines.operators.errors import BadField, require
from headrace.pipelines.operators.frames import Transform

_DATA: Final = "data"
_NAME: Final = re.compile(r"[^0-9A-Za-z_]")


def read_events(types: Mapping[str, str | StructType] | None = None) -> Transform:
    """Columns of events, behind a topic that is read with its headers.

    They are `position`, `stream`, `category`, `version`, `type`, `time`, `tags`, `event_id`, `causation_id`,
    `correlation_id`, `schema_version`, and `data`, which is the event's JSON as text. Each of `types`, an event type
    with the schema of what it holds, adds a column of that name (with `_` for what a name cannot have), which is null
    for events of other types. Read with `format="json"` and a schema that has `_key`, `_headers`, `_timestamp` and
    `_offset` besides the fields, those fields stay in the place of `data`.

    Records that are not events are left out.
    """
    named = {kind: _NAME.sub("_", kind) for kind in types or {}}
    if len(set(named.values())) < len(named):
        raise BadField(f"read_events: two of the types {', '.join(named)} would have the same column: read them apart")

    def apply(frame: DataFrame) -> DataFrame:
        mark = "_" if "_headers" in frame.columns else ""
        about = [f"{mark}{name}" for name in ("key", "headers", "timestamp", "offset")]
        if "headers" not in frame.columns and not mark:
            raise BadField("read_events needs the headers of records: read the topic with includeHeaders=True")
        require(about, frame.columns, "read_events")
        key, headers, time, offset = (fn.col(name) for name in about)
        columns = _about(key.cast("string"), headers, time, offset)
        if mark:
            if types:
                raise BadField("read_events: values are decoded already: leave types out, or read the topic raw")
            columns |= {name: fn.col(f"`{name}`") for name in frame.columns if not name.startswith("_")}
        else:
            columns[_DATA] = fn.col("value").cast("string")
        found = frame.select(*(column.alias(name) for name, column in columns.items()))
        found = found.where("version IS NOT NULL AND type IS NOT NULL AND stream IS NOT NULL")
        for kind, schema in (types or {}).items():
            held = fn.when(fn.col("type") == kind, fn.from_json(_DATA, _schema(kind, schema)))
            found = found.withColumn(named[kind], held)
        return found

    return apply


def _about(stream: Column, headers: Column, time: Column, offset: Column) -> dict[str, Column]:
    def all_of(name: str) -> Column:
        held = fn.filter(headers, lambda header: header["key"] == name)
        return fn.transform(held, lambda header: header["value"].cast("string"))

    def one(name: str) -> Column:
        return fn.try_element_at(all_of(name), fn.lit(-1))

    return {
        "position": fn.coalesce(one(form.POSITION).try_cast("long"), offset + 1),
        "stream": stream,
        "category": fn.substring_index(stream, "-", 1),
        "version": one(wire.VERSION).try_cast("long"),
        "type": one(wire.TYPE),
        "time": time,
        "tags": all_of(wire.TAG),
        "event_id": one(form.ID),
        "causation_id": one(form.CAUSATION_ID),
        "correlation_id": one(CORRELATION_ID),
        "schema_version": fn.coalesce(one(form.SCHEMA).try_cast("int"), fn.lit(1)),
    }


def _schema(kind: str, schema: str | StructType) -> Any:
    if not isinstance(schema, str):
        return schema
    try:
        return StructType.fromDDL(schema)
    except ParseException as error:
        raise BadField(
            f"read_events: the schema of {kind!r} cannot be read: {schema!r} ({error.getCondition()})"
        ) from None
