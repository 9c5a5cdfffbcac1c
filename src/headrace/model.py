"""The nouns that every package shares: small, frozen, without behaviour of their own."""

from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
ProducerId = NewType("ProducerId", int)
LeaderEpoch = NewType("LeaderEpoch", int)

NO_PRODUCER_ID = ProducerId(-1)
NO_TIMESTAMP = -1


class TopicPartition(NamedTuple):
    """One partition of one topic; its name on disk is `topic-partition`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
