"""Empty windows have results as long as their key is alive, however rows are cut and however late they come."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.keyed.operator import FINAL_WATERMARK
from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators.aggregation.fold import fold
from headrace.pipelines.operators.errors import BadWindow
from headrace.pipelines.operators.stragglers import correct, drop
from headrace.pipelines.operators.windows.listed import ListedKeys
from headrace.pipelines.operators.windows.panes import Hops, PanedWindows
from headrace.pipelines.operators.windows.results import Closing
from tests.keyed_memory import MemoryRunner
from tests.property.storage_model import examples
from tests.property.windows_model import AGGREGATES, SCHEMA, SECOND, Event, Run, cut, emitted, events, honest, runs

hops = st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(0, 11)).map(
    lambda three: Hops(max(three[:2]) * SECOND, min(three[:2]) * SECOND, three[2] % min(three[:2]) * SECOND)
)
silences = st.integers(1, 60).map(lambda second: second * SECOND)
marks = st.lists(st.integers(-60, 160).map(lambda second: second * SECOND), max_size=9)


def paned(shape: Hops, silence: int, stragglers: Any = None, closing: Closing | None = None) -> PanedWindows:
    aggregates = AGGREGATES if stragglers is None else {"n": agg.count(), "sum_x": agg.sum("x")}
    return PanedWindows("t", shape, aggregates, stragglers or drop(), closing or Closing(), SCHEMA, silence)


def expected(found: list[Event], shape: Hops, silence: int) -> Counter[tuple[Any, ...]]:
    """Window by window: those with rows, and those that begin within the silence behind the last pane with rows."""
    result: Counter[tuple[Any, ...]] = Counter()
    first = (-200 * SECOND) // shape.slide * shape.slide + shape.offset
    for key in {event["k"] for event in found}:
        times = [event["t"] for event in found if event["k"] == key]
        panes = sorted({shape.pane_of(time) for time in times})
        for start in range(first, 300 * SECOND, shape.slide):
            n = sum(start <= time < start + shape.size for time in times)
            before = [pane + shape.pane for pane in panes if pane < start]
            if n or (before and start < max(before) + silence):
                result[key, start, n] += 1
    return result


def shown(rows: list[Event]) -> Counter[tuple[Any, ...]]:
    counts: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        start = round(row["window_start"].timestamp() * SECOND)
        counts[row["k"], start, row["n"]] += -1 if row.get("retracted") else 1
    return Counter({row: n for row, n in counts.items() if n})


@examples(100)
@given(events, runs, hops, silences)
def test_every_window_of_a_key_that_is_alive(found: list[Event], run: Run, shape: Hops, silence: int) -> None:
    out = emitted(paned(shape, silence), found, run, honest(found, run))
    assert shown(out) == expected(found, shape, silence)
    nothing = {
        "nx": 0,
        "sum_x": None,
        "avg_f": None,
        "min_s": None,
        "dev": None,
        "distinct": 0,
        "all": [],
        "last": None,
    }
    assert all({name: row[name] for name in nothing} == nothing for row in out if not row["n"])


@examples(100)
@given(events, runs, hops, silences, marks, st.booleans())
def test_late_rows_correct_empty_windows(
    found: list[Event], run: Run, shape: Hops, silence: int, watermarks: list[int], early: bool
) -> None:
    closing = Closing(early_us=2 * SECOND) if early else Closing()
    out = emitted(paned(shape, silence, correct("1 hour"), closing), found, run, watermarks)
    assert shown(out) == expected(found, shape, silence)
    latest: dict[Any, tuple[int, bool]] = {}
    for row in out:
        window = (row["k"], row["window_start"])
        revision, retracted = latest.get(window, (0, True))
        assert (row["revision"], row["retracted"]) == ((revision, True) if not retracted else (revision + 1, False))
        latest[window] = (row["revision"], row["retracted"])


@examples(50)
@given(events, runs, hops, silences, marks)
def test_cuts_change_nothing_where_late_rows_are_dropped(
    found: list[Event], run: Run, shape: Hops, silence: int, watermarks: list[int]
) -> None:
    """Whole micro-batches against calls of one row each and state that is read anew."""
    plain = Run(run.batches, 1, None, False)
    ours = emitted(paned(shape, silence, correct("5 seconds")), found, run, watermarks)
    assert shown([row for row in ours if row["_aside"] is None]) == shown(
        [
            row
            for row in emitted(paned(shape, silence, correct("5 seconds")), found, plain, watermarks)
            if row["_aside"] is None
        ]
    )


LISTED = pa.RecordBatch.from_pylist([{"k": "b"}, {"k": "c"}, {"k": None}], schema=pa.schema([SCHEMA.field("k")]))


class Filled:
    """Windows, and behind them the listed keys, in the same micro-batches; with each start listed in another order."""

    def __init__(self, shape: Hops, stragglers: Any, run: Run) -> None:
        windows = PanedWindows("t", shape, FEW, stragglers, Closing(), SCHEMA)
        self.run = run
        self.first = MemoryRunner(windows, by=["k"], schema=SCHEMA, buckets=run.buckets, call_rows=run.call_rows)
        made = fold(FEW, SCHEMA)
        nothing = pa.RecordBatch.from_arrays(made.load(made.nothing(1)).results(), schema=pa.schema(made.results))
        rows = self.first.output.append(pa.field("_all", pa.int32()))
        allowed = stragglers.allowed_us
        names = tuple(self.first.output.names)
        self.filling = ListedKeys(LISTED, shape, nothing, stragglers.corrects, allowed, names, rows)
        self.second = MemoryRunner(self.filling, by=["_all"], schema=rows, call_rows=run.call_rows)

    def batch(self, rows: list[Event], watermark: int | None) -> list[Event]:
        if self.run.restarts:
            self.first.restart()
            order = pa.array(np.roll(np.arange(LISTED.num_rows), 1))
            self.filling = replace(self.filling, keys=self.filling.keys.take(order))
            self.second.restart(self.filling)
        found = self.first.batch(rows, watermark_us=watermark).to_pylist()
        given = [{**row, "_all": 0} for row in found]
        return self.second.batch(given, watermark_us=watermark).to_pylist()


FEW = {"n": agg.count(), "sum_x": agg.sum("x")}


@examples(100)
@given(events, runs, hops, marks, st.booleans())
def test_listed_keys_have_results_in_every_window(
    found: list[Event], run: Run, shape: Hops, watermarks: list[int], corrects: bool
) -> None:
    filled = Filled(shape, correct("1 hour") if corrects else drop(), run)
    chosen = watermarks if corrects else honest(found, run)
    out: list[Event] = []
    for number, batch in enumerate(cut(found, run)):
        out += filled.batch(batch, chosen[number] if number < len(chosen) else None)
    # Until the input ends, also where the watermark has gone beyond all rows, it goes on; here only to the last row.
    last = max((shape.last_end(shape.pane_of(event["t"])) for event in found), default=0)
    out += filled.batch([], FINAL_WATERMARK)
    out = [row for row in out if row["_aside"] is None]
    ours = shown([row for row in out if round(row["window_end"].timestamp() * SECOND) <= last])
    expected: Counter[tuple[Any, ...]] = Counter()
    ends = {end for event in found for end in ends_of(event["t"], shape)}
    for key in {event["k"] for event in found} | {"b", "c", None}:
        for end in range(min(ends, default=1), max(ends, default=0) + 1, shape.slide):
            n = sum(end - shape.size <= event["t"] < end for event in found if event["k"] == key)
            if n or key in ("b", "c", None):
                expected[key, end - shape.size, n] += 1
    assert ours == expected
    latest: dict[Any, tuple[int, bool]] = {}
    for row in out if corrects else []:
        window = (row["k"], row["window_start"])
        revision, retracted = latest.get(window, (0, True))
        assert (row["revision"], row["retracted"]) == ((revision, True) if not retracted else (revision + 1, False))
        latest[window] = (row["revision"], row["retracted"])


def ends_of(time: int, shape: Hops) -> range:
    pane = np.array([shape.pane_of(np.int64(time))])
    return range(int(shape.first_end(pane)[0]), int(shape.last_end(pane)[0]) + 1, shape.slide)


def test_a_watermark_that_jumps_by_years_is_refused_with_a_sentence() -> None:
    """A second has a result for each key: what no memory holds is not tried."""
    row = {**dict.fromkeys(SCHEMA.names), "k": "b", "t": 0}
    far = {**row, "t": 10 * 366 * 86_400 * SECOND}
    filled = Filled(Hops(SECOND, SECOND), drop(), Run(1, 1, None, False))
    filled.batch([row], None)
    with pytest.raises(BadWindow, match="because the watermark went so far"):
        filled.batch([far], far["t"])
    many = [{**row, "k": str(n)} for n in range(1000)]
    silent = MemoryRunner(paned(Hops(SECOND, SECOND), 86_400 * SECOND), by=["k"], schema=SCHEMA)
    silent.batch(many)
    with pytest.raises(BadWindow, match=r"86,\d{3},000 results"):
        silent.batch(watermark_us=far["t"])


def test_keys_that_a_restart_lists_in_another_order_are_the_same_keys() -> None:
    """Spark hands the rows of a table over in any order."""
    row = {**dict.fromkeys(SCHEMA.names), "k": "b", "t": 0}
    filled = Filled(Hops(SECOND, SECOND), correct("1 hour"), Run(1, 1, None, True))
    out = filled.batch([row], 5 * SECOND)
    out += filled.batch([{**row, "k": None}], 6 * SECOND)
    out += filled.batch([{**row, "k": "c"}], 7 * SECOND)
    first = [each for each in out if each["_aside"] is None and each["window_start"].timestamp() == 0]
    stands = Counter({(each["k"], each["n"]): 0 for each in first})
    for each in first:
        stands[each["k"], each["n"]] += -1 if each["retracted"] else 1
    assert +stands == {("b", 1): 1, ("c", 1): 1, (None, 1): 1}
