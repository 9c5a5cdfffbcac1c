"""Share groups' records at work: the pure coordinator, its topic, locks that lapse, and fetches that wait for records.

What is acknowledged in one turn of the event loop is decided and written together, and answered once it is durable.
What always holds: nothing is acquired between a decision and its writing; a fetch that waits is woken when something of
its partition becomes available; and state that no group has any more is gone, at the latest after the next start.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.broker.coordinator_log import CoordinatorLog, replay
from headrace.broker.coordinator_shell import RETRY_S, CoordinatorShell
from headrace.broker.errors import BrokerError
from headrace.broker.fetches import Waiting
from headrace.broker.limits import MAX_SHARE_LOCKS, MAX_SHARE_PARTITIONS, SHARE_LOCKS_ALWAYS
from headrace.broker.queues.letters import DeadLetters
from headrace.broker.queues.looking import Looking
from headrace.broker.share_sessions import ShareSession, ShareSessions
from headrace.broker.turns import Deferred
from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.group.kinds import GroupDeleted
from headrace.coordinator.group.share.kind import MemberRemoved
from headrace.coordinator.share.acknowledgement import InvalidAcknowledgement
from headrace.coordinator.share.coordinator import (
    Deleted,
    LimitsChanged,
    LocksLapsed,
    MemberGone,
    ShareCoordinator,
    ShareDecision,
    ShareEvent,
    SnapshotWanted,
    Started,
    TransactionEnded,
    Truncated,
)
from headrace.coordinator.share.offset_reset import EARLIEST, read_duration_ms
from headrace.coordinator.share.partition import Acquisition, Producer, Run, ShareLimits, SharePartition, Span
from headrace.coordinator.share.records import STATE_TOPIC, ShareKey, decode, encode, key_of
from headrace.delivery.order import Order
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.storage.log import Log
from headrace.storage.reading import first_at_or_after
from headrace.telemetry.logs import get_logger

if TYPE_CHECKING:
    from headrace.broker.groups import Groups
    from headrace.broker.runtime import Runtime

_log = get_logger(__name__)
# An update does not stand for the one before, so the topic is not compacted; what is superfluous is cut off.
_TOPIC_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": "104857600"}
_RECORDS_BEFORE_CUT = 20_000  # of one partition of the topic
_RECORDS_PER_KEY_BEFORE_CUT = 20  # snapshots of all partitions cost something too
_EVENTS_A_TURN = 32  # of those that come in any number: a snapshot of a partition may have thousands of runs
_CHECK_CUT_S = 30.0

Refusals = Sequence[InvalidAcknowledgement | None]


def _elapsed_ms() -> int:
    """The time that locks go by, which nobody sets."""
    return int(asyncio.get_running_loop().time() * 1000)


class Shares:
    def __init__(self, runtime: "Runtime", groups: "Groups", sessions: ShareSessions, *, partitions: int) -> None:
        self._runtime = runtime
        self._groups = groups
        self.coordinator = ShareCoordinator(leader_epoch=runtime.leader_epoch)
        self.log = CoordinatorLog(
            runtime.topics,
            STATE_TOPIC,
            partitions=partitions,
            encode=encode,
            owner_of=lambda record: key_of(record).text,
            settings=_TOPIC_SETTINGS,
        )
        self._shell = CoordinatorShell(
            runtime,
            self.log,
            decide=lambda events, now_ms: self.coordinator.decide(events, now_ms, _elapsed_ms()),
            apply=self._install,
            on_timer=lambda _: True,
            on_effect=lambda _: None,
            load=self.load,
        )
        self.sessions = sessions
        self.looking = Looking(runtime)
        self.waiting = Waiting(lambda steps: runtime.turns.run(steps))  # for something of a partition to be available
        self._turn: list[tuple[Sequence[ShareEvent], Deferred[Refusals | None]]] = []
        self._full: set[ShareKey] = set()  # where nothing more can be acquired until something is finished
        self._standing_by: set[ShareKey] = set()  # where some wait until the active member is gone
        self._locks: dict[ShareKey, asyncio.TimerHandle] = {}
        self._levels: dict[bytes, int] = {}  # of topics that have several
        self._levels_of = -1  # the revision of the topics at which that was so
        self._starting: set[ShareKey] = set()
        self._doomed: set[ShareKey] = set()  # whose state has yet to be deleted, which nobody may go on with
        self._unsure: set[ShareKey] = set()  # of which something may be in the log that has not happened
        self._limits: dict[str, ShareLimits] = {}
        self._most_partitions = runtime.config.number(MAX_SHARE_PARTITIONS)
        self._most_locks = runtime.config.number(MAX_SHARE_LOCKS)
        self.redeliveries: dict[ShareKey, int] = {}  # how many records were delivered again since the start
        self._cut_timer: asyncio.TimerHandle | None = None
        self._is_cutting = False
        self.letters = DeadLetters(runtime)
        self._tasks: set[asyncio.Task[None]] = set()

    def load(self) -> None:
        """Take in what was written, drop what no group has any more, and begin; or begin anew."""
        self.coordinator = ShareCoordinator(leader_epoch=self._runtime.leader_epoch)
        self.log.note_cuts()
        for handle in self._locks.values():
            handle.cancel()
        self._locks.clear()
        self._full.clear()
        self._standing_by.clear()
        self._unsure.clear()
        for log in self.log.partitions():
            replay(log, decode, lambda record, _: self.coordinator.apply(record))
        self._drop_orphans()
        spent = [LimitsChanged(key, self.limits(key.group_id)) for key in self.coordinator.all_keys()]
        if spent:
            self._tell([*self._lost_ends(), *spent])
            for event in spent:
                self._look_again(event.key)
        self._runtime.turns.run(self.waiting.wake_all_in_steps())
        if self._cut_timer is None:
            self._cut_timer = asyncio.get_running_loop().call_later(_CHECK_CUT_S, self._cut_logs)

    def _tell(self, events: Sequence[ShareEvent]) -> ShareDecision | None:
        """Have events carried out and written; None if that was not possible.

        Of states in several partitions of the topic some may have been written even so. The next that is written of
        those is therefore a snapshot, which stands for all before it.
        """
        keys = {event.key for event in events}
        decision = self._shell.tell([*events, *(SnapshotWanted(key) for key in keys & self._unsure)])
        if decision is None:
            self._unsure |= keys
            return None
        self._unsure -= keys
        for key in keys:
            self._runtime.finished.note(key.topic_id, key.partition)
        assert isinstance(decision, ShareDecision)
        return decision

    def _install(self, record: CoordinatorRecord, _: int) -> None:
        """Of what was decided only the drafts are taken over: they are what the records say, and who holds what."""
        if not record.is_kept:
            self.coordinator.install(record.value)  # type: ignore[arg-type]

    # --- limits

    def limits(self, group_id: str) -> ShareLimits:
        known = self._limits.get(group_id)
        if known is None:
            settings = self._groups.settings_of(group_id)
            known = self._limits[group_id] = ShareLimits(
                settings.group_share_record_lock_duration_ms,
                settings.group_share_delivery_count_limit,
                settings.group_share_partition_max_record_locks,
                settings.share_renew_acknowledge_enable,
                Order(settings.headrace_order),
                bool(settings.errors_deadletterqueue_topic_name),
                settings.headrace_retry_backoff_ms,
                settings.headrace_retry_backoff_max_ms,
                settings.headrace_retry_jitter,
            )
        return known

    def _limits_now(self, key: ShareKey, partition: SharePartition) -> ShareLimits:
        """A group's limits, with no more locks for a partition than are left of those of all groups."""
        limits = self.limits(key.group_id)
        left = self._most_locks - self.coordinator.under_way
        if left >= limits.record_locks:
            return limits
        most = max(SHARE_LOCKS_ALWAYS, partition.under_way + left)
        return limits._replace(record_locks=min(most, limits.record_locks))

    def check_room(self, keys: Iterable[ShareKey]) -> None:
        """Refuse to begin with partitions if there would be more of all groups than there may be."""
        new = sum(self.coordinator.partition(key) is None and key not in self._starting for key in keys)
        if new and len(self.coordinator) + len(self._starting) + new > self._most_partitions:
            what = "a share group begins with partitions"
            raise self._runtime.limits.refuse(MAX_SHARE_PARTITIONS, self._most_partitions, what)

    def settings_changed(self) -> None:
        """Groups may have other limits from now on: what was delivered too often for them is finished.

        Whoever waits looks again: there may be something to be had now, or an error.
        """
        before, self._limits = self._limits, {}
        self.looking.settings_changed()
        for group_id, limits in before.items():
            if self.limits(group_id) != limits:
                self.submit_all(LimitsChanged(key, self.limits(group_id)) for key in self.coordinator.keys_of(group_id))
        self._runtime.turns.run(self.waiting.wake_all_in_steps())

    # --- what changes the state, and is written

    def submit(self, events: Sequence[ShareEvent]) -> Deferred[Refusals | None]:
        """Have events carried out with all others of this turn; why each was not, once it is durable.

        None, if that could not be written: nothing has changed then.
        """
        done: Deferred[Refusals | None] = Deferred()
        if not self._turn:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._turn.append((events, done))
        return done

    def submit_all(self, events: Iterable[ShareEvent]) -> Deferred[bool]:
        """Have any number of events carried out, some in a turn; whether all of them are durable."""
        left = list(events)
        done: Deferred[bool] = Deferred()

        def go_on(refusals: Refusals | None) -> None:
            if refusals is None or not left:
                done.set(refusals is not None)
                return
            some, left[:] = left[:_EVENTS_A_TURN], left[_EVENTS_A_TURN:]
            self.submit(some).then(go_on)

        go_on(())
        return done

    def _end_turn(self) -> None:
        """Carry out what has come; before the topic is made, also what comes until then."""
        self._shell.when_made(self._carry_out_turn)

    def _carry_out_turn(self, is_made: bool) -> None:
        turn, self._turn = self._turn, []

        def settle(refusals: Refusals | None) -> None:
            position = 0
            for some, done in turn:
                done.set(None if refusals is None else refusals[position : position + len(some)])
                position += len(some)

        self._carry_out([event for some, _ in turn for event in some] if is_made else None, settle)

    def _carry_out(self, events: Sequence[ShareEvent] | None, settle: Callable[[Refusals | None], None]) -> None:
        """Have events carried out, and `settle` called when that is durable, or with None if it cannot be written."""
        decision = self._tell(events) if events is not None else None
        if events is None or decision is None:
            settle(None)
            return
        refusals = decision.refusals
        self._shell.when_durable(lambda error: settle(None if error else refusals))
        for key in {event.key for event in events}:
            self._look_again(key)

    # --- acknowledged in transactions

    def submit_now(self, events: Sequence[ShareEvent]) -> Deferred[Refusals | None]:
        """As `submit`, but in this very moment: a transaction that is open now may have ended by the end of the turn.

        Its topic is there, for otherwise nobody could have acquired anything.
        """
        done: Deferred[Refusals | None] = Deferred()
        self._carry_out(events if self.log.is_made else None, done.set)
        return done

    def pending(self) -> set[tuple[int, Producer]]:
        """The transactions in which something is acknowledged, each with the partition of the topic that says so."""
        return {(self.log.partition_of(key.text), producer) for key, producer in self.coordinator.pending()}

    def end_transaction(self, index: int, producer: Producer, *, is_committed: bool) -> bool:
        """Carry out, or release, what this partition of the topic has of a producer's transactions up to an epoch.

        Whether that is written. To do it again does no harm, so that it takes no marker in the topic.
        """
        self._shell.notice_cut()  # with which what was ended, and is not any more, is pending again
        events = [
            TransactionEnded(key, producer, self.limits(key.group_id), is_committed)
            for key in {key for key, of in self.coordinator.pending() if of.id == producer.id}
            if self.log.partition_of(key.text) == index
        ]
        if events and self._tell(events) is None:
            return False
        for event in events:
            self._look_again(event.key)
        return True

    def _look_again(self, key: ShareKey) -> None:
        """Wake those who wait for a partition if something of it can be acquired that could not."""
        partition = self.coordinator.partition(key)
        if partition is not None and partition.wants_letters:
            self.letters.wake(key)
        if partition is not None and partition.kept_until_ms:
            self._watch_until(key, partition.kept_until_ms)
            partition.kept_until_ms = 0
        if partition is None:
            self._full.discard(key)
            self.waiting.appended(key)
        else:
            was_full = key in self._full and partition.can_acquire(self._limits_now(key, partition))
            is_free = key in self._standing_by and not partition.active
            if was_full or is_free or partition.next_offset() < partition.end:
                self._full.discard(key)
                self._standing_by.discard(key)
                self.waiting.appended(key)

    def _look_again_soon(self, key: ShareKey) -> None:
        """Wake those who wait when whoever acquires now is done with that."""
        self._runtime.turns.later(lambda: self._look_again(key))

    # --- what does not

    def partition(self, key: ShareKey, log: Log) -> SharePartition | None:
        """The partition, begun if need be; None as long as it is not known, durably, where that is."""
        if key in self._doomed:
            return None
        group = self._groups.share_group(key.group_id)
        if group is None or key.topic_id not in group.shared:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, "no member of the group has ever subscribed to the topic")
        partition = self.coordinator.partition(key)
        if partition is None or not partition.is_started:
            self.check_room((key,))
            self._start(key, log)
        elif partition.end > log.end_offset and key not in self._starting:
            self._restart(key, Truncated(key, log.end_offset))
        if key in self._starting or partition is None:
            return None
        if partition.start < log.start_offset:
            partition.advance(log.start_offset)
            self.coordinator.count(partition)
            self._look_again_soon(key)
        return partition

    def acquire(
        self, key: ShareKey, partition: SharePartition, wanted: Acquisition, spans: Sequence[Span]
    ) -> list[Run]:
        limits = self._limits_now(key, partition)
        runs = partition.acquire(wanted, spans, limits, _elapsed_ms())
        self.coordinator.count(partition)
        if limits.order is Order.KEY and not all(span.is_deliverable for span in spans):
            self._look_again_soon(key)  # what is skipped passes its key's turn on, and others may have that
        if partition.wants_letters:  # for what is never delivered
            self.letters.wake(key)
        if runs:
            self._watch_until(key, runs[0].deadline_ms)
        for run in runs:
            if run.deliveries > 1:
                self.redeliveries[key] = self.redeliveries.get(key, 0) + run.size
        return runs

    def by_level(self, keys: Iterable[ShareKey]) -> list[ShareKey]:
        """Partitions in the order in which they are looked at: what is urgent first, otherwise as they are."""
        topics = self._runtime.topics
        if self._levels_of != topics.revision:
            self._levels_of = topics.revision
            several = [topic for topic in list(topics.by_id.values()) if topic.priorities > 1]
            self._levels = {topic.id: topic.priorities for topic in several}
        if not self._levels:
            return list(keys)
        return sorted(keys, key=lambda key: key.partition % self._levels.get(key.topic_id, 1))

    def can_acquire(self, key: ShareKey, partition: SharePartition, holder: str) -> bool:
        limits = self._limits_now(key, partition)
        if not partition.is_open_to(holder, limits):
            self._standing_by.add(key)
            return False
        if partition.can_acquire(limits):
            return True
        if limits.record_locks < self.limits(key.group_id).record_locks:
            self._runtime.limits.reach(MAX_SHARE_LOCKS, f"group {key.group_id!r} would have more records under way")
        self._full.add(key)
        return False

    def is_watched_whole(self, key: ShareKey, log: Log) -> bool:
        """Whether all that may make something of a partition available wakes those who wait for it.

        Not so where locks are used up, which retention may free; nor before the disk has what was appended: if a sync
        fails, a later one may show it.
        """
        partition = self.coordinator.partition(key)
        is_full = partition is not None and not partition.can_acquire(self._limits_now(key, partition))
        return not is_full and self._runtime.high_watermark(log) >= log.end_offset

    def _watch_until(self, key: ShareKey, deadline_ms: int) -> None:
        """Look at a partition when the time of something is up, or earlier if that is so already."""
        known = self._locks.get(key)
        if known is not None:
            if known.when() * 1000 <= deadline_ms + 1:  # times are cut to milliseconds
                return
            known.cancel()
        delay_s = max(0, deadline_ms - _elapsed_ms()) / 1000
        self._locks[key] = asyncio.get_running_loop().call_later(delay_s, self._lock_lapsed, key)

    def _lock_lapsed(self, key: ShareKey) -> None:
        """Take back what was held for too long, and look again when the next lock lapses."""
        del self._locks[key]
        now_ms = _elapsed_ms()
        deadline_ms = self._next_deadline_ms(key)
        if deadline_ms is not None and deadline_ms <= now_ms:
            if self._tell([LocksLapsed(key, self.limits(key.group_id))]) is None:
                self._watch_until(key, now_ms + int(RETRY_S * 1000))
                return
            deadline_ms = self._next_deadline_ms(key)
            self._look_again(key)
        if deadline_ms is not None:
            self._watch_until(key, deadline_ms)

    def _next_deadline_ms(self, key: ShareKey) -> int | None:
        partition = self.coordinator.partition(key)
        return partition.next_deadline_ms() if partition else None

    # --- where groups begin

    def _start(self, key: ShareKey, log: Log) -> None:
        """Begin where the group's settings say; a look-up by time waits for the disk, and so for a thread."""
        if key in self._starting:
            return
        self._starting.add(key)
        reset = self._groups.settings_of(key.group_id).share_auto_offset_reset
        ago_ms = read_duration_ms(reset)
        if ago_ms is None:
            offset = log.start_offset if reset == EARLIEST else self._runtime.high_watermark(log)
            self._restart(key, Started(key, offset))
        else:
            self._in_background(self._start_by_time(key, log, self._runtime.now_ms() - ago_ms))

    def _restart(self, key: ShareKey, event: Started | Truncated) -> None:
        """Whoever is given a record must find it again after a crash, so this has to be durable before."""
        self._starting.add(key)

        def started(refusals: Refusals | None) -> None:
            if refusals is None:
                self._start_later(key)
            else:
                self._starting.discard(key)
                self.waiting.appended(key)

        self.submit([event]).then(started)

    def _start_later(self, key: ShareKey) -> None:
        """Have whoever waits try again in a while."""

        def try_again() -> None:
            self._starting.discard(key)
            self.waiting.appended(key)

        self._shell.retry(try_again)

    async def _start_by_time(self, key: ShareKey, log: Log, timestamp: int) -> None:
        try:
            found = await self._runtime.look_up(lambda: first_at_or_after(log, timestamp))
        except Exception as error:  # noqa: BLE001 - it is tried again
            _log.error("a share group could not look up where it begins", key=key.text, error=str(error))
            self._start_later(key)
            return
        self._restart(key, Started(key, found.offset if found else self._runtime.high_watermark(log)))

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- groups, topics and members that come and go

    def carry_out(self, effect: object) -> None:
        """Do what the group coordinator has decided about a group or a member."""
        if isinstance(effect, GroupDeleted):
            self.delete(self.coordinator.keys_of(effect.group_id))
        elif isinstance(effect, MemberRemoved):
            session = self.sessions.find(effect.group_id, effect.member_id)
            if session is not None:
                self.end_session(session)

    def end_session(self, session: ShareSession) -> Deferred[bool]:
        """Forget a session, and take back all that its member has; unless it has begun another one."""
        if not self.sessions.holds(session):
            ended: Deferred[bool] = Deferred()
            ended.set(True)
            return ended
        self.sessions.close(session)
        limits = self.limits(session.member.group_id)
        return self.submit_all(MemberGone(key, session.holder, limits) for key in session.had)

    def forget(self, session: ShareSession, keys: Iterable[ShareKey]) -> None:
        """A session does not fetch from partitions any more: where it was the active one, another may be."""
        for key in keys:
            partition = self.coordinator.partition(key)
            if partition is not None and partition.active == session.holder:
                partition.retire(session.holder)
                self._look_again(key)

    def delete(self, keys: Iterable[ShareKey]) -> Deferred[bool]:
        """Forget all that is known of partitions; whether that is durable. If not, it is tried again until it is.

        Until then nobody goes on with what is known: the next group of the name has nothing of it.
        """
        doomed = set(keys)
        self._doomed |= doomed

        def try_again() -> None:
            self.delete(doomed)

        def settle(is_durable: bool) -> None:
            if not is_durable:
                self._shell.retry(try_again)
                return
            self._doomed -= doomed
            for key in doomed:
                self.redeliveries.pop(key, None)
                self.waiting.appended(key)

        return self.submit_all(Deleted(key) for key in doomed).after(settle)

    def topics_deleted(self) -> None:
        topics = self._runtime.topics.by_id
        self.delete(key for key in self.coordinator.all_keys() if key.topic_id not in topics)

    def _drop_orphans(self) -> None:
        """Drop what a crash kept from being deleted with its group, its topic or its offsets."""
        gone = [
            key
            for key in self.coordinator.all_keys()
            if key.topic_id not in self._runtime.topics.by_id
            or (group := self._groups.share_group(key.group_id)) is None
            or key.topic_id not in group.shared
        ]
        if gone and self._tell([Deleted(key) for key in gone]) is None:
            self.delete(gone)

    def _lost_ends(self) -> list[Truncated]:
        """Partitions whose log is shorter than what was acquired of it: a power cut took the end, as it may unsynced.

        Later it would not be noticed: new records are in the place of those that are gone.
        """
        lost = []
        for key in self.coordinator.all_keys():
            topic, partition = self._runtime.topics.by_id.get(key.topic_id), self.coordinator.partition(key)
            if topic is not None and partition is not None and key.partition < len(topic.partitions):
                log = topic.partitions[key.partition]
                if partition.end > log.end_offset:
                    lost.append(Truncated(key, log.end_offset))
        return lost

    # --- cutting the topic off behind what is superfluous

    def _cut_logs(self) -> None:
        self._cut_timer = asyncio.get_running_loop().call_later(_CHECK_CUT_S, self._cut_logs)
        if self._is_cutting:  # however long the disk takes
            return
        long = {i: log for i, log in enumerate(self.log.partitions()) if _length_of(log) >= _RECORDS_BEFORE_CUT}
        keys: dict[int, list[ShareKey]] = {index: [] for index in long}
        for key in self.coordinator.all_keys() if long else ():
            keys.get(self.log.partition_of(key.text), []).append(key)
        due = [
            (log, log.end_offset, keys[index])
            for index, log in long.items()
            if _length_of(log) >= _RECORDS_PER_KEY_BEFORE_CUT * len(keys[index])
        ]
        try:
            for log, _, _ in due:
                log.roll(self._runtime.now_ms())  # so that what is superfluous has files of its own
        except HeadraceError as error:
            _log.error("superfluous state of share groups could not be deleted", error=str(error))
            return
        if due:
            self._is_cutting = True
            self._in_background(self._cut(due, self.coordinator))

    async def _cut(self, due: Sequence[tuple[Log, int, Iterable[ShareKey]]], coordinator: ShareCoordinator) -> None:
        """Write anew all that partitions of the topic say, a portion at a time, and delete what they said before.

        The end of each and its keys are of the same moment: what has come since then is behind that end. If the topic
        was read anew meanwhile, there may be a key of which no snapshot was written, and nothing is deleted.
        """
        try:
            for log, end, keys in due:
                if await self.submit_all(SnapshotWanted(key) for key in keys) and self.coordinator is coordinator:
                    await self._delete_before(log, end)
        finally:
            self._is_cutting = False

    async def _delete_before(self, log: Log, offset: int) -> None:
        directory = self._runtime.directory
        try:
            await self._runtime.in_thread(log.flush)  # with `durability = "os"` the snapshots are not on the disk yet
            await self._runtime.in_thread(lambda: directory.delete_records(log.topic_partition, offset, log=log))
        except Exception as error:  # noqa: BLE001 - it is tried again at the next look
            _log.error("superfluous state of share groups could not be deleted", error=str(error))

    def close(self) -> None:
        self._shell.close()
        self.letters.close()
        if self._cut_timer:
            self._cut_timer.cancel()
        for handle in self._locks.values():
            handle.cancel()


def _length_of(log: Log) -> int:
    return log.end_offset - log.start_offset
