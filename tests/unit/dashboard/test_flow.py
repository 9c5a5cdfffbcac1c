"""The map's parts and edges, from what parts report: nothing is guessed from names."""

import json
from dataclasses import replace

from headrace.connect.sync.places import group_of
from headrace.dashboard.flow import MOST, flow_of
from headrace.dashboard.history import Point
from headrace.dashboard.pages.overview import describe_map
from headrace.dashboard.reports import with_batches
from headrace.dashboard.statuses import dead_letter_topics
from headrace.model import TopicPartition
from headrace.pipelines.jobs.progress import Progress, SourceProgress, Written
from headrace.status import CAPTURES, DERIVED, VIEWS, Status
from tests.unit.dashboard.dashboard_cases import NOW, group, lag, read, snapshot, state, topic

TOPICS = ("shop.orders", "orders", "sums", "orders.dead-letters", "lonely")


def job(name="sums", reads="orders", writes=None, **facts):
    sources = (SourceProgress(reads, 40.0, 50.0, {TopicPartition(reads, 0): 40}, 60),)
    made = Progress(name, "out", 3, "t", 10, 40.0, 50.0, 100, None, 0, 0, 0, sources, writes=writes, **facts)
    return read(name, json.dumps(made.as_json()))


def stack(*jobs, groups=(), statuses=None, topics=TOPICS):
    found = snapshot(topics=[topic(name, (100,)) for name in topics], groups=list(groups))
    return state(found, jobs=with_batches({}, list(jobs)), statuses=statuses or {})


def edges(flow):
    return {(edge.source, edge.target) for edge in flow.edges}


def test_captures_jobs_derived_systems_and_groups_are_joined_by_their_topics():
    capture = Status("shop", {"kind": "sqlite", "state": "running", "database": "db/shop", "topics": ["orders"],
                                   "per_s": 7.0, "lag_ms": 30}, NOW)  # fmt: skip
    copy = Status("cache", {"kind": "redis", "state": "waiting", "source": "orders", "target": "o:* in r"}, NOW)
    place = [lag(committed=40, end=100, next_ms=NOW - 9_000)]
    flow = flow_of(
        stack(
            job(writes=Written("topic", "sums", "topic sums"), dead_letter_topics=("orders.dead-letters",)),
            groups=[group(group_of("cache"), place, members=0, state="Empty"), group("billing", place)],
            statuses={CAPTURES: {"shop": capture}, DERIVED: {"cache": copy}},
        )
    )
    assert {
        ("database:db/shop", "capture:shop"), ("capture:shop", "topic:orders"), ("topic:orders", "job:sums"),
        ("job:sums", "topic:sums"), ("job:sums", "topic:orders.dead-letters"), ("topic:orders", "sync:cache"),
        ("topic:orders", "group:billing"),
    } <= edges(flow)  # fmt: skip
    assert flow.parts["sync:cache"].tone == "warn"
    assert flow.parts["topic:orders.dead-letters"].kind == "dead letters"
    assert group_of("cache") not in {part.name for part in flow.parts.values()}, "it is the derived system itself"
    assert flow.alone == ["shop.orders", "lonely"]
    read_by = {edge.target: edge for edge in flow.edges if edge.source == "topic:orders"}
    assert (read_by["sync:cache"].lag_records, read_by["sync:cache"].lag_ms) == (60, 9_000)
    assert (read_by["job:sums"].lag_records, read_by["job:sums"].per_s) == (60, 40.0)


def test_a_name_alone_makes_no_edge():
    flow = flow_of(stack(groups=[]))
    assert (flow.parts, flow.edges) == ({}, [])


def test_a_topic_of_two_writers_does_not_say_who_wrote_how_much():
    sums = Written("topic", "sums", "topic sums")
    both = stack(job("one", writes=sums), job("two", writes=sums))
    both = replace(both, history=replace(both.history, topics={"sums": (Point(NOW, 50.0),)}))
    assert {edge.per_s for edge in flow_of(both).edges if edge.target == "topic:sums"} == {None}
    alone = stack(job("one", writes=sums))
    alone = replace(alone, history=both.history)
    assert {edge.per_s for edge in flow_of(alone).edges if edge.target == "topic:sums"} == {50.0}


def test_a_view_is_one_part_with_the_job_that_keeps_it():
    view = Status("sums", {"kind": "table", "state": "running", "source": "orders"}, NOW)
    flow = flow_of(stack(job(writes=Written("view", "sums", "view sums")), statuses={VIEWS: {"sums": view}}))
    assert edges(flow) == {("topic:orders", "view:sums")}


def test_more_parts_than_can_be_drawn_are_counted():
    many = [group(f"g{number}", [lag()]) for number in range(MOST + 50)]
    flow = flow_of(stack(groups=many))
    assert len(flow.parts) == MOST
    assert flow.hidden == 51
    shown = describe_map(stack(groups=many))
    assert shown["hidden"] == 51


def test_dead_letters_know_their_topic_and_who_writes_them():
    copy = Status("cache", {"source": "orders"}, NOW)
    found = dead_letter_topics(
        stack(job(dead_letter_topics=("orders.dead-letters", "gone")), statuses={DERIVED: {"cache": copy}})
    )
    assert list(found) == ["orders.dead-letters"]
    letters = found["orders.dead-letters"]
    assert (letters.source, letters.jobs, letters.syncs) == ("orders", ("sums",), ("cache",))
    chosen = dead_letter_topics(stack(job(dead_letter_topics=("lonely",))))
    assert (chosen["lonely"].source, chosen["lonely"].jobs) == ("orders", ("sums",))
