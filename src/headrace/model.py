"""The nouns that every package shares: small, frozen, without behaviour of their own."""

import re
from typing import NamedTuple, NewType

from headrace.errors import HeadraceError

Offset = NewType("Offset", int)
ProducerId = NewType("ProducerId", int)
LeaderEpoch = NewType("LeaderEpoch", int)

NO_PRODUCER_ID = ProducerId(-1)
NO_TIMESTAMP = -1


MAX_TOPIC_NAME = 249  # characters
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION_FOLDER = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d+)")


class InvalidTopicName(HeadraceError):
    """A topic name that Kafka would refuse."""


def check_topic_name(name: str) -> None:
    """Refuse a name that is not legal for a topic; a legal one is also a safe folder name."""
    if not _LEGAL_TOPIC.fullmatch(name) or name in (".", ".."):
        raise InvalidTopicName(
            f"topic name {name!r} is not legal: use 1 to 249 letters, digits, dots, underscores or dashes"
        )


class TopicPartition(NamedTuple):
    """One partition of one topic; its name on disk is `topic-partition`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def from_folder(cls, name: str) -> "TopicPartition | None":
        """The partition that a folder of this name holds; None for other folders."""
        match = _PARTITION_FOLDER.fullmatch(name)
        return cls(match[1], int(match[2])) if match else None
