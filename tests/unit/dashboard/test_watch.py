"""Looking at a real broker: what comes and goes, and what happens while it is away."""

import asyncio
import json

import pytest

from headrace.cli.dashboard import language
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic, delete_topics
from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.errors import Refused
from headrace.client.groups import alter_offsets
from headrace.client.writer import NewRecord, Writer
from headrace.clock import SystemClock
from headrace.dashboard import watch as watching
from headrace.dashboard.settings import Settings
from headrace.dashboard.watch import Watch
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.status import PROGRESS


class Looking:
    """A watch whose looks are taken one by one."""

    def __init__(self, cluster, bootstrap):
        self.cluster = cluster
        self.coordinators = Coordinators(cluster)
        self.watch = Watch(Settings(parse_bootstrap(bootstrap), language()))

    def look(self):
        self.watch._publish(self.watch._look(self.cluster, self.coordinators))
        return self.watch.state


@pytest.fixture
def looking(headrace_broker):
    with Cluster(parse_bootstrap(headrace_broker.bootstrap_servers), retry=watching._QUICK) as cluster:
        yield Looking(cluster, headrace_broker.bootstrap_servers)


def write(cluster, topic, count, value=b"{}"):
    writer = Writer(cluster, topic)
    for _ in range(count):
        writer.add(NewRecord(b"k", value, SystemClock().now_ms()))
    writer.flush()


def test_topics_groups_and_reports_are_seen(looking):
    assert looking.look().snapshot.topics == {}
    create_topic(looking.cluster, "orders", partitions=2)
    write(looking.cluster, "orders", 50)
    alter_offsets(looking.coordinators, "billing", {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 0})
    create_topic(looking.cluster, PROGRESS)
    write(looking.cluster, PROGRESS, 3, json.dumps({"job": "revenue", "batch": 1}).encode())
    state = looking.look()
    assert state.snapshot.topics["orders"].records == 50
    assert state.snapshot.topics["orders"].size_bytes > 0
    assert state.snapshot.groups["billing"].lag_records == 50
    assert state.snapshot.groups["billing"].lag_ms is not None
    assert len(state.jobs["revenue", "out"]) == 3
    assert len(looking.look().jobs["revenue", "out"]) == 3, "what was read is not read again"
    write(looking.cluster, "orders", 10)
    assert looking.look().history.written[-1].value > 0
    delete_topics(looking.cluster, ["orders"])
    state = looking.look()
    assert "orders" not in state.snapshot.topics
    assert state.snapshot.groups["billing"].partitions == ()


def test_one_odd_answer_is_no_problem_and_two_are(looking, monkeypatch):
    looking.look()
    take = watching.take_snapshot

    def refuse(*_):
        raise Refused("partition orders-0", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    monkeypatch.setattr(watching, "take_snapshot", refuse)
    assert looking.look().problem is None
    problem = looking.look().problem
    assert not problem.is_away
    assert looking.look().problem.since_ms == problem.since_ms
    monkeypatch.setattr(watching, "take_snapshot", take)
    assert looking.look().problem is None


def test_a_broker_that_is_away(headrace_broker):
    bootstrap = headrace_broker.bootstrap_servers
    with Cluster(parse_bootstrap(bootstrap), retry=watching._QUICK) as cluster:
        looking = Looking(cluster, bootstrap)
        seen = looking.look().snapshot
        headrace_broker.stop()
        state = looking.look()
        assert state.problem.is_away
        assert state.snapshot is seen


def test_whoever_waits_is_woken(looking):
    async def run():
        waiting = asyncio.ensure_future(looking.watch.newer_than(0, 10))
        await asyncio.sleep(0)
        await asyncio.to_thread(looking.look)
        assert (await waiting).version == 1
        assert (await looking.watch.newer_than(1, 0.01)).version == 1
        assert looking.watch._waiting == {}

    asyncio.run(run())


def test_a_watch_that_fails_does_not_look_alive(looking, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(watching, "take_snapshot", fail)
    with pytest.raises(ZeroDivisionError):
        looking.watch._run()
    assert "the dashboard itself failed" in looking.watch.state.problem.sentence
