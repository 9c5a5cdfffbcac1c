"""A topology held against the topics: how many partitions they are to have, how many tasks there are, what is missing.

What is in the way is a status; what contradicts itself is refused.
"""

import time

import pytest

from headrace.coordinator.group.heartbeats import Refusal
from headrace.coordinator.group.streams.tasks import Task, Tasks, Worker, assign_tasks
from headrace.coordinator.group.streams.topology import StatusCode, check_topology, configure, normalize
from headrace.coordinator.group.topics import Topic, Topics
from headrace.protocol.messages.shared import KeyValue, TopicInfo
from headrace.protocol.messages.streams_group_heartbeat import CopartitionGroup, Subtopology, Topology
from tests.unit.coordinator.group_consumer.harness import topic_id
from tests.unit.coordinator.group_streams.harness import tasks, word_count


def topics(**counts):
    return Topics(1, {name: Topic(topic_id(name), count) for name, count in counts.items()})


def reads(name, *sources, repartition=(), writes=(), keeps=(), together=()):
    return Subtopology(
        subtopology_id=name,
        source_topics=list(sources),
        repartition_source_topics=[TopicInfo(name=topic, partitions=count) for topic, count in repartition],
        repartition_sink_topics=list(writes),
        state_changelog_topics=[TopicInfo(name=topic) for topic in keeps],
        copartition_groups=list(together),
    )


def partitions(configured):
    return {topic.name: topic.partitions for topic in configured.missing}


def test_a_repartition_topic_has_as_many_partitions_as_the_largest_source_of_its_writers():
    topology = Topology(
        subtopologies=[
            reads("0", "small", "large", writes=["r"]),
            reads("1", repartition=[("r", 0)], writes=["s"], keeps=["c"]),
            reads("2", repartition=[("s", 0)]),
        ]
    )
    assert partitions(configure(topology, topics(small=2, large=5))) == {"c": 5, "r": 5, "s": 5}


def test_what_a_topology_says_itself_counts():
    topology = Topology(subtopologies=[reads("0", "a", writes=["r"]), reads("1", repartition=[("r", 7)], keeps=["c"])])
    configured = configure(topology, topics(a=2, r=7, c=7))
    assert (configured.status, dict(configured.task_counts)) == (None, {"0": 2, "1": 7})


def test_repartition_topics_in_a_circle_have_as_many_as_what_comes_in():
    topology = Topology(
        subtopologies=[
            reads("0", "a", repartition=[("back", 0)], writes=["there"]),
            reads("1", repartition=[("there", 0)], writes=["back"]),
        ]
    )
    assert partitions(configure(topology, topics(a=3))) == {"back": 3, "there": 3}


def test_circles_that_feed_circles_are_followed_in_little_time():
    """Circle after circle, as only a client sends it that means no good; looking at all in each step takes minutes."""
    size = 12_000
    subtopologies = [reads("in", "a", writes=["t0"])]
    for number in range(size):
        both = [(f"t{number}", 0), (f"t{number + 1}", 0)]
        subtopologies.append(reads(f"s{number}", repartition=both, writes=[f"t{number + 1}"]))
    topology = Topology(subtopologies=subtopologies)
    began = time.process_time()
    assert partitions(configure(topology, topics(a=3))) == {f"t{number}": 3 for number in range(size + 1)}
    normalize(topology)
    assert time.process_time() - began < 10


def test_an_application_has_so_many_tasks_and_no_more():
    within = Topology(subtopologies=[reads(str(number), "a") for number in range(10)])
    assert configure(within, topics(a=1_000)).status is None
    with pytest.raises(Refusal, match="11000 tasks: an application may have 10000"):
        configure(Topology(subtopologies=[reads(str(number), "a") for number in range(11)]), topics(a=1_000))


def test_a_repartition_topic_of_a_negative_size_is_refused():
    with pytest.raises(Refusal, match="fewer than no partitions"):
        check_topology(Topology(subtopologies=[reads("0", "a", repartition=[("r", -1)])]))


def test_what_is_joined_has_the_same_number_of_partitions():
    together = [CopartitionGroup(source_topics=[0], repartition_source_topics=[0])]
    joined = reads("1", "b", repartition=[("r", 0)], together=together)
    topology = Topology(subtopologies=[reads("0", "a", writes=["r"]), joined])
    assert partitions(configure(topology, topics(a=2, b=6))) == {"r": 6}
    fixed = reads("1", "b", repartition=[("r", 4)], together=together)
    status = configure(Topology(subtopologies=[reads("0", "a", writes=["r"]), fixed]), topics(a=2, b=6)).status
    assert status.status_code == StatusCode.INCORRECTLY_PARTITIONED_TOPICS
    assert status.status_detail == "Topics must have the same number of partitions: b (6), r (4)"


def test_the_settings_of_a_topic_go_with_it():
    (counts, words) = configure(word_count(), topics(lines=1)).missing
    assert (counts.topic_configs, counts.replication_factor) == ([KeyValue(key="cleanup.policy", value="compact")], 1)
    assert (words.name, words.topic_configs) == ("words", [])


def test_a_fingerprint_changes_with_the_topics_that_there_are():
    few, all_of_them = topics(lines=1), topics(lines=1, words=1, counts=1)
    assert configure(word_count(), few).fingerprint != configure(word_count(), all_of_them).fingerprint
    assert configure(word_count(), few).fingerprint == configure(word_count(), topics(lines=1, other=3)).fingerprint
    assert configure(word_count(), topics()).validated_epoch == -1
    assert configure(word_count(), all_of_them).validated_epoch == 0


def test_a_copartition_group_keeps_its_meaning_when_a_topology_is_put_in_order():
    together = [CopartitionGroup(source_topics=[0], repartition_source_topics=[1])]
    given = reads("0", "z", "a", repartition=[("y", 1), ("b", 1)], together=together)
    check_topology(Topology(subtopologies=[given]))
    (ordered,) = normalize(Topology(subtopologies=[given])).subtopologies
    assert ordered.source_topics == ["a", "z"]
    assert [topic.name for topic in ordered.repartition_source_topics] == ["b", "y"]
    (group,) = ordered.copartition_groups
    assert (group.source_topics, group.repartition_source_topics) == ([1], [0])
    assert normalize(Topology(subtopologies=[ordered])) == Topology(subtopologies=[ordered])


def test_a_repartition_topic_that_nobody_writes_is_refused():
    with pytest.raises(Refusal, match="r cannot be computed"):
        configure(Topology(subtopologies=[reads("0", "a", repartition=[("r", 0)])]), topics(a=1))


def test_a_task_goes_where_a_copy_of_its_state_is():
    workers = {
        "new": Worker("p-1"),
        "copy": Worker("p-2", Tasks(standby=tasks(_0=[1]))),
        "old": Worker("p-3", Tasks(active=tasks(_0=[0, 2]))),
    }
    shared = assign_tasks(workers, {"0": 3}, ["0"], 0)
    assert shared["copy"].active == {Task("0", 1)}
    assert shared["old"].active == {Task("0", 0)}
    assert shared["new"].active == {Task("0", 2)}


def test_everybody_gets_tasks_of_every_subtopology():
    workers = {name: Worker(f"process of {name}") for name in "ab"}
    shared = assign_tasks(workers, {"0": 2, "1": 2}, ["1"], 0)
    assert [sorted(task.subtopology_id for task in each.active) for each in shared.values()] == [["0", "1"]] * 2
    alone = assign_tasks({"a": Worker("p")}, {"0": 2, "1": 2}, ["1"], 0)
    again = assign_tasks({"a": Worker("p", alone["a"]), "b": Worker("q")}, {"0": 2, "1": 2}, ["1"], 0)
    assert [sorted(task.subtopology_id for task in each.active) for each in again.values()] == [["0", "1"]] * 2


def test_many_tasks_are_shared_by_many_members():
    workers = {f"m{number}": Worker(f"p{number // 4}") for number in range(200)}
    shared = assign_tasks(workers, {str(name): 50 for name in range(100)}, map(str, range(100)), 1)
    assert {len(each.active) for each in shared.values()} == {25}
    assert sum(len(each.standby) for each in shared.values()) == 5_000


def test_tasks_of_an_application_in_one_process_are_assigned_in_little_time():
    """A standby is on another process, and here there is none: looking for one at every member takes minutes."""
    workers = {f"m{number}": Worker("the only one") for number in range(2_000)}
    began = time.process_time()
    assigned = assign_tasks(workers, {"0": 10_000}, ["0"], standby_replicas=2)
    assert time.process_time() - began < 10
    assert {(len(each.active), len(each.standby)) for each in assigned.values()} == {(5, 0)}
