"""What each partition of `__consumer_offsets` has said at each length: after a crash the state is that of its length.

A picture is all of a group that a restart keeps. As long as the partition has the same length its pictures are the
same, too: nothing that is kept changes without being written.
"""

from typing import NamedTuple

from headrace.broker.groups import Groups
from headrace.coordinator.decision import Decision
from headrace.coordinator.group.classic.state import ClassicGroup, stored_group
from headrace.coordinator.group.record_formats import GroupMetadataKey, GroupMetadataValue
from headrace.storage.log import Log


class Picture(NamedTuple):
    """A group as its records say it is."""

    classic: ClassicGroup | None
    consumer: object
    streams: object
    committed: object
    pending: object


NOTHING = Picture(None, None, None, {}, {})
Pictures = dict[str, Picture]


class GroupHistory:
    """The pictures since what is durable."""

    def __init__(self, groups: list[str]) -> None:
        self._groups = groups
        self._stored: dict[str, ClassicGroup | None] = {}  # as it was last written
        self._entries: dict[int, list[tuple[int, Pictures]]] = {}

    def note(self, groups: Groups, decision: Decision) -> None:
        """Something was decided, written and applied."""
        for record in decision.records:
            if record.is_kept and isinstance(record.key, GroupMetadataKey):
                group, value = record.key.group, record.value
                self._stored[group] = stored_group(group, value) if isinstance(value, GroupMetadataValue) else None
        for number, log in enumerate(groups.log.partitions()):
            pictures = self._pictures(groups, number)
            entries = self._entries.setdefault(number, [(0, dict.fromkeys(pictures, NOTHING))])
            if entries[-1][0] == log.end_offset:
                assert entries[-1][1] == pictures, f"{log} has not grown, and its groups have changed"
            else:
                entries.append((log.end_offset, pictures))
            while len(entries) > 1 and entries[1][0] <= log.durable_offset:
                del entries[0]

    def compare(self, groups: Groups) -> None:
        """The broker has read everything again, and done nothing yet."""
        logs = groups.log.partitions()
        assert logs or not self._entries, "the topic of the groups is gone"
        for number, log in enumerate(logs):
            entries = self._entries.get(number, [(0, {})])
            self._entries[number] = [self._found(groups, log, number, entries)]

    def _found(
        self, groups: Groups, log: Log, number: int, entries: list[tuple[int, Pictures]]
    ) -> tuple[int, Pictures]:
        expected = dict(entries).get(log.end_offset)
        assert expected is not None, f"{log} ends where it never did since it was durable: {[e for e, _ in entries]}"
        for group in self._groups:
            if groups.log.partition_of(group) == number:
                classic = groups.coordinator._classic._groups.get(group)
                self._stored[group] = None if classic == ClassicGroup(group) else classic  # begun for its offsets
        found = self._pictures(groups, number)
        for group, picture in found.items():
            before = expected.get(group, NOTHING)
            assert picture == before, f"{group} was {before}, and after the crash is {picture}"
        return log.end_offset, found

    def _pictures(self, groups: Groups, number: int) -> Pictures:
        return {
            group: self._picture(groups, group) for group in self._groups if groups.log.partition_of(group) == number
        }

    def _picture(self, groups: Groups, group: str) -> Picture:
        coordinator = groups.coordinator
        assert coordinator._consumer is not None
        assert coordinator.streams is not None
        consumer = coordinator._consumer._groups.get(group)
        streams = coordinator.streams._groups.get(group)
        store = coordinator._offsets
        pending = {
            producer: {where: offset for where, offset in offsets.items() if where.group_id == group}
            for producer, offsets in store._pending.items()
        }
        return Picture(
            self._stored.get(group),
            consumer and consumer.copy(),
            streams and streams.copy(),
            dict(store.committed(group)),
            {producer: offsets for producer, offsets in pending.items() if offsets},
        )
