"""Process managers: an event leads to commands, a refused command to others, and a deadline that passes, too. Pure.

    transferring = Process("transferring", Transfer, sends=[account])     # Transfer() is the state at the beginning

    @transferring.starts("transfer")                                      # the event's field that names the process
    def requested(state: Transfer, event: TransferRequested, todo: Todo) -> None:
        state.source, state.target, state.cents = event.source, event.target, event.cents
        todo.send(account, event.source, Withdraw(event.cents))
        todo.wait("overdue", 60)

    @transferring.on                                                      # an event that one of its commands led to
    def withdrawn(state: Transfer, event: Withdrawn, todo: Todo) -> None:
        todo.send(account, state.target, Deposit(state.cents))

    @transferring.refused
    def deposit_refused(state: Transfer, command: Deposit, todo: Todo) -> None:
        todo.send(account, state.source, Refund(state.cents, todo.reason))

    @transferring.deadline("overdue")
    def overdue(state: Transfer, todo: Todo) -> None: ...

Functions change the state, or return another one, and say what is to be done. They do nothing else, as they may be
called more than once. The state is a dataclass; commands are dataclasses of fields that JSON can hold.

What always holds: a process is a stream of its own, `NAME-IDENT`, and each of its events (`Advanced`) has all that it
needs to go on: the state, what is still to be done, and its deadlines. The runner (`process_runner.py`) does the rest.
"""

import dataclasses
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final, Generic, TypeVar, overload

from headrace.errors import nearest
from headrace.eventsourcing.aggregate import Aggregate, second_types
from headrace.eventsourcing.errors import InvalidProcess
from headrace.eventsourcing.event_types import EVENT_TYPES, EventTypes, dump, load
from headrace.eventsourcing.model import MAX_NAME_BYTES, Query, StoredEvent, where
from headrace.eventsourcing.process_seals import PROCESS_SEAL

ADVANCED: Final = "process-advanced"
HEADER: Final = "process"  # of events that a process's command led to: its stream
S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Any])


# --- what a function wants done


@dataclass(frozen=True, slots=True)
class Send:
    """A command for an aggregate."""

    aggregate: str
    ident: str
    command: Any


@dataclass(frozen=True, slots=True)
class Wait:
    """A deadline."""

    name: str
    due_ms: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """A deadline that is not waited for any more."""

    name: str


@dataclass(frozen=True, slots=True)
class Effect:
    """Something outside, for the outbox."""

    payload: Mapping[str, Any]
    lane: str | None = None


@dataclass(frozen=True, slots=True)
class End:
    """The process is over."""


Wish = Send | Wait | Cancel | Effect | End


class Todo:
    """What a function of a process wants done. It is done after the function has returned, in this order."""

    def __init__(self, now_ms: int, reason: str = "") -> None:
        self.now_ms = now_ms
        self.reason = reason  # for which a command was refused
        self.wishes: list[Wish] = []

    def send(self, aggregate: Aggregate[Any], ident: str, command: Any) -> None:
        """Send a command to an aggregate."""
        self.wishes.append(Send(aggregate.name, ident, command))

    def wait(self, name: str, seconds: float) -> None:
        """Set a deadline, in the place of one of the same name."""
        self.wishes.append(Wait(name, self.now_ms + round(seconds * 1000)))

    def cancel(self, name: str) -> None:
        """Have no such deadline."""
        self.wishes.append(Cancel(name))

    def effect(self, payload: Mapping[str, Any], *, lane: str | None = None) -> None:
        """Have the outbox send something; what is in one lane is sent one after another."""
        self.wishes.append(Effect(payload, lane))

    def end(self) -> None:
        """Be over: what was asked for is still done, but no event and no deadline leads to anything any more."""
        self.wishes.append(End())


# --- what is stored


@dataclass(frozen=True)
class Step:
    """A command that is to be sent. `cause` is the id of the event that led to it."""

    number: int
    aggregate: str
    ident: str
    command: str
    fields: Any
    cause: str
    correlation: str


@dataclass(frozen=True)
class Outgoing:
    """An effect, under its idempotence key."""

    key: str
    payload: Any
    lane: str | None = None


@dataclass(frozen=True)
class Advanced:
    """A process as it is after one thing happened to it; the last one counts."""

    input: int = 0  # up to where events have been looked at for all processes of this kind
    state: Any = None
    todo: list[Step] = field(default_factory=list)
    deadlines: dict[str, int] = field(default_factory=dict)
    effects: list[Outgoing] = field(default_factory=list)  # new ones
    numbered: int = 0  # steps and effects so far
    is_over: bool = False
    problem: str = ""  # a command was refused, and there is no function for that
    keys: list[str] = field(default_factory=list)  # of all whose personal values it was told (`process_seals.py`)

    @property
    def is_open(self) -> bool:
        """Whether something is to be done by itself."""
        return bool(self.todo or (self.deadlines and not self.is_over))


@dataclass(frozen=True, slots=True)
class Advance:
    """The command that a process's own stream takes."""

    to: Advanced


@dataclass(frozen=True, slots=True)
class Cause:
    """What makes a process go on."""

    event_id: str
    correlation_id: str
    now_ms: int
    input: int
    keys: frozenset[str] = frozenset()  # that opened personal values of it


@dataclass(frozen=True, slots=True)
class _Input:
    """What leads an event to its process, and what that does with it."""

    function: Callable[..., Any]
    ident_of: Callable[[Any, StoredEvent], str]
    starts: bool


class Process(Generic[S]):
    """What leads from events to commands, for processes of one kind."""

    def __init__(
        self,
        name: str,
        state: Callable[[], S],
        *,
        sends: Sequence[Aggregate[Any]] = (),
        types: EventTypes = EVENT_TYPES,
    ) -> None:
        """`sends` are the aggregates that it sends commands to; all have their events in one store."""
        self.name, self.types, self._initial = name, types, state
        self.aggregate: Aggregate[Advanced] = Aggregate(name, Advanced, types=types)
        self.aggregate.decide(_advance)
        self.aggregate.evolve(_advanced)
        types.event(ADVANCED, personal=PROCESS_SEAL)(Advanced)
        if not dataclasses.is_dataclass(state()):
            raise InvalidProcess(f"the state of process {name!r} is not a dataclass: make it one, with defaults")
        self.sends = {each.name: each for each in sends}
        self._inputs: dict[type, _Input] = {}
        self._refusals: dict[type, Callable[..., Any]] = {}
        self._deadlines: dict[str, Callable[..., Any]] = {}

    def __repr__(self) -> str:
        return f"Process({self.name!r})"

    # --- registering

    def starts(self, key: str | Callable[[Any], str]) -> Callable[[F], F]:
        """Register what an event does that a process may begin with; `key` is its field that names the process."""
        return lambda function: self._register_input(function, _by_key(key), starts=True)

    @overload
    def on(self, key: str) -> Callable[[F], F]: ...

    @overload
    def on(self, key: F) -> F: ...

    def on(self, key: Any) -> Any:
        """Register what an event does to a process that has begun.

        As `@process.on` it is one that a command of the process has led to; as `@process.on("field")` the process is
        the one that the field names.
        """
        if inspect.isfunction(key) and len(inspect.signature(key).parameters) > 1:
            return self._register_input(key, self._ident_by_header, starts=False)
        return lambda function: self._register_input(function, _by_key(key), starts=False)

    def _register_input(self, function: F, ident_of: Callable[[Any, StoredEvent], str], *, starts: bool) -> F:
        for kind in _second_types(function):
            self.types.name_of(kind)
            self._add(self._inputs, kind, _Input(function, ident_of, starts), kind.__name__)
        return function

    def refused(self, function: F) -> F:
        """Register what is done when a command of one type was refused, for `todo.reason`."""
        for kind in _second_types(function):
            self._add(self._refusals, kind, function, kind.__name__)
        return function

    def deadline(self, name: str) -> Callable[[F], F]:
        """Register what is done when a deadline has passed."""

        def register(function: F) -> F:
            if len(inspect.signature(function).parameters) != 2:
                raise InvalidProcess(f"{function.__qualname__} must take a state and what is to be done: (state, todo)")
            self._add(self._deadlines, name, function, repr(name))
            return function

        return register

    def _add(self, known: dict[Any, Any], key: Any, value: Any, what: str) -> None:
        if key in known:
            raise InvalidProcess(f"process {self.name!r} has two functions for {what}: keep one")
        known[key] = value

    # --- whose an event is

    def stream(self, ident: str) -> str:
        return self.aggregate.stream(ident)

    @property
    def query(self) -> Query:
        """The events that lead to something."""
        if not any(each.starts for each in self._inputs.values()):
            raise InvalidProcess(f"process {self.name!r} begins with no event: register one with @{self.name}.starts")
        return where(types=[self.types.name_of(kind) for kind in self._inputs])

    def ident_of(self, event: Any, stored: StoredEvent) -> str:
        """The process that an event is for; empty if it is for none."""
        known = self._inputs.get(type(event))
        return "" if known is None else known.ident_of(event, stored)

    def may_start(self, event: Any) -> bool:
        return self._inputs[type(event)].starts

    def _ident_by_header(self, _: Any, stored: StoredEvent) -> str:
        category, _, ident = stored.headers.get(HEADER, "").partition("-")
        return ident if category == self.name else ""

    # --- going on

    def after_event(self, before: Advanced, event: Any, ident: str, cause: Cause) -> Advanced:
        """A process after an event."""
        return self._react(before, self._inputs[type(event)].function, (event,), ident, cause)

    def after_step(self, before: Advanced, step: Step, input_: int) -> Advanced:
        """A process after a command was carried out."""
        return replace(before, input=input_, effects=[], todo=[each for each in before.todo if each != step])

    def after_refusal(self, before: Advanced, step: Step, reason: str, ident: str, cause: Cause) -> Advanced:
        """A process after a command was refused."""
        command = self.command_of(step)
        after = self.after_step(before, step, cause.input)
        function = self._refusals.get(type(command))
        if function is None:
            return replace(after, problem=f"{step.command} for {step.aggregate} {step.ident!r} was refused: {reason}")
        return self._react(after, function, (command,), ident, cause, reason)

    def after_deadline(self, before: Advanced, name: str, ident: str, cause: Cause) -> Advanced:
        """A process after a deadline has passed."""
        left = {each: due for each, due in before.deadlines.items() if each != name}
        function = self._deadlines.get(name)
        if function is None:
            raise InvalidProcess(
                f"process {self.name!r} has no function for the deadline {name!r}: {nearest(name, self._deadlines)}"
            )
        return self._react(replace(before, deadlines=left), function, (), ident, cause)

    def _react(
        self, before: Advanced, function: Callable[..., Any], what: tuple[Any, ...], ident: str, cause: Cause,
        reason: str = "",
    ) -> Advanced:  # fmt: skip
        todo, state = Todo(cause.now_ms, reason), self.state_of(before)
        returned = function(state, *what, todo)
        state = state if returned is None else returned
        after = replace(before, input=cause.input, state=json.loads(dump(state)), effects=[])
        if cause.keys:
            after = replace(after, keys=sorted({*after.keys, *cause.keys}))
        for wish in todo.wishes:
            after = self._grant(after, wish, ident, cause)
        return after

    def _grant(self, after: Advanced, wish: Wish, ident: str, cause: Cause) -> Advanced:
        number = after.numbered + 1
        match wish:
            case Send(name, target, command):
                if self.sends.get(name) is None:
                    raise InvalidProcess(
                        f"process {self.name!r} sends to aggregate {name!r}, which is not among its `sends`: add it"
                    )
                self.sends[name].command_type(type(command).__qualname__)
                step = Step(
                    number, name, target, type(command).__qualname__, json.loads(dump(command)), cause.event_id,
                    cause.correlation_id,
                )  # fmt: skip
                return replace(after, todo=[*after.todo, step], numbered=number)
            case Wait(name, due_ms):
                if name not in self._deadlines:
                    raise InvalidProcess(
                        f"process {self.name!r} waits for {name!r}, and has no function for that deadline: "
                        f"{nearest(name, self._deadlines)}"
                    )
                return replace(after, deadlines={**after.deadlines, name: due_ms})
            case Cancel(name):
                left = {each: due for each, due in after.deadlines.items() if each != name}
                return replace(after, deadlines=left)
            case Effect(payload, lane):
                outgoing = Outgoing(f"{self.stream(ident)}/{number}", json.loads(dump(payload)), lane)
                return replace(after, effects=[*after.effects, outgoing], numbered=number)
            case End():
                return replace(after, is_over=True, deadlines={})

    def state_of(self, instance: Advanced) -> S:
        """The state of a process, as a function gets it."""
        initial = self._initial()
        return initial if instance.state is None else load(type(initial), dump(instance.state))

    def command_of(self, step: Step) -> Any:
        """The command that a step sends."""
        aggregate = self.sends.get(step.aggregate)
        if aggregate is None:
            raise InvalidProcess(
                f"process {self.name!r} has to send to aggregate {step.aggregate!r}, which is not among its `sends`: "
                "add it"
            )
        return load(aggregate.command_type(step.command), dump(step.fields))


def _advance(_: Advanced, command: Advance) -> Advanced:
    return command.to


def _advanced(_: Advanced, event: Advanced) -> Advanced:
    return event


def command_id(stream: str, *parts: str | int) -> str:
    """The id of what is appended for one cause: the same however often it is tried."""
    found = "/".join((stream, *map(str, parts)))
    return found if len(found.encode()) <= MAX_NAME_BYTES else sha256(found.encode()).hexdigest()


def _by_key(key: str | Callable[[Any], str]) -> Callable[[Any, StoredEvent], str]:
    if callable(key):
        return lambda event, _: key(event)
    return lambda event, _: str(getattr(event, key) or "")


def _second_types(function: Any) -> list[type]:
    kinds = second_types(function, 3)
    if not kinds or inspect.iscoroutinefunction(function):
        raise InvalidProcess(
            f"{function.__qualname__} must be a plain function of a state, an event or command whose type is "
            "annotated, and what is to be done: def withdrawn(state: Transfer, event: Withdrawn, todo: Todo)"
        )
    return kinds
