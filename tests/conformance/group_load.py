"""What groups are tested with: a topic that is written to all the time, and what its readers must have read."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Self

from tests.conformance.clients.member_process import MemberProcess, wait_for
from tests.conformance.clients.wire import Wire, batch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conformance.clients.members import Asked

PARTITIONS = 5


class Load:
    """Writes to all partitions of a topic until it is told to stop."""

    def __init__(self, servers: str, topic: str) -> None:
        self._wire, self._topic = Wire(servers), topic
        self._wire.create(topic, PARTITIONS)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.written = 0
        """Records in each partition."""

    def _run(self) -> None:
        while not self._stopping.wait(0.05):
            for partition in range(PARTITIONS):
                assert self._wire.produce(self._topic, batch_of(b"x"), partition=partition).error_code == 0
            self.written += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._wire.__exit__()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


class Group:
    """All members that a group ever had, and what they did together."""

    def __init__(self, stack: contextlib.ExitStack, client: str) -> None:
        self._stack, self._client = stack, client
        self._everyone: list[MemberProcess] = []

    def join(self, asked: Asked) -> MemberProcess:
        member = self._stack.enter_context(MemberProcess(self._client, asked))
        self._everyone.append(member)
        return member

    def shares(self, *members: MemberProcess) -> list[int]:
        """Wait until these have all partitions between them, each partition one owner; how many each has, sorted.

        Members of one group never have more than one partition more than another, so that is waited for too.
        """
        wanted = list(range(PARTITIONS))

        def is_shared() -> bool:
            counts = [len(each.held) for each in members]
            return sorted(p for each in members for p in each.held) == wanted and max(counts) - min(counts) <= 1

        self.wait_for(is_shared, "the partitions were not shared out")
        return sorted(len(each.held) for each in members)

    def wait_for(self, is_so: Callable[[], bool], what: str) -> None:
        wait_for(self._everyone, is_so, what)

    def read_up_to(self, count: int) -> None:
        """Wait until somebody has read so many records of each partition."""

        def is_read() -> bool:
            farthest = dict.fromkeys(range(PARTITIONS), -1)
            for _, partition, offset in self._reads():
                farthest[partition] = max(farthest[partition], offset)
            return all(offset + 1 >= count for offset in farthest.values())

        self.wait_for(is_read, f"{count} records in each partition were not read")

    def _reads(self) -> Iterator[tuple[float, int, int]]:
        yield from sorted(read for each in self._everyone for read in each.reads)

    def in_order(self) -> dict[str, list[tuple[int, int]]]:
        """The records before which one was left out, and those that were read again; none and none is exactly once."""
        left_out, again = [], []
        following = dict.fromkeys(range(PARTITIONS), 0)
        for _, partition, offset in self._reads():
            if offset > following[partition]:
                left_out.append((partition, offset))
            elif offset < following[partition]:
                again.append((partition, offset))
            following[partition] = max(following[partition], offset + 1)
        return {"left out": left_out, "again": again}


@contextlib.contextmanager
def group_under_load(client: str, servers: str, topic: str) -> Iterator[tuple[Group, Load]]:
    """A group whose topic is written to; its members end with it."""
    with contextlib.ExitStack() as stack:
        load = stack.enter_context(Load(servers, topic))
        yield Group(stack, client), load
