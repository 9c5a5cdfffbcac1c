"""Groups of the classic protocol: one record holds a whole generation, its members and their assignments."""

from headrace.protocol.schema import Message, Struct, array, blob, int32, int64, nullable_string, string


class GroupMetadataKey(Message, versions=range(1)):
    """The group."""

    group: str = string()


class MemberMetadata(Struct):
    """A member, in the words of the one protocol that the group has chosen."""

    member_id: str = string()
    group_instance_id: str | None = nullable_string(since=3, nullable_since=3, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(since=1, default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = blob()
    assignment: bytes = blob()


class GroupMetadataValue(Message, versions=range(5), flexible_since=4):
    """A generation of the group; one without members says since when the group has been empty."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = nullable_string()
    leader: str | None = nullable_string()
    current_state_timestamp: int = int64(since=2, default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)
