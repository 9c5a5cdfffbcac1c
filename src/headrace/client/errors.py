"""What can go wrong between a client and a cluster, told apart because the remedy differs."""

from collections.abc import Collection, Sequence

from headrace.client.address import Address
from headrace.errors import HeadraceError, nearest
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode


class ClientError(HeadraceError):
    """Something that a cluster did not do for us."""


class LostConnection(ClientError):
    """A broker that cannot be reached or went away: another try may find it, or another broker."""


class BrokerUnreachable(LostConnection):
    """No connection could be made to any of these addresses."""

    def __init__(self, addresses: tuple[Address, ...], reason: str) -> None:
        places = ", ".join(map(str, addresses))
        super().__init__(
            f"cannot reach a broker at {places} ({reason}): start one there (headrace broker start), "
            "or give another bootstrap address"
        )
        self.addresses = addresses
        self.reason = reason


class ConnectionClosed(LostConnection):
    """The broker ended the connection before it answered."""

    def __init__(self, address: Address, doing: str, reason: str = "") -> None:
        why = f" ({reason})" if reason else ""
        super().__init__(
            f"{address} closed the connection during {doing}{why}: see the broker's log, and check that this listener "
            "takes plaintext connections"
        )
        self.address = address
        self.doing = doing


class RequestTimedOut(LostConnection):
    """The broker holds the connection but did not answer in time; the connection is given up."""

    def __init__(self, address: Address, doing: str, timeout_s: float) -> None:
        super().__init__(
            f"{address} did not answer {doing} within {timeout_s:g} s: check that a Kafka broker listens there, "
            "and its load"
        )
        self.address = address
        self.doing = doing
        self.timeout_s = timeout_s


class NotKafka(ClientError):
    """What answers at this address does not speak Kafka's protocol."""

    def __init__(self, address: Address, reason: str) -> None:
        super().__init__(
            f"what answers at {address} does not speak Kafka's protocol ({reason}): check the host and the port"
        )
        self.address = address


class VersionNotSpoken(ClientError):
    """The broker has no version of an API in common with us, or only versions that cannot say what is wanted."""

    def __init__(self, address: Address, api: str, reason: str) -> None:
        super().__init__(f"{address} cannot be asked for {api}: {reason}; use a broker of another version")
        self.address = address
        self.api = api


class UnsupportedSecurity(ClientError):
    """A security protocol that this client does not speak."""


class UnknownTopic(ClientError):
    """A topic that the cluster does not have."""

    def __init__(self, topic: str, cluster: str, known: Collection[str] = ()) -> None:
        mend = nearest(topic, known, otherwise="check the name, or create it first")
        super().__init__(f"topic {topic!r} does not exist at {cluster}: {mend}")
        self.topic = topic


class TopicReplaced(ClientError):
    """A topic that was deleted and made again under its name: offsets of the one before mean nothing in it."""

    def __init__(self, topic: str, id_before: str, id_now: str) -> None:
        super().__init__(
            f"topic {topic!r} was deleted and made again: its id was {id_before} and is {id_now}, so offsets in the "
            "one before mean nothing in it"
        )
        self.topic = topic
        self.id_before = id_before
        self.id_now = id_now


class TopicGrown(ClientError):
    """There are more partitions than when reading began: who reads all of them begins again."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} has more partitions now")
        self.topic = topic


class UnknownPartition(ClientError):
    """A partition that its topic does not have."""

    def __init__(self, partition: TopicPartition, count: int) -> None:
        numbers = "only partition 0" if count == 1 else f"partitions 0 to {count - 1}"
        super().__init__(f"topic {partition.topic!r} has no partition {partition.partition}: it has {numbers}")
        self.partition = partition


class OffsetOutOfRange(ClientError):
    """An offset that a partition does not hold, no longer or not yet."""

    def __init__(self, partition: TopicPartition, offset: int, start: int, end: int) -> None:
        holds = f"offsets {start} to {end - 1}" if end > start else f"nothing; its next offset is {end}"
        super().__init__(f"offset {offset} is out of range: {partition} holds {holds}")
        self.partition = partition
        self.offset = offset
        self.start = start
        self.end = end


class Refused(ClientError):
    """The broker's own word on why not; `subject` is what was asked about."""

    def __init__(self, subject: str, code: ErrorCode, message: str | None = None) -> None:
        said = (message or "").strip().rstrip(".") or code.meaning
        super().__init__(f"{subject}: {said} ({code.name})")
        self.subject = subject
        self.code = code
        self.message = message


class UnknownGroup(ClientError):
    """A group that the cluster does not have, or not as a group of consumers."""

    def __init__(self, group: str, cluster: str) -> None:
        super().__init__(f"group {group!r} does not exist at {cluster}: check the name (headrace group list)")
        self.group = group


class GroupHasMembers(ClientError):
    """A group that cannot be changed from outside, because consumers are at work in it."""

    def __init__(self, group: str, members: Sequence[str]) -> None:
        count = "1 member" if len(members) == 1 else f"{len(members)} members"
        who = f" has {count} ({', '.join(members)})" if members else " has members"
        super().__init__(f"group {group!r}{who}: stop them first, and wait until the broker has noticed")
        self.group = group
        self.members = tuple(members)


class NothingCommitted(ClientError):
    """A group without committed offsets where some were needed."""

    def __init__(self, group: str, partition: TopicPartition | None = None) -> None:
        if partition is None:
            text = f"group {group!r} has no committed offsets: name the topics to set them for"
        else:
            text = f"group {group!r} has no committed offset for {partition} to count from: give an absolute place"
        super().__init__(text)
        self.group = group
        self.partition = partition


class BadSecurity(UnsupportedSecurity):
    """A security setting that does not exist, cannot be had, or does not fit the others."""


class TlsRefused(ClientError):
    """One side did not accept the other's certificate, or what listens there speaks no TLS."""

    def __init__(self, address: Address, reason: str, remedy: str) -> None:
        super().__init__(f"no TLS connection to {address} ({reason}): {remedy}")
        self.address = address
        self.reason = reason


class AuthenticationFailed(ClientError):
    """The broker did not accept who we say we are, or could not show that it knows our password."""

    def __init__(self, address: Address, mechanism: str, reason: str, remedy: str) -> None:
        super().__init__(f"{address} does not let us in by {mechanism} ({reason}): {remedy}")
        self.address = address
        self.mechanism = mechanism
        self.reason = reason


class SecureConnectionClosed(ConnectionClosed):
    """The broker ended a connection that was not a plain one: the listener may be of another kind."""

    def __init__(self, address: Address, doing: str, protocol: str, reason: str = "") -> None:
        why = f" ({reason})" if reason else ""
        # Past the parent's own sentence, which sends the reader to look for a plaintext listener.
        super(ConnectionClosed, self).__init__(
            f"{address} closed the connection during {doing}{why}: see the broker's log, and check that this listener "
            f"takes {protocol} connections"
        )
        self.address = address
        self.doing = doing
