"""A batch ends at one moment: whatever its size, no partition is read before another."""

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from headrace.model import TopicPartition
from headrace.pipelines.source.alignment import aligned
from headrace.pipelines.source.planning import Offsets

# Sorted, with gaps of hours, and many records in one millisecond.
times = st.lists(st.one_of(st.integers(0, 50), st.integers(0, 10**8)), max_size=60).map(sorted)
topics = st.lists(times, min_size=1, max_size=5).map(
    lambda each: {TopicPartition("t", number): of for number, of in enumerate(each)}
)


@given(topics, st.integers(1, 80))
def test_partitions_that_are_in_order_are_read_in_one_order(
    records: dict[TopicPartition, list[int]], budget: int
) -> None:
    ends = {where: len(of) for where, of in records.items()}
    last_ms = max((of[-1] for of in records.values() if of), default=0)
    asked = 0

    def offsets_at(time_ms: int) -> Offsets:
        nonlocal asked
        asked += 1
        found = {where: bisect_left(of, time_ms) for where, of in records.items()}
        return {where: offset if offset < ends[where] else -1 for where, offset in found.items()}

    starts: Offsets = dict.fromkeys(records, 0)
    cost = dict.fromkeys(records, 1.0)
    moment_ms, batches = 0, 0
    while starts != ends:
        asked = 0
        moment = aligned(starts, ends, budget, cost, offsets_at, first_ms=moment_ms, last_ms=last_ms)
        batches += 1
        moment_ms, reach = moment.time_ms, moment.offsets
        assert all(starts[where] <= reach[where] <= ends[where] for where in ends)
        assert 0 < sum(reach[where] - starts[where] for where in ends) <= budget + len(ends)
        assert asked <= 60
        read = max(records[where][reach[where] - 1] for where in ends if reach[where])
        left = [records[where][reach[where]] for where in ends if reach[where] < ends[where]]
        assert all(read <= time for time in left), "a partition was read beyond what another has yet to give"
        starts = reach
    assert batches <= 2 * sum(ends.values()) / budget + len({time for of in records.values() for time in of}) + 1


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=40), st.integers(1, 10))
def test_partitions_in_disorder_are_read_to_their_ends(disorder: list[int], budget: int) -> None:
    records = {TopicPartition("t", 0): disorder, TopicPartition("t", 1): disorder[::-1]}
    ends = {where: len(of) for where, of in records.items()}

    def offsets_at(time_ms: int) -> Offsets:
        return {
            where: next((offset for offset, time in enumerate(of) if time >= time_ms), -1)
            for where, of in records.items()
        }

    starts: Offsets = dict.fromkeys(records, 0)
    moment_ms = 0
    for _ in range(2 * len(disorder) + 1):
        moment = aligned(
            starts, ends, budget, dict.fromkeys(ends, 1.0), offsets_at, first_ms=moment_ms, last_ms=max(disorder)
        )
        assert any(moment.offsets[where] > starts[where] for where in ends)
        starts, moment_ms = moment.offsets, moment.time_ms
        if starts == ends:
            return
    raise AssertionError("it never came to the ends")
