"""Bloom filters let nothing through twice, and leave out no more than was asked for."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.operators import deduplicate
from headrace.pipelines.operators.bloom import LEFT_OUT, WRONG, Filters, ProbablyFirst
from headrace.pipelines.operators.errors import BadWindow
from headrace.pipelines.operators.stragglers import drop, side_output
from headrace.pipelines.operators.times import TIMESTAMP
from tests.keyed_memory import MemoryRunner
from tests.property.storage_model import examples

SECOND = 1_000_000
SCHEMA = pa.schema([("block", pa.int64()), ("hash", pa.int64()), ("id", pa.int64()), ("t", TIMESTAMP)])
_GENERATOR = np.random.default_rng(5)
HASHES = _GENERATOR.integers(-(2**63), 2**63 - 1, (400_000, 2), dtype=np.int64)


def operator(filters: Filters, within: int | None, stragglers: Any = None) -> ProbablyFirst:
    time = None if within is None else "t"
    return ProbablyFirst("hash", filters, time, within, ("id", "t"), stragglers or drop(), SCHEMA)


def rows(filters: Filters, ids: Any, times: Any) -> pa.RecordBatch:
    ids = np.asarray(ids, np.int64)
    columns = [HASHES[ids, 0] % filters.blocks, HASHES[ids, 1], ids]
    at = pa.array(np.asarray(times, np.int64)).cast(TIMESTAMP)
    return pa.RecordBatch.from_arrays([*map(pa.array, columns), at], schema=SCHEMA)


def outcome(out: pa.Table) -> tuple[list[int], dict[str, int]]:
    counts: dict[str, int] = {}
    for aside in out["_aside"].drop_null().to_pylist():
        counts[aside["reason"]] = counts.get(aside["reason"], 0) + aside["rows"]
    return out["id"].drop_null().to_pylist(), counts


@pytest.mark.parametrize(("error", "within"), [(0.05, None), (0.01, None), (0.05, 100), (0.002, 100)])
def test_the_share_that_is_left_out_wrongly_is_what_was_asked_for(error: float, within: int | None) -> None:
    """As many different keys in `within` as were expected, for four times as long."""
    expected, rounds = 40_000, 1 if within is None else 4
    filters = Filters.of(error, expected, rotates=within is not None)
    span = None if within is None else within * SECOND
    runner = MemoryRunner(operator(filters, span), by=["block"], schema=SCHEMA, buckets=2)
    total, wrong, dropped = expected * rounds, 0, 0
    for part in np.array_split(np.arange(total), 8 * rounds):
        at = part * (span or 1) // expected
        found, counts = outcome(
            runner.batch(rows(filters, part, at), watermark_us=None if span is None else int(at[0]) - 1)
        )
        dropped += len(part) - len(found)
        assert counts.get(LEFT_OUT, 0) == len(part) - len(found)
        wrong += counts.get(WRONG, 0)
        again, _ = outcome(runner.batch(rows(filters, part, at)))
        assert again == []
    assert dropped <= error * total + 4 * (error * total) ** 0.5
    # It says so itself, as far as chance goes.
    assert abs(wrong / 1e6 - dropped) <= 5 * dropped**0.5 + 5
    assert len(runner.state("filters")) <= filters.blocks * (1 if within is None else 6)


def test_a_key_takes_about_three_bytes() -> None:
    assert Filters.of(0.001, 10**7, rotates=True).blocks * 1024 * 5 / 10**7 < 3.3
    assert Filters.of(0.001, 10**7, rotates=False).blocks * 1024 / 10**7 < 2.1


def test_more_keys_than_expected_take_no_more_room_and_are_said_to_be_left_out() -> None:
    filters = Filters.of(0.01, 5_000, rotates=False)
    runner = MemoryRunner(operator(filters, None), by=["block"], schema=SCHEMA)
    dropped, wrong = 0, 0
    for part in np.array_split(np.arange(40_000), 40):
        found, counts = outcome(runner.batch(rows(filters, part, part)))
        dropped, wrong = dropped + len(part) - len(found), wrong + counts.get(WRONG, 0)
    assert dropped > 4_000
    assert 0.5 < wrong / 1e6 / dropped < 2
    assert len(runner.state("filters")) == filters.blocks


def test_filters_that_are_full_say_that_all_they_leave_out_may_be_new() -> None:
    filters = Filters.of(0.01, 1_000, rotates=False)
    runner = MemoryRunner(operator(filters, None), by=["block"], schema=SCHEMA)
    for part in np.array_split(np.arange(200_000), 10):
        found, counts = outcome(runner.batch(rows(filters, part, part)))
        left_out = len(part) - len(found)
        assert counts[LEFT_OUT] == left_out
        assert 0.8 * left_out < counts[WRONG] / 1e6 <= 1.05 * left_out
    assert len(found) < 10


@examples(100)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 200)), max_size=40),
    st.lists(st.integers(1, 8), max_size=6),
    st.integers(1, 60),
    st.integers(1, 4),
)
def test_in_time_nothing_twice_and_nothing_too_far_left_out(
    found: list[tuple[int, int]], sizes: list[int], seconds: int, buckets: int
) -> None:
    """Against an exact memory: near enough is left out, further than a quarter more is let through."""
    filters, within = Filters.of(1e-6, 1000, rotates=True), seconds * SECOND
    stretch = within // 4
    runner = MemoryRunner(operator(filters, within, side_output()), by=["block"], schema=SCHEMA, buckets=buckets)
    through: list[tuple[int, int]] = []
    at = 0
    for size in [*sizes, len(found)]:
        batch, at = found[at : at + size], at + size
        runner.restart()
        behind = min((time for _, time in found[at - size :]), default=0) * SECOND - 1
        out = runner.batch(rows(filters, [k for k, _ in batch], [t * SECOND for _, t in batch]), watermark_us=behind)
        passed = [(row["id"], round(row["t"].timestamp())) for row in out.to_pylist() if row["_aside"] is None]
        for key, time in sorted(batch, key=lambda row: row[1]):
            near = [abs(time - other) * SECOND for known, other in through if known == key]
            if (key, time) in passed:
                assert not near or min(near) > within
                passed.remove((key, time))
                through.append((key, time))
            else:
                assert min(near) <= within + stretch
        assert passed == []
    runner.batch(watermark_us=10**12)
    assert runner.state("filters") == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"error": 0.1}, "expected=1_000_000 and error=0.001"),
        ({"expected": 10}, "expected=1_000_000 and error=0.001"),
        ({"error": 0.0, "expected": 10}, "error=0.0"),
        ({"error": 0.1, "expected": 0}, "expected=0"),
    ],
)
def test_bad_arguments_get_a_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadWindow, match=said):
        deduplicate("id", **given)
