"""Finding a group's coordinator: once, and anew when it has moved."""

import pytest

from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators, CoordinatorType
from headrace.client.errors import Refused
from headrace.client.groups import alter_offsets, committed_offsets
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.api_versions import ApiVersion
from headrace.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from headrace.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from headrace.retry import Backoff
from tests.unit.client.scripted_broker import EVERYTHING, Scripted, listening

ORDERS = TopicPartition("orders", 0)


def talk(script, question):
    with listening(script) as script.address:
        policy = Backoff(0, 1, retries=3)
        with Cluster([script.address], retry=policy, sleep=lambda _: None) as cluster:
            return question(Coordinators(cluster))


def found(code=ErrorCode.NONE):
    return FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=1, error_code=code)])


def offsets(code=ErrorCode.NONE):
    partition = OffsetFetchResponsePartitions(committed_offset=7, metadata="m")
    topics = [] if code else [OffsetFetchResponseTopics(name="orders", partitions=[partition])]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=code)])


def test_it_is_asked_for_once():
    script = Scripted({FindCoordinatorRequest: [found()], OffsetFetchRequest: [offsets(), offsets()]})
    first, second = talk(script, lambda it: (committed_offsets(it, "g"), committed_offsets(it, "g")))
    assert first == second == {ORDERS: (7, "m")}
    assert script.asked == [FindCoordinatorRequest, OffsetFetchRequest, OffsetFetchRequest]


def test_all_who_ask_through_a_cluster_share_what_was_found():
    script = Scripted({FindCoordinatorRequest: [found()], OffsetFetchRequest: [offsets(), offsets()]})
    again = talk(script, lambda it: [committed_offsets(one, "g") for one in (it, Coordinators(it.cluster))])
    assert again == [{ORDERS: (7, "m")}] * 2
    assert script.asked == [FindCoordinatorRequest, OffsetFetchRequest, OffsetFetchRequest]


def test_groups_and_transactions_are_looked_after_apart():
    script = Scripted({FindCoordinatorRequest: [found(), found()]})
    transactions = CoordinatorType.TRANSACTION
    assert talk(script, lambda it: (it.node_of("g"), Coordinators(it.cluster, transactions).node_of("g"))) == (1, 1)
    assert script.asked == [FindCoordinatorRequest, FindCoordinatorRequest]


def test_it_is_looked_for_until_there_is_one():
    finds = [found(ErrorCode.COORDINATOR_NOT_AVAILABLE), found(ErrorCode.COORDINATOR_NOT_AVAILABLE), found()]
    assert talk(Scripted({FindCoordinatorRequest: finds}), lambda it: it.node_of("g")) == 1


def test_one_that_moved_is_looked_for_anew():
    script = Scripted(
        {
            FindCoordinatorRequest: [found(), found()],
            OffsetFetchRequest: [
                offsets(ErrorCode.NOT_COORDINATOR),
                offsets(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
                offsets(),
            ],
        }
    )
    assert talk(script, lambda it: committed_offsets(it, "g")) == {ORDERS: (7, "m")}
    assert script.asked == [FindCoordinatorRequest, OffsetFetchRequest] * 2 + [OffsetFetchRequest]


def test_what_will_not_pass_is_raised():
    script = Scripted({FindCoordinatorRequest: [found(ErrorCode.GROUP_AUTHORIZATION_FAILED)]})
    with pytest.raises(Refused, match="GROUP_AUTHORIZATION_FAILED"):
        talk(script, lambda it: it.node_of("g"))


def test_an_old_broker_is_asked_in_its_way():
    old = {10: 3, 9: 7}
    api_keys = [
        ApiVersion(api_key=api.api_key, min_version=api.min_version, max_version=old.get(api.api_key, api.max_version))
        for api in EVERYTHING
    ]
    partition = OffsetFetchResponsePartition(committed_offset=7, metadata="m")
    script = Scripted(
        {
            FindCoordinatorRequest: [FindCoordinatorResponse(node_id=1)],
            OffsetFetchRequest: [
                OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="orders", partitions=[partition])])
            ],
        },
        api_keys,
    )
    assert talk(script, lambda it: committed_offsets(it, "g")) == {ORDERS: (7, "m")}


def test_a_commit_goes_out_as_nobodys():
    script = Scripted({FindCoordinatorRequest: [found()], OffsetCommitRequest: [OffsetCommitResponse()]})
    assert talk(script, lambda it: alter_offsets(it, "g", {ORDERS: 3})) is None
