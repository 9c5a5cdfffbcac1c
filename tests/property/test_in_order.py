"""Rows one behind the other: rolling, batches, first rows and anomalies against plain loops, however rows were cut."""

import math
from collections import defaultdict
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import ewma, robust, seasonal
from headrace.pipelines.operators.errors import BadAggregate, BadField, BadWindow
from headrace.pipelines.operators.ordered.anomalies.flags import Flags, flag_anomalies
from headrace.pipelines.operators.ordered.batches import Batches, batches
from headrace.pipelines.operators.ordered.first_rows import FirstRows, first_rows
from headrace.pipelines.operators.ordered.in_order import InOrder
from headrace.pipelines.operators.ordered.rolling import Rolling, rolling
from headrace.pipelines.operators.stragglers import correct, drop, side_output
from tests.keyed_memory import MemoryRunner
from tests.property.storage_model import examples
from tests.property.windows_model import END, SCHEMA, SECOND, Event, Run, cut, events, honest, runs

AGGREGATES = {"n": agg.count(), "sum_x": agg.sum("x"), "last": agg.last("x"), "all": agg.collect("x")}
COLUMNS = ("t", "x", "f", "s")
TIE = "tie"
MODEL = SCHEMA.append(pa.field(TIE, pa.int64())).append(pa.field("ends", pa.bool_()))
limits = st.none() | st.integers(1, 40).map(lambda second: second * SECOND)


def in_order(step: Any, columns: tuple[str, ...] = COLUMNS, stragglers: Any = None) -> InOrder:
    return InOrder("t", TIE, columns, step, stragglers or drop(), MODEL)


def tied(found: list[Event]) -> list[Event]:
    """With a number that says what is in a row, as Spark makes it."""
    return [{**e, TIE: crc32(repr((e["x"], e["f"], e["s"])).encode()), "ends": bool(e["s"])} for e in found]


def emitted(operator: Any, found: list[Event], run: Run, watermarks: list[int], *, is_left: bool = True) -> list[Event]:
    runner = MemoryRunner(operator, by=["k"], schema=MODEL, buckets=run.buckets, call_rows=run.call_rows)
    out: list[Event] = []
    for number, batch in enumerate(cut(found, run)):
        if run.restarts:
            runner.restart()
        out += runner.batch(batch, watermark_us=watermarks[number] if number < len(watermarks) else None).to_pylist()
    out += runner.batch(watermark_us=END).to_pylist()
    left = [row for table in runner.plan.tables for row in runner.state(table.name)]
    assert is_left or left == [], "state is left"
    return out


def sequences(found: list[Event]) -> dict[Any, list[Event]]:
    """The rows of each key in order."""
    keys: dict[Any, list[Event]] = defaultdict(list)
    for event in sorted(found, key=lambda event: (event["t"], event[TIE])):
        keys[event["k"]].append(event)
    return keys


def us(value: Any) -> int:
    return round(value.timestamp() * SECOND)


def folded(rows: list[Event]) -> tuple[Any, ...]:
    values = [(row["t"], row["x"]) for row in rows if row["x"] is not None]
    total = sum(x for _, x in values) if values else None
    return len(rows), total, max(values)[1] if values else None, [x for _, x in sorted(values)]


@examples(50)
@given(events, runs, st.integers(1, 6), limits)
def test_rolling(found: list[Event], run: Run, rows: int, within: int | None) -> None:
    found = tied(found)
    step = Rolling(rows, within, ("s",), AGGREGATES, MODEL)
    out = emitted(in_order(step), found, run, honest(found, run), is_left=within is None)
    shown = [
        (row["k"], us(row["since"]), us(row["window_end"]), row["s"], *(row[name] for name in AGGREGATES))
        for row in out
    ]
    expected = []
    for key, given_rows in sequences(found).items():
        for at, row in enumerate(given_rows):
            window = given_rows[max(at + 1 - rows, 0) : at + 1]
            window = [each for each in window if within is None or each["t"] >= row["t"] - within]
            expected.append((key, window[0]["t"], row["t"], row["s"], *folded(window)))
    assert sorted(shown, key=repr) == sorted(expected, key=repr)


@examples(50)
@given(events, runs, st.none() | st.integers(1, 5), limits, st.booleans())
def test_batches(found: list[Event], run: Run, rows: int | None, within: int | None, has_ends: bool) -> None:
    found = [{**event, "x": None if event["x"] is None else event["x"] % 100} for event in found]
    found = tied(found)
    step = Batches(rows, within, "ends" if has_ends else None, AGGREGATES, MODEL)
    out = emitted(in_order(step, ("x", "ends")), found, run, honest(found, run), is_left=within is None)
    shown = [(row["k"], us(row["window_start"]), us(row["window_end"]), *(row[n] for n in AGGREGATES)) for row in out]
    expected = []
    for key, given_rows in sequences(found).items():
        batch: list[Event] = []
        for row in given_rows:
            if batch and within is not None and row["t"] >= batch[0]["t"] + within:
                expected.append((key, batch[0]["t"], batch[0]["t"] + within, *folded(batch)))
                batch = []
            batch.append(row)
            if len(batch) == rows or (has_ends and row["ends"]):
                expected.append((key, batch[0]["t"], row["t"], *folded(batch)))
                batch = []
        if batch and within is not None:
            expected.append((key, batch[0]["t"], batch[0]["t"] + within, *folded(batch)))
    assert sorted(shown, key=repr) == sorted(expected, key=repr)


@examples(50)
@given(events, runs, st.none() | st.integers(1, 5), st.integers(1, 40))
def test_first_rows(found: list[Event], run: Run, rows: int | None, seconds: int) -> None:
    found = tied(found)
    within = None if rows == 1 else seconds * SECOND
    out = emitted(in_order(FirstRows(rows, within, COLUMNS, MODEL)), found, run, honest(found, run))
    shown = [(row["k"], us(row["t"]), row["x"], row["f"], row["s"]) for row in out]
    expected = [
        (key, row["t"], row["x"], row["f"], row["s"])
        for key, given_rows in sequences(found).items()
        for at, row in enumerate(given_rows)
        if (rows is None or at < rows) and (within is None or row["t"] < given_rows[0]["t"] + within)
    ]
    assert sorted(shown, key=repr) == sorted(expected, key=repr)


def judged(found: list[Event], expect: Any) -> list[Any]:
    """Every row with what `expect` makes of the values before its time: (time, value), in order."""
    result = []
    for key, given_rows in sequences(found).items():
        for row in given_rows:
            before = [(e["t"], e["f"]) for e in given_rows if e["t"] < row["t"] and e["f"] is not None]
            expected, spread = expect(row["t"], sorted(before))
            score = None
            if spread is not None and row["f"] is not None:
                off = row["f"] - expected
                score = 0.0 if off == 0 else off / spread if spread else math.copysign(math.inf, off)
            result.append((key, row["t"], row["x"], row["f"], expected, score))
    return sorted(result, key=lambda row: repr(row[:4]))


def check(found: list[Event], run: Run, way: Any, expect: Any, *, is_left: bool) -> None:
    found = tied(found)
    operator = in_order(Flags("f", way, COLUMNS, MODEL))
    out = emitted(operator, found, run, honest(found, run), is_left=is_left)
    shown = [(r["k"], us(r["t"]), r["x"], r["f"], r["expected"], r["score"], r["is_anomaly"]) for r in out]
    wanted = judged(found, expect)
    assert len(shown) == len(wanted)
    for one, other in zip(sorted(shown, key=lambda row: repr(row[:4])), wanted, strict=True):
        assert one[:4] == other[:4]
        assert (one[4] is None) == (other[4] is None)
        assert (one[5] is None) == (other[5] is None)
        if one[4] is not None:
            assert one[4] == pytest.approx(other[4], rel=1e-9, abs=1e-6)
        if one[5] is not None and math.isfinite(one[5]) and abs(other[5]) < 1e6:
            assert one[5] == pytest.approx(other[5], rel=1e-5, abs=1e-5)
        assert one[6] == (one[5] is not None and abs(one[5]) > way.threshold)


@examples(50)
@given(events, runs, st.integers(1, 30), st.integers(1, 4))
def test_ewma(found: list[Event], run: Run, seconds: int, warm_up: int) -> None:
    def expect(now: int, before: list[tuple[int, float]]) -> tuple[float | None, float | None]:
        silent = 64 * seconds * SECOND
        for at, (time, _) in reversed(list(enumerate(before))):
            if (before[at + 1][0] if at + 1 < len(before) else now) - time > silent:
                before = before[at + 1 :]
                break
        if not before:
            return None, None
        weights = [0.5 ** ((now - at) / (seconds * SECOND)) for at, _ in before]
        mean = sum(w * x for w, (_, x) in zip(weights, before, strict=True)) / sum(weights)
        squares = sum(w * (x - mean) ** 2 for w, (_, x) in zip(weights, before, strict=True)) / sum(weights)
        return mean, math.sqrt(squares) if len(before) >= warm_up else None

    way = ewma(f"{seconds} seconds", threshold=1.5, warm_up=warm_up, least_spread=1)
    check(found, run, way, lambda now, before: floor(expect(now, before), 1), is_left=False)


def floor(found: tuple[float | None, float | None], least: float) -> tuple[float | None, float | None]:
    return found[0], None if found[1] is None else max(found[1], least)


def median(values: list[float]) -> float:
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else ordered[half - 1] / 2 + ordered[half] / 2


@examples(100)
@given(events, runs, st.none() | st.integers(2, 8), limits, st.integers(1, 2))
def test_robust(found: list[Event], run: Run, rows: int | None, within: int | None, warm_up: int) -> None:
    def expect(now: int, before: list[tuple[int, float]]) -> tuple[float | None, float | None]:
        values = [x for at, x in before if within is None or at >= now - within]
        values = values if most is None else [x for at, x in before[-most:] if within is None or at >= now - within]
        if not values:
            return None, None
        middle = median(values)
        distance = 1.482602218505602 * median([abs(x - middle) for x in values])
        return middle, distance if len(values) >= warm_up else None

    most = 5 if rows is None and within is None else rows
    span = None if within is None else f"{within // SECOND} seconds"
    check(found, run, robust(most, within=span, threshold=2, warm_up=warm_up), expect, is_left=within is None)


@examples(50)
@given(events, runs, st.integers(1, 4), st.integers(1, 5), st.integers(1, 3))
def test_seasonal(found: list[Event], run: Run, slot: int, slots: int, periods: int) -> None:
    def expect(now: int, before: list[tuple[int, float]]) -> tuple[float | None, float | None]:
        start = now // (slot * SECOND) * slot
        starts = {start - back * slot * slots for back in range(1, periods + 1)}
        values = [x for at, x in before if at // (slot * SECOND) * slot in starts]
        if not values:
            return None, None
        mean = sum(values) / len(values)
        squares = sum((x - mean) ** 2 for x in values)
        return mean, math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else None

    way = seasonal(f"{slot * slots} seconds", f"{slot} seconds", periods=periods, threshold=1, least_spread=1)
    check(found, run, way, lambda now, before: floor(expect(now, before), 1), is_left=False)


@examples(50)
@given(events, runs, st.lists(st.integers(-60, 130).map(lambda second: second * SECOND), max_size=9))
def test_late_rows_are_set_aside_and_the_others_are_as_without_them(
    found: list[Event], run: Run, watermarks: list[int]
) -> None:
    found = tied(found)
    step = Rolling(3, None, ("s",), AGGREGATES, MODEL)
    out = emitted(in_order(step, stragglers=side_output()), found, run, watermarks)
    late, reached = 0, -(2**62)
    kept: list[Event] = []
    for number, batch in enumerate(cut(found, run)):
        reached = max(reached, watermarks[number] if number < len(watermarks) else reached)
        late += sum(event["t"] <= reached for event in batch)
        kept += [event for event in batch if event["t"] > reached]
    assert sum(row["_aside"] is not None for row in out) == late
    plain = Run((), 1, None, False)
    ours = [row for row in out if row["_aside"] is None]
    wanted = emitted(in_order(step, stragglers=side_output()), kept, plain, [])
    assert sorted(map(repr, ours)) == sorted(map(repr, wanted))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: rolling(0, n=agg.count()), "rolling of rows=0: write a whole number"),
        (lambda: rolling(3), "computes nothing"),
        (lambda: rolling(3, since=agg.count()), "adds a column 'since'"),
        (lambda: rolling(3, n=agg.count(), stragglers=correct("1 hour")), "goes by the order of rows"),
        (lambda: batches(n=agg.count()), "batches have no end"),
        (lambda: batches(True, n=agg.count()), "rows=True"),
        (lambda: first_rows(), "first_rows has no end"),
        (lambda: ewma("1 minute", threshold=-1), "threshold=-1"),
        (lambda: ewma("1 minute", warm_up=0), "warm_up=0"),
        (lambda: robust(), "robust has no window"),
        (lambda: robust(5), "would never begin"),
        (lambda: robust(1), "rows=1"),
        (lambda: seasonal("1 day", "7 hours"), "do not fit into"),
        (lambda: seasonal("1 day", "1 hour", periods=0), "periods=0"),
        (lambda: flag_anomalies("x", "ewma"), "is no way to expect values"),
        (lambda: flag_anomalies("x", ewma("1 minute"), stragglers=correct("1 hour")), "goes by the order"),
    ],
)
def test_bad_arguments_get_a_sentence(made: Any, said: str) -> None:
    with pytest.raises((BadWindow, BadAggregate, BadField), match=said):
        made()


def test_a_wild_value_blinds_no_key_for_ever() -> None:
    """The square of 1e200 is no number any more, and would never fade."""
    wild = {10: 1e200, 11: -1.7e308, 12: 1.7e308, 2000: 50.0}
    given_rows = [
        {**dict.fromkeys(MODEL.names), "k": "a", "t": n * SECOND, "f": wild.get(n, 1 + n % 5 / 10), TIE: n}
        for n in range(2001)
    ]
    operator = in_order(Flags("f", ewma("1 second"), ("t", "f"), MODEL), ("t", "f"))
    runner = MemoryRunner(operator, by=["k"], schema=MODEL)
    runner.batch(given_rows)
    out = runner.batch(watermark_us=END).to_pylist()
    assert [row["is_anomaly"] for row in out[10:12]] == [True, True]
    assert out[2000]["is_anomaly"]
    assert out[2000]["expected"] == pytest.approx(1.2, abs=0.3)
