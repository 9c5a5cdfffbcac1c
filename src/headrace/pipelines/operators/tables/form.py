"""The form of a table as changes: a row's columns, and three more.

- `_weight`: +1, the row appears; -1, exactly that row disappears. An update is both, in one micro-batch. Weights add
  up, and the order within a micro-batch means nothing: after each, the sum over all rows is the table as of then.
- `_version`: which version of which row this is; a retraction carries the version of the row that it takes back. After
  a join there is `_versions` instead: those of the left row, then those of the right.
- `_time`: when that version became valid.

Two rows are the same, so that one takes the other back, if all their own columns are equal and their versions are of
the same tables and keys. The rest of a version, and the time, is a note: changes that are passed on without state know
the version of a row that disappears only by table and key, and leave its offset null.
"""

from collections.abc import Collection
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.pipelines.operators.errors import BadField

WEIGHT: Final = "_weight"
VERSION: Final = "_version"
VERSIONS: Final = "_versions"
TIME: Final = "_time"
INSERTS: Final = "headrace.inserts"
"""Noted on `_weight` where it is never -1: a table that only grows."""
NAMES: Final = frozenset({WEIGHT, VERSION, VERSIONS, TIME})

WEIGHT_TYPE: Final = pa.int32()
VERSION_TYPE: Final = pa.struct(
    [("table", pa.string()), ("key", pa.string()), ("offset", pa.int64()), ("lsn", pa.string())]
)
VERSIONS_TYPE: Final = pa.list_(VERSION_TYPE)
TIME_TYPE: Final = pa.timestamp("us", tz="UTC")

FORM: Final = (pa.field(WEIGHT, WEIGHT_TYPE), pa.field(VERSION, VERSION_TYPE), pa.field(TIME, TIME_TYPE))
JOINED_FORM: Final = (pa.field(WEIGHT, WEIGHT_TYPE), pa.field(VERSIONS, VERSIONS_TYPE), pa.field(TIME, TIME_TYPE))

VERSION_DDL: Final = "struct<table: string, key: string, offset: bigint, lsn: string>"
FORM_DDL: Final = f"{WEIGHT} int, {VERSION} {VERSION_DDL}, {TIME} timestamp"


def row_names(columns: Collection[str]) -> list[str]:
    """The row's own columns, in their order."""
    return [name for name in columns if name not in NAMES]


def version_column(columns: Collection[str]) -> str:
    """`_version`, or `_versions` after a join."""
    return VERSIONS if VERSIONS in columns else VERSION


def only_grows(frame: DataFrame) -> bool:
    """Whether rows of a table as changes appear only, and none is ever taken back."""
    return WEIGHT in frame.columns and bool(frame.schema[WEIGHT].metadata.get(INSERTS))


def check_form(schema: pa.Schema, what: str) -> None:
    """Refuse a DataFrame that is not a table as changes; `what` says whose input it is."""
    names = schema.names
    missing = [name for name in (WEIGHT, TIME) if name not in names]
    if VERSION not in names and VERSIONS not in names:
        missing.append(VERSION)
    if missing:
        raise BadField(
            f"{what} is not a table as changes, because it has no column {' and no '.join(sorted(missing))}: write "
            f".transform(table_changes(key=[…])) before it, or .transform(appended()) if its rows are events that only "
            "come, and keep these columns in every select"
        )
    if VERSION in names and VERSIONS in names:
        raise BadField(f"{what} has both {VERSION} and {VERSIONS}: drop one of them")
    wanted = {WEIGHT: WEIGHT_TYPE, VERSION: VERSION_TYPE, VERSIONS: VERSIONS_TYPE, TIME: TIME_TYPE}
    for name, kind in wanted.items():
        if name in names and not _alike(schema.field(name).type, kind):
            raise BadField(
                f"{what} has a column {name} of type {schema.field(name).type}, where a table as changes has {kind}: "
                "keep it as it came, or cast it"
            )


def check_row_names(columns: Collection[str], what: str) -> None:
    """Refuse a row whose own columns have names of the form."""
    for name in columns:
        if name in NAMES:
            raise BadField(f"{what} has a column {name!r}, which is a name of the form of changes: rename it")


def _alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Nullability and the names of list items do not count."""
    if pa.types.is_list(wanted):
        return pa.types.is_list(found) and _alike(found.value_type, wanted.value_type)
    if pa.types.is_struct(wanted):
        if not pa.types.is_struct(found) or found.num_fields != wanted.num_fields:
            return False
        pairs = zip(found, wanted, strict=True)
        return all(one.name == other.name and _alike(one.type, other.type) for one, other in pairs)
    return bool(found == wanted)
