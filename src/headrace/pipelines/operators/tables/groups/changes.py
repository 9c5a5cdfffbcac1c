"""`group_changes`: aggregates over a table as changes, in which rows that go are taken out again; `distinct_changes`.

The different values of a table that loses rows too are counted by an operator of their own, before the groups.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.pipelines.operators.aggregation.algebra import Aggregate, Part
from headrace.pipelines.operators.aggregation.distinct import Marks
from headrace.pipelines.operators.errors import BadAggregate, BadField, as_names, nearest, require
from headrace.pipelines.operators.frames import Transform, arrow_schema, check_names, over_keys, prepare
from headrace.pipelines.operators.tables.form import NAMES, TIME, VERSION, WEIGHT, check_form, only_grows, row_names
from headrace.pipelines.operators.tables.groups.native import Upserts, group_natively, group_version, why_not_native
from headrace.pipelines.operators.tables.groups.operators import REVISION, DistinctMarks, GroupedRows
from headrace.pipelines.spark.internals import add_note


def group_changes(
    by: str | Sequence[str] = (), *, native: bool | None = None, buckets: int | None = None, **aggregates: Aggregate
) -> Transform:
    """A row for each group, kept up to date: a table as changes in, one out.

    A group's row disappears (`_weight` -1) and appears with other results (+1) in the micro-batch that altered it; a
    group that has lost all its rows only disappears. Aggregates: `count`, `sum`, `avg`, `min`, `max`, `min_by`,
    `max_by`, `count_distinct`, `collect` (in the order of values; with each change it rewrites all of them) and
    `top_n`. Sums are exact, also of doubles, so nothing is left of a row that is gone. `_version` is the group's: its
    key, and a number that grows with every row that is emitted of it, for which a group that is gone is remembered.
    `_time` is the latest of the changes that led to the row.

    `native=True` leaves the work to Spark's own aggregation, for count, sum and avg of whole numbers and decimals as
    the last step of a query in output mode `update`. It gives upserts: `_weight` +1, this is the group's row from now
    on; -1, the group is gone. What came before is not taken back. A view does so by itself where it can, unless
    `native=False` says otherwise.
    """
    keys = as_names(by)
    if not aggregates:
        raise BadAggregate("group_changes computes nothing: name an aggregate, for example n=agg.count()")
    for name, each in aggregates.items():
        if not isinstance(each, Aggregate):
            raise BadAggregate(
                f"group_changes: {name}={each!r} is not an aggregate: write for example {name}=agg.count()"
            )

    def apply(frame: DataFrame) -> DataFrame:
        check_form(arrow_schema(frame), "the input of group_changes")
        for name in keys:
            if name in NAMES:
                raise BadField(f"group_changes groups by {name!r}, which is not a column of the row: name one that is")
        check_names(frame, keys, aggregates, (*NAMES, REVISION), "by in group_changes")
        frame, computed = prepare(frame, aggregates, of_table=True)
        made = plan_groups(computed, arrow_schema(frame), inserts=only_grows(frame))
        reason = why_not_native(frame, computed) if native is not False else ""
        upserts = Upserts(keys, lambda: group_natively(frame, keys, computed))
        if native:
            if reason:
                raise BadAggregate(f"group_changes cannot be native: {reason}")
            return add_note(upserts.make(), upserts)
        found = _on_keyed_state(frame, keys, made, buckets)
        return add_note(found, upserts) if reason is None else found

    return apply


def distinct_changes(columns: str | Sequence[str] = (), *, buckets: int | None = None) -> Transform:
    """The different rows of some columns (of all, if none are named): a table as changes in, one out.

    A row appears when the first of its kind does and disappears with the last. Its version is always the same, because
    a row of the same columns is the same row.
    """
    named = as_names(columns)

    def apply(frame: DataFrame) -> DataFrame:
        check_form(arrow_schema(frame), "the input of distinct_changes")
        chosen = named or tuple(row_names(frame.columns))
        require(chosen, frame.columns, "distinct_changes")
        for name in chosen:
            if name in NAMES:
                raise BadField(f"distinct_changes names {name!r}, which is not a column of the row: leave it out")
        some = frame.select(*(f"`{name}`" for name in dict.fromkeys([*chosen, WEIGHT, TIME])))
        made = over_keys(some, tuple(dict.fromkeys(chosen)), lambda _: GroupedRows({}), buckets)
        return put_in_form(made, tuple(dict.fromkeys(chosen)))

    return apply


@dataclass(frozen=True)
class Grouping:
    """The parts of a group, and the fields whose different values an operator before has to mark, by mark."""

    parts: Mapping[str, Part]
    marked: Mapping[str, str]
    fields: tuple[str, ...]
    """Every column that is looked at."""


def plan_groups(aggregates: Mapping[str, Aggregate], rows: pa.Schema, *, inserts: bool = False) -> Grouping:
    """Aggregates over rows of that schema; refuses what is not there, has the wrong type, or cannot be subtracted.

    With `inserts` the table only grows.
    """
    parts: dict[str, Part] = {}
    marks: dict[str, str] = {}
    fields: list[str] = []
    for name, each in aggregates.items():
        for column in each.names:
            if column not in rows.names:
                raise BadField(f"{name}: there is no column {column!r}: {nearest(column, rows.names)}")
        fields += each.names_in_group
        parts[name] = each.part(name, rows, inserts=inserts)
        if isinstance(parts[name], Marks) and each.field is not None:
            parts[name] = Marks(marks.setdefault(each.field, f"_mark_{len(marks)}"))
    return Grouping(parts, {mark: field for field, mark in marks.items()}, tuple(dict.fromkeys(fields)))


def _on_keyed_state(frame: DataFrame, by: tuple[str, ...], made: Grouping, buckets: int | None) -> DataFrame:
    some = frame.select(*(f"`{name}`" for name in dict.fromkeys([*by, *made.fields, WEIGHT, TIME])))
    for mark, field in made.marked.items():
        some = over_keys(
            some,
            tuple(dict.fromkeys([*by, field])),
            lambda rows, field=field, mark=mark: DistinctMarks(field, mark, rows),  # type: ignore[misc]
            buckets,
        )
    return put_in_form(over_keys(some, by, lambda _: GroupedRows(made.parts), buckets), by)


def put_in_form(frame: DataFrame, by: Sequence[str]) -> DataFrame:
    """A frame with `_weight`, `_revision` and `_time`, with the version of each group instead of the revision."""
    own = [f"`{name}`" for name in row_names(frame.columns) if name != REVISION]
    return frame.select(*own, WEIGHT, group_version(by, REVISION).alias(VERSION), TIME)
