"""What a partition of a queue is followed for: messages that wait, until when, and duplicates.

A message that asks to be delivered later is written to the schedule as a whole. When it is due, a copy of it is
appended to its partition, which says of which record it was made, and once that is durable the schedule says that it is
done, or when it is due again. So whatever is in the schedule and not done was delivered if its copy is behind the place
up to which the partition was followed, and only then: after a crash that much is looked through.

Time is the wall clock's. If it is set forward, messages come earlier by as much, five seconds later at most; if it is
set back, they come later. Of occurrences that were missed, while the broker was down or the clock was set, one is
delivered.
"""

from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.broker.queues.followers import (
    PORTION_BYTES,
    Follower,
    Reader,
    ScheduleLog,
    copies_between,
    size_of,
    when_durable,
)
from headrace.broker.queues.looking import Verdict
from headrace.broker.topics import Topic
from headrace.broker.turns import run_through
from headrace.delivery.duplicates import Duplicates, Window
from headrace.delivery.headers import (
    PLAIN,
    Delivery,
    InvalidHeader,
    headers_of_copy,
    parse_origin,
    read_delivery,
)
from headrace.delivery.schedule import (
    Entry,
    Place,
    Schedule,
    Timers,
    Waiting,
    given_name,
    name_of,
    write_done,
    write_duplicates,
    write_place,
    write_waiting,
)
from headrace.records import COPY_SEQUENCE, Record, build_batch
from headrace.storage.reading import first_at_or_after

if TYPE_CHECKING:
    from headrace.broker.runtime import Runtime

_RECORDS_A_PORTION: Final = 100  # what is written of them is one batch, and whoever reads a part of it decodes it all
_PORTIONS_A_ROUND: Final = 10


class Delivered(NamedTuple):
    """A copy that is in the log already."""

    number: int
    timestamp: int
    name: bytes | None


class QueueFollower(Follower):
    """Follows a partition for its own messages."""

    def __init__(
        self,
        runtime: "Runtime",
        schedule: ScheduleLog,
        topic: Topic,
        partition: int,
        *,
        known: Schedule,
        names: MutableMapping[bytes, int],
        place: Place,
    ) -> None:
        super().__init__(runtime, schedule, topic, partition, place)
        self._known: Schedule | None = known  # until it has begun
        self._names = names  # of the whole topic
        self.timers = Timers()
        self.duplicates = known.duplicates.get(self.at, Duplicates())
        self._window = Window()
        self._delivered: dict[int, Delivered] = {}
        self._owed: list[tuple[Entry, Waiting | None, bytes | None]] = []
        self.followed = 0  # nothing is known of what lies behind this
        if known.places.get(self.at) != place:
            self._owe(write_place(self.at, place))
            for chunk in self.duplicates.drop_from(place.offset):
                self._owe(write_duplicates(self.at, chunk, self.duplicates.chunks.get(chunk)))
        self.is_in = True  # its topic is a queue now
        self._place = place
        self._reader = Reader(self.log, place.offset)

    @property
    def since(self) -> int:
        """What came before this is as it was: nobody looked into it."""
        return self._place.since

    def opt(self, *, is_in: bool) -> None:
        """Take what records ask for from now on into account, or not."""
        if is_in and not self.is_in:
            self._place = self._place._replace(since=self.log.end_offset)
            self._owe(write_place(self.at, self._place))
            self.begun.clear()
            self.wake()
        elif self.is_in and not is_in:
            self.runtime.waiting.appended(self.log)  # groups may acquire all there is
        self.is_in = is_in

    # --- beginning

    async def begin(self) -> None:
        if self._known is not None:
            await self._resume(self._known)

    async def _resume(self, known: Schedule) -> None:
        """Find out what was delivered of what waits."""
        end = self.log.end_offset
        await when_durable(self.runtime, self.log, end)  # a copy that may yet be lost was not delivered
        now_ms = self.runtime.now_ms()
        self._delivered = await self.runtime.look_up(lambda: self._look_through(self._place.offset, end, now_ms))
        overdue = known.fill(self.at, self.timers, self._delivered)
        self._owed += [(entry, None, None) for entry in overdue]
        refs = [ref for each in self._delivered.values() if each.name and (ref := self._names.get(each.name))]
        while refs:
            found, unread = await self.runtime.turns.deferred(self.schedule.read(refs))
            for ref, waiting in found.items():
                before = self._delivered.get(waiting.record.offset)
                if waiting.partition == self.at.partition and before and before.number >= waiting.number:
                    self._finish(ref, waiting._replace(number=before.number), before.timestamp)
            refs = list(unread)
        self._delivered = {at: each for at, each in self._delivered.items() if at >= self._place.offset}
        self._known = None
        self.followed = self._place.offset
        self.runtime.waiting.appended(self.log)  # groups may acquire what was followed before

    def _look_through(self, start: int, end: int, now_ms: int) -> dict[int, Delivered]:
        """In a thread: the copies that were appended since the place was written, and the ids of the window before."""
        if self._place.newest_id_ms >= 0:
            self._fill_window(now_ms)
        delivered: dict[int, Delivered] = {}
        for record, text in copies_between(self.log, start, end):
            origin = parse_origin(text)
            if origin and origin[:2] == (self.name, self.at.partition) and origin.number is not None:
                schedule_id, unnamed = _read(record).schedule_id, b"@" + origin._replace(number=None).text
                name = given_name(schedule_id) if schedule_id else unnamed if unnamed in self._names else None
                delivered[origin.offset] = Delivered(origin.number, record.timestamp, name)
        return delivered

    def _fill_window(self, now_ms: int) -> None:
        window_ms = self.log.config.headrace_queue_dedup_window_ms
        first = first_at_or_after(self.log, self._place.newest_id_ms - window_ms)
        if first is None:
            return
        reader = Reader(self.log, max(first.offset, self._place.since))
        while records := run_through(reader.read(1000, self._place.offset)):
            for record in records:
                dedup_id = _read(record).dedup_id
                if dedup_id is not None and record.offset not in self.duplicates:
                    self._window.is_new(dedup_id, record.timestamp, window_ms, now_ms)

    @property
    def dropped_ids(self) -> int:
        """How many ids were forgotten before the end of their window, since there were too many."""
        return self._window.dropped

    @property
    def needed_offset(self) -> int:
        """What lies behind its place is looked through after a crash, and the ids of the window before it are read."""
        place, window_ms = self._written, self.log.config.headrace_queue_dedup_window_ms
        if place.newest_id_ms + window_ms <= self.runtime.now_ms():
            return place.offset
        first = first_at_or_after(self.log, place.newest_id_ms - window_ms)
        return place.offset if first is None else min(place.offset, first.offset)

    # --- what groups may have

    def judge(self, record: Record) -> Verdict:
        """What becomes of a record that was followed."""
        if record.offset < self._place.since:
            return Verdict.DELIVER
        delivery = _read(record, self.log.config.headrace_queue_ttl_ms)
        if delivery is PLAIN:
            return Verdict.DELIVER
        if delivery.is_delayed or delivery.cancels is not None:
            return Verdict.DELAYED
        if delivery.dedup_id is not None and record.offset in self.duplicates:
            return Verdict.DUPLICATE
        is_over = delivery.expires_ms is not None and delivery.expires_ms <= self.runtime.now_ms()
        return Verdict.EXPIRED if is_over else Verdict.DELIVER

    # --- at work

    def next_time_ms(self) -> int | None:
        return self.timers.next_due_ms()

    async def work(self) -> bool:
        self._write()
        if not self.begun.is_set():
            await self.schedule.when_durable()
            self.begun.set()
        is_delivering = await self._deliver()
        return await self._follow() or is_delivering

    async def _follow(self) -> bool:
        before = self.runtime.last_stable_offset(self.log)
        if self._reader.offset >= before:
            return False
        if not self.is_in:
            self._reader = Reader(self.log, before)
        now_ms = self.runtime.now_ms()
        chunks: set[int] = set()
        for _ in range(_PORTIONS_A_ROUND):
            for record in await self.runtime.turns.deferred(self._reader.read(_RECORDS_A_PORTION, before)):
                self._take(record, now_ms, chunks)
            if self._owes_a_portion() or self._reader.offset >= before:
                break
        for chunk in chunks:
            self._owe(write_duplicates(self.at, chunk, self.duplicates.chunks[chunk]))
        if self._owed or self.is_place_due(self._reader.offset):
            for chunk in self.duplicates.drop_before(self.log.start_offset):
                self._owe(write_duplicates(self.at, chunk, None))
            self._owe(self._write_place())
        self._write()
        self.followed = self._reader.whole_offset
        self.runtime.waiting.appended(self.log)  # groups may acquire what was followed
        return True

    def _write_place(self) -> Entry:
        self._place = self._place._replace(offset=self._reader.offset, newest_id_ms=self._window.newest_ms)
        return write_place(self.at, self._place)

    def _take(self, record: Record, now_ms: int, chunks: set[int]) -> None:
        """Note what a record asks for."""
        delivery = _read(record)
        if delivery is PLAIN or record.offset < self._place.since:
            return
        if delivery.dedup_id is not None:
            window_ms = self.log.config.headrace_queue_dedup_window_ms
            if not self._window.is_new(delivery.dedup_id, record.timestamp, window_ms, now_ms):
                chunks.add(self.duplicates.add(record.offset))
                return
        if delivery.cancels is not None:
            name = given_name(delivery.cancels)
            self._owe(write_done(self.topic_id, name, 0, 0), name=name)
        elif delivery.due_ms is not None:
            self._schedule(record, delivery, delivery.due_ms)

    def _schedule(self, record: Record, delivery: Delivery, due_ms: int) -> None:
        number = 0
        before = self._delivered.pop(record.offset, None)
        if before is not None:  # a crash took what was written of it, and not its copy
            if delivery.repeat is None:
                return
            number, due_ms = before.number + 1, delivery.repeat.next_due(due_ms, before.timestamp)
        name = name_of(delivery, self.name, self.at.partition, record.offset)
        waiting = Waiting(self.at.partition, due_ms, number, record)
        self._owe(write_waiting(self.topic_id, name, waiting), waiting, name)

    # --- delivering

    async def _deliver(self) -> bool:
        """Append copies of what is due, one batch of them; whether there may be more."""
        now_ms = self.runtime.now_ms()
        due = self.timers.pop_due(now_ms, _RECORDS_A_PORTION)
        if not due:
            return False
        try:
            found, unread = await self.runtime.turns.deferred(self.schedule.read([ref for _, ref in due]))
            chosen, left = self._choose([each for each in due if each[1] not in unread], found)
            if chosen:
                copies = [self._copy(place, waiting, now_ms) for place, (_, waiting) in enumerate(chosen)]
                batch = build_batch(copies, base_sequence=COPY_SEQUENCE)
                info = self.log.append(batch, now_ms=now_ms, leader_epoch=self.runtime.leader_epoch, from_client=False)
        except BaseException:  # nothing was appended: it is tried again
            for due_ms, ref in due:
                self.timers.add(due_ms, ref)
            raise
        for due_ms, ref in (*left, *(each for each in due if each[1] in unread)):
            self.timers.add(due_ms, ref)
        if chosen:
            await when_durable(self.runtime, self.log, info.last_offset + 1)
            for ref, waiting in chosen:
                self._finish(ref, waiting, now_ms)
            self._write()
        return True

    def _choose(
        self, due: Sequence[tuple[int, int]], found: Mapping[int, Waiting]
    ) -> tuple[list[tuple[int, Waiting]], Sequence[tuple[int, int]]]:
        """Of what is due, in its order, what still waits, as much as a batch takes; and what is left for another."""
        chosen: list[tuple[int, Waiting]] = []
        size = 0
        for position, (_, ref) in enumerate(due):
            waiting = found.get(ref)
            if waiting is None or not self._is_current(ref, waiting):
                continue
            size += size_of(waiting.record)
            if chosen and size > PORTION_BYTES:
                return chosen, due[position:]
            chosen.append((ref, waiting))
        return chosen, ()

    def _name(self, waiting: Waiting) -> bytes | None:
        return name_of(_read(waiting.record), self.name, waiting.partition, waiting.record.offset)

    def _is_current(self, ref: int, waiting: Waiting) -> bool:
        """Whether a message was neither cancelled nor replaced."""
        name = self._name(waiting)
        return name is None or self._names.get(name) == ref

    def _copy(self, place: int, waiting: Waiting, now_ms: int) -> Record:
        record = waiting.record
        return Record(place, now_ms, record.key, record.value, headers_of_copy(record, waiting.origin(self.name)))

    def _finish(self, ref: int, waiting: Waiting, at_ms: int) -> None:
        """Write that a message was delivered, and when it is due again."""
        if not self._is_current(ref, waiting):  # it was replaced meanwhile, and that stands for it
            return
        name, repeat = self._name(waiting), _read(waiting.record).repeat
        if repeat is None:
            self._owe(write_done(self.topic_id, name, waiting.partition, waiting.record.offset), name=name)
            return
        again = waiting._replace(due_ms=repeat.next_due(waiting.due_ms, at_ms), number=waiting.number + 1)
        self._owe(write_waiting(self.topic_id, name, again), again, name)

    # --- writing

    def _owe(self, entry: Entry, waiting: Waiting | None = None, name: bytes | None = None) -> None:
        self._owed.append((entry, waiting, name))

    def _owes_a_portion(self) -> bool:
        if len(self._owed) >= _RECORDS_A_PORTION:
            return True
        return sum(len(entry.value or b"") for entry, _, _ in self._owed) >= PORTION_BYTES

    def _write(self) -> None:
        """Write what is owed; what waits from then on is known by where it stands."""
        if not self._owed:
            return
        first = self.schedule.append([entry for entry, _, _ in self._owed])
        for ref, (_, waiting, name) in enumerate(self._owed, start=first):
            if waiting is not None:
                self.timers.add(waiting.due_ms, ref)
                if name is not None:
                    self._names[name] = ref
            elif name is not None:
                self._names.pop(name, None)
        self._owed.clear()
        if self._place != self._written:
            self.place_written(self._place)


def _read(record: Record, ttl_ms: int = -1) -> Delivery:
    """What a record asks for; one that came in another way than from a client may ask for it in any form."""
    try:
        return read_delivery(record, ttl_ms)
    except InvalidHeader:
        return PLAIN
