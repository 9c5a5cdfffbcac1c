"""`enrich`: events with what a table says about their key, as of their own time or as it is now."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.pipelines.keyed.operator import Operator
from headrace.pipelines.keyed.spark_plan import has_watermark
from headrace.pipelines.operators.errors import BadField, BadTime, BadWindow, require
from headrace.pipelines.operators.frames import Transform, over_keys
from headrace.pipelines.operators.stragglers import ASIDE, Stragglers, drop
from headrace.pipelines.operators.tables import as_of_versions as kept
from headrace.pipelines.operators.tables import current as told
from headrace.pipelines.operators.tables.as_of import AsOf
from headrace.pipelines.operators.tables.enrich_choice import Choice, On, check_how, chosen, key_pairs
from headrace.pipelines.operators.tables.enrich_counts import counted
from headrace.pipelines.operators.tables.enrich_latest import Latest
from headrace.pipelines.operators.tables.enrich_sides import EVENT, JOINED, ROW, Sides
from headrace.pipelines.operators.tables.form import TIME, VERSION, VERSION_DDL, WEIGHT
from headrace.pipelines.operators.time_marks import TimeMark, given_again, time_mark, time_marks
from headrace.pipelines.operators.times import Interval, microseconds, spelt

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_NO_FIELDS = "_no_fields_of_"  # a struct has to have a field; this one does not come out


def enrich(
    table: "DataFrame",
    *,
    on: On,
    how: str = "inner",
    as_of: str | None = None,
    columns: str | Sequence[str] | None = None,
    prefix: str = "",
    joined: str = JOINED,
    delay: Interval | None = None,
    stragglers: Stragglers | None = None,
    buckets: int | None = None,
) -> Transform:
    """Adds the columns of a table's row to each event, from a copy that is kept up to date by the table's changes.

    `table` is what `row_versions` makes of a change topic, and `on` its primary key: a column that both have, or
    `{"customer_id": "id"}`, the event's first. With `how="inner"` an event without a row goes, with `"left"` it has
    nulls. All the table's columns are added, or those in `columns`, with `prefix` in front; and `joined`, the id of the
    version found (table, key, offset, lsn).

    `as_of` names the events' time column, the one with a watermark: then an event sees the row as it was at that time.
    It waits until the watermark of both sides has passed it, so the table needs one too: give it here with `delay`, how
    late its changes may come. Late events are dropped and counted, or as `stragglers` says: with `correct("1 hour")`
    those that are late by no more than that are answered like all others, and versions are kept so much longer. The
    table's late changes are taken in and counted; what was answered before them stays. Without `as_of` an event sees
    the row as it is when the event is processed.
    """
    keeps_unmatched = check_how(how)
    key_pairs(on)
    policy = stragglers or drop()
    delay_us = None if delay is None else microseconds(delay, "delay in enrich")
    if as_of is None and (stragglers is not None or delay_us is not None):
        raise BadWindow("enrich without as_of waits for nothing, so nothing is late: leave out what is for late rows")

    def apply(events: "DataFrame") -> "DataFrame":
        choice = chosen(events.schema, table.schema, on, columns, prefix, joined)
        for side, is_once in ((events, "the events are"), (table, "the table is")):
            if not side.isStreaming:
                raise BadField(
                    f"enrich is for streams, and {is_once} read at once: read both with readStream, and write with "
                    ".trigger(availableNow=True) to come to an end"
                )
        _check_events(events, as_of)
        rows, at = table, None
        if as_of is not None:
            at = _time_of(events, as_of)
            rows = _with_watermark(table, delay_us)
        sides = _events(events, choice, at).unionByName(_versions(rows, choice), allowMissingColumns=True)

        def operator(schema: pa.Schema) -> Operator:
            event, row, version = (schema.field(name).type for name in (EVENT, ROW, kept.VERSION))
            late = None if as_of is None else policy
            shape = Sides(event, row, version, keeps_unmatched, late, prefix, joined, kept.EMPTIED in schema.names)
            return Latest(shape) if as_of is None else AsOf(shape, policy.allowed_us)

        found = over_keys(sides, choice.by, operator, buckets, 0 if at is None else at.ends_lag_us)
        added = [*(f"{prefix}{name}" for name in choice.columns), joined]
        if at is None:
            return found.select(*(f"`{name}`" for name in (*events.columns, *added)))
        added += [ASIDE] if policy.hands_on else []
        found = counted(found, policy).select(*(f"`{name}`" for name in (*events.columns, *added)))
        # An event at the very watermark is answered with the next one.
        return found.transform(replace(at, lag_us=max(at.lag_us, 1) + policy.allowed_us).put)

    return apply


def _events(events: "DataFrame", choice: Choice, time: TimeMark | None) -> "DataFrame":
    """The events' side of the stream of both."""
    from pyspark.sql import functions as fn

    others = [name for name in events.columns if name not in choice.by]
    at = fn.lit(None).cast("timestamp") if time is None else time.value()
    return events.select(*(f"`{name}`" for name in choice.by), at.alias(kept.AT), _struct(others, EVENT))


def _versions(table: "DataFrame", choice: Choice) -> "DataFrame":
    """The table's side; a row without a key can belong to no event."""
    from pyspark.sql import functions as fn

    # It names the time, so that Spark does not look before the watermark has seen a row: one that only tells the time
    # has no key either.
    missing = " OR ".join(f"`{theirs}` IS NULL" for _, theirs in choice.pairs)
    empties = told.EMPTIED in table.columns
    for_one = f"NOT {told.EMPTIED}" if empties else "TRUE"
    there = table.where(f"NOT (({missing}) AND {TIME} IS NOT NULL AND {for_one})")
    return there.select(
        *(fn.col(f"`{theirs}`").alias(mine) for mine, theirs in choice.pairs),
        fn.col(TIME).alias(kept.AT),
        _struct([f"{told.ROW}`.`{name}" for name in choice.columns], ROW),
        fn.col(told.GONE).alias(kept.GONE),
        fn.col(told.OFFSET).cast("bigint").alias(kept.OFFSET),
        fn.coalesce(fn.col(told.PARTITION).cast("int"), fn.lit(0)).alias(kept.PARTITION),
        fn.col(VERSION).cast(VERSION_DDL).alias(kept.VERSION),
        *([fn.col(told.EMPTIED).alias(kept.EMPTIED)] if empties else []),
    )


def _struct(names: Sequence[str], called: str) -> "Column":
    from pyspark.sql import functions as fn

    fields = [fn.col(f"`{name}`") for name in names]
    return fn.struct(*(fields or [fn.lit(True).alias(_NO_FIELDS + called)])).alias(called)


def _check_events(events: "DataFrame", as_of: str | None) -> None:
    """Refuse rows of which one takes back another, where it might find another row of the table than that did."""
    if WEIGHT in events.columns:
        raise BadField(
            "enrich is for events, and these are a table as changes, whose rows go again: join it with join_tables"
        )
    again = given_again(events)
    if again and as_of is None:
        as_of = next((mark.column for mark in time_marks(events)), "window_end")
        raise BadField(
            f"enrich without as_of sees a row as it is when an event comes, and these are given more than once (see "
            f"{next(iter(again))!r}): write as_of={as_of!r}, which finds the same each time"
        )


def _time_of(events: "DataFrame", as_of: str) -> TimeMark:
    """The time of events; one that nothing can be waited for by is refused."""
    require([as_of], events.columns, "as_of in enrich")
    kind = events.schema[as_of].dataType.simpleString()
    if kind != "timestamp":
        raise BadTime(
            f'enrich goes by {as_of!r}, which is {kind} and no timestamp: make one with event_time("{as_of}")'
        )
    found = time_mark(events, as_of)
    if found is None:
        marks = [mark.column for mark in time_marks(events)]
        mend = f"write as_of={marks[0]!r}" if marks else (
            f'write .transform(event_time("{as_of}", delay="10 minutes")) before it'
        )  # fmt: skip
        raise BadWindow(
            f"enrich as of {as_of!r} waits until the watermark has passed an event, and that column has none: {mend}"
        )
    return found


def _with_watermark(table: "DataFrame", delay_us: int | None) -> "DataFrame":
    """The table with its watermark: its own, or one by when versions became valid."""
    if has_watermark(table):
        if delay_us is not None:
            raise BadWindow("the table has a watermark already: leave out delay in enrich")
        return table
    if delay_us is None:
        raise BadWindow(
            "enrich with as_of waits for the table's changes up to an event's time, and the table has no watermark: "
            "write delay='10 seconds', how late its changes may come"
        )
    return table.withWatermark(TIME, spelt(delay_us))
