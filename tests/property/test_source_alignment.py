"""A batch ends at one moment: whatever its size, no partition is read before another."""

from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from headrace.model import TopicPartition
from headrace.pipelines.source.alignment import Backlog, align_batch
from headrace.pipelines.source.planning import Offsets
from tests.property.storage_model import examples

# Sorted, with gaps of hours, and many records in one millisecond.
times = st.lists(st.one_of(st.integers(0, 50), st.integers(0, 10**8)), max_size=60).map(sorted)
topics = st.lists(times, min_size=1, max_size=5).map(
    lambda each: {TopicPartition("t", number): of for number, of in enumerate(each)}
)
Records = Mapping[TopicPartition, list[int]]
FEW = 3  # records that a look sees


def backlog(records: Records, starts: Offsets) -> Backlog:
    greatest = {where: list(accumulate(of, max)) for where, of in records.items()}

    def offsets_at(time_ms: int) -> Offsets:
        # What comes after the first of a time changes nothing, so that the greatest so far is in order.
        found = {where: bisect_left(of, time_ms) for where, of in greatest.items()}
        return {where: offset if offset < len(records[where]) else -1 for where, offset in found.items()}

    def oldest_from(offsets: Offsets) -> Offsets:
        return {where: min(records[where][offset : offset + FEW]) for where, offset in offsets.items()}

    ends = {where: len(of) for where, of in records.items()}
    return Backlog(starts, ends, dict.fromkeys(records, 1.0), offsets_at, oldest_from)


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

    def oldest_from(offsets: Offsets) -> Offsets:
        nonlocal asked
        asked += 1
        return {where: records[where][offset] for where, offset in offsets.items()}

    starts: Offsets = dict.fromkeys(records, 0)
    cost = dict.fromkeys(records, 1.0)
    moment_ms, batches = 0, 0
    while starts != ends:
        asked = 0
        moment = align_batch(
            Backlog(starts, ends, cost, offsets_at, oldest_from), budget, first_ms=moment_ms, last_ms=last_ms
        )
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
    starts: Offsets = dict.fromkeys(records, 0)
    moment_ms = 0
    for _ in range(2 * len(disorder) + 1):
        moment = align_batch(backlog(records, starts), budget, first_ms=moment_ms, last_ms=max(disorder))
        assert any(moment.offsets[where] > starts[where] for where in ends)
        starts, moment_ms = moment.offsets, moment.time_ms
        if starts == ends:
            return
    raise AssertionError("it never came to the ends")


@examples(25)
@given(st.lists(st.lists(st.integers(0, 599), max_size=4, unique=True), min_size=2, max_size=3), st.integers(60, 300))
def test_records_with_a_time_far_ahead_leave_no_partition_behind(ahead: list[list[int]], budget: int) -> None:
    records = {
        TopicPartition("t", number): [10**12 if offset in strays else 1000 * offset for offset in range(600)]
        for number, strays in enumerate(ahead)
    }
    ends = dict.fromkeys(records, 600)
    starts: Offsets = dict.fromkeys(records, 0)
    moment_ms, before_ms, read_ms = 0, -1, -1
    while starts != ends:
        moment = align_batch(backlog(records, starts), budget, first_ms=moment_ms, last_ms=10**12)
        taken = [
            time for where in ends for time in records[where][starts[where] : moment.offsets[where]] if time < 10**12
        ]
        # Rows are judged by the watermark before, which follows the rows of the batch before the last; what looking
        # does not tell apart comes on top.
        slack = 1000 * (budget // 64 + FEW)
        assert min(taken, default=before_ms) >= before_ms - slack, "rows came behind the watermark"
        before_ms, read_ms = read_ms, max([read_ms, *taken])
        starts, moment_ms = moment.offsets, moment.time_ms
