"""Records of an internal topic to bytes and back, by a table of their types.

A key starts with two bytes that say its type, a value with two that say its version, as in Kafka's own internal topics.
What always holds: a record that is decoded and encoded again means the same, and a type that is not known here is
passed over, as Kafka does, so that a topic written by a newer broker can be read.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.coordinator.decision import CoordinatorRecord
from headrace.protocol import codec
from headrace.protocol.errors import MalformedMessage
from headrace.protocol.schema import Buffer, Message

_KEY_VERSION = 0  # the two bytes in front of a key used to be its version, and are its type today


class RecordType(NamedTuple):
    """One type of record: the number in front of its key, and the version in which its value is written."""

    number: int
    key: type[Message]
    value: type[Message]
    written_version: int


class RecordTypes:
    """The types of one topic; those that are `only_read` were written in other days."""

    def __init__(self, topic: str, types: Iterable[RecordType], *, only_read: Iterable[RecordType] = ()) -> None:
        self._topic = topic
        self._by_key = {kind.key: kind for kind in types}
        self._by_number = {kind.number: kind for kind in (*only_read, *self._by_key.values())}

    def encode(self, record: CoordinatorRecord, version: int | None = None) -> tuple[bytes, bytes | None]:
        """The key and the value as they are written; the value of a tombstone is None."""
        key, value = record.key, record.value
        if not isinstance(key, Message) or type(key) not in self._by_key:
            raise TypeError(f"{type(key).__name__} is not the key of a record of {self._topic}")
        kind = self._by_key[type(key)]
        key_bytes = kind.number.to_bytes(2, "big") + codec.encode(key, _KEY_VERSION)
        if value is None:
            return key_bytes, None
        if not isinstance(value, kind.value):
            raise TypeError(f"{type(value).__name__} is not the value of a {type(key).__name__}")
        written = kind.written_version if version is None else version
        return key_bytes, written.to_bytes(2, "big") + codec.encode(value, written)

    def decode(self, key: Buffer, value: Buffer | None) -> CoordinatorRecord | None:
        """The record; None if its type is not known here."""
        kind = self._by_number.get(self._leading_number(key))
        if kind is None:
            return None
        decoded_key = codec.decode(kind.key, _KEY_VERSION, bytes(key[2:]))
        if value is None:
            return CoordinatorRecord(decoded_key, None)
        return CoordinatorRecord(decoded_key, codec.decode(kind.value, self._leading_number(value), bytes(value[2:])))

    def _leading_number(self, data: Buffer) -> int:
        if len(data) < 2:
            raise MalformedMessage(f"a record of {self._topic} is shorter than the two bytes it starts with", 0)
        return int.from_bytes(data[:2], "big", signed=True)
