"""`table_changes`: a change topic as a table whose rows appear and disappear."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from headrace.pipelines.errors import BadOption
from headrace.pipelines.operators.errors import BadField, as_names
from headrace.pipelines.operators.frames import Transform, arrow_schema, over_keys
from headrace.pipelines.operators.tables.changes_reading import ENVELOPE, ROWS, Records, records_of
from headrace.pipelines.operators.tables.current import EMPTIED, GONE, OFFSET, PARTITION, ROW, CurrentRows
from headrace.pipelines.operators.tables.form import TIME, VERSION, WEIGHT
from headrace.pipelines.operators.tables.row_bytes import check_columns
from headrace.pipelines.operators.tables.straight import read_straight

APPLY, REFUSE, IGNORE = "apply", "refuse", "ignore"
_NOTHING = "(nothing)"  # the row of a table that is all key


def table_changes(
    key: str | Sequence[str],
    *,
    form: str = ENVELOPE,
    trust_before: bool = False,
    truncates: str = APPLY,
    table: str | None = None,
    buckets: int | None = None,
) -> Transform:
    """Changes of a table as rows that appear (`_weight` 1) and disappear (-1), with `_version` and `_time`.

    `key` are the columns of the primary key. With `form="envelope"` the records are Debezium's envelopes, with
    `form="rows"` rows of a compacted topic, which a null value deletes; `envelope_schema` and `row_schema` say what to
    declare for either.

    The current row of each key is kept, so that a change takes back what is there: records that come twice, an update
    without `before` and a second snapshot are right. With `trust_before=True` nothing is kept, and a change takes back
    what its `before` says: right if the topic is read from its beginning, each row was in one snapshot, and the
    database sends whole rows (`ALTER TABLE … REPLICA IDENTITY FULL`). Right behind a stream of ours the source makes
    such rows itself, and a query that also reads the envelopes has that source twice: to go on from a checkpoint in
    which it stands once, set `spark.headrace.straight` to `false`.

    A truncate takes back all rows that came from its partition: capture writes it to every partition, and a topic of
    which another writer truncates in one place has to have one partition. With `trust_before=True` it stops the query,
    because which rows are there is known to no one, and so it does with `truncates="refuse"`; the table was empty then,
    so that a new checkpoint behind it is right. `truncates="ignore"` keeps the rows. `table` is what versions call the
    table, by default the topic.

    A large value that PostgreSQL did not send again (`__debezium_unavailable_value` in its place) is the one that the
    row has, or that `before` has; where neither does, the query stops and says so.
    """
    keys = as_names(key)
    _check(keys, form, trust_before, truncates)

    def apply(frame: DataFrame) -> DataFrame:
        kept = _untruncated(frame, form, truncates)
        records = records_of(kept, keys, form, table, truncates == APPLY and not trust_before)
        if not trust_before:
            return _current(records, buckets)
        made = _stateless(records)
        return read_straight(frame, records, made, ignores_truncates=truncates == IGNORE) or made

    return apply


def row_versions(
    key: str | Sequence[str], *, form: str = ENVELOPE, truncates: str = APPLY, table: str | None = None
) -> Transform:
    """Each record of a change topic as a version of a row, none left out and nothing kept.

    The key's columns; `row`, a struct of the others; `gone`, whether the row is deleted; `partition`, `offset`;
    `_version`, `_time`; and `emptied`, whether the record is a truncate, which ends the versions of all keys. The
    settings are those of `table_changes`.

    A record that leaves out a large value, which PostgreSQL did not send again and `before` does not have, stops the
    query: nothing is kept to take it from.
    """
    keys = as_names(key)
    _check(keys, form, False, truncates)
    return lambda frame: _versions(
        records_of(_untruncated(frame, form, truncates), keys, form, table, truncates == APPLY)
    )


def _check(keys: Sequence[str], form: str, trust_before: bool, truncates: str) -> None:
    if not keys:
        raise BadField(
            "table_changes has no primary key, and without one it is not known which row a change replaces: write "
            "key=['…'], and give the table one with ALTER TABLE … ADD PRIMARY KEY"
        )
    if form not in (ENVELOPE, ROWS):
        raise BadOption(f"form={form!r} in table_changes: choose {ENVELOPE!r} or {ROWS!r}")
    if truncates not in (APPLY, REFUSE, IGNORE):
        raise BadOption(f"truncates={truncates!r} in table_changes: choose {APPLY!r}, {REFUSE!r} or {IGNORE!r}")
    if trust_before and form != ENVELOPE:
        raise BadOption("trust_before=True in table_changes: rows themselves have no before, so leave it out")


def _untruncated(frame: DataFrame, form: str, truncates: str) -> DataFrame:
    is_there = form == ENVELOPE and "op" in frame.columns and truncates == IGNORE
    return frame.where(~fn.col("op").eqNullSafe("t")) if is_there else frame


def _versions(records: Records, *, keeps_rows: bool = False) -> DataFrame:
    frame = records.frame
    if not records.has("_key"):
        # Without the record's key a tombstone is nobody's; the delete before it has said the same.
        frame = frame.where(~records.is_tombstone) if records.form == ENVELOPE else frame
    row = [records.whole_cell(name).alias(name) for name in records.others] or [fn.lit(True).alias(_NOTHING)]
    partition = fn.col("_partition") if records.has("_partition") else fn.lit(0)
    wrong = records.refused() if keeps_rows else records.refused(records.incomplete(records.whole_cell))
    return frame.select(
        *(records.key_cell(name).alias(name) for name in records.key),
        fn.struct(*row).alias(ROW),
        fn.coalesce(wrong, records.is_gone).alias(GONE),
        partition.alias(PARTITION),
        fn.col("_offset").alias(OFFSET),
        records.version().alias(VERSION),
        records.time.alias(TIME),
        *([records.is_truncate.alias(EMPTIED)] if records.empties else []),
    )


def _current(records: Records, buckets: int | None) -> DataFrame:
    versions = _versions(records, keeps_rows=True)
    row = arrow_schema(versions).field(ROW).type
    check_columns(pa.schema(list(row)), "the table")
    emitted = over_keys(versions, records.key, lambda _: CurrentRows(row, records.empties), buckets)
    names = [*records.row.fieldNames(), WEIGHT, VERSION, TIME]
    return emitted.select(*(f"`{name}`" for name in names))


def _stateless(records: Records) -> DataFrame:
    if not records.has("before"):
        raise BadField(
            "trust_before=True in table_changes needs a column before, and the DataFrame has none: declare it with "
            ".schema(envelope_schema('id long, …')), or leave trust_before out"
        )
    op = fn.col("op")
    records = replace(records, frame=records.frame.where(op.isNotNull()), has_tombstones=False)
    lost = op.isin("u", "d") & fn.col("before").isNull()
    others = records.others
    for_keys = fn.lit(bool(others)) & (op == "d")
    for name in others:
        for_keys = for_keys & records.cell(name, "before").isNull()
    wrong = records.refused(
        (lost, records.refusals.no_before),
        (for_keys, records.refusals.only_key),
        records.incomplete(records.whole_cell, lambda name: records.cell(name, "before")),
    )
    checked = records.frame.where(fn.coalesce(wrong, fn.lit(True)))
    # A turn for what was and one for what is: in Spark cheaper than an array of rows, which it would not compile.
    turns = checked.select("*", fn.explode(fn.array(fn.lit(-1), fn.lit(1))).alias(WEIGHT))
    goes = fn.col(WEIGHT) < 0
    emitted = turns.where(fn.when(goes, op.isin("u", "d")).otherwise(op.isin("c", "r", "u")))
    row = [
        fn.when(goes, records.cell(name, "before")).otherwise(records.whole_cell(name)).alias(name)
        for name in records.row.fieldNames()
    ]
    version = records.version(is_known=~goes)
    return emitted.select(*row, WEIGHT, version.alias(VERSION), records.time.alias(TIME))
