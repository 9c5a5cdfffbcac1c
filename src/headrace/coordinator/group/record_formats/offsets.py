"""Committed offsets: one record for each group and partition."""

from headrace.protocol.schema import Message, Uuid, int32, int64, string, uuid


class OffsetCommitKey(Message, versions=range(1)):
    """Whose offset, and of which partition."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, versions=range(5), flexible_since=4):
    """The next offset to read; only version 1 can say when it expires, which old clients may ask for."""

    offset: int = int64()
    leader_epoch: int = int32(since=3, default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(since=1, until=1, default=-1, ignorable=True)
    topic_id: Uuid = uuid(since=4, tag=0, ignorable=True)
