"""Window operators in any batches, buckets and calls give what DuckDB computes over the complete data."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.operators.aggregation.ordering import RANKINGS
from headrace.pipelines.operators.aggregation.top_n import TopN
from headrace.pipelines.operators.deduplicate import FirstWithin
from headrace.pipelines.operators.stragglers import correct, drop
from headrace.pipelines.operators.windows.panes import Hops, PanedWindows
from headrace.pipelines.operators.windows.results import Closing
from headrace.pipelines.operators.windows.sessions import SessionWindows
from headrace.pipelines.operators.windows.sliding import SlidingRows
from tests.property.storage_model import examples
from tests.property.windows_model import (
    AGGREGATES,
    SCHEMA,
    SECOND,
    SQL,
    Event,
    Run,
    asked,
    comparable,
    emitted,
    events,
    honest,
    runs,
)

ONCE = Closing()
EARLY = Closing(early_us=2 * SECOND)
hops = st.tuples(st.integers(1, 30), st.integers(1, 30)).map(lambda pair: Hops(max(pair) * SECOND, min(pair) * SECOND))
marks = st.lists(st.integers(-60, 130).map(lambda second: second * SECOND), max_size=9)


def paned(shape: Hops, stragglers: Any = None, closing: Closing = ONCE) -> PanedWindows:
    return PanedWindows("t", shape, AGGREGATES, stragglers or drop(), closing, SCHEMA)


def sessions(gap: int, maximum: int | None = None, stragglers: Any = None, closing: Closing = ONCE) -> SessionWindows:
    return SessionWindows("t", gap * SECOND, maximum, AGGREGATES, stragglers or drop(), closing, SCHEMA)


def sliding(seconds: int, stragglers: Any = None) -> SlidingRows:
    return SlidingRows("t", seconds * SECOND, ("x",), AGGREGATES, stragglers or drop(), ONCE, SCHEMA)


def in_windows(found: list[Event], shape: Hops) -> list[Event]:
    size, slide = shape.size, shape.slide
    return asked(
        found,
        f"""WITH placed AS (
                SELECT *, epoch_us(t) AS us, unnest(range(0, {size}, {slide})) AS back FROM events),
            windowed AS (SELECT *, (us - back) - (((us - back) % {slide}) + {slide}) % {slide} AS start FROM placed)
        SELECT k, make_timestamp(start) window_start, make_timestamp(start + {size}) window_end, {SQL}
        FROM windowed WHERE start <= us AND us < start + {size} GROUP BY ALL""",
    )


def in_sessions(found: list[Event], gap: int) -> list[Event]:
    return asked(
        found,
        f"""WITH begun AS (SELECT *, coalesce(epoch_us(t) - epoch_us(lag(t) OVER w) > {gap * SECOND}, true)::int AS new
                FROM events WINDOW w AS (PARTITION BY k ORDER BY t)),
            numbered AS (SELECT *, sum(new) OVER (PARTITION BY k ORDER BY t RANGE UNBOUNDED PRECEDING) AS number
                FROM begun)
        SELECT k, min(t) window_start, make_timestamp(epoch_us(max(t)) + {gap * SECOND}) window_end, {SQL}
        FROM numbered GROUP BY k, number""",
    )


def in_intervals(found: list[Event], seconds: int) -> list[Event]:
    return asked(
        found,
        f"""SELECT one.k, make_timestamp(epoch_us(one.t) - {seconds * SECOND}) window_start, one.t window_end, answer.*
        FROM events one, LATERAL (SELECT {SQL} FROM events WHERE k IS NOT DISTINCT FROM one.k AND t <= one.t
            AND epoch_us(t) >= epoch_us(one.t) - {seconds * SECOND}) answer""",
    )


@examples(50)
@given(events, runs, hops)
def test_hopping_and_tumbling(found: list[Event], run: Run, shape: Hops) -> None:
    out = emitted(paned(shape), found, run, honest(found, run))
    assert comparable(out) == comparable(in_windows(found, shape))


@examples(50)
@given(events, runs, st.integers(1, 20))
def test_sessions(found: list[Event], run: Run, gap: int) -> None:
    out = emitted(sessions(gap), found, run, honest(found, run))
    assert comparable(out) == comparable(in_sessions(found, gap))


@examples(50)
@given(events, runs, st.integers(1, 20), st.integers(1, 40))
def test_sessions_with_a_maximum(found: list[Event], run: Run, gap: int, maximum: int) -> None:
    out = emitted(sessions(gap, maximum * SECOND), found, run, honest(found, run))
    expected = Counter()
    for key in {event["k"] for event in found}:
        start = last = None
        for time in sorted(event["t"] for event in found if event["k"] == key):
            if start is None or last is None or time > last + gap * SECOND or time >= start + maximum * SECOND:
                start = time
            last = time
            expected[key, start] += 1
    told = {(row["k"], round(row["window_start"].timestamp() * SECOND)): row["n"] for row in out}
    assert told == dict(expected)
    assert len(out) == len(told)
    assert all((row["window_end"] - row["window_start"]).total_seconds() <= maximum for row in out)


@examples(50)
@given(events, runs, st.integers(0, 40))
def test_sliding(found: list[Event], run: Run, seconds: int) -> None:
    out = emitted(sliding(seconds), found, run, honest(found, run))
    assert comparable(out) == comparable(in_intervals(found, seconds))


@pytest.mark.parametrize("ties", RANKINGS)
@examples(20)
@given(events, runs, hops)
def test_the_first_rows_of_windows(ties: str, found: list[Event], run: Run, shape: Hops) -> None:
    """Ranked as SQL ranks them, however rows are cut into batches, calls and panes."""
    aggregates = {"top": TopN("p", 2, (("u", True),), ("w", "u"), ties)}
    out = emitted(PanedWindows("t", shape, aggregates, drop(), ONCE, SCHEMA), found, run, honest(found, run))
    size, slide = shape.size, shape.slide
    equal = ", p.w" if ties == "row_number" else ""
    expected = asked(
        found,
        f"""WITH placed AS (SELECT *, epoch_us(t) AS us, unnest(range(0, {size}, {slide})) AS back FROM events),
            windowed AS (SELECT *, (us - back) - (((us - back) % {slide}) + {slide}) % {slide} AS start FROM placed),
            ranks AS (SELECT *, {ties}() OVER (PARTITION BY k, start, p IS NULL ORDER BY p.u DESC{equal}) AS place
                FROM windowed WHERE start <= us AND us < start + {size})
        SELECT k, make_timestamp(start) window_start, coalesce(list({{'w': p.w, 'u': p.u, 'rank': place}}
            ORDER BY place, p.w) FILTER (p IS NOT NULL AND place <= 2), []) top FROM ranks GROUP BY k, start""",
    )
    shown = [
        sorted(repr((row["k"], naive(row["window_start"]), row["top"])) for row in rows) for rows in (out, expected)
    ]
    assert shown[0] == shown[1]


def naive(time: Any) -> Any:
    return time.replace(tzinfo=None)


@examples(50)
@given(events, runs, marks, st.integers(1, 20))
def test_of_rows_that_are_near_one_is_let_through(
    found: list[Event], run: Run, watermarks: list[int], within: int
) -> None:
    """None that is let through is near another; each other one is, or is late and counted. Nothing is kept."""
    carried = tuple(name for name in SCHEMA.names if name != "k")
    numbered = [{**event, "x": number} for number, event in enumerate(found)]
    out = emitted(FirstWithin("t", within * SECOND, carried, drop(), SCHEMA), numbered, run, watermarks)
    through = {row["x"] for row in out if row["_aside"] is None}
    late = sum(row["_aside"]["rows"] for row in out if row["_aside"] is not None)

    def near(one: Event, other: Event) -> bool:
        return one["k"] == other["k"] and abs(one["t"] - other["t"]) <= within * SECOND

    first = [event for event in numbered if event["x"] in through]
    assert not any(near(one, other) for place, one in enumerate(first) for other in first[:place])
    lone = [event for event in numbered if event["x"] not in through and not any(near(event, one) for one in first)]
    assert len(lone) <= late <= len(numbered) - len(through)


def standing(out: list[Event]) -> list[Event]:
    """What is left when all retractions have taken away what they name; each names something told before."""
    left: list[tuple[str, Event]] = []
    for row in out:
        name = repr((comparable([row]), row["revision"]))
        if row["retracted"]:
            del left[next(index for index, (told, _) in enumerate(left) if told == name)]
        else:
            left.append((name, row))
    return [row for _, row in left]


@pytest.mark.parametrize("closing", [ONCE, EARLY], ids=["final", "early"])
@examples(50)
@given(events, runs, marks, hops)
def test_corrections_of_hopping(
    closing: Closing, found: list[Event], run: Run, watermarks: list[int], shape: Hops
) -> None:
    out = emitted(paned(shape, correct("1 day"), closing), found, run, watermarks)
    assert comparable(standing(out)) == comparable(in_windows(found, shape))


@pytest.mark.parametrize("closing", [ONCE, EARLY], ids=["final", "early"])
@examples(50)
@given(events, runs, marks, st.integers(1, 20))
def test_corrections_of_sessions(
    closing: Closing, found: list[Event], run: Run, watermarks: list[int], gap: int
) -> None:
    out = emitted(sessions(gap, None, correct("1 day"), closing), found, run, watermarks)
    assert comparable(standing(out)) == comparable(in_sessions(found, gap))


@examples(50)
@given(events, runs, marks, st.integers(0, 40))
def test_corrections_of_sliding(found: list[Event], run: Run, watermarks: list[int], seconds: int) -> None:
    out = emitted(sliding(seconds, correct("1 day")), found, run, watermarks)
    assert comparable(standing(out)) == comparable(in_intervals(found, seconds))


@examples(50)
@given(events, runs, marks, st.integers(0, 20), st.integers(1, 30))
def test_sliding_counts_what_it_corrects_no_more(
    found: list[Event], run: Run, watermarks: list[int], seconds: int, allowed: int
) -> None:
    """Every row has a result that stands, or is counted; and a row's revisions follow each other."""
    out = emitted(sliding(seconds, correct(f"{allowed} seconds")), found, run, watermarks)
    results = [row for row in out if row["_aside"] is None]
    assert len(standing(results)) + sum(row["_aside"]["rows"] for row in out if row["_aside"]) == len(found)
    told = [row for row in results if not row["retracted"]]
    later = Counter((row["k"], row["window_end"], row["x"], row["revision"]) for row in told)
    assert all(later[*name, revision - 1] >= times for (*name, revision), times in later.items() if revision > 1)


@examples(50)
@given(events, runs, hops)
def test_early_results_end_in_one_final_result(found: list[Event], run: Run, shape: Hops) -> None:
    out = emitted(paned(shape, closing=EARLY), found, run, honest(found, run))
    final = [row for row in out if row["final"]]
    assert comparable(final) == comparable(in_windows(found, shape))
    seen: dict[Any, int] = {}
    for row in out:
        window = (row["k"], row["window_start"])
        assert row["revision"] == seen.get(window, 0) + 1
        seen[window] = row["revision"]


@examples(50)
@given(events, runs, marks, hops)
def test_every_row_is_in_a_result_or_counted(found: list[Event], run: Run, watermarks: list[int], shape: Hops) -> None:
    tumbling = Hops(shape.size, shape.size)
    out = emitted(paned(tumbling), found, run, watermarks)
    results = sum(row["n"] for row in out if row["_aside"] is None)
    late = sum(row["_aside"]["rows"] for row in out if row["_aside"] is not None)
    assert results + late == len(found)
    windows = Counter((row["k"], row["window_start"]) for row in out if row["_aside"] is None)
    assert all(times == 1 for times in windows.values())
