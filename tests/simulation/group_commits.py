"""The shadow of all committed offsets: which commit is shown, which ones may be, and which ones were promised.

Every commit has a number of its own, kept as its metadata, so what a group shows tells which commit it is. What always
holds: a commit that was refused, aborted or never ended is not shown; what is shown moves on in the order of the log,
never back; and after a crash it is what was acknowledged last, or something later of which nobody was told.
"""

from collections import Counter
from dataclasses import dataclass

from headrace.coordinator.group.offsets.store import OffsetStore
from headrace.model import TopicPartition


@dataclass(eq=False, slots=True)
class Commit:
    """One offset that a client has tried to commit."""

    number: int
    group: str
    partition: TopicPartition
    is_transactional: bool
    order: int = 0  # of two, the later in the log has the higher one
    may_count: bool = False


class CommitBook:
    """What clients have sent, and what they were told."""

    def __init__(self) -> None:
        self._commits: list[Commit] = []
        self._order = 0
        self._shown: dict[tuple[str, TopicPartition], Commit] = {}
        self._promised: dict[tuple[str, TopicPartition], Commit] = {}

    def new(self, group: str, partition: TopicPartition, *, is_transactional: bool) -> Commit:
        """A commit that will be sent."""
        commit = Commit(len(self._commits), group, partition, is_transactional)
        self._commits.append(commit)
        return commit

    def sent(self, commit: Commit) -> None:
        """It is at the broker just now; one that is no part of a transaction counts if it is not refused."""
        self._order += 1
        commit.order = self._order
        commit.may_count = not commit.is_transactional

    def promise(self, commit: Commit) -> None:
        """The client was told that it is committed."""
        where = commit.group, commit.partition
        if where not in self._promised or self._promised[where].order < commit.order:
            self._promised[where] = commit

    def check(self, store: OffsetStore, groups: Counter[str] | list[str], *, after_crash: bool = False) -> None:
        """Hold what is shown against what was said."""
        for group in groups:
            shown = store.committed(group)
            for partition, offset in shown.items():
                commit = self._commits[int(offset.metadata)]
                where = group, partition
                assert (commit.group, commit.partition) == where, f"{where} shows an offset of {commit}"
                assert commit.may_count, f"{where} shows a commit that was refused, aborted or not ended: {commit}"
                before = self._shown.get(where)
                if before is not None and not after_crash:
                    assert before.order <= commit.order, f"{where} went back from {before} to {commit}"
                self._shown[where] = commit
        for (group, partition), promised in self._promised.items():
            if group in groups and not (promised.is_transactional and store.is_pending(group, partition)):
                found = store.committed(group).get(partition)
                assert found is not None, f"{promised} was acknowledged, and is gone"
                latest = self._commits[int(found.metadata)]
                assert latest.order >= promised.order, f"{promised} was acknowledged, and {latest} is shown"

    def check_told(self, group: str, partition: TopicPartition, metadata: str, promised: Commit | None) -> None:
        """A client was told this when it asked for the offset, after `promised` had been acknowledged."""
        if promised is not None:
            assert metadata, f"{promised} was acknowledged, and OffsetFetch tells of none"
            told = self._commits[int(metadata)]
            assert told.order >= promised.order, f"{promised} was acknowledged, and OffsetFetch tells {told}"
            assert (told.group, told.partition, told.may_count) == (group, partition, True)

    def promised(self, group: str, partition: TopicPartition) -> Commit | None:
        """The last commit that was acknowledged."""
        return self._promised.get((group, partition))

    @property
    def promises(self) -> int:
        """For how many partitions of groups something was acknowledged."""
        return len(self._promised)
