"""State is read only by a query that means the same by it: the parameters of every operator are kept with it."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headrace.pipelines.keyed.operator import NO_WATERMARK, BadState, Operator, Plan
from headrace.pipelines.keyed.processor import WATERMARK, Serving
from headrace.pipelines.keyed.settings import SETTINGS_BUCKET, Settings, check_same, from_text, to_text
from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators.aggregation.top_n import top_n
from headrace.pipelines.operators.compare import Comparing, Comparison
from headrace.pipelines.operators.correct_clock import ClockOffsets
from headrace.pipelines.operators.joins.interval import IntervalJoin
from headrace.pipelines.operators.joins.sides import Bounds
from headrace.pipelines.operators.stragglers import Stragglers
from headrace.pipelines.operators.tables.current import CurrentRows
from headrace.pipelines.operators.tables.enrichment.operators import AsOf, Sides
from headrace.pipelines.operators.tables.form import TIME as FORM_TIME
from headrace.pipelines.operators.tables.form import TIME_TYPE, VERSION, VERSION_TYPE, WEIGHT, WEIGHT_TYPE
from headrace.pipelines.operators.tables.groups.changes import plan_groups
from headrace.pipelines.operators.tables.groups.operators import GroupedRows
from headrace.pipelines.operators.tables.joins.operator import TableJoin
from headrace.pipelines.operators.times import TIMESTAMP
from headrace.pipelines.operators.windows.panes import Hops, PanedWindows
from headrace.pipelines.operators.windows.results import Closing
from headrace.pipelines.operators.windows.sessions import SessionWindows
from headrace.pipelines.operators.windows.sliding import SlidingRows

MINUTE = 60_000_000
ROWS = pa.schema([("k", pa.string()), ("t", TIMESTAMP), ("u", TIMESTAMP), ("x", pa.int64()), ("y", pa.int64())])
KEYS = pa.schema([ROWS.field("k")])
CORRECTED = Stragglers(60 * MINUTE, corrects=True)
SUMS = {"n": agg.count(), "total": agg.sum("x")}
FORM = [(WEIGHT, WEIGHT_TYPE), (VERSION, VERSION_TYPE), (FORM_TIME, TIME_TYPE)]
LEFT, RIGHT = pa.struct([("a", pa.int64()), *FORM]), pa.struct([("b", pa.string()), *FORM])
ROW, ROW_BY_TIME = pa.struct([("a", pa.int64())]), pa.struct([("at", TIMESTAMP), ("a", pa.int64())])


def grouped(**aggregates: Any) -> GroupedRows:
    return GroupedRows(plan_groups(aggregates, ROWS).parts)


PANED = PanedWindows("t", Hops(10 * MINUTE, MINUTE), SUMS, CORRECTED, Closing(), ROWS)
SLIDING = SlidingRows("t", 10 * MINUTE, (), SUMS, CORRECTED, Closing(), ROWS)
SESSIONS = SessionWindows("t", 10 * MINUTE, None, SUMS, CORRECTED, Closing(), ROWS)
COMPARING = Comparing("x", (Comparison("before", None),), 5, None, (), ROWS)
CLOCKS = ClockOffsets("t", "t", "u", 10 * MINUTE, 0, (), ROWS)
JOIN = IntervalJoin("inner", Bounds(-MINUTE, MINUTE), CORRECTED, ROW_BY_TIME, ROW_BY_TIME)
CURRENT = CurrentRows(pa.struct([("a", pa.string()), ("b", pa.string())]))
TABLES = TableJoin(LEFT, RIGHT, keeps_left=False, keeps_right=False)
AS_OF = AsOf(Sides(ROW, ROW, VERSION_TYPE, keeps_unmatched=True), allowed=MINUTE)

CHANGED: list[tuple[Operator, Operator, str]] = [
    (PANED, replace(PANED, hops=Hops(5 * MINUTE, MINUTE)), "size = 10 minutes, and the query has size = 5 minutes"),
    (PANED, replace(PANED, hops=Hops(10 * MINUTE, 2 * MINUTE)), "every = 1 minute, .* every = 2 minutes"),
    (PANED, replace(PANED, hops=Hops(10 * MINUTE, MINUTE, 1)), "offset = 0 seconds, .* offset = 1 microsecond"),
    (PANED, replace(PANED, time="u"), "time = t, .* time = u"),
    (PANED, replace(PANED, stragglers=Stragglers(MINUTE, corrects=True)), "corrected = 1 hour, .* = 1 minute"),
    (PANED, replace(PANED, aggregates=SUMS | {"total": agg.sum("y")}), r"aggregate total = Total\(field=x\)"),
    (PANED, replace(PANED, aggregates=SUMS | {"n": agg.count("x")}), r"aggregate n = Count\(field=None\)"),
    (SLIDING, replace(SLIDING, size=MINUTE), "size = 10 minutes"),
    (SLIDING, replace(SLIDING, aggregates=SUMS | {"total": agg.sum("y")}), "aggregate total"),
    (SESSIONS, replace(SESSIONS, gap=MINUTE), "gap = 10 minutes"),
    (SESSIONS, replace(SESSIONS, maximum=60 * MINUTE), "maximum = none, .* maximum = 1 hour"),
    (COMPARING, replace(COMPARING, value="y"), "value = x, .* value = y"),
    (CLOCKS, replace(CLOCKS, sent="u"), "sent = t"),
    (JOIN, replace(JOIN, bounds=Bounds(-5 * MINUTE, MINUTE)), r"within = \(-1 minute, 1 minute\)"),
    (JOIN, replace(JOIN, how="left"), "how = inner"),
    (CURRENT, CurrentRows(pa.struct([("b", pa.string()), ("a", pa.string())])), "columns = a string, b string"),
    (CURRENT, CurrentRows(pa.struct([("a", pa.string())])), "columns = a string, b string, .* columns = a string,"),
    (TABLES, replace(TABLES, keeps_left=True), r"kept without a match = \[\], .* = \[left\]"),
    (TABLES, replace(TABLES, right=pa.struct([("c", pa.string()), *FORM])), "right columns = b string"),
    (AS_OF, replace(AS_OF, allowed=2 * MINUTE), "stragglers answered = 1 minute"),
    (grouped(n=agg.sum("x")), grouped(n=agg.sum("y")), "aggregate n"),
    (grouped(n=agg.max("x")), grouped(n=agg.min("x")), "aggregate n"),
    (grouped(n=top_n(3, "x", "y")), grouped(n=top_n(2, "x", "y")), "aggregate n"),
]


def stored(operator: Operator) -> Settings:
    return Settings.of(operator.plan(KEYS, ROWS), KEYS, 4)


@pytest.mark.parametrize(("was", "now", "words"), CHANGED, ids=[f"{type(a).__name__}-{w[:20]}" for a, _, w in CHANGED])
def test_a_changed_parameter_is_refused(was: Operator, now: Operator, words: str) -> None:
    kept = from_text(to_text(stored(was)))
    assert kept == stored(was)
    check_same(kept, stored(was))
    with pytest.raises(BadState, match=words):
        check_same(kept, stored(now))


def test_state_from_before_parameters_were_written_down_is_read() -> None:
    old = json.loads(to_text(stored(PANED)))
    del old["parameters"]
    check_same(from_text(json.dumps(old)), stored(PANED))


@pytest.mark.parametrize(
    "change",
    [
        lambda: replace(PANED, closing=Closing(grace_us=1)),
        lambda: replace(PANED, rows=ROWS.append(pa.field("z", TIMESTAMP))),
    ],
    ids=["when results come", "columns that nobody looks at"],
)
def test_what_changes_nothing_of_what_is_kept_may_change(change: Callable[[], Operator]) -> None:
    check_same(stored(PANED), stored(change()))


def test_functions_of_the_user_are_not_compared() -> None:
    def custom(merge: Callable[[pa.Array], Any]) -> Plan:
        made = agg.custom(
            "x", state=pa.int64(), result=pa.int64(), lift=lambda xs: xs, merge=merge, finish=lambda xs: xs
        )
        return replace(PANED, aggregates={"own": made}).plan(KEYS, ROWS)

    one, other = (Settings.of(custom(merge), KEYS, 1) for merge in (lambda xs: xs[0], lambda xs: xs[-1]))
    assert "lambda" not in str(one.parameters)
    check_same(one, other)


class Partition:
    """Spark's state of one partition as far as the beginning of a micro-batch needs it, and its watermark."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str], tuple[bytes]] = {}
        self.watermark_ms = 0

    def getValue(self, key: tuple[str]) -> tuple[bytes] | None:  # noqa: N802 - Spark's names
        return self.entries.get(key)

    def updateValue(self, key: tuple[str], value: tuple[bytes]) -> None:  # noqa: N802
        self.entries[key] = value

    def set_implicit_key(self, key: tuple[int]) -> None:
        assert key == (SETTINGS_BUCKET,)

    def remove_implicit_key(self) -> None:
        pass

    def get_timestamps(self, mode: str) -> tuple[int, int]:
        return 0, self.watermark_ms

    def begin(self, watermark_ms: int) -> int | None:
        """A micro-batch with this watermark; the one that its rows are judged by."""
        self.watermark_ms = watermark_ms
        serving = Serving(None, self, PANED, PANED.plan(KEYS, ROWS), KEYS, 4)
        serving.begin(self)
        return serving._before_us


def test_rows_are_judged_by_the_watermark_before() -> None:
    partition = Partition()
    assert partition.begin(0) == NO_WATERMARK
    assert partition.begin(5000) == NO_WATERMARK
    assert partition.begin(9000) == 5_000_000


def test_state_from_before_watermarks_were_kept_takes_back_nothing_that_it_has_closed() -> None:
    partition = Partition()
    partition.begin(5000)
    del partition.entries[WATERMARK,]
    assert partition.begin(9000) == 9_000_000
    assert partition.begin(12000) == 9_000_000
