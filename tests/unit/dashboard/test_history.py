"""Rates and lags over time."""

from headrace.dashboard.history import (
    AGE,
    DEPTH,
    IN_FLIGHT,
    LETTERS,
    POINTS,
    REDELIVERIES,
    History,
    Point,
    smooth,
    window,
)
from tests.unit.dashboard.dashboard_cases import NOW, group, lag, queue, snapshot, topic


def advanced(*snapshots):
    history = History()
    for found in snapshots:
        history = history.advance(found)
    return history


def test_a_rate_is_the_growth_of_a_topic_by_the_time_between_two_looks():
    history = advanced(
        snapshot(NOW, [topic(ends=(100, 200))]),
        snapshot(NOW + 2000, [topic(ends=(150, 250))]),
    )
    assert history.topics["orders"] == (Point(NOW + 2000, 50.0),)
    assert history.written == (Point(NOW + 2000, 50.0),)


def test_a_topic_made_anew_has_not_been_written_backwards():
    history = advanced(snapshot(NOW, [topic(ends=(100,))]), snapshot(NOW + 1000, [topic(ends=(3,))]))
    assert history.topics["orders"][-1].value == 0


def test_what_is_internal_is_not_counted_as_throughput():
    history = advanced(
        snapshot(NOW, [topic("__progress", (0,), internal=True)]),
        snapshot(NOW + 1000, [topic("__progress", (900,), internal=True)]),
    )
    assert history.written[-1].value == 0


def test_a_first_commit_says_where_a_group_is_and_not_what_it_read():
    history = advanced(
        snapshot(NOW, groups=[group(partitions=[lag(0, 40), lag(1, None)])]),
        snapshot(NOW + 1000, groups=[group(partitions=[lag(0, 60), lag(1, 90_000, 100_000)])]),
    )
    assert history.group_reads["billing"][-1].value == 20


def test_a_series_is_bounded_and_what_is_gone_is_forgotten():
    history = advanced(*(snapshot(NOW + turn * 1000, [topic(ends=(turn,))]) for turn in range(POINTS + 50)))
    assert len(history.topics["orders"]) == len(history.lag) == POINTS
    assert history.advance(snapshot(NOW + 10_000_000, [], [])).topics == {}


def test_smoothing_and_windows():
    series = tuple(Point(NOW + turn * 1000, turn) for turn in range(10))
    assert smooth(series, 2) == 8.5
    assert smooth(()) is None
    assert [point.value for point in window(series, 3000)] == [7, 8, 9]


def test_a_queue_over_time():
    history = advanced(
        snapshot(NOW, queues=[queue(depth=7, redeliveries=3)]),
        snapshot(NOW + 2000, queues=[queue(depth=5, redeliveries=13, letters=4)]),
        snapshot(NOW + 3000, queues=[queue(depth=0, redeliveries=1, in_flight=0)]),  # a broker that was started anew
    )
    series = history.queues["emails", "mailers"]
    assert [point.value for point in series[DEPTH]] == [7, 5, 0]
    assert [point.value for point in series[AGE]] == [60, 62, 0]
    assert [point.value for point in series[IN_FLIGHT]] == [2, 2, 0]
    assert [point.value for point in series[REDELIVERIES]] == [5, 1]
    assert [point.value for point in series[LETTERS]] == [1, 4, 1]


def test_a_queue_that_is_gone_has_no_history_and_one_on_a_kafka_only_what_is_known():
    kafka = queue(in_flight=None, redeliveries=None, letters=None)
    series = advanced(snapshot(NOW, queues=[kafka]), snapshot(NOW + 1000, queues=[kafka])).queues["emails", "mailers"]
    assert {fact: len(points) for fact, points in series.items() if points} == {DEPTH: 2, AGE: 2}
    assert advanced(snapshot(NOW, queues=[kafka]), snapshot(NOW + 1000)).queues == {}
