"""Which partitions are followed, for what, and what share groups may have of them.

A topic is followed from the moment on in which it opted in: what its records asked for before was asked of nobody. When
it opts out, its new records are as any others; what waits already is delivered when it is due.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final

from headrace.broker.queues.bindings import BindingFollower, UnusableTarget
from headrace.broker.queues.followers import RETRY_S, Follower, ScheduleLog
from headrace.broker.queues.looking import Judge, Verdict
from headrace.broker.queues.scheduler import QueueFollower
from headrace.broker.topics import Topic
from headrace.coordinator.share.records import ShareKey
from headrace.delivery.schedule import PartitionId, Place, Schedule, write_place
from headrace.errors import HeadraceError
from headrace.records import Record
from headrace.storage.log import Log
from headrace.telemetry.logs import get_logger

if TYPE_CHECKING:
    from headrace.broker.runtime import Runtime

_SETTINGS: Final = ("headrace.queue", "headrace.bindings")
_ENTRIES_A_TURN: Final = 100
_LOOK_S: Final = 0.05
_log = get_logger(__name__)


def _opts_in(topic: Topic) -> bool:
    return any(setting in topic.settings for setting in _SETTINGS)


def _begin(log: Log, *, is_grown: bool) -> Place:
    """Where a partition is followed from on; one that a topic got later, from its first record on."""
    offset = log.start_offset if is_grown else log.end_offset
    return Place(offset, offset)


class Queues:
    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        self.schedule = ScheduleLog(runtime)
        self.schedule.on_lost = self._begin_anew
        self._known = Schedule()
        self._names: dict[bytes, dict[bytes, int]] = {}  # of messages that wait, by topic
        self._queues: dict[Log, QueueFollower] = {}
        self._bound: dict[Log, BindingFollower] = {}
        self._tasks: dict[Follower, asyncio.Task[None]] = {}
        self._loading: asyncio.Task[None] | None = None
        self._is_loaded = asyncio.Event()
        self._dropping: set[asyncio.Task[None]] = set()
        self._ends: dict[Log, int] = {}  # of logs, before anybody wrote to them
        self._held_back: set[Log] = set()  # of which groups may have had less, since nobody followed them yet
        self._look: asyncio.TimerHandle | None = None
        self._is_closed = False

    # --- beginning

    def start(self) -> None:
        """Read what was written, and follow what is to be followed; until then no group has anything of a queue."""
        if self.schedule.is_made:
            topics = self._runtime.topics.by_name.values()
            self._ends = {log: log.end_offset for topic in list(topics) for log in topic.partitions}
        self._loading = asyncio.get_running_loop().create_task(self._load())

    async def _load(self) -> None:
        while True:
            try:
                self._known = await self.schedule.load()
                self._names.clear()
                await self._drop(self._known, self._known.topic_ids() - self._runtime.topics.by_id.keys())
            except (HeadraceError, OSError) as error:
                _log.error("what waits to be delivered cannot be read now", reason=str(error))
                await asyncio.sleep(RETRY_S)
            else:
                break
        self._is_loaded.set()
        self._look_at_all()
        self._ends.clear()

    async def _drop(self, known: Schedule, topic_ids: Iterable[bytes]) -> None:
        """Write that all is over that waited in topics which were deleted."""
        for topic_id in topic_ids:
            entries = known.entries_of(topic_id)
            while some := list(islice(entries, _ENTRIES_A_TURN)):
                self.schedule.append(some)
                await asyncio.sleep(0)

    async def _drop_deleted(self, topic_ids: set[bytes]) -> None:
        """Do so at once for topics whose followers were stopped: what waited there is known to the schedule alone."""
        try:
            await self._drop(await self.schedule.read_all(Schedule(topic_ids)), topic_ids)
        except (HeadraceError, OSError) as error:
            _log.warning("what waited in deleted topics is dropped at the next start", reason=str(error))

    def _begin_anew(self) -> None:
        """Forget everything, since a part of it may be lost, and begin as after a crash."""
        if self._is_closed or not self._is_loaded.is_set():
            return
        _log.error("what waits to be delivered is read anew: a part of what was written of it may be lost")
        self._is_loaded.clear()
        for log in {*self._queues, *self._bound}:
            self._stop(log)
        self.start()

    # --- topics that come and go

    def topics_changed(self) -> None:
        """Look at the topics soon, once for all changes of a while."""
        if self._look is None and not self._is_closed:
            self._look = asyncio.get_running_loop().call_later(_LOOK_S, self._look_at_all)

    def _look_at_all(self) -> None:
        """Follow the partitions of topics that opted in, and no others."""
        if self._look is not None:
            self._look.cancel()
        self._look = None
        if self._is_closed or not self._is_loaded.is_set():
            return
        there = set()
        followed = {at.topic_id for at in self._known.places} if not self._queues else set()
        queues = set(followed)
        for follower in self._queues.values():
            followed.add(follower.topic_id)
            if follower.is_in:
                queues.add(follower.topic_id)
        bound = {at.topic_id for at in (*self._known.bound, *(each.at for each in self._bound.values()))}
        for topic in list(self._runtime.topics.by_name.values()):
            if topic.id in followed or topic.id in bound or _opts_in(topic):
                for index, log in enumerate(topic.partitions):
                    there.add(log)
                    self._follow_queue(topic, index, log, is_grown=topic.id in queues)
                    self._follow_bindings(topic, index, log, is_grown=topic.id in bound)
        gone = {log: each.topic_id for log, each in (*self._queues.items(), *self._bound.items()) if log not in there}
        for log in gone:
            self._stop(log)
        if deleted := set(gone.values()) - self._runtime.topics.by_id.keys():
            for topic_id in deleted:
                self._names.pop(topic_id, None)
            for places in (self._known.places, self._known.bound):
                for at in [at for at in places if at.topic_id in deleted]:
                    del places[at]
            dropping = asyncio.get_running_loop().create_task(self._drop_deleted(deleted))
            self._dropping.add(dropping)
            dropping.add_done_callback(self._dropping.discard)
        held_back, self._held_back = self._held_back, set()
        for log in held_back:  # whoever is followed now has them woken again when that has begun
            self._runtime.waiting.appended(log)

    def _follow_queue(self, topic: Topic, index: int, log: Log, *, is_grown: bool) -> None:
        follower, place = self._queues.get(log), self._known.places.get(PartitionId(topic.id, index))
        if follower is None and (log.config.headrace_queue or place):
            names = self._names.get(topic.id)
            if names is None:
                names = self._names[topic.id] = self._known.names(topic.id)
            follower = self._queues[log] = QueueFollower(
                self._runtime,
                self.schedule,
                topic,
                index,
                known=self._known,
                names=names,
                place=place.within(self._ends.get(log, place.offset)) if place else _begin(log, is_grown=is_grown),
            )
            self._run(follower)
        if follower is not None:
            follower.opt(is_in=log.config.headrace_queue)

    def _follow_bindings(self, topic: Topic, index: int, log: Log, *, is_grown: bool) -> None:
        at = PartitionId(topic.id, index)
        is_wanted, place = bool(log.config.headrace_bindings), self._known.bound.get(at)
        if is_wanted and log not in self._bound:
            self._bound[log] = BindingFollower(
                self._runtime,
                self.schedule,
                topic,
                index,
                place=place.within(self._ends.get(log, place.offset)) if place else _begin(log, is_grown=is_grown),
                is_copied=self._is_copied,
                end_of=self.end_for_groups,
            )
            self._run(self._bound[log])
        elif not is_wanted and (place or log in self._bound):
            self._known.bound.pop(at, None)
            self._stop_following(self._bound.pop(log, None))
            if not self.schedule.is_made:  # nor was anything written that would have to be forgotten
                return
            try:
                self.schedule.append([write_place(at, None, is_bound=True)])
            except HeadraceError as error:  # then it would go on where it was left, should it be bound again
                _log.error("that a topic is not bound any more cannot be written", topic=topic.name, reason=str(error))

    def _run(self, follower: Follower) -> None:
        task = asyncio.get_running_loop().create_task(follower.run())
        self._tasks[follower] = task
        task.add_done_callback(lambda _: self._tasks.pop(follower, None))

    def _stop_following(self, follower: Follower | None) -> None:
        task = self._tasks.pop(follower, None) if follower else None
        if task is not None:
            task.cancel()

    def _stop(self, log: Log) -> None:
        self._stop_following(self._queues.pop(log, None))
        self._stop_following(self._bound.pop(log, None))

    async def settle(self, altered: Topic) -> None:
        """Return once it is on the disk since when a topic is followed that was made or altered just now."""
        topic = self._runtime.topics.by_id.get(altered.id)
        if topic is None or not _opts_in(topic):
            return
        await self._is_loaded.wait()
        self._look_at_all()
        for follower in [each for each in self._tasks if each.topic_id == topic.id]:
            await follower.begun.wait()

    def hold(self, topic: Topic, partition: int) -> int | None:
        """From which offset on records of a partition are still needed, however finished they are for groups."""
        log, at = topic.partitions[partition], PartitionId(topic.id, partition)
        if not self._is_loaded.is_set():
            return log.start_offset
        followers = [each for each in (self._queues.get(log), self._bound.get(log)) if each is not None]
        copied = [each.needed_of(at) for each in self._bound.values()]
        return min(
            [*(each.needed_offset for each in followers), *(each for each in copied if each is not None)], default=None
        )

    # --- what groups may have

    def end_for_groups(self, log: Log) -> int:
        """Up to where a share group may have records of a partition: of a queue only what was followed."""
        end = self._runtime.high_watermark(log)
        if not log.config.headrace_queue:
            return end
        follower = self._queues.get(log)
        if follower is None:
            self._held_back.add(log)
            return log.start_offset
        return min(end, follower.followed)

    def find_judge(self, key: ShareKey) -> Judge | None:
        """Who says what becomes of the records of a partition, if it is a queue's."""
        topic = self._runtime.topics.by_id.get(key.topic_id)
        if topic is None or key.partition >= len(topic.partitions):
            return None
        log = topic.partitions[key.partition]
        return (lambda record: self._queues[log].judge(record)) if log.config.headrace_queue else None

    # --- what is told of them

    def dropped_ids(self) -> Counter[str]:
        """How many deduplication ids were forgotten before their time, by topic."""
        found: Counter[str] = Counter()
        for follower in self._queues.values():
            found[follower.name] += follower.dropped_ids
        return found

    def waiting_for_targets(self) -> Counter[tuple[str, str]]:
        """How many partitions cannot be copied now, by topic and what is wrong with where copies go to."""
        failures = ((each.name, each.failure) for each in self._bound.values())
        return Counter((name, failure.trouble) for name, failure in failures if isinstance(failure, UnusableTarget))

    def follower_of(self, log: Log) -> QueueFollower | None:
        return self._queues.get(log)

    def _is_copied(self, log: Log, record: Record) -> bool:
        """Whether a record is one to be copied: of a queue, one that is delivered."""
        follower = self._queues.get(log) if log.config.headrace_queue else None
        # Without one, the topic has opted in just now, and after the record was written.
        return follower is None or follower.judge(record) not in (Verdict.DELAYED, Verdict.DUPLICATE)

    def close(self) -> None:
        self._is_closed = True
        tasks: list[asyncio.Task[None] | None] = [*self._tasks.values(), *self._dropping, self._loading]
        for task in tasks:
            if task is not None:
                task.cancel()
        if self._look is not None:
            self._look.cancel()
