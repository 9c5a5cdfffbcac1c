"""`group_changes`: aggregates over a table as changes, in which rows that go are taken out again."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.pipelines.operators.errors import BadAggregate, BadField, as_names, require
from headrace.pipelines.operators.frames import Transform, arrow_schema, over_keys, prepared
from headrace.pipelines.operators.partials import Aggregate
from headrace.pipelines.operators.tables.distinct import DistinctMarks
from headrace.pipelines.operators.tables.form import NAMES, TIME, WEIGHT, check_form, only_grows
from headrace.pipelines.operators.tables.grouped_aggregates import Grouping, grouping, looked_at
from headrace.pipelines.operators.tables.grouped_form import in_form
from headrace.pipelines.operators.tables.grouped_native import Upserts, natively, why_not_native
from headrace.pipelines.operators.tables.grouped_rows import REVISION, GroupedRows
from headrace.pipelines.spark.internals import add_note

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def group_changes(
    by: str | Sequence[str] = (), *, native: bool | None = None, buckets: int | None = None, **aggregates: Aggregate
) -> Transform:
    """A row for each group, kept up to date: a table as changes in, one out.

    A group's row disappears (`_weight` -1) and appears with other results (+1) in the micro-batch that altered it; a
    group that has lost all its rows only disappears. Aggregates: `count`, `sum`, `avg`, `min`, `max`, `min_by`,
    `max_by`, `count_distinct`, `collect` (in the order of values; with each change it rewrites all of them) and
    `top_n`. Sums are exact, also of doubles, so nothing is left of a row that is gone. `_version` is the group's: its
    key, and a number that grows with every row it is told by, for which a group that is gone is remembered. `_time` is
    the latest of the changes that led to the row.

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
            raise BadAggregate(f"group_changes: {name}={each!r} is no aggregate: write for example {name}=agg.count()")

    def apply(frame: "DataFrame") -> "DataFrame":
        check_form(arrow_schema(frame), "the input of group_changes")
        _check_names(keys, aggregates, frame.columns)
        for name, each in aggregates.items():
            looked_at(name, each, frame.columns)
        frame, computed = prepared(frame, aggregates, of_table=True)
        made = grouping(computed, arrow_schema(frame), inserts=only_grows(frame))
        reason = why_not_native(frame, computed) if native is not False else ""
        upserts = Upserts(keys, lambda: natively(frame, keys, computed))
        if native:
            if reason:
                raise BadAggregate(f"group_changes cannot be native: {reason}")
            return add_note(upserts.make(), upserts)
        found = _on_keyed_state(frame, keys, made, buckets)
        return add_note(found, upserts) if reason is None else found

    return apply


def _on_keyed_state(frame: "DataFrame", by: tuple[str, ...], made: Grouping, buckets: int | None) -> "DataFrame":
    some = frame.select(*(f"`{name}`" for name in dict.fromkeys([*by, *made.fields, WEIGHT, TIME])))
    for mark, field in made.marked.items():
        some = over_keys(
            some,
            tuple(dict.fromkeys([*by, field])),
            lambda rows, field=field, mark=mark: DistinctMarks(field, mark, rows),  # type: ignore[misc]
            buckets,
        )
    return in_form(over_keys(some, by, lambda _: GroupedRows(made.parts), buckets), by)


def _check_names(by: tuple[str, ...], aggregates: dict[str, Aggregate], columns: Sequence[str]) -> None:
    require(by, columns, "by in group_changes")
    for name in by:
        if name in NAMES:
            raise BadField(f"group_changes groups by {name!r}, which is not a column of the row: name one that is")
    for name in aggregates:
        if name in by or name in NAMES or name == REVISION:
            raise BadField(f"an aggregate is called {name!r}, as another column of the output is: choose another name")
