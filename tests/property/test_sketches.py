"""Sketches keep what they promise of their error, and are the same however rows were cut, merged, or came late."""

import math
import struct
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators.aggregation.algebra import PREPARED, Aggregate
from headrace.pipelines.operators.aggregation.fold import Folded, fold
from headrace.pipelines.operators.aggregation.sketches.distinct import Registers, precision
from headrace.pipelines.operators.errors import BadAggregate
from headrace.pipelines.operators.grouping import group_rows
from headrace.pipelines.operators.stragglers import correct, drop
from headrace.pipelines.operators.windows.panes import Hops, PanedWindows
from headrace.pipelines.operators.windows.results import Closing
from headrace.pipelines.operators.windows.sessions import SessionWindows
from headrace.pipelines.operators.windows.sliding import SlidingRows
from tests.property.storage_model import examples
from tests.property.windows_model import SCHEMA, SECOND, Event, Run, emitted, events, honest, runs

HASH = f"{PREPARED}hash"
doubles = st.floats(allow_nan=False, width=64)


def hashed(error: float, *, given: bool = False) -> Registers:
    """As it is computed: of hashes that Spark made."""
    return Registers(HASH, error, False, given)


def folded(aggregate: Aggregate, values: pa.Array) -> Folded:
    made = fold({"it": aggregate}, pa.schema([(aggregate.field, values.type)]))
    rows = pa.RecordBatch.from_arrays([values], names=[aggregate.field])
    return made.load(made.lift(rows, np.arange(len(values)) * SECOND))


def result(aggregate: Aggregate, values: pa.Array, owner: Any = None) -> list[Any]:
    owner = np.zeros(len(values), np.int64) if owner is None else owner
    return folded(aggregate, values).reduce(group_rows(owner)).results()[0].to_pylist()


@pytest.mark.parametrize("error", [0.26, 0.05, 0.02, 0.01])
@pytest.mark.parametrize("n", [1, 7, 8, 50, 700, 5_000, 40_000])
def test_distinct_counts_have_the_error_that_was_asked_for(error: float, n: int) -> None:
    runs = max(min(400_000 // n, 100), 20)
    generator = np.random.default_rng(n)
    values = pa.array(generator.integers(-(2**63), 2**63 - 1, n * runs, dtype=np.int64))
    found = np.array(result(hashed(error), values, np.repeat(np.arange(runs), n)))
    off = (found - n) / n
    assert math.sqrt((off**2).mean()) <= error * (1 + 4 / math.sqrt(2 * runs)) + 0.5 / n
    assert abs(off.mean()) <= 4 * error / math.sqrt(runs) + 0.5 / n


def test_equal_hashes_are_counted_once_and_nothing_is_0() -> None:
    assert result(hashed(0.02), pa.array([0, -1, 0, None, -1, 5])) == [3]
    assert folded(hashed(0.02), pa.array([], pa.int64())).with_nothing(1).results()[0].to_pylist() == [0]


@examples(50)
@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40), max_size=6), st.sampled_from([0.2, 0.02]))
def test_distinct_sketches_are_put_together(parts: list[list[int]], error: float) -> None:
    owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    whole = pa.array([value for part in parts for value in part], pa.int64())
    sketches = pa.array(result(hashed(error, given=True), whole, owner), pa.binary())
    coarser = agg.approx_count_distinct(sketches="s", error=0.25)
    for merging in (agg.approx_count_distinct(sketches="s", error=error), coarser):
        bits = merging.error if merging is not coarser else 0.25
        assert result(merging, sketches) == result(hashed(bits), whole)
    assert result(agg.distinct_sketch(sketches="s", error=error), sketches) == result(hashed(error, given=True), whole)


def test_what_is_no_sketch_is_refused() -> None:
    fine = result(hashed(0.25, given=True), pa.array(range(100)))
    with pytest.raises(
        BadAggregate, match=f"merged into {1 << precision(0.02)} registers, and one has {1 << precision(0.25)}"
    ):
        result(agg.approx_count_distinct(sketches="s", error=0.02), pa.array(fine))
    for wrong in (b"\x00", b"abcdefghijkl", fine[0][:30], fine[0][:7] + b"\x02" + fine[0][8:]):
        with pytest.raises(BadAggregate, match="is none of HLL_8"):
            result(agg.approx_count_distinct(sketches="s", error=0.25), pa.array([*fine, wrong]))
    ours = result(agg.percentile_sketch("x"), pa.array([1.0, 2.0]))
    for wrong in (b"", ours[0][:-1], b"HRQ2" + ours[0][4:]):
        if wrong:
            with pytest.raises(BadAggregate):
                result(agg.approx_percentile(sketches="s"), pa.array([*ours, wrong]))
    for places, counts in (((-(2**31), 2**31 - 1), (1, 1)), ((10**6,), (1,)), ((1, 2), (1, -5)), ((1, 2), (2**62, 1))):
        with pytest.raises(BadAggregate, match="buckets or counts that percentile_sketch does not make"):
            result(agg.approx_percentile(sketches="s"), pa.array([percentiles(places, counts)]))
    with pytest.raises(BadAggregate, match=r"made with error=0.01 and is merged with error=0.02"):
        result(agg.approx_percentile(sketches="s", error=0.02), pa.array(ours))
    with pytest.raises(BadAggregate, match="sketches are bytes"):
        result(agg.approx_percentile(sketches="s"), pa.array(["a"]))


def percentiles(places: tuple[int, ...], counts: tuple[int, ...]) -> bytes:
    """The bytes of a sketch, whatever is in them."""
    head = b"HRQ1" + struct.pack("<id", len(places), 0.01)
    return head + struct.pack(f"<{len(places)}i", *places) + struct.pack(f"<{len(counts)}q", *counts)


@examples(300)
@given(st.sampled_from(range(8)), st.binary(max_size=60), st.integers(0, 255), st.integers(0, 255), st.integers(0, 400))
def test_bytes_that_resemble_a_sketch_are_refused_or_counted(
    mode: int, body: bytes, count: int, kind: int, size: int
) -> None:
    """They are read by compiled code, which checks no bounds: nothing is read or written beside them."""
    given = bytes([2, 1, 7, 4, 3, kind, count, kind & 0xF8 | mode]) + body + bytes([255]) * size
    for cell in (given, given[:7] + b"\x0b" + given[8:], given[:7] + b"\x08" + bytes(len(given))):
        try:
            (found,) = result(agg.approx_count_distinct(sketches="s", error=0.26), pa.array([cell] * 30))
        except BadAggregate:
            continue
        assert 0 <= found <= 2**62


@pytest.mark.parametrize(
    ("values", "counts"),
    [(["a", "b"], [2]), (["a"], [2, 3]), (["a"], None), (["a", "b"], [1, None]), (["a"], [0]), (["a"], [-4])],
)
def test_frequent_values_without_counts_are_refused(values: list[str], counts: list[int | None] | None) -> None:
    parts = [("n", pa.int64()), ("missed", pa.int64()), ("values", pa.list_(pa.string()))]
    kind = pa.struct([*parts, ("counts", pa.list_(pa.int64()))])
    row = {"n": 3, "missed": 0, "values": values, "counts": counts}
    with pytest.raises(BadAggregate, match="not a count above 0 for each of its values"):
        result(agg.frequent_items(sketches="s"), pa.array([row, None, row], kind))


def exact(values: list[float], share: float) -> float:
    """SQL's percentile_disc."""
    return sorted(values)[max(math.ceil(share * len(values) - 1e-9), 1) - 1]


@examples(100)
@given(
    st.lists(doubles | st.floats(0.001, 1000) | st.integers(-3, 3).map(float), min_size=1, max_size=60),
    st.lists(st.floats(0, 1), min_size=1, max_size=4),
    st.sampled_from([0.001, 0.01, 0.3]),
    st.integers(1, 5),
)
def test_percentiles_are_as_near_as_was_asked_for(
    values: list[float], shares: list[float], error: float, parts: int
) -> None:
    owner = np.arange(len(values)) % parts
    (whole,) = result(agg.approx_percentile("x", shares, error=error), pa.array(values))
    sketches = result(agg.percentile_sketch("x", error=error), pa.array(values), owner)
    merged = agg.approx_percentile(at=shares, sketches="s", error=error)
    assert result(merged, pa.array([None, *sketches], pa.binary())) == [whole]
    for share, found in zip(shares, whole, strict=True):
        wanted = exact(values, share)
        if math.isinf(wanted):
            assert found == wanted
        else:
            assert abs(found - wanted) <= error * (1 + 1e-9) * abs(wanted) + 5e-324


def test_percentiles_of_nothing_and_of_what_is_no_number() -> None:
    nan = float("nan")
    assert result(agg.approx_percentile("x", 0.5), pa.array([None, None], pa.float64())) == [None]
    assert result(agg.approx_percentile("x", [0.5, 1]), pa.array([None], pa.int32())) == [None]
    (found,) = result(agg.approx_percentile("x", [0, 0.5, 1]), pa.array([nan, 0.0, float("-inf")]))
    assert found[:2] == [float("-inf"), 0.0]
    assert math.isnan(found[2])


words = st.lists(st.sampled_from("aaaaaaaabbbbcccdefghijklmnopq"), max_size=60)


@examples(100)
@given(st.lists(words, min_size=1, max_size=5), st.sampled_from([0.5, 0.2, 0.1, 0.02]), st.integers(1, 4))
def test_frequent_values_are_all_there_and_counted_as_promised(parts: list[list[str]], error: float, step: int) -> None:
    share = min(error * step, 0.9)
    values = [value for part in parts for value in part]
    counts, n = Counter(values), len(values)
    owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    sketches = result(agg.frequent_sketch("x", error=error), pa.array(values, pa.string()), owner)
    kind = agg.frequent_sketch("x", error=error).result(pa.string())
    merged = result(agg.frequent_items(share=share, sketches="s", error=error), pa.array([*sketches, None], kind))
    whole = result(agg.frequent_items("x", share, error=error), pa.array([*values, None], pa.string()))
    for items in (merged[0], whole[0]):
        found = {item["value"]: item for item in items}
        assert len(found) == len(items)
        assert {value for value, count in counts.items() if count > share * n} <= found.keys()
        for value, item in found.items():
            assert item["count"] <= counts[value] <= item["at_most"] <= item["count"] + error * n
            assert counts[value] > (share - error) * n
    if len(counts) <= 1 / error:
        assert merged == whole
        assert [(item["value"], item["count"]) for item in whole[0]] == sorted(
            ((value, count) for value, count in counts.items() if count > share * n),
            key=lambda item: (-item[1], item[0]),
        )


@examples(50)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(-1e6, 1e6)), min_size=2, max_size=40))
def test_slopes_are_those_of_least_squares(points: list[tuple[int, float]]) -> None:
    base = 1_800_000_000 * SECOND
    time, value = np.array([base + at * 1000 for at, _ in points]), np.array([y for _, y in points])
    aggregate = agg.slope("x", per="1 second")
    made = fold({"it": aggregate}, pa.schema([("x", pa.float64())]))
    rows = pa.RecordBatch.from_arrays([pa.array(value)], names=["x"])
    cells = made.load(made.lift(rows, time))
    ways = [
        cells.reduce(group_rows(np.zeros(len(time), np.int64))),
        cells.over(np.array([0]), np.array([len(time)])),
        cells.reduce(group_rows(np.arange(len(time)) // 3)).reduce(
            group_rows(np.zeros((len(time) + 2) // 3, np.int64))
        ),
    ]
    seconds = (time - time.min()) / SECOND
    if len(set(time)) == 1:
        assert [way.results()[0].to_pylist() for way in ways] == [[None]] * 3
        return
    apart = seconds - seconds.mean()
    wanted = (apart * (value - value.mean())).sum() / (apart**2).sum()
    scale = np.abs(value).max() / np.sqrt((apart**2).sum())
    for way in ways:
        assert abs(way.results()[0].to_pylist()[0] - wanted) <= 1e-9 * scale + 1e-9 * abs(wanted) + 1e-3 * 1e-6 * scale


AGGREGATES = {
    "users": Registers("x", 0.2),
    "p": agg.approx_percentile("f", [0.1, 0.5, 0.99]),
    "sketch": agg.percentile_sketch("f"),
    "often": agg.frequent_items("s", 0.3, error=0.1),
    "sketched": agg.frequent_sketch("s", error=0.1),
}
marks = st.lists(st.integers(-60, 130).map(lambda second: second * SECOND), max_size=9)


def net(rows: list[Event]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for row in rows:
        shown = [row[name] for name in ("k", "window_start", "window_end", *AGGREGATES)]
        counts[repr(shown)] += -1 if row.get("retracted") else 1
    return Counter({row: n for row, n in counts.items() if n})


@examples(30)
@given(events, runs, marks, st.sampled_from(["hopping", "sessions", "sliding"]))
def test_windows_of_sketches_are_the_same_however_rows_are_cut(
    found: list[Event], run: Run, watermarks: list[int], shape: str
) -> None:
    """In one batch and in order, against any batches with late rows that are corrected. Few values: all is exact."""

    def operator(stragglers: Any) -> Any:
        given = (AGGREGATES, stragglers, Closing(), SCHEMA)
        return {
            "hopping": PanedWindows("t", Hops(12 * SECOND, 4 * SECOND), *given),
            "sessions": SessionWindows("t", 6 * SECOND, None, *given),
            "sliding": SlidingRows("t", 9 * SECOND, (), *given),
        }[shape]

    plain = Run((), 1, None, False)
    expected = net(emitted(operator(drop()), found, plain, honest(found, plain)))
    assert net(emitted(operator(correct("1 hour")), found, run, watermarks)) == expected


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: agg.approx_count_distinct(), "a field or of sketches"),
        (lambda: agg.approx_count_distinct("x", error=0), "from 0.001 to 0.26"),
        (lambda: agg.approx_percentile("x", 99), "at=99 is no share"),
        (lambda: agg.approx_percentile("x", []), "is no share"),
        (lambda: agg.percentile_sketch("x", sketches="y"), "name one of the two"),
        (lambda: agg.frequent_items("x", 2), "share=2 is no share"),
        (lambda: agg.frequent_items("x", 0.01, error=0.1), "greater than share"),
        (lambda: agg.frequent_sketch("x", error=1e-9), "from 1e-05 to 0.5"),
    ],
)
def test_bad_arguments_get_a_sentence(made: Any, said: str) -> None:
    with pytest.raises(BadAggregate, match=said):
        made()
