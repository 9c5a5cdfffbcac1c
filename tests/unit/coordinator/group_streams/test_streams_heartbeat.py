"""StreamsGroupHeartbeat: who is taken in, what is told, and what makes the group's epoch grow."""

import pytest

from headrace.coordinator.group.settings import GroupSettings, SettingsChanged
from headrace.coordinator.group.streams.formats import StreamsGroupCurrentMemberAssignmentKey
from headrace.coordinator.group.streams.group import GroupState
from headrace.coordinator.group.streams.tasks import NO_TASKS, Tasks
from headrace.coordinator.group.streams.topology import StatusCode
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.shared import Endpoint, TopicInfo
from headrace.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from headrace.protocol.messages.streams_group_heartbeat import CopartitionGroup, Subtopology, Topology
from tests.unit.coordinator.group_consumer.harness import GROUP
from tests.unit.coordinator.group_streams.harness import (
    StreamsShell,
    codes,
    one_stage,
    tasks,
    told,
    word_count,
)


def error(response):
    return ErrorCode(response.error_code)


def test_the_first_member_has_all_tasks_in_epoch_2():
    shell = StreamsShell(lines=3)
    joined = shell.join("a")
    assert (joined.member_epoch, told(joined)) == (2, Tasks(tasks(_0=[0, 1, 2])))
    assert (joined.heartbeat_interval_ms, joined.status) == (5_000, [])
    assert shell.group.state is GroupState.STABLE
    assert told(shell.beat("a", 2)) is None


def test_tasks_move_once_their_owner_has_given_them_up():
    shell = StreamsShell(lines=4)
    shell.join("a")
    assert told(shell.join("b")) == NO_TASKS
    asked = shell.beat("a", 2)
    assert (asked.member_epoch, told(asked)) == (2, Tasks(tasks(_0=[0, 1])))
    assert told(shell.beat("b", 3)) is None  # nobody has said yet that the others are free
    assert shell.group.state is GroupState.RECONCILING
    assert shell.beat("a", 2, Tasks(tasks(_0=[0, 1, 2, 3]))).member_epoch == 2
    assert shell.beat("a", 2, Tasks(tasks(_0=[0, 1]))).member_epoch == 3
    assert told(shell.beat("b", 3)) == Tasks(tasks(_0=[2, 3]))
    assert shell.group.state is GroupState.STABLE


def test_the_states_of_members_have_kafkas_numbers_in_the_log():
    shell = StreamsShell(lines=2)

    def states():
        return [r.value.state for r in shell.last.records if isinstance(r.key, StreamsGroupCurrentMemberAssignmentKey)]

    shell.join("a")
    assert states() == [1]
    shell.join("b")
    assert states() == [3]
    shell.beat("a", 2)
    assert states() == [2]


def test_a_member_that_does_not_give_up_its_tasks_is_removed():
    shell = StreamsShell(GroupSettings(group_streams_initial_rebalance_delay_ms=0), lines=2)
    shell.join("a", rebalance_timeout_ms=10_000)
    shell.join("b")
    shell.beat("a", 2)
    shell.advance(10_000)
    assert list(shell.group.members) == ["b"]
    assert told(shell.beat("b", 3)) == Tasks(tasks(_0=[0, 1]))


def test_a_silent_member_loses_its_tasks():
    shell = StreamsShell(lines=2)
    shell.join("a")
    shell.advance(44_999)
    assert list(shell.group.members) == ["a"]
    shell.advance(1)
    assert shell.group.state is GroupState.EMPTY
    assert error(shell.beat("a", 2)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_begins_waits_for_more_members():
    shell = StreamsShell(GroupSettings(group_streams_initial_rebalance_delay_ms=3_000), lines=2)
    first = shell.join("a")
    assert (first.member_epoch, told(first), codes(first)) == (1, NO_TASKS, [StatusCode.ASSIGNMENT_DELAYED])
    assert told(shell.join("b")) == NO_TASKS
    assert codes(shell.beat("a", 1)) == [StatusCode.ASSIGNMENT_DELAYED]
    shell.advance(3_000)
    assert {told(shell.beat(name, 1)) for name in "ab"} == {Tasks(tasks(_0=[0])), Tasks(tasks(_0=[1]))}
    assert shell.group.state is GroupState.STABLE


def test_a_delay_does_not_outlive_the_broker():
    shell = StreamsShell(GroupSettings(group_streams_initial_rebalance_delay_ms=3_000), lines=1)
    shell.join("a")
    shell.restart()
    assert told(shell.beat("a", 1)) == Tasks(tasks(_0=[0]))


def test_topics_of_the_application_are_made_and_then_there_are_tasks():
    shell = StreamsShell(lines=2)
    joined = shell.join("a", word_count())
    assert (codes(joined), told(joined)) == ([StatusCode.MISSING_INTERNAL_TOPICS], NO_TASKS)
    assert joined.status[0].status_detail == "Internal topics are missing: counts, words"
    assert [(t.name, t.partitions) for t in shell.kind.missing_topics(GROUP)] == [("counts", 2), ("words", 2)]
    assert shell.group.state is GroupState.NOT_READY
    shell.set_topics(lines=2, words=2, counts=2)
    beat = shell.beat("a", joined.member_epoch)
    assert (beat.status, told(beat)) == ([], Tasks(tasks(_0=[0, 1], _1=[0, 1])))
    assert shell.kind.missing_topics(GROUP) == ()


@pytest.mark.parametrize(
    ("topics", "code"),
    [
        ({}, StatusCode.MISSING_SOURCE_TOPICS),
        ({"lines": 2, "words": 3, "counts": 2}, StatusCode.INCORRECTLY_PARTITIONED_TOPICS),
        ({"lines": 2, "words": 2, "counts": 1}, StatusCode.INCORRECTLY_PARTITIONED_TOPICS),
    ],
)
def test_while_topics_are_missing_or_do_not_fit_nobody_has_tasks(topics, code):
    shell = StreamsShell(lines=2, words=2, counts=2)
    shell.join("a", word_count())
    shell.set_topics(**topics)
    beat = shell.beat("a", 2)
    assert (codes(beat), told(beat)) == ([code], NO_TASKS)
    assert shell.group.state is GroupState.NOT_READY
    shell.set_topics(lines=2, words=2, counts=2)
    assert told(shell.beat("a", 2, NO_TASKS)) == Tasks(tasks(_0=[0, 1], _1=[0, 1]))


def test_standby_tasks_are_on_another_process():
    settings = GroupSettings(group_streams_initial_rebalance_delay_ms=0, group_streams_num_standby_replicas=1)
    shell = StreamsShell(settings, lines=2, counts=2)
    topology = one_stage("lines", changelogs=("counts",))
    assert told(shell.join("a", topology)) == Tasks(tasks(_0=[0, 1]))
    shell.join("b", topology, process_id="process of a")  # another thread of it
    shell.join("c", topology)
    for member in ("a", "b", "c") * 3:
        held = shell.group.members[member].holding
        shell.beat(member, held.epoch, held.assigned)
    processes = {}
    for member in shell.group.members.values():
        for task in member.holding.assigned.each():
            processes.setdefault(task, []).append(member.profile.process_id)
    assert {task: sorted(on) for task, on in processes.items()} == {
        task: ["process of a", "process of c"] for task in tasks(_0=[0, 1])
    }


def test_standby_replicas_of_a_group_take_effect_with_the_next_heartbeat():
    shell = StreamsShell(lines=1, counts=1)
    topology = one_stage("lines", changelogs=("counts",))
    shell.join("a", topology)
    shell.join("b", topology)
    assert told(shell.beat("b", 3)) is None
    own = GroupSettings(group_streams_initial_rebalance_delay_ms=0, group_streams_num_standby_replicas=1)
    shell.run(SettingsChanged({GROUP: own}))
    assert told(shell.beat("b", 3)) == Tasks(standby=tasks(_0=[0]))


def test_a_member_that_joins_again_under_its_id_starts_over():
    shell = StreamsShell(lines=2)
    shell.join("a")
    shell.join("b")
    again = shell.join("a")
    assert (again.member_epoch, told(again)) == (3, Tasks(tasks(_0=[0])))
    assert told(shell.beat("b", 3)) == Tasks(tasks(_0=[1]))


def test_an_answer_that_was_lost_is_given_again():
    shell = StreamsShell(lines=2)
    shell.join("a")
    shell.join("b")
    shell.beat("a", 2)
    shell.beat("a", 2, Tasks(tasks(_0=[0])))  # its answer, with epoch 3, is lost
    again = shell.beat("a", 2, Tasks(tasks(_0=[0])))
    assert (again.member_epoch, told(again)) == (3, Tasks(tasks(_0=[0])))
    assert error(shell.beat("a", 2)) is ErrorCode.FENCED_MEMBER_EPOCH  # it does not say what it has
    assert error(shell.beat("a", 2, Tasks(tasks(_0=[0, 1])))) is ErrorCode.FENCED_MEMBER_EPOCH
    assert error(shell.beat("a", 9)) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_request_to_shut_down_reaches_everybody_until_all_have_left():
    shell = StreamsShell(lines=1)
    shell.join("a")
    shell.join("b")
    assert codes(shell.beat("a", 2, shutdown_application=True)) == [StatusCode.SHUTDOWN_APPLICATION]
    assert codes(shell.beat("b", 3)) == [StatusCode.SHUTDOWN_APPLICATION]
    shell.beat("a", -1)
    shell.beat("b", -1)
    assert shell.join("c").status == []


def test_whoever_shuts_the_application_down_may_leave_by_that():
    shell = StreamsShell(lines=1)
    shell.join("a")
    shell.join("b")
    shell.beat("a", -1, shutdown_application=True)
    assert codes(shell.beat("b", 3)) == [StatusCode.SHUTDOWN_APPLICATION]


def test_a_member_with_an_older_topology_is_told_so():
    shell = StreamsShell(lines=1)
    shell.join("a", one_stage("lines", epoch=5))
    assert codes(shell.join("b", one_stage("lines", epoch=3))) == [StatusCode.STALE_TOPOLOGY]
    assert codes(shell.beat("b", 3)) == [StatusCode.STALE_TOPOLOGY]


def test_another_topology_is_refused_and_another_order_of_the_same_is_not():
    shell = StreamsShell(lines=1, more=1)
    together = [CopartitionGroup(source_topics=[0, 1])]
    assert error(shell.join("a", one_stage("lines", "more", copartition_groups=together))) is ErrorCode.NONE
    assert error(shell.join("b", one_stage("more", "lines", copartition_groups=together))) is ErrorCode.NONE
    assert error(shell.join("c", one_stage("lines"))) is ErrorCode.INVALID_REQUEST
    assert error(shell.join("c", one_stage("lines", "more", epoch=1))) is ErrorCode.INVALID_REQUEST
    assert list(shell.group.members) == ["a", "b"]


def test_endpoints_are_told_when_somebody_with_one_has_other_tasks():
    shell = StreamsShell(lines=2, words=2, counts=2)
    joined = shell.join("a", word_count(), user_endpoint=Endpoint(host="one", port=1))
    (only,) = joined.partitions_by_user_endpoint
    assert (only.user_endpoint, only.standby_partitions) == (Endpoint(host="one", port=1), [])
    assert [(t.topic, t.partitions) for t in only.active_partitions] == [("lines", [0, 1]), ("words", [0, 1])]
    known = joined.endpoint_information_epoch
    assert shell.beat("a", 2, endpoint_information_epoch=known).partitions_by_user_endpoint is None
    other = shell.join("b", word_count(), user_endpoint=Endpoint(host="two", port=2))
    assert [each.user_endpoint.host for each in other.partitions_by_user_endpoint] == ["one", "two"]
    assert shell.beat("a", 2, endpoint_information_epoch=known).partitions_by_user_endpoint is not None


def test_after_a_restart_an_old_epoch_of_endpoints_is_not_taken_for_the_new_one():
    shell = StreamsShell(lines=1)
    known = shell.join("a", user_endpoint=Endpoint(host="one", port=1)).endpoint_information_epoch
    shell.clock.advance(20_000)
    shell.restart()
    assert shell.beat("a", 2, endpoint_information_epoch=known).partitions_by_user_endpoint is not None


def test_a_full_group_takes_no_more():
    settings = GroupSettings(group_streams_initial_rebalance_delay_ms=0, group_streams_max_size=1)
    shell = StreamsShell(settings, lines=1)
    shell.join("a")
    assert error(shell.join("b")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert error(shell.join("a")) is ErrorCode.NONE


def _topology(**fields):
    return Topology(subtopologies=[Subtopology(**{"subtopology_id": "0", "source_topics": ["lines"]} | fields)])


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"process_id": None}, ErrorCode.NONE),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": "i"}, ErrorCode.INVALID_REQUEST),
        ({"topology": _topology(source_topics=[])}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ({"topology": _topology(source_topic_regex=["l.*"])}, ErrorCode.INVALID_REQUEST),
        (
            {"topology": _topology(state_changelog_topics=[TopicInfo(name="c", partitions=3)])},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (
            {"topology": _topology(repartition_source_topics=[TopicInfo(name="r")])},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (
            {"topology": _topology(copartition_groups=[CopartitionGroup(source_topics=[1])])},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (
            {"topology": Topology(subtopologies=_topology().subtopologies * 2)},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        ({"topology": Topology(epoch=-1)}, ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH),
    ],
)
def test_what_makes_no_sense_is_refused_and_leaves_nothing(fields, code):
    shell = StreamsShell(lines=1)
    response = shell.join("a", **fields)
    assert error(response) is code
    assert shell.kind.holds(GROUP) is (code is ErrorCode.NONE)
    assert bool(response.error_message) is (code is not ErrorCode.NONE)


def test_a_beat_with_what_only_a_join_has_is_refused():
    shell = StreamsShell(lines=1)
    shell.join("a")
    assert error(shell.beat("a", 2, topology=one_stage("lines"))) is ErrorCode.INVALID_REQUEST
    assert error(shell.beat("a", 2, active_tasks=[])) is ErrorCode.INVALID_REQUEST  # and none of the others
    assert error(shell.beat("a", 2, Tasks(tasks(_0=[7])))) is ErrorCode.INVALID_REQUEST
    assert error(shell.beat("a", -3)) is ErrorCode.INVALID_REQUEST
    assert error(shell.beat("a", -2)) is ErrorCode.INVALID_REQUEST
    assert error(shell.beat("b", 1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_is_described_with_its_topology_and_its_members():
    shell = StreamsShell(lines=2, words=2, counts=2)
    shell.join("a", word_count(), rack_id="r", user_endpoint=Endpoint(host="h", port=1))
    asked = StreamsGroupDescribeRequest(group_ids=[GROUP, "nobody"])
    described, unknown = shell.ask(asked, 0).groups
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 2, 2)
    split, count = described.topology.subtopologies
    assert (split.source_topics, split.repartition_sink_topics) == (["lines"], ["words"])
    assert [(t.name, t.partitions) for t in count.repartition_source_topics] == [("words", 2)]
    assert [(t.name, t.partitions) for t in count.state_changelog_topics] == [("counts", 2)]
    (member,) = described.members
    assert (member.member_id, member.member_epoch, member.rack_id) == ("a", 2, "r")
    assert member.assignment == member.target_assignment
    assert [(each.subtopology_id, each.partitions) for each in member.assignment.active_tasks] == [
        ("0", [0, 1]),
        ("1", [0, 1]),
    ]
    assert error(unknown) is ErrorCode.GROUP_ID_NOT_FOUND
