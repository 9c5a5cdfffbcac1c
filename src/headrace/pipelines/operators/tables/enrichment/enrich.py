"""`enrich`: events with what a table says about their key, as of their own time or as it is now."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from headrace.pipelines.keyed.operator import Operator
from headrace.pipelines.observed import LATE_ROWS
from headrace.pipelines.operators.errors import BadField, BadTime, BadWindow, On, as_names, key_pairs, require
from headrace.pipelines.operators.frames import Transform, over_keys
from headrace.pipelines.operators.stragglers import ASIDE, Stragglers, count_late_rows, drop
from headrace.pipelines.operators.tables import current
from headrace.pipelines.operators.tables.enrichment import versions
from headrace.pipelines.operators.tables.enrichment.operators import (
    EVENT,
    JOINED,
    LATE_CHANGE,
    ROW,
    AsOf,
    Latest,
    Sides,
)
from headrace.pipelines.operators.tables.form import TIME, VERSION, VERSION_DDL, WEIGHT
from headrace.pipelines.operators.time_marks import TimeMark, given_again, time_mark, time_marks
from headrace.pipelines.operators.times import Interval, microseconds, spell
from headrace.pipelines.spark.plan import has_watermark

KINDS: Final = ("inner", "left")
_ABOUT: Final = (
    current.ROW,
    current.GONE,
    current.PARTITION,
    current.OFFSET,
    VERSION,
    TIME,
)  # what a version has beside its key
_MEND: Final = "write .transform(row_versions(key=['…'])) after reading the table's topic, with its primary key"
_NO_FIELDS = "_no_fields_of_"  # a struct has to have a field; this one does not come out


@dataclass(frozen=True)
class Choice:
    """Pairs of an event's column and the table's that have to be equal, and the table's columns that are added."""

    pairs: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]

    @property
    def by(self) -> tuple[str, ...]:
        return tuple(mine for mine, _ in self.pairs)


def enrich(
    table: DataFrame,
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
    key_pairs(on, "enrich")
    policy = stragglers or drop()
    delay_us = None if delay is None else microseconds(delay, "delay in enrich")
    if as_of is None and (stragglers is not None or delay_us is not None):
        raise BadWindow("enrich without as_of waits for nothing, so nothing is late: leave out what is for late rows")

    def apply(events: DataFrame) -> DataFrame:
        choice = choose(events.schema, table.schema, on, columns, prefix, joined)
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
            event, row, version = (schema.field(name).type for name in (EVENT, ROW, versions.VERSION))
            late = None if as_of is None else policy
            shape = Sides(event, row, version, keeps_unmatched, late, prefix, joined, versions.EMPTIED in schema.names)
            return Latest(shape) if as_of is None else AsOf(shape, policy.allowed_us)

        found = over_keys(sides, choice.by, operator, buckets, 0 if at is None else at.ends_lag_us)
        added = [*(f"{prefix}{name}" for name in choice.columns), joined]
        if at is None:
            return found.select(*(f"`{name}`" for name in (*events.columns, *added)))
        added += [ASIDE] if policy.hands_on else []
        # The table's late changes are in the answers, and only counted.
        found = count_late_rows(found, policy, f"{LATE_ROWS}.enrich", {LATE_CHANGE: "late_changes"})
        found = found.select(*(f"`{name}`" for name in (*events.columns, *added)))
        # An event at the very watermark is answered with the next one.
        return found.transform(replace(at, lag_us=max(at.lag_us, 1) + policy.allowed_us).put)

    return apply


def _events(events: DataFrame, choice: Choice, time: TimeMark | None) -> DataFrame:
    """The events' side of the stream of both."""
    others = [name for name in events.columns if name not in choice.by]
    at = fn.lit(None).cast("timestamp") if time is None else time.value()
    return events.select(*(f"`{name}`" for name in choice.by), at.alias(versions.AT), _struct(others, EVENT))


def _versions(table: DataFrame, choice: Choice) -> DataFrame:
    """The table's side; a row without a key can belong to no event."""
    # It names the time, so that Spark does not look before the watermark has seen a row: one that only tells the time
    # has no key either.
    missing = " OR ".join(f"`{theirs}` IS NULL" for _, theirs in choice.pairs)
    empties = current.EMPTIED in table.columns
    for_one = f"NOT {current.EMPTIED}" if empties else "TRUE"
    there = table.where(f"NOT (({missing}) AND {TIME} IS NOT NULL AND {for_one})")
    return there.select(
        *(fn.col(f"`{theirs}`").alias(mine) for mine, theirs in choice.pairs),
        fn.col(TIME).alias(versions.AT),
        _struct([f"{current.ROW}`.`{name}" for name in choice.columns], ROW),
        fn.col(current.GONE).alias(versions.GONE),
        fn.col(current.OFFSET).cast("bigint").alias(versions.OFFSET),
        fn.coalesce(fn.col(current.PARTITION).cast("int"), fn.lit(0)).alias(versions.PARTITION),
        fn.col(VERSION).cast(VERSION_DDL).alias(versions.VERSION),
        *([fn.col(current.EMPTIED).alias(versions.EMPTIED)] if empties else []),
    )


def _struct(names: Sequence[str], called: str) -> Column:
    fields = [fn.col(f"`{name}`") for name in names]
    return fn.struct(*(fields or [fn.lit(True).alias(_NO_FIELDS + called)])).alias(called)


def _check_events(events: DataFrame, as_of: str | None) -> None:
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


def _time_of(events: DataFrame, as_of: str) -> TimeMark:
    """The time of events; one that nothing can be waited for by is refused."""
    require([as_of], events.columns, "as_of in enrich")
    kind = events.schema[as_of].dataType.simpleString()
    if kind != "timestamp":
        raise BadTime(
            f'enrich goes by {as_of!r}, which is {kind} and not a timestamp: make one with event_time("{as_of}")'
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


def _with_watermark(table: DataFrame, delay_us: int | None) -> DataFrame:
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
    return table.withWatermark(TIME, spell(delay_us))


def check_how(how: str) -> bool:
    """Whether events without a row are kept."""
    if how not in KINDS:
        raise BadField(f"enrich has how={how!r}: write one of {', '.join(KINDS)}; right and full are for join_tables")
    return how == "left"


def choose(
    events: StructType, table: StructType, on: On, columns: str | Sequence[str] | None, prefix: str, joined: str
) -> Choice:
    """The columns of both sides, once they are known to be there, of one type, and called differently in the output."""
    row = _row(table)
    pairs = key_pairs(on, "enrich")
    keys = [name for name in table.names if name not in (*_ABOUT, current.EMPTIED)]
    require([mine for mine, _ in pairs], events.names, "on in enrich")
    theirs = [name for _, name in pairs]
    if sorted(theirs) != sorted(keys):
        raise BadField(
            f"enrich looks rows up by the table's primary key, which is {', '.join(keys)}, and on names "
            f"{', '.join(theirs)} of the table: name just the key, or join by other columns with join_tables"
        )
    for mine, its in pairs:
        left, right = (side[name].dataType.simpleString() for side, name in ((events, mine), (table, its)))
        if left != right:
            raise BadField(
                f"enrich compares {mine!r} of the events, which is {left}, with {its!r} of the table, which is "
                f"{right}: cast one of them, as in .withColumn({mine!r}, col({mine!r}).cast({right!r}))"
            )
    picked = tuple(name for name in row if not name.startswith("(")) if columns is None else as_names(columns)
    require(picked, row, "columns in enrich")
    _check_output(events.names, picked, prefix, joined)
    return Choice(pairs, picked)


def _row(table: StructType) -> list[str]:
    """The table's columns beside its key."""
    names = table.names
    if WEIGHT in names:
        raise BadField(
            f"enrich needs every version that a row has had, and a table with {WEIGHT} has only what is left after "
            f"each micro-batch: {_MEND}"
        )
    missing = [name for name in _ABOUT if name not in names]
    if missing or not len(names) > len(_ABOUT):
        said = f"it has no column {missing[0]!r}" if missing else "it has no key"
        raise BadField(f"the table in enrich is not a stream of versions, because {said}: {_MEND}")
    return list(table[current.ROW].dataType.names)  # type: ignore[attr-defined]


def _check_output(events: Collection[str], picked: Sequence[str], prefix: str, joined: str) -> None:
    for name in (joined, ASIDE):
        if name in events:
            raise BadField(
                f"enrich adds a column {name!r}, and the events have one already: "
                + (
                    f"write joined='{joined}_…' for this one"
                    if name == joined
                    else "drop it before, or take on_time(…)"
                )
            )
    for place, name in enumerate(picked):
        made = f"{prefix}{name}"
        if made in events or made in (joined, ASIDE):
            raise BadField(
                f"the events and the table both have a column {made!r}: write prefix='…' for the table's, or "
                "leave it out with columns=[…]"
            )
        if name in picked[:place]:
            raise BadField(f"columns in enrich names {name!r} twice: name it once")
