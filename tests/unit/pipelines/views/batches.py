"""Batches for stores, made from rows by hand: what Spark would have spooled."""

import atexit
import functools
import json
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - Spark's own habit
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.stores.frames import Spool
from headrace.stores.views.freshness import Origin, Standing
from headrace.stores.views.shape import shape_of
from headrace.stores.views.store import Label, ViewBatch
from headrace.stores.views.values import key_text, shown_row

FLAGS = [
    T.StructField("headrace_count", T.LongType()),
    T.StructField("headrace_known", T.BooleanType()),
    T.StructField("headrace_deleted", T.BooleanType()),
    T.StructField("headrace_complete", T.BooleanType()),
    T.StructField("headrace_key", T.StringType()),
]
COLUMNS = T.StructType([
    T.StructField("user", T.LongType()),
    T.StructField("post", T.StringType()),
    T.StructField("likes", T.IntegerType()),
    T.StructField("score", T.DoubleType()),
    T.StructField("price", T.DecimalType(10, 2)),
    T.StructField("is_new", T.BooleanType()),
    T.StructField("day", T.DateType()),
    T.StructField("at", T.TimestampType()),
    T.StructField("tags", T.ArrayType(T.StringType())),
])  # fmt: skip
KEY = ("user", "post")


def row(user: int, post: str, **values: Any) -> dict[str, Any]:
    """A row with nothing in the columns that are not named."""
    return {**dict.fromkeys(COLUMNS.names), "user": user, "post": post, **values}


def batch(
    store: Any,
    number: int,
    put: Sequence[Mapping[str, Any]] = (),
    taken: Sequence[tuple[Any, ...]] = (),
    *,
    known: Sequence[tuple[Any, ...]] = (),
    query: str = "query-1",
    view: str = "feed",
    version: int | None = None,
    columns: T.StructType = COLUMNS,
    key: tuple[str, ...] = KEY,
    upserts: bool = False,
    on_new_query: Any = "refuse",
    offsets: Mapping[str, int] | None = None,
) -> ViewBatch:
    """A batch that puts rows and takes others away; `known` are keys of rows put that replace another."""
    shape = shape_of({field.name: field.dataType.simpleString() for field in columns.fields}, key)
    rows = []
    for one in put:
        place = tuple(one[name] for name in key)
        rows.append({
            **one, "headrace_count": 1, "headrace_known": place in known, "headrace_deleted": False,
            "headrace_complete": True, "headrace_key": key_text(shape, one),
        })  # fmt: skip
    for place in taken:
        named = dict(zip(key, place, strict=True))
        rows.append({
            **dict.fromkeys(columns.names), **named, "headrace_count": 0, "headrace_known": True,
            "headrace_deleted": True, "headrace_complete": True, "headrace_key": key_text(shape, named),
        })  # fmt: skip
    if store.kind in ("redis", "topic"):
        schema = T.StructType([*FLAGS, T.StructField("headrace_row", T.StringType())])
        rows = [
            {name: one[name] for name in (field.name for field in FLAGS)}
            | {"headrace_row": None if one["headrace_deleted"] else json.dumps(shown_row(shape, one))}
            for one in rows
        ]
    else:
        schema = T.StructType([*(_stored(store.kind, field) for field in columns.fields), *FLAGS])
        if store.kind == "sqlite":
            rows = [{**one, "tags": None if one.get("tags") is None else json.dumps(one["tags"])} for one in rows]
            rows = [{name: one[name] for name in schema.names} for one in rows]
    return ViewBatch(
        Label(view, version),
        shape,
        _spool(schema, rows),
        schema,
        query,
        number,
        Origin(Standing(offsets or {"posts-0": number + 1}, 1_700_000_000_000)),
        1_800_000_000_000 + number,
        upserts,
        on_new_query,
    )


def _stored(kind: str, field: T.StructField) -> T.StructField:
    if kind == "sqlite" and isinstance(field.dataType, T.ArrayType):
        return T.StructField(field.name, T.StringType(), metadata={"headrace": "json"})
    return field


@functools.cache
def _folder() -> Path:
    """One for the process, gone with it."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-view-batches-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _spool(schema: T.StructType, rows: list[dict[str, Any]]) -> Spool:
    arrow = to_arrow_schema(schema, timezone="UTC")
    file = _folder() / f"{uuid.uuid4().hex}.arrow"
    with pa.ipc.new_stream(str(file), arrow) as out:
        out.write_table(pa.Table.from_pylist(rows, schema=arrow))
    return Spool(arrow, (file,) if rows else ())
