"""The one thing that the coordinator reads of what consumers tell each other: the topics they are subscribed to."""

from headrace.protocol import codec
from headrace.protocol.errors import ProtocolError
from headrace.protocol.schema import STRING, Message, array, int16


class SubscriptionPrefix(Message, versions=range(1)):
    """How a consumer's subscription starts in every version of it."""

    version: int = int16()
    topics: list[str] = array(STRING)


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a subscription; None if it is not one."""
    try:
        prefix, _ = codec.decode_prefix(SubscriptionPrefix, 0, metadata)
    except ProtocolError:
        return None
    return frozenset(prefix.topics)
