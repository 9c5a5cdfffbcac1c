"""Empty windows have results as long as their key is alive, however rows are cut and however late they come."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators.stragglers import correct, drop
from headrace.pipelines.operators.windows.panes import Hops, PanedWindows
from headrace.pipelines.operators.windows.results import Closing
from tests.property.storage_model import examples
from tests.property.windows_model import AGGREGATES, SCHEMA, SECOND, Event, Run, emitted, events, honest, runs

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
