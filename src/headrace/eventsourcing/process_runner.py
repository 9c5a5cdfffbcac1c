"""What keeps processes going: events lead to steps, steps are carried out, deadlines fire, each exactly once.

    ProcessRunner(store, transferring).start()

All that a process does is appended to the store: its own event (`Advanced`), and together with it, in one append, the
events of the command that it has sent. So a command is carried out and crossed off in one step, or neither; a refused
one is crossed off with the refusal, before anything is done about it. The ids of appends are made of the process and of
what caused them, and the versions of its stream guard it: it does no harm to run several runners, or one that was
believed dead. After a crash another one goes on from what is stored, deadlines included.

Which processes have something to do is read from their events; a snapshot of that saves reading all of them.
"""

import heapq
import json
import threading
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from headrace.clock import Clock, SystemClock
from headrace.errors import HeadraceError
from headrace.eventsourcing.background import RETRY, TURN_S, Background
from headrace.eventsourcing.errors import EventSourcingError, ProcessFailed, Refused
from headrace.eventsourcing.event_types import dump, load
from headrace.eventsourcing.model import Snapshot, StoredEvent, where
from headrace.eventsourcing.process import ADVANCED, HEADER, Advance, Advanced, Cause, Process, Step, command_id
from headrace.eventsourcing.repository import Handled, Repository, Work
from headrace.eventsourcing.snapshots import Snapshots
from headrace.eventsourcing.store import EventStore, SnapshotStore
from headrace.eventsourcing.subscription import Received, Subscription
from headrace.forgetting.errors import SubjectForgotten
from headrace.forgetting.sealed import keys_of_state
from headrace.retry import Backoff
from headrace.status import Status
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)
S = TypeVar("S")
_SNAPSHOT_EVERY: Final = 1000  # events of processes
_MOST_DUE: Final = 100  # deadlines in memory before those that count no more are looked for
_FORM: Final = "open processes 1"


class _Open:
    """The processes that have something to do by themselves, by their last event."""

    def __init__(self, store: EventStore, process: Process[Any]) -> None:
        self._store, self._process = store, process
        self.instances: dict[str, tuple[int, Advanced]] = {}  # with the version
        self.input = 0
        self._due: list[tuple[int, str, str]] = []
        self._most_due = _MOST_DUE
        self._kept = 0
        position = self._load()
        self._news = Subscription(
            store, where(types=[ADVANCED], category=process.name), after=position, types=process.types
        )

    def learn(self) -> bool:
        """Read on to the end; whether there was something."""
        came = False
        while (batch := self._news.take()) is not None:
            for event, stored in batch.events:
                self.note(stored.stream.partition("-")[2], stored.version, event)
                came = True
        if self._news.position - self._kept >= _SNAPSHOT_EVERY:
            self.save()
        return came

    def note(self, ident: str, version: int, instance: Advanced) -> None:
        """What a process is now, unless something newer is known."""
        self.input = max(self.input, instance.input)
        if version <= self.instances.get(ident, (0, None))[0]:
            return
        if not instance.is_open:
            self.instances.pop(ident, None)
            return
        self.instances[ident] = version, instance
        for name, due_ms in instance.deadlines.items():
            heapq.heappush(self._due, (due_ms, ident, name))
        if len(self._due) > self._most_due:  # those that were moved or cancelled would stay until they had passed
            self._due = [
                (due_ms, each, name)
                for each, (_, known) in self.instances.items()
                for name, due_ms in known.deadlines.items()
            ]
            heapq.heapify(self._due)
            self._most_due = max(_MOST_DUE, 2 * len(self._due))

    def renew(self, ident: str, version: int, instance: Advanced) -> None:
        """What a process is now, though its version may be known: it opens no more once somebody is forgotten."""
        if version >= self.instances.get(ident, (0, None))[0]:
            self.instances.pop(ident, None)
            self.note(ident, version, instance)

    def with_steps(self) -> list[str]:
        return [ident for ident, (_, instance) in self.instances.items() if instance.todo]

    def next_due(self, now_ms: int) -> tuple[str, str, int] | None:
        """The first deadline that has passed: process, name, time."""
        while self._due and self._due[0][0] <= now_ms:
            due_ms, ident, name = self._due[0]
            if ident in self.instances and self.instances[ident][1].deadlines.get(name) == due_ms:
                return ident, name, due_ms
            heapq.heappop(self._due)  # it has fired, or was cancelled
        return None

    @property
    def next_due_ms(self) -> int | None:
        return self._due[0][0] if self._due else None

    # --- over a restart

    def _load(self) -> int:
        kept = self._store.read_snapshot(self._process.name, _FORM) if isinstance(self._store, SnapshotStore) else None
        if kept is None:
            return 0
        data, keys = kept.data, self._process.types.keys
        if keys is not None:
            opened = keys.open_state(data)
            if opened is None:
                return 0  # somebody in it was forgotten: all is read again
            data = opened[0]
        elif keys_of_state(data) is not None:
            return 0
        found = json.loads(data)
        self.input, self._kept = found["input"], kept.version
        for ident, (version, instance) in found["open"].items():
            self.note(ident, version, load(Advanced, dump(instance)))
        return kept.version

    def save(self) -> None:
        """Have the next runner begin here."""
        if not isinstance(self._store, SnapshotStore) or self._news.position == self._kept:
            return
        open_ = {ident: [version, instance] for ident, (version, instance) in self.instances.items()}
        data: bytes | None = dump({"input": self.input, "open": open_})
        told = {key_id for _, instance in self.instances.values() for key_id in instance.keys}
        if told and (keys := self._process.types.keys) is not None:
            data = keys.seal_state(data or b"", told)
        if data is None:
            return  # somebody was forgotten since; what is in the log says so
        self._store.write_snapshot(self._process.name, Snapshot(self._news.position, _FORM, data))
        self._kept = self._news.position


class ProcessRunner(Background, Generic[S]):
    """Keeps all processes of one kind going; one thread at a time does."""

    def __init__(
        self,
        store: EventStore,
        process: Process[S],
        *,
        clock: Clock = SystemClock(),  # noqa: B008 - it has no state
        retry: Backoff = RETRY,
        snapshots: Snapshots = Snapshots(),  # noqa: B008 - frozen
        after: int = 0,
        batch: int = 100,
    ) -> None:
        """`clock` is what deadlines go by; `retry` is how `run` goes on when the store is away.

        `snapshots` are those of the aggregates that commands are sent to, as a `Repository` has them.

        Events up to the position `after` lead to nothing: for a process that is new to a store with a history.
        """
        self._after = after
        super().__init__("process", process.name, retry)
        self.store, self.process, self._clock = store, process, clock
        self._repository = Repository(store, clock=clock, snapshots=snapshots)
        self._query, self._batch = process.query, batch
        self._open: _Open | None = None
        self._inputs: Subscription | None = None
        self._turn = threading.RLock()

    # --- going on

    def settle(self) -> None:
        """Do all that can be done now."""
        while self._advance(0.0):
            pass

    def _take_turn(self) -> None:
        self._advance(TURN_S)

    def _end(self) -> None:
        self._save()

    def _save(self) -> None:
        if self._open is not None:
            try:
                self._open.save()
            except EventSourcingError as error:
                _log.warning("open processes cannot be saved, and are read again", error=str(error))

    def _advance(self, timeout_s: float) -> bool:
        """Do some of it; whether there was anything. First what was begun, then what came, then what is overdue."""
        with self._turn:
            known, inputs = self._begin()
            did = known.learn()
            for ident in known.with_steps():
                did |= self._send_first(known, ident)
            before = inputs.position
            batch = inputs.take(0.0 if did else self._patience_s(known, timeout_s))
            if batch is not None:
                try:
                    for received in batch.events:
                        self._take(known, received, frozenset(inputs.opened.get(received.stored.position, ())))
                except BaseException:
                    inputs.move(before)  # those that were taken already are known by their ids
                    raise
                known.input = max(known.input, batch.position)
                return True
            while (due := known.next_due(self._clock.now_ms())) is not None:
                self._fire(known, *due)  # the process does not wait for it any more then
                did = True
            return did

    def _begin(self) -> tuple[_Open, Subscription]:
        if self._open is None or self._inputs is None:
            self._open = _Open(self.store, self.process)
            self._open.learn()
            self._inputs = Subscription(
                self.store,
                self._query,
                after=max(self._open.input, self._after),
                types=self.process.types,
                batch=self._batch,
            )
        return self._open, self._inputs

    def _patience_s(self, known: _Open, timeout_s: float) -> float:
        due_ms = known.next_due_ms
        return timeout_s if due_ms is None else max(0.0, min(timeout_s, (due_ms - self._clock.now_ms()) / 1000))

    # --- one thing that happens to a process

    def _take(self, known: _Open, received: Received, opened: frozenset[str]) -> None:
        event, stored = received
        process, ident = self.process, self.process.ident_of(event, stored)
        if not ident:
            return
        cause = Cause(stored.id, stored.correlation_id or stored.id, self._clock.now_ms(), stored.position, opened)

        def after(before: Advanced, version: int) -> Advanced | None:
            if before.is_over or (not version and not process.may_start(event)):
                return None
            return process.after_event(before, event, ident, cause)

        self._change(known, ident, after, cause, (stored.id,), f"{type(event).__name__} of {stored}")

    def _send_first(self, known: _Open, ident: str) -> bool:
        """Carry out the first step of a process, or cross it off as refused."""
        process, (_, instance) = self.process, known.instances.get(ident, (0, Advanced()))
        if not instance.todo:
            return False  # another runner was first, which was learned since
        step = instance.todo[0]
        command, aggregate = process.command_of(step), process.sends[step.aggregate]
        stream = process.stream(ident)

        def send(work: Work) -> tuple[Advanced, int] | None:
            loaded = work.load(process.aggregate, ident)
            if step not in loaded.state.todo:
                return None  # somebody else was first
            work.handle(aggregate, step.ident, command)
            after = process.after_step(loaded.state, step, known.input)
            work.handle(process.aggregate, ident, Advance(after))
            return after, loaded.version + 1

        try:
            handled = self._repository.run(
                send, command_id=command_id(stream, step.cause, step.number), causation_id=step.cause,
                correlation_id=step.correlation, headers={HEADER: stream},
            )  # fmt: skip
        except Refused as refused:
            self._refuse(known, ident, step, refused.reason)
            return True
        except SubjectForgotten:  # of one person, who must not hold up the others
            self._refuse(known, ident, step, "its subject was forgotten")
            return True
        self._note(known, ident, handled)
        return True

    def _refuse(self, known: _Open, ident: str, step: Step, reason: str) -> None:
        cause = Cause(step.cause, step.correlation, self._clock.now_ms(), known.input)

        def after(before: Advanced, _: int) -> Advanced | None:
            if step not in before.todo:
                return None
            return self.process.after_refusal(before, step, reason, ident, cause)

        what = f"the refusal of {step.command}"
        instance = self._change(known, ident, after, cause, (step.cause, step.number, "refused"), what)
        if instance is not None and instance.problem:
            _log.warning("a process has a problem", process=self.process.stream(ident), problem=instance.problem)

    def _fire(self, known: _Open, ident: str, name: str, due_ms: int) -> None:
        stream = self.process.stream(ident)
        now_ms = self._clock.now_ms()
        ident_of_cause = command_id(stream, "deadline", name, due_ms)
        cause = Cause(ident_of_cause, stream, now_ms, known.input)

        def after(before: Advanced, _: int) -> Advanced | None:
            if before.is_over or before.deadlines.get(name) != due_ms:
                return None
            return self.process.after_deadline(before, name, ident, cause)

        self._change(known, ident, after, cause, ("deadline", name, due_ms), f"the deadline {name!r}")

    def _change(
        self,
        known: _Open,
        ident: str,
        after: Callable[[Advanced, int], Advanced | None],
        cause: Cause,
        ids: tuple[str | int, ...],
        what: str,
    ) -> Advanced | None:
        """Append what a process is after something, if it changes it."""
        stream = self.process.stream(ident)

        def change(work: Work) -> tuple[Advanced, int] | None:
            loaded = work.load(self.process.aggregate, ident)
            try:
                advanced = after(loaded.state, loaded.version)
            except Exception as error:
                why = str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
                raise ProcessFailed(f"process {stream!r} could not go on with {what}: {why}") from error
            if advanced is None:
                return None
            work.handle(self.process.aggregate, ident, Advance(advanced))
            return advanced, loaded.version + 1

        handled = self._repository.run(
            change, command_id=command_id(stream, *ids), causation_id=cause.event_id,
            correlation_id=cause.correlation_id, headers={HEADER: stream},
        )  # fmt: skip
        self._note(known, ident, handled)
        return handled.result[0] if handled.result is not None else None

    def _note(self, known: _Open, ident: str, handled: Handled[tuple[Advanced, int] | None]) -> None:
        if handled.result is not None:
            known.note(ident, handled.result[1], handled.result[0])
        else:
            known.learn()  # somebody else has changed it, and it is in the log
            if ident in known.instances:  # or somebody whose values it had was forgotten, and it is over
                loaded = self._repository.load(self.process.aggregate, ident)
                known.renew(ident, loaded.version, loaded.state)

    # --- looking

    def state(self, ident: str) -> S:
        """The state of one process."""
        return self.process.state_of(self.instance(ident))

    def instance(self, ident: str) -> Advanced:
        """One process with what it has still to do."""
        return self._repository.load(self.process.aggregate, ident).state

    def history(self, ident: str) -> list[StoredEvent]:
        """What happened to one process."""
        return list(self.store.read_stream(self.process.stream(ident)))

    def status(self) -> Status:
        """How it stands, as parts of a stack report it."""
        with self._turn:
            known, inputs = self._begin()
            known.learn()
            lag = max(self.store.last_position() - inputs.position, 0)
            facts: dict[str, Any] = {
                "position": inputs.position, "lag_records": lag, "open": len(known.instances)
            }  # fmt: skip
        return self._report(**facts)
