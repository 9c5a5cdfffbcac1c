from hypothesis import given
from hypothesis import strategies as st

from headrace.model import TopicPartition
from headrace.pipelines.source.planning import Range, limit_offsets, offsets_in, ranges, tasks, to_json

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
stretches = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 5)),
    st.tuples(st.integers(0, 10**12), st.integers(0, 10**7)),
)


def test_offsets_have_the_form_of_sparks_own_source() -> None:
    assert to_json({B: 4, A: 1}) == {"a": {"0": 1}, "b": {"3": 4}}
    assert offsets_in(to_json({B: 4, A: 1})) == {A: 1, B: 4}


def test_a_limit_is_shared_by_what_waits() -> None:
    assert limit_offsets({A: 0, B: 100}, {A: 900, B: 200}, 100, {A: 1.0, B: 1.0}) == {A: 90, B: 110}


def test_a_limit_in_bytes_counts_what_records_take() -> None:
    assert limit_offsets({A: 0, B: 0}, {A: 100, B: 100}, 1100, {A: 10.0, B: 1.0}) == {A: 100, B: 100}
    assert limit_offsets({A: 0, B: 0}, {A: 100, B: 100}, 550, {A: 10.0, B: 1.0}) == {A: 50, B: 50}


def test_a_small_limit_starves_nobody() -> None:
    assert limit_offsets({A: 0, B: 0}, {A: 10**9, B: 1}, 1, {A: 1.0, B: 1.0}) == {A: 1, B: 1}


def test_nothing_to_read_is_no_task() -> None:
    assert ranges({A: 5}, {A: 5}, min_tasks=4, records_per_task=10) == []


def test_a_large_backlog_is_more_tasks_than_partitions() -> None:
    assert ranges({A: 0}, {A: 25}, min_tasks=1, records_per_task=10) == [
        Range("a", 0, 16, 25),
        Range("a", 0, 0, 8),
        Range("a", 0, 8, 16),
    ]
    assert len(ranges({A: 0}, {A: 25}, min_tasks=5, records_per_task=10**6)) == 5


@given(stretches, st.integers(1, 20), st.integers(1, 10**6))
def test_every_offset_is_read_by_exactly_one_task(
    found: dict[TopicPartition, tuple[int, int]], min_tasks: int, records_per_task: int
) -> None:
    starts = {where: start for where, (start, _) in found.items()}
    ends = {where: start + count for where, (start, count) in found.items()}
    shared = ranges(starts, ends, min_tasks=min_tasks, records_per_task=max(records_per_task, 10**4))
    for where in found:
        mine = sorted((item.start, item.end) for item in shared if (item.topic, item.partition) == where)
        assert all(start < end for start, end in mine)
        edges = [starts[where], *(edge for pair in mine for edge in pair), ends[where]]
        assert edges == sorted(edges)
        assert all(edges[index] == edges[index + 1] for index in range(0, len(edges), 2))


@given(stretches, st.integers(1, 10**7))
def test_a_limit_never_goes_back_or_beyond(found: dict[TopicPartition, tuple[int, int]], budget: int) -> None:
    starts = {where: start for where, (start, _) in found.items()}
    ends = {where: start + count for where, (start, count) in found.items()}
    to = limit_offsets(starts, ends, budget, dict.fromkeys(ends, 1.0))
    assert all(starts[where] <= to[where] <= ends[where] for where in ends)
    assert sum(to[where] - starts[where] for where in ends) <= budget + len(ends)


def test_small_ranges_share_a_task() -> None:
    pieces = [Range("a", number, 0, 10) for number in range(6)]
    assert [len(group) for group in tasks(pieces, min_tasks=1, small=25)] == [2, 2, 2]
    assert [len(group) for group in tasks(pieces, min_tasks=1, small=1000)] == [6]
    assert len(tasks(pieces, min_tasks=4, small=1000)) == 4
    assert tasks([], min_tasks=1) == []
    assert len(tasks([Range("a", 0, 0, 50), *pieces], min_tasks=1, small=60)) == 2
