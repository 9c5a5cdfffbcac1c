"""`top_rows`, `ranked`, `latest`: the first rows of a window or of a group, as rows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import ArrayType, StructType

from headrace.pipelines.operators.aggregation.algebra import Where
from headrace.pipelines.operators.aggregation.heads import RANK_FIELD
from headrace.pipelines.operators.aggregation.ordering import RANK
from headrace.pipelines.operators.aggregation.top_n import top_n
from headrace.pipelines.operators.errors import BadField, BadWindow, as_names, require
from headrace.pipelines.operators.frames import Transform, arrow_schema, over_keys
from headrace.pipelines.operators.tables.appended import appended
from headrace.pipelines.operators.tables.form import NAMES, WEIGHT, row_names
from headrace.pipelines.operators.tables.groups.changes import group_changes
from headrace.pipelines.operators.time_marks import given_again, time_mark
from headrace.pipelines.operators.windows.corrected_ranks import CorrectedRanks
from headrace.pipelines.operators.windows.fixed import EDGES, per_window
from headrace.pipelines.operators.windows.results import RETRACTED, REVISION

_TOP = "(top)"


def ranked(column: str) -> Transform:
    """A row for each one in an array of rows: `ranked("best")` behind `best=top_n(3, "-score", "name", ties="rank")`.

    The array's own columns, the `rank` among them if it has one, take the place of `column`. What is emitted again or
    taken back, by a window or by a group, is so for each of its rows.
    """

    def apply(frame: DataFrame) -> DataFrame:
        require([column], frame.columns, "ranked")
        kind = frame.schema[column].dataType
        if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
            raise BadField(f"ranked makes rows of an array of rows, and {column!r} is {kind.simpleString()}: name one")
        own, others = kind.elementType.fieldNames(), [name for name in frame.columns if name != column]
        if both := [name for name in own if name in others]:
            raise BadField(f"ranked: {both[0]!r} is a column already, and one of {column!r} too: rename one of them")
        rows = frame.select(*(f"`{name}`" for name in others), fn.explode(f"`{column}`").alias(_TOP))
        shown = [f"`{name}`" for name in others if name not in NAMES]
        form = [f"`{name}`" for name in others if name in NAMES]
        return rows.select(*shown, *(fn.col(f"`{_TOP}`.`{name}`") for name in own), *form)

    return apply


def top_rows(
    n: int,
    order_by: str | Sequence[str],
    *,
    by: str | Sequence[str] = (),
    ties: str = RANK,
    where: Where = None,
    buckets: int | None = None,
) -> Transform:
    """The first `n` rows of each window by `order_by`, whole and with their `rank`; or of each group of a table.

    Behind a window it ranks the results of the same window, for each value of `by` if that is given:
    `hopping("1 hour", "1 minute", by="auction", bids=agg.count())` and then `top_rows(1, "-bids")` gives the hottest
    auction of every window, and all of them if several are equal. On a table as changes it ranks the rows of each `by`
    and keeps them up to date: what is no longer among the first is taken back. A stream of events becomes such a table
    with `appended()`. To rank events in a window, write `top_n` in the window and `ranked` behind it.

    `ties` is as SQL ranks: `"rank"`, the default, and `"dense_rank"` give equal rows the same rank, so there may be
    more than `n`; `"row_number"` decides between equal ones by their other columns. `where` is a condition on rows.
    The order is as with `top_n`. Behind a window with `correct(…)` the ranks are corrected as well: rows have
    `revision` and `retracted`, and a row that is no longer among the first, or has another rank, is retracted.
    """
    keys = as_names(by)

    def apply(frame: DataFrame) -> DataFrame:
        require(keys, frame.columns, "by in top_rows")
        is_table = WEIGHT in frame.columns
        if not is_table and not set(EDGES) <= set(frame.columns):
            raise BadWindow(
                "top_rows ranks the rows of a window or of a table, and these have neither window_start and window_end "
                f"nor {WEIGHT}: write it behind a window, or .transform(appended()) before it to rank all rows so far"
            )
        if not is_table and set(given_again(frame).items()) == {(RETRACTED, RETRACTED)}:
            return _corrected(frame, n, order_by, keys, ties, where, buckets)
        names = row_names(frame.columns)
        group = keys if is_table else tuple(name for name in names if name in keys or name in EDGES)
        others = [name for name in names if name not in group]
        top: dict[str, Any] = {_TOP: top_n(n, order_by, *others, ties=ties, where=where)}
        grouped = group_changes(group, native=False, buckets=buckets, **top) if is_table else (
            per_window(by=group, buckets=buckets, **top)
        )  # fmt: skip
        found = frame.transform(grouped).transform(ranked(_TOP))
        form = [name for name in found.columns if name in NAMES]
        return found.select(*(f"`{name}`" for name in [*names, RANK_FIELD.name, *form]))

    return apply


def _corrected(
    frame: DataFrame,
    n: int,
    order_by: str | Sequence[str],
    keys: tuple[str, ...],
    ties: str,
    where: Where,
    buckets: int | None,
) -> DataFrame:
    """Ranks of results that are corrected, for as long as they are."""
    names = [name for name in frame.columns if name not in (REVISION, RETRACTED)]
    group = [name for name in names if name in keys or name in EDGES]
    columns = tuple(name for name in names if name not in group)
    top = top_n(n, order_by, *columns, ties=ties)
    rows = frame if where is None else frame.where(where)
    require([name for name, _ in top.order], columns, "order_by in top_rows,")
    top.state(pa.struct([arrow_schema(frame).field(name) for name in top.names]))
    mark = time_mark(frame, "window_end")
    if mark is None:
        raise BadWindow("top_rows goes by window_end of results that are corrected: keep the column as it was")
    found = over_keys(
        rows.select(*(f"`{name}`" for name in [*names, RETRACTED])),
        group,
        lambda schema: CorrectedRanks(n, top.order, ties, columns, schema),
        buckets,
        mark.lag_us,
    )
    found = found.select(*(f"`{name}`" for name in [*names, RANK_FIELD.name, REVISION, RETRACTED]))
    return found.transform(replace(mark, again=(RETRACTED,)).put)


def latest(by: str | Sequence[str], order: str | Sequence[str], *, buckets: int | None = None) -> Transform:
    """The last row of each `by` in an `order`, kept up to date: a table as changes of one row for each key.

    `bids.transform(latest(by=["auction", "bidder"], order="at"))`. A row with a greater order takes the place of the
    one before, which disappears (`_weight` -1); one that comes later with a lesser order changes nothing.
    `order="-price"` is the least. Among equal ones the row with the lesser columns stays, and a null is before
    everything. The input is a stream of events, or a table as changes, where a row that goes gives way to the one
    before it.
    """
    keys = as_names(by)
    if not keys:
        raise BadField('latest has no key: write by="…" with the columns of which one row each is kept')
    down = [each.removeprefix("-") if each.startswith("-") else f"-{each}" for each in as_names(order)]

    def apply(frame: DataFrame) -> DataFrame:
        table = frame if WEIGHT in frame.columns else frame.transform(appended())
        names = row_names(table.columns)
        require([*keys, *(each.removeprefix("-") for each in down)], names, "latest")
        others = [name for name in names if name not in keys]
        top = {_TOP: top_n(1, down, *others)}
        found = table.transform(group_changes(keys, native=False, buckets=buckets, **top)).transform(ranked(_TOP))
        form = [name for name in found.columns if name in NAMES]
        return found.select(*(f"`{name}`" for name in [*names, *form]))

    return apply
