"""Consumer groups inside the whole coordinator, beside classic groups and with offsets."""

from headrace.coordinator.decision import RequestToken
from headrace.coordinator.group.consumer.kind import ConsumerGroups
from headrace.coordinator.group.coordinator import GroupCoordinator
from headrace.coordinator.group.events import Loaded, Request, TimerFired
from headrace.coordinator.group.settings import GroupSettings
from headrace.coordinator.group.topics import Topic, Topics, TopicsChanged
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.unit.coordinator.group_consumer.harness import GROUP, topic_id


class Whole:
    def __init__(self):
        settings = GroupSettings()
        self.coordinator = GroupCoordinator(settings, ConsumerGroups(settings))
        self.timers = []
        self.run(Loaded())
        self.run(TopicsChanged(Topics(1, {"orders": Topic(topic_id("orders"), 2)})))

    def run(self, event, now_ms=0):
        decision = self.coordinator.decide(event, now_ms)
        for record in decision.records:
            self.coordinator.apply(record)
        self.timers += decision.timers
        return decision

    def ask(self, message, version):
        decision = self.run(Request(RequestToken(1), message, version, "client", "/h", "fresh"))
        return decision.answers[0].response

    def beat(self, epoch, **fields):
        message = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=epoch, **fields)
        return self.ask(message, 1)

    def commit(self, epoch):
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        topic = OffsetCommitRequestTopic(name="orders", partitions=[partition])
        message = OffsetCommitRequest(
            group_id=GROUP, member_id="a", generation_id_or_member_epoch=epoch, topics=[topic]
        )
        return self.ask(message, 9).topics[0].partitions[0].error_code

    def delete(self):
        return self.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2).results[0].error_code


def test_a_consumer_group_lives_in_the_coordinator():
    whole = Whole()
    joined = whole.beat(0, rebalance_timeout_ms=1_000, subscribed_topic_names=["orders"], topic_partitions=[])
    assert (joined.error_code, joined.member_epoch) == (0, 1)
    assert whole.commit(1) == ErrorCode.NONE
    assert whole.commit(0) == ErrorCode.STALE_MEMBER_EPOCH
    (listed,) = whole.ask(ListGroupsRequest(types_filter=["consumer"]), 5).groups
    assert (listed.group_id, listed.group_state, listed.group_type) == (GROUP, "Stable", "consumer")
    assert whole.delete() == ErrorCode.NON_EMPTY_GROUP
    session = next(timer for timer in whole.timers if getattr(timer.key, "member_id", "") == "a")
    whole.run(TimerFired(session.key), session.at_ms)
    assert whole.delete() == ErrorCode.NONE
    assert whole.ask(ListGroupsRequest(), 5).groups == []


def test_a_commit_that_crosses_a_new_epoch_is_stored():
    whole = Whole()
    whole.beat(0, rebalance_timeout_ms=1_000, subscribed_topic_names=["orders"], topic_partitions=[])
    whole.run(TopicsChanged(Topics(2, {"orders": Topic(topic_id("orders"), 3)})))
    assert whole.beat(1).member_epoch == 2
    assert whole.commit(1) == ErrorCode.NONE
    assert whole.commit(0) == ErrorCode.STALE_MEMBER_EPOCH
    assert whole.commit(3) == ErrorCode.STALE_MEMBER_EPOCH
