"""A member of a group, for one call.

What always holds: of a partition that another member has by now nothing is committed, and the client hears so; records
come after the `Assigned` that says whose they are; and a client that leaves, or is gone, is out of the group at once.
"""

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from headrace.client.address import Address
from headrace.client.consumer_member import ConsumerMember
from headrace.client.errors import Refused
from headrace.client.groups import Committed
from headrace.gateways.grpc.consuming import connected, cut, fetch_options, most_records, record_message
from headrace.gateways.grpc.errors import CallFailed, Code
from headrace.gateways.grpc.wire import message
from headrace.model import TopicPartition

MOST_UNDONE: Final = 100  # commits
_WAIT_MS: Final = 200
_EARLIEST: Final = 1


class Sharing:
    """`ask` is for the event loop; what waits is called from threads, one at a time."""

    def __init__(self, bootstrap: Sequence[Address], name: str, join: Any) -> None:
        if not join.group or not join.topics:
            raise CallFailed(Code.INVALID_ARGUMENT, "a join names a group and topics: give both")
        self._topics = list(join.topics)
        self._most = most_records(join.max_records)
        self._cluster = connected(bootstrap, name)
        self._member = ConsumerMember(
            self._cluster,
            join.group,
            from_earliest=join.reset == _EARLIEST,
            options=fetch_options(committed=True),
        )
        self._told: frozenset[TopicPartition] = frozenset()
        self._asked: deque[Any] = deque()
        self._lock = threading.Lock()
        self._is_closed = False

    def begin(self) -> None:
        """Join; raises `UnknownTopic`."""
        with self._lock:
            for topic in self._topics:
                self._cluster.partitions(topic)
            self._member.subscribe(self._topics)
            self._member.beat()

    def ask(self, request: Any) -> None:
        """Commit with the next turn; raises `CallFailed`."""
        if request.WhichOneof("request") != "commit":
            raise CallFailed(Code.INVALID_ARGUMENT, "a member joins once, and then sends commits")
        self._asked.append(request.commit)

    @property
    def undone(self) -> int:
        return len(self._asked)

    def turn(self, message_bytes: int) -> list[Any]:
        """Commit what was asked for, and read on; what is to be answered."""
        with self._lock:
            if self._is_closed:
                return []
            said = []
            while self._asked:
                said.append(self._commit(self._asked.popleft()))
            found = self._member.poll(0 if said else _WAIT_MS)
            if self._member.assigned != self._told:
                self._told = self._member.assigned
                mine = [{"topic": where.topic, "partition": where.partition} for where in sorted(self._told)]
                said.append(message("GroupResponse")(assigned={"partitions": mine}))
            for piece in cut(found, self._most, message_bytes):
                records = message("Records")(records=map(record_message, piece))
                said.append(message("GroupResponse")(records=records))
            return said

    def _commit(self, commit: Any) -> Any:
        offsets = {TopicPartition(each.topic, each.partition): Committed(each.offset, "") for each in commit.offsets}
        response = message("GroupResponse")(committed={"id": commit.id})
        try:
            others = sorted(offsets.keys() - self._member.assigned)
            if others:
                raise CallFailed(Code.ABORTED, f"{others[0]} is not this member's: nothing is committed")
            if wrong := [where for where, each in offsets.items() if each.offset < 0]:
                raise CallFailed(Code.INVALID_ARGUMENT, f"the offset of {wrong[0]} is negative: nothing is committed")
            self._member.commit(offsets)
        except (CallFailed, Refused) as error:
            code = error.code if isinstance(error, CallFailed) else Code.ABORTED
            response.committed.error.code = code
            response.committed.error.message = str(error)
        return response

    def close(self) -> None:
        """Leave the group."""
        with self._lock:
            self._is_closed = True
            self._member.close()


__all__ = ["MOST_UNDONE", "Sharing"]
