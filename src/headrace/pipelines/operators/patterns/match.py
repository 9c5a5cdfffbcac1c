"""`match_pattern` and `match_patterns`: what a stream of events has in it that a pattern describes."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from headrace.cep.columnar import ColumnarProgram
from headrace.cep.explaining import explain
from headrace.cep.expressions import show
from headrace.cep.partial import Cap
from headrace.cep.pattern import Pattern
from headrace.cep.pictures.diagram import as_json
from headrace.errors import nearest
from headrace.pipelines.errors import BadOption
from headrace.pipelines.keyed.operator import Ordered
from headrace.pipelines.observed import PATTERNS, describe
from headrace.pipelines.operators.aggregation.algebra import PREPARED
from headrace.pipelines.operators.errors import BadField, BadWindow, as_names, require
from headrace.pipelines.operators.frames import Transform, arrow_schema, check_events, event_time_of, over_keys
from headrace.pipelines.operators.patterns.counting import STATUS
from headrace.pipelines.operators.patterns.operator import Fixed, MatchPatterns
from headrace.pipelines.operators.patterns.shapes import (
    KNOWN,
    ROWS,
    UNNAMED,
    VARIABLE,
    AllRows,
    ByVariable,
    Named,
    OneRow,
    Several,
    Shape,
    coordinates,
    ties_of,
)
from headrace.pipelines.operators.patterns.stored import IS_PATTERN, KEY, OFFSET, PARTITION, VALUE, FromTopic
from headrace.pipelines.operators.patterns.watched import Watched
from headrace.pipelines.operators.stragglers import ASIDE, Stragglers, count_late_rows, drop, next_number
from headrace.pipelines.operators.time_marks import WINDOW_TIME, TimeMark

MOST_PARTIAL: Final = 10_000


def match_pattern(
    pattern: Pattern | str,
    *,
    by: str | Sequence[str] | None = None,
    time: str | None = None,
    stragglers: Stragglers | None = None,
    most_partial: int = MOST_PARTIAL,
    at_cap: str = "drop_oldest",
    timed_out: bool = False,
    buckets: int | None = None,
) -> Transform:
    """The matches of a pattern: a `Pattern`, or the text of a `MATCH_RECOGNIZE (…)`.

    Rows with equal `by` (PARTITION BY) are matched with each other, in the order of event time, which is restored: a
    row waits until the watermark has passed it. Equal times are in the order of partition and offset where the frame
    has those columns (`_partition`, `_offset` where values are decoded), and else in the order of arrival. `time` names
    the column if several carry a watermark (ORDER BY says the same). A row at or behind the watermark is late:
    `drop()` counts it, `side_output()` hands it on. With `drop()` a row that no condition is true for is left out
    before, where the pattern passes over such rows, and is not counted.

    Behind the key's columns a match has `match_start` and `match_end`, the times of its first and last row, and
    `match_time`, when it was known: windows and joins behind it go by that. Of a `Pattern`, a column for each variable
    follows, with an array of its rows: all columns but the key's. Of SQL, before them: the measures, and with ALL ROWS
    PER MATCH the row itself; behind them, with ONE ROW, `match_rows`: the variable of each row and which record it is.

    A key has at most `most_partial` partial matches; when there would be one more, `at_cap` drops the one that began
    first (`drop_oldest`), does not begin it (`drop_newest`), or fails (`fail`). What is dropped is counted. With
    `timed_out` partial matches whose time is over come out too, like matches, and a column `timed_out` tells them
    apart. In a query that does not stream the end of the rows decides what is open.
    """
    given = _read(pattern)
    given.compile(bounded=True)  # what is wrong whatever the rows are is refused at once
    settings = _Settings(stragglers, most_partial, at_cap, timed_out, buckets)

    def apply(frame: DataFrame) -> DataFrame:
        made = _Frame.of(frame, {"": given}, by, time, "match_pattern")
        program = made.program(given, settings)
        shape = _shape_of(program, made, settings)
        return made.matched([program], ["the pattern"], shape, settings, {})

    return apply


@dataclass(frozen=True)
class StoredPatterns:
    """The records of a topic of patterns, for `match_patterns`."""

    records: DataFrame


def patterns_from(records: DataFrame) -> StoredPatterns:
    """Patterns that are added, changed, paused and removed while the query runs: the records of a topic, read raw.

    The topic is compacted. A record's key is the pattern's name, its value JSON: `{"pattern": TEXT}`, the text of a
    `MATCH_RECOGNIZE (…)` or of a `Pattern.begin(…)…`, which is read and not run; with `"state": "paused"` it stands
    still. A tombstone removes it. `headrace pattern add` and the like write them.
    """
    require(["key", "value", "partition", "offset"], records.columns, "patterns_from")
    return StoredPatterns(records)


def match_patterns(
    patterns: Mapping[str, Pattern | str] | StoredPatterns,
    *,
    by: str | Sequence[str] | None = None,
    time: str | None = None,
    stragglers: Stragglers | None = None,
    most_partial: int = MOST_PARTIAL,
    at_cap: str = "drop_oldest",
    timed_out: bool = False,
    buckets: int | None = None,
) -> Transform:
    """The matches of several patterns, each with a name, in one pass: rows are kept once, whichever pattern takes them.

    All are matched by the same key. Behind the key's columns come `pattern`, the name; `match_start`, `match_end` and
    `match_time`; `match_rows`, an array of the match's rows, each with its `variable` and all columns but the key's;
    and `measures`, those of MATCH_RECOGNIZE as texts by their names. The rest is as with `match_pattern`; the cap is
    for each pattern.

    With `patterns_from(…)` the patterns come from a topic, and the output has the `version` of each too: the offset of
    its record. A record takes effect at the watermark of the micro-batch that reads it, for all rows after that, and
    the patterns are kept with the state: a query that goes on has them. What a pattern has begun is dropped, and
    counted, when it is changed, paused or removed. One that cannot be read, or has no `within`, does not run, which its
    status says; the query goes on. Their conditions are evaluated over columns in Python, and every row waits for the
    watermark whole.
    """
    settings = _Settings(stragglers, most_partial, at_cap, timed_out, buckets)
    if isinstance(patterns, StoredPatterns):
        return lambda frame: _match_stored(frame, patterns.records, by, time, settings)
    if not patterns:
        raise BadOption("match_patterns has no pattern: write match_patterns({'name': pattern})")
    given = {name: _read(one) for name, one in sorted(patterns.items())}
    for one in given.values():
        one.compile(bounded=True)

    def apply(frame: DataFrame) -> DataFrame:
        made = _Frame.of(frame, given, by, time, "match_patterns")
        programs = [made.program(one, settings) for one in given.values()]
        shape = _several(made, settings)
        called = {place: Named(name) for place, name in enumerate(given)}
        return made.matched(programs, [f"the pattern {name!r}" for name in given], shape, settings, called)

    return apply


def _read(pattern: Pattern | str) -> Pattern:
    if isinstance(pattern, str):
        return Pattern.sql(pattern)
    if not isinstance(pattern, Pattern):
        raise BadOption(f"a pattern is a Pattern or the text of MATCH_RECOGNIZE (…), and not {type(pattern).__name__}")
    return pattern


@dataclass(frozen=True)
class _Settings:
    stragglers: Stragglers | None
    most_partial: int
    at_cap: str
    timed_out: bool
    buckets: int | None

    def __post_init__(self) -> None:
        if self.stragglers is not None and self.stragglers.corrects:
            raise BadWindow(
                "a late row cannot correct matches, because what each partial match became would have to be kept: use "
                "drop() or side_output(), or a longer delay in event_time"
            )
        if self.at_cap not in Cap.CHOICES:
            raise BadOption(f"at_cap is {self.at_cap!r}: {nearest(self.at_cap, Cap.CHOICES)}")
        if self.most_partial < 1:
            raise BadOption(f"most_partial={self.most_partial}: write how many partial matches a key may have, from 1")

    @property
    def choice(self) -> Stragglers:
        return self.stragglers or drop()

    @property
    def cap(self) -> Cap:
        return Cap(self.most_partial, self.at_cap)


@dataclass(frozen=True)
class _Frame:
    """The rows that patterns are matched over, with their key and time."""

    frame: DataFrame
    by: tuple[str, ...]
    at: TimeMark
    schema: pa.Schema

    @classmethod
    def of(
        cls, frame: DataFrame, patterns: Mapping[str, Pattern], by: str | Sequence[str] | None, time: str | None,
        what: str,
    ) -> "_Frame":  # fmt: skip
        trees = [one.tree for one in patterns.values()]
        keys = _agreed({tree.partition for tree in trees if tree.partition}, by, "PARTITION BY", what)
        for one in patterns.values():
            one.compile(frame.columns, bounded=not frame.isStreaming)
        require(keys, frame.columns, f"by in {what}")
        check_events(frame, what)
        order = _agreed({(tree.order,) for tree in trees if tree.order}, time, "ORDER BY", what)
        at = event_time_of(frame, order[0] if order else None, what)
        rows, at = at.at_hand(frame)
        return cls(rows, keys, at, arrow_schema(rows))

    @property
    def order(self) -> Ordered:
        return Ordered(self.at.column, ties_of(self.schema))

    @property
    def others(self) -> pa.Schema:
        """The columns besides the key."""
        return pa.schema([field for field in self.schema if field.name not in (*self.by, WINDOW_TIME)])

    def program(self, pattern: Pattern, settings: _Settings) -> ColumnarProgram:
        bounded = not self.frame.isStreaming
        columns = [name for name in self.schema.names if name != WINDOW_TIME]
        return ColumnarProgram(pattern.compile(columns, bounded=bounded), settings.cap, schema=self.schema)

    def matched(
        self,
        programs: Sequence[ColumnarProgram],
        names: Sequence[str],
        shape: Shape,
        settings: _Settings,
        called: Mapping[int, Named],
    ) -> DataFrame:
        """What the patterns find, with their names in errors and in the output."""
        _check_names(self.by, shape)
        rows, watched = self._evaluated(programs, called, settings)
        operator = MatchPatterns(
            Fixed(tuple(watched)),
            shape,
            self.order,
            pa.schema([field for field in self.schema if field.name != WINDOW_TIME]),
            settings.choice,
            settings.timed_out,
            tuple((name, fingerprint(one.program)) for name, one in zip(names, watched, strict=True)),
        )
        found = over_keys(rows, self.by, lambda _: operator, settings.buckets, self.at.lag_us)
        diagrams = {one.called.name: as_json(one.program.automaton) for one in watched}
        return published(found, settings.choice, diagrams).transform(lambda each: _marked(each, watched, self.at))

    def _evaluated(
        self, programs: Sequence[ColumnarProgram], called: Mapping[int, Named], settings: _Settings
    ) -> tuple[DataFrame, list[Watched]]:
        """The rows with what the JVM says of each: a mask for each pattern, and values that are asked for later."""
        columns, watched, wanted = {}, [], []
        for number, program in enumerate(programs):
            mask = f"{PREPARED}mask {number}"
            facts = tuple(f"{PREPARED}fact {number} {place}" for place in range(len(program.facts)))
            columns[mask] = fn.expr(_mask(program.predicate_sql))
            columns |= {name: fn.expr(text) for name, text in zip(facts, program.fact_sql, strict=True)}
            watched.append(Watched(number, program, called.get(number, UNNAMED), mask, facts))
            wanted.append(program.relevant_masks)
        rows = self.frame.withColumns(columns)
        if settings.choice.hands_on or any(masks is None for masks in wanted):
            return rows, watched
        tests = [
            f"(`{one.mask}` & {mask}L) = {mask}L"
            for one, masks in zip(watched, wanted, strict=True)
            for mask in masks or ()
        ]
        # It names the time, so that Spark does not take rows out before the watermark has seen them.
        return rows.where(" OR ".join([*tests, f"`{self.at.column}` IS NULL"])), watched


def _match_stored(
    frame: DataFrame, records: DataFrame, by: str | Sequence[str] | None, time: str | None, settings: _Settings
) -> DataFrame:
    made = _Frame.of(frame, {}, by, time, "match_patterns")
    if not frame.isStreaming or not records.isStreaming:
        raise BadField(
            "patterns from a topic change while a query runs: read both with readStream, or give match_patterns the "
            "patterns themselves"
        )
    shape = _several(made, settings, has_versions=True)
    _check_names(made.by, shape)
    about = {IS_PATTERN: fn.lit(True), KEY: fn.col("key").cast("binary"), VALUE: fn.col("value").cast("binary"),
             PARTITION: fn.col("partition").cast("int"), OFFSET: fn.col("offset").cast("bigint")}  # fmt: skip
    told = records.select(*(column.alias(name) for name, column in about.items()))
    rows = made.frame.withColumn(IS_PATTERN, fn.lit(False)).unionByName(told, allowMissingColumns=True)
    schema = pa.schema([field for field in made.schema if field.name != WINDOW_TIME])
    operator = MatchPatterns(
        FromTopic(schema, settings.cap, made.by, made.at.column),
        shape,
        made.order,
        schema,
        settings.choice,
        settings.timed_out,
        (("columns of rows", ", ".join(schema.names)),),
    )
    found = over_keys(rows, made.by, lambda _: operator, settings.buckets, made.at.lag_us)
    # No column carries the time on: how long a match may wait is said by patterns that are not known here.
    return published(found, settings.choice, {})


def published(found: DataFrame, choice: Stragglers, diagrams: Mapping[str, Any]) -> DataFrame:
    """What the operator emitted: its counts in the query's progress, and the rest."""
    name = f"{PATTERNS}.{next_number()}"
    describe(name, diagrams)
    counts = fn.collect_list(STATUS.name).alias("buckets")
    named = found.observe(name, counts).where(f"{STATUS.name} IS NULL").drop(STATUS.name)
    return count_late_rows(named, choice)


def fingerprint(program: ColumnarProgram) -> str:
    """What decides what the kept partial matches mean, in a few letters."""
    tree = program.automaton.tree
    parts = [
        explain(program.automaton),
        *map(show, program.facts),
        str(program.fact_schema),
        *(f"{name}: {schema}" for name, schema in sorted(program.tables.items())),
        tree.after.skip.value,
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _mask(predicates: Sequence[str]) -> str:
    """One number with a bit for each predicate that is true."""
    if not predicates:
        return "0L"
    return " + ".join(f"IF({text}, {1 << bit}L, 0L)" for bit, text in enumerate(predicates))


def _shape_of(program: ColumnarProgram, made: _Frame, settings: _Settings) -> Shape:
    tree = program.automaton.tree
    if not tree.chooses_one:
        return ByVariable(program.variables, made.others, settings.timed_out)
    if program.all_rows:
        return AllRows(made.others, program.output_schema, settings.timed_out)
    where = pa.schema([made.schema.field(name) for name in coordinates(made.schema)])
    return OneRow(program.output_schema, where, settings.timed_out)


def _several(made: _Frame, settings: _Settings, *, has_versions: bool = False) -> Several:
    """The form of several patterns; a row in it has the name of its variable beside its own columns."""
    for name in made.others.names:
        if name.lower() == VARIABLE:
            raise BadField(f"each row in {ROWS} would have two columns {name!r}: rename the column before")
    return Several(made.others, has_versions, settings.timed_out)


def _check_names(by: Sequence[str], shape: Shape) -> None:
    names = [*by, *(field.name for field in shape.fields()), ASIDE, STATUS.name]
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise BadField(f"the output would have two columns {name!r}: rename the variable, measure or column")
        seen.add(name.lower())


def _marked(found: DataFrame, watched: Sequence[Watched], at: TimeMark) -> DataFrame:
    """The output with what carries its time: when a match was known, which is as late as matches may wait."""
    waits = [one.within_us for one in watched if one.lets_matches_wait]
    if None in waits:
        return found  # nothing bounds how long
    lag_us = at.lag_us + max((wait for wait in waits if wait is not None), default=0)
    return TimeMark(KNOWN, lag_us=lag_us).put(found)


def _agreed(said: set[tuple[str, ...]], given: str | Sequence[str] | None, clause: str, what: str) -> tuple[str, ...]:
    """What the texts of patterns and the argument say; they must not differ."""
    chosen = said if given is None else said | {as_names(given)}
    if len(chosen) > 1:
        shown = " and ".join(sorted(", ".join(one) for one in chosen))
        word = "by" if clause == "PARTITION BY" else "time"
        raise BadField(f"{what} is told {shown} by {clause} and {word}=: they have to be the same, or said once")
    return next(iter(chosen), ())
