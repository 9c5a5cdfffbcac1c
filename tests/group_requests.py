"""The requests of group members, with everything filled in that a test does not care about."""

import struct

from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics):
    """What a consumer says in every assignment protocol, in its first version."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def join(
    member_id="",
    *,
    group="g",
    instance=None,
    topics=("t",),
    protocols=("range",),
    protocol_type="consumer",
    session_ms=SESSION_MS,
    rebalance_ms=REBALANCE_MS,
):
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=subscription(*topics)) for name in protocols],
    )


def sync(
    member_id, generation, assignments=None, *, group="g", instance=None, protocol="range", protocol_type="consumer"
):
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocol_name=protocol,
        assignments=[
            SyncGroupRequestAssignment(member_id=known, assignment=part) for known, part in (assignments or {}).items()
        ],
    )


def heartbeat(member_id, generation, *, group="g", instance=None):
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance)


def leave(*member_ids, group="g", instances=()):
    by_id = [MemberIdentity(member_id=member_id) for member_id in member_ids]
    by_instance = [MemberIdentity(member_id="", group_instance_id=instance) for instance in instances]
    return LeaveGroupRequest(group_id=group, members=by_id + by_instance)


def commit(offset, *, group="g", member_id="", generation=-1, topic="t", partition=0, epoch=-1, metadata="", **more):
    asked = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=metadata
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[asked])],
        **more,
    )


def txn_commit(offset, producer_id, *, group="g", topic="t", partition=0, metadata="", **more):
    asked = TxnOffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    return TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=group,
        producer_id=producer_id,
        producer_epoch=3,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[asked])],
        **more,
    )


def fetch(topics=None, *, group="g", require_stable=False):
    """For version 8 and later; `topics` are partitions by name, or None for all."""
    wanted = None
    if topics is not None:
        wanted = [OffsetFetchRequestTopics(name=name, partition_indexes=list(some)) for name, some in topics.items()]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)], require_stable=require_stable
    )


def fetched(shell, topics=None, **more):
    """The offsets of a group as they are told: (offset, leader epoch, metadata, error) by topic and partition."""
    (group,) = shell.ask(fetch(topics, **more), 8).groups
    assert group.error_code == 0
    return {
        (topic.name, each.partition_index): (
            each.committed_offset,
            each.committed_leader_epoch,
            each.metadata,
            each.error_code,
        )
        for topic in group.topics
        for each in topic.partitions
    }


def settle(shell, *member_ids, group="g"):
    """Have all members of a group that waits for its assignment sync; each gets its own id as assignment."""
    known = shell.group(group)
    names = {"group": group, "protocol": known.protocol, "protocol_type": known.protocol_type}
    followers = [member_id for member_id in member_ids if member_id != known.leader]
    tokens = [shell.send(sync(member_id, known.generation, **names), 5) for member_id in followers]
    parts = {member_id: member_id.encode() for member_id in member_ids}
    tokens.append(shell.send(sync(known.leader, known.generation, parts, **names), 5))
    assert all(shell.answers[token].error_code == 0 for token in tokens)
    return [shell.answers[token] for token in tokens]


def stable_group(shell, count=1, *, group="g", **more):
    """A stable group of dynamic members that have just joined for the first time; their ids, the leader first."""
    asked = [shell.ask(join(group=group, **more), 9, client_id=f"c{number}").member_id for number in range(count)]
    tokens = [shell.send(join(member_id, group=group, **more), 9) for member_id in asked]
    shell.advance(shell.settings.group_initial_rebalance_delay_ms)
    assert all(shell.answers[token].error_code == 0 for token in tokens)
    settle(shell, *asked, group=group)
    return asked
