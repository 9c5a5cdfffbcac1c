"""`table_changes`: a change topic as a table whose rows appear and disappear."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.pipelines.errors import BadOption
from headrace.pipelines.operators.errors import BadField
from headrace.pipelines.operators.fields import as_names
from headrace.pipelines.operators.frames import Transform, arrow_schema, over_keys
from headrace.pipelines.operators.tables.changes_reading import ENVELOPE, ROWS, Records, records_of
from headrace.pipelines.operators.tables.current import GONE, OFFSET, PARTITION, ROW, CurrentRows
from headrace.pipelines.operators.tables.form import TIME, VERSION, WEIGHT
from headrace.pipelines.operators.tables.row_bytes import check_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REFUSE, IGNORE = "refuse", "ignore"
_NOTHING = "(nothing)"  # the row of a table that is all key


def table_changes(
    key: str | Sequence[str],
    *,
    form: str = ENVELOPE,
    trust_before: bool = False,
    truncates: str = REFUSE,
    table: str | None = None,
    buckets: int | None = None,
) -> Transform:
    """Changes of a table as rows that appear (`_weight` 1) and disappear (-1), with `_version` and `_time`.

    `key` are the columns of the primary key. With `form="envelope"` the records are Debezium's envelopes, with
    `form="rows"` rows of a compacted topic, which a null value deletes; `envelope_schema` and `row_schema` say what to
    declare for either.

    The current row of each key is kept, so that a change takes back what is there: records that come twice, an update
    without `before` and a second snapshot are right. With `trust_before=True` nothing is kept, and a change takes back
    what its `before` says: right if the topic is read from its beginning, each row was told in one snapshot, and the
    database tells whole rows (`ALTER TABLE … REPLICA IDENTITY FULL`).

    A truncate stops the query: which rows it took away is known to no one here, and the table was empty then, so that a
    new checkpoint behind it is right. `truncates="ignore"` keeps the rows. `table` is what versions call the table, by
    default the topic.
    """
    keys = as_names(key)
    _check(keys, form, trust_before, truncates)

    def apply(frame: "DataFrame") -> "DataFrame":
        records = records_of(_untruncated(frame, form, truncates), keys, form, table)
        return _stateless(records) if trust_before else _current(records, buckets)

    return apply


def row_versions(
    key: str | Sequence[str], *, form: str = ENVELOPE, truncates: str = REFUSE, table: str | None = None
) -> Transform:
    """Each record of a change topic as a version of a row, none left out and nothing kept.

    The key's columns; `row`, a struct of the others; `gone`, whether the row is deleted; `partition`, `offset`;
    `_version`, `_time`. The settings are those of `table_changes`.
    """
    keys = as_names(key)
    _check(keys, form, False, truncates)
    return lambda frame: _versions(records_of(_untruncated(frame, form, truncates), keys, form, table))


def _check(keys: Sequence[str], form: str, trust_before: bool, truncates: str) -> None:
    if not keys:
        raise BadField(
            "table_changes has no primary key, and without one nobody can say which row a change replaces: write "
            "key=['…'], and give the table one with ALTER TABLE … ADD PRIMARY KEY"
        )
    if form not in (ENVELOPE, ROWS):
        raise BadOption(f"form={form!r} in table_changes: choose {ENVELOPE!r} or {ROWS!r}")
    if truncates not in (REFUSE, IGNORE):
        raise BadOption(f"truncates={truncates!r} in table_changes: choose {REFUSE!r} or {IGNORE!r}")
    if trust_before and form != ENVELOPE:
        raise BadOption("trust_before=True in table_changes: rows themselves have no before, so leave it out")


def _untruncated(frame: "DataFrame", form: str, truncates: str) -> "DataFrame":
    from pyspark.sql import functions as fn

    is_there = form == ENVELOPE and "op" in frame.columns and truncates == IGNORE
    return frame.where(~fn.col("op").eqNullSafe("t")) if is_there else frame


def _versions(records: Records) -> "DataFrame":
    from pyspark.sql import functions as fn

    frame = records.frame
    if not records.has("_key"):
        # Without the record's key a tombstone is nobody's; the delete before it has said the same.
        frame = frame.where(~records.is_tombstone) if records.form == ENVELOPE else frame
    row = [records.cell(name).alias(name) for name in records.others] or [fn.lit(True).alias(_NOTHING)]
    partition = fn.col("_partition") if records.has("_partition") else fn.lit(0)
    return frame.select(
        *(records.key_cell(name).alias(name) for name in records.key),
        fn.struct(*row).alias(ROW),
        fn.coalesce(records.refused(), records.is_gone).alias(GONE),
        partition.alias(PARTITION),
        fn.col("_offset").alias(OFFSET),
        records.version().alias(VERSION),
        records.time.alias(TIME),
    )


def _current(records: Records, buckets: int | None) -> "DataFrame":
    versions = _versions(records)
    row = arrow_schema(versions).field(ROW).type
    check_columns(pa.schema(list(row)), "the table")
    told = over_keys(versions, records.key, lambda _: CurrentRows(row), buckets)
    names = [*records.row.fieldNames(), WEIGHT, VERSION, TIME]
    return told.select(*(f"`{name}`" for name in names))


def _stateless(records: Records) -> "DataFrame":
    from pyspark.sql import functions as fn

    if not records.has("before"):
        raise BadField(
            "trust_before=True in table_changes needs a column before, and the DataFrame has none: declare it with "
            ".schema(envelope_schema('id long, …')), or leave trust_before out"
        )
    op = fn.col("op")
    lost = op.isin("u", "d") & fn.col("before").isNull()
    others = records.others
    for_keys = fn.lit(bool(others)) & (op == "d")
    for name in others:
        for_keys = for_keys & records.cell(name, "before").isNull()
    mend = "write ALTER TABLE … REPLICA IDENTITY FULL, or leave trust_before out of table_changes"
    wrong = records.refused(
        (lost, f"has no before, which trust_before=True needs: {mend}"),
        (for_keys, f"has only the key in before, where trust_before=True needs the whole row: {mend}"),
    )
    gone = _weighted(records, "before", -1, records.version(is_known=False))
    come = _weighted(records, "after", 1, records.version())
    changes = fn.array_compact(fn.array(fn.when(op.isin("u", "d"), gone), fn.when(op.isin("c", "r", "u"), come)))
    checked = fn.when(wrong.isNull(), changes)
    return records.frame.where(op.isNotNull()).select(fn.inline(checked))


def _weighted(records: Records, image: str, weight: int, version: "Column") -> "Column":
    from pyspark.sql import functions as fn

    row = [records.cell(name, image).alias(name) for name in records.row.fieldNames()]
    return fn.struct(*row, fn.lit(weight).alias(WEIGHT), version.alias(VERSION), records.time.alias(TIME))
