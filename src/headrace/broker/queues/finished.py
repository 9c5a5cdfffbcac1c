"""How far every share group of a topic has come, and space that is freed behind the last of them.

A record is finished once each group that shares its topic has accepted, rejected or archived it; of a topic that no
group shares nothing is. Followers that have yet to read a record, to copy it or to deliver it later, hold it too
(`holds`). With `headrace.queue.delete.acknowledged`, and in memory always, what is finished goes: the start of the log
moves, and whole segments are removed.

What always holds: of a log on the disk nothing is freed before it is on the disk that every group has finished it, or
does not exist any more, and what came of it where it is followed. What was freed when the broker is killed may be there
again; finished it stays.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.broker.topics import Topic
from headrace.broker.turns import Steps
from headrace.coordinator.share.records import ShareKey
from headrace.errors import HeadraceError
from headrace.protocol.schema import Uuid
from headrace.storage.errors import LogDeleted
from headrace.storage.log import Log
from headrace.telemetry.logs import get_logger

if TYPE_CHECKING:
    from headrace.broker.runtime import Runtime

_log = get_logger(__name__)
_FREE_S = 0.5  # after something was finished, so that much of it goes at once
_LOOK_S = 30.0  # for what no acknowledgement tells, as a group that was deleted
_WORTH_BYTES = 64 * 1024  # of a segment that is written to: a new one is begun for less only in memory

Hold = Callable[[Topic, int], int | None]


class Finished:
    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        self.holds: list[Hold] = []  # each says, for a partition, from which offset on it still needs records
        self.on_finished: Callable[[Log], None] = lambda _: None  # something of the log may be finished
        self._due: set[tuple[bytes, int]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._look = asyncio.get_running_loop().call_later(_LOOK_S, self._look_around)

    def close(self) -> None:
        for handle in (self._timer, self._look):
            if handle:
                handle.cancel()
        if self._task:
            self._task.cancel()

    def first_unfinished(self, topic: Topic, partition: int) -> int | None:
        """The first offset that somebody has yet to finish; None if no share group has the topic."""
        log = topic.partitions[partition]
        topic_id = Uuid(topic.id)
        groups = self._runtime.groups.sharers(topic_id)
        if not groups:
            return None
        first = self._runtime.high_watermark(log)
        for group_id in groups:
            known = self._runtime.shares.coordinator.partition(ShareKey(group_id, topic_id, partition))
            # Where a group begins that has fetched nothing yet is not known: it may want all there is.
            first = min(first, known.start if known is not None and known.is_started else log.start_offset)
        return max(first, log.start_offset)

    def first_needed(self, topic: Topic, partition: int) -> int | None:
        """The same, but of those that follow the log, too: nothing from there on is freed."""
        first = self.first_unfinished(topic, partition)
        if first is None:
            return None
        held = [each for hold in self.holds if (each := hold(topic, partition)) is not None]
        return max(min([first, *held]), topic.partitions[partition].start_offset)

    def note(self, topic_id: bytes, partition: int) -> None:
        """A share group has finished something of a partition, or may have."""
        topic = self._runtime.topics.by_id.get(topic_id)
        if topic is None or partition >= len(topic.partitions):
            return
        log = topic.partitions[partition]
        if log.config.frees_acknowledged:
            self.free_soon(topic, partition)
        self.on_finished(log)

    def free_soon(self, topic: Topic, partition: int) -> None:
        self._due.add((topic.id, partition))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FREE_S, self._begin)

    def _look_around(self) -> None:
        self._look = asyncio.get_running_loop().call_later(_LOOK_S, self._look_around)
        self._runtime.turns.run(self._look_in_steps())

    def _look_in_steps(self) -> Steps[None]:
        for topic in tuple(self._runtime.topics.by_name.values()):
            if topic.partitions[0].config.frees_acknowledged:
                for partition in range(len(topic.partitions)):
                    self.free_soon(topic, partition)
            yield

    # --- freeing

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        if self._task is not None and not self._task.done():  # however long the disk takes
            self._timer = loop.call_later(_FREE_S, self._begin)
            return
        self._timer = None
        due, self._due = self._due, set()
        self._task = loop.create_task(self._free_all(due))

    async def _free_all(self, due: set[tuple[bytes, int]]) -> None:
        finished: dict[Log, int] = {}
        cut: list[Log] = []  # which begin behind what is to be removed already
        for topic_id, partition in due:
            await asyncio.sleep(0)  # there may be many
            topic = self._runtime.topics.by_id.get(topic_id)
            if topic is None or partition >= len(topic.partitions):
                continue
            log = topic.partitions[partition]
            first = self.first_needed(topic, partition) if log.config.frees_acknowledged else None
            if log.config.is_in_memory:
                with suppress(LogDeleted):
                    self.free_memory(log, log.start_offset if first is None else first)
            elif first is not None and first > log.start_offset:
                finished[log] = first
            elif _has_dead(log):
                cut.append(log)
        try:
            if finished:
                await self._runtime.in_thread(self._sync_books)
            for log, first in finished.items():
                with suppress(LogDeleted):
                    log.advance_start(first)
                    cut += [log] if _has_dead(log) else []
            if cut:
                await self._runtime.in_thread(lambda: self._runtime.directory.remove_dead(cut))
        except HeadraceError as error:  # it is tried again when more is finished
            _log.warning("what share groups have finished could not be freed", error=str(error))

    def free_memory(self, log: Log, first: int) -> None:
        """Free what is before an offset of a log in memory, at once: there is no disk to wait for."""
        log.advance_start(first)
        if _has_dead(log):
            log.remove_dead_segments(self._runtime.now_ms())

    def _sync_books(self) -> None:
        """Have on the disk what groups have finished, which groups there are, and what was followed."""
        books = (self._runtime.shares.log, self._runtime.groups.log, self._runtime.queues.schedule)
        for log in [log for each in books for log in each.partitions()]:
            if log.durable_offset < log.end_offset:
                log.flush()


def _has_dead(log: Log) -> bool:
    """Whether there is something to be removed before the start."""
    start, segments = log.start_offset, log.segments
    if len(segments) > 1 and segments[1].base_offset <= start:
        return True
    least = 1 if log.config.is_in_memory else _WORTH_BYTES
    return start == log.end_offset and segments[-1].size >= least
