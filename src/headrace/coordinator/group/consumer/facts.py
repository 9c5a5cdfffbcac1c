"""The facts about a consumer group, as records of its log: made from our nouns here, and read back to them.

The log's own classes stay in here and in `state`, where they are applied.
"""

from collections.abc import Iterable

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.group import record_formats as log
from headrace.coordinator.group.assignors import Assignment
from headrace.coordinator.group.consumer.member import ClassicVoice, Epochs, Holding, Profile
from headrace.coordinator.group.heartbeats import MemberState
from headrace.protocol.messages.consumer_group_heartbeat import TopicPartitions as ReportedPartitions
from headrace.protocol.schema import Uuid


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    value = log.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(log.ConsumerGroupMetadataKey(group_id=group_id), value)


def assignment_epoch(group_id: str, epoch: int, now_ms: int) -> CoordinatorRecord:
    value = log.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
    return CoordinatorRecord(log.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_assignment(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    partitions = [log.TopicPartition(topic_id=topic, partitions=sorted(target[topic])) for topic in sorted(target)]
    value = log.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=partitions)
    return CoordinatorRecord(log.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def member_profile(group_id: str, member_id: str, profile: Profile) -> CoordinatorRecord:
    value = log.ConsumerGroupMemberMetadataValue(
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=sorted(profile.topic_names),
        subscribed_topic_regex=profile.topic_regex,
        rebalance_timeout_ms=profile.rebalance_timeout_ms,
        server_assignor=profile.assignor,
    )
    if profile.classic is not None:
        value.classic_member_metadata = log.ClassicMemberMetadata(
            session_timeout_ms=profile.classic.session_timeout_ms,
            supported_protocols=[
                log.ClassicProtocol(name=name, metadata=metadata) for name, metadata in profile.classic.protocols
            ],
        )
    return CoordinatorRecord(log.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), value)


def member_holding(group_id: str, member_id: str, holding: Holding) -> CoordinatorRecord:
    value = log.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=holding.epoch,
        previous_member_epoch=holding.previous_epoch,
        state=int(holding.state),
        assigned_partitions=_held(holding.assigned, holding.since),
        partitions_pending_revocation=_held(holding.revoking, holding.since),
    )
    return CoordinatorRecord(log.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), value)


def resolved_expression(
    group_id: str, expression: str, topic_names: Iterable[str], version: int, now_ms: int
) -> CoordinatorRecord:
    value = log.ConsumerGroupRegularExpressionValue(topics=sorted(topic_names), version=version, timestamp=now_ms)
    return CoordinatorRecord(
        log.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=expression), value
    )


def no_expression(group_id: str, expression: str) -> CoordinatorRecord:
    key = log.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=expression)
    return CoordinatorRecord(key, None)


def no_member(group_id: str, member_id: str) -> tuple[CoordinatorRecord, ...]:
    """The member is gone; Kafka wants the tombstones in this order."""
    return (
        CoordinatorRecord(log.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(log.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(log.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    )


def no_legacy_topics(group_id: str) -> CoordinatorRecord:
    """The record in which Kafka kept a group's topics before it kept a hash of them is of no use any more."""
    return CoordinatorRecord(log.ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def no_group(group_id: str, member_ids: Iterable[str], expressions: Iterable[str]) -> tuple[CoordinatorRecord, ...]:
    """The group is gone, with its members; Kafka wants the tombstones in this order."""
    holdings, targets, profiles = [], [], []
    for member_id in member_ids:
        holding, target, profile = no_member(group_id, member_id)
        holdings.append(holding)
        targets.append(target)
        profiles.append(profile)
    return (
        *holdings,
        *targets,
        CoordinatorRecord(log.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *profiles,
        *(no_expression(group_id, expression) for expression in expressions),
        no_legacy_topics(group_id),
        CoordinatorRecord(log.ConsumerGroupMetadataKey(group_id=group_id), None),
    )


def read_profile(value: log.ConsumerGroupMemberMetadataValue) -> Profile:
    classic = value.classic_member_metadata
    return Profile(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex or None,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=None if classic is None else _read_voice(classic),
    )


def _read_voice(value: log.ClassicMemberMetadata) -> ClassicVoice:
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in value.supported_protocols)
    return ClassicVoice(value.session_timeout_ms, protocols)


def read_holding(value: log.ConsumerGroupCurrentMemberAssignmentValue) -> Holding:
    return Holding(
        value.member_epoch,
        value.previous_member_epoch,
        MemberState(value.state),
        read_partitions(value.assigned_partitions),
        read_partitions(value.partitions_pending_revocation),
        _read_epochs(value.partitions_pending_revocation) | _read_epochs(value.assigned_partitions),
    )


def _read_epochs(topics: Iterable[log.TopicPartitions]) -> dict[tuple[Uuid, int], int]:
    """The epochs that a record tells; one that does not tell one for each partition tells none."""
    return {
        (topic.topic_id, partition): epoch
        for topic in topics
        if topic.assignment_epochs is not None and len(topic.assignment_epochs) == len(topic.partitions)
        for partition, epoch in zip(topic.partitions, topic.assignment_epochs, strict=True)
    }


def read_partitions(
    topics: Iterable[log.TopicPartitions] | Iterable[log.TopicPartition] | Iterable[ReportedPartitions],
) -> Assignment:
    """Partitions by topic, from a record or a request; one that names a topic twice means both."""
    read: dict[bytes, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            read[topic.topic_id] = read.get(topic.topic_id, frozenset()).union(topic.partitions)
    return read  # type: ignore[return-value]


def _held(held: Assignment, since: Epochs) -> list[log.TopicPartitions]:
    written = []
    for topic in sorted(held):
        partitions = sorted(held[topic])
        epochs = [since[topic, partition] for partition in partitions]
        written.append(log.TopicPartitions(topic_id=topic, partitions=partitions, assignment_epochs=epochs))
    return written
