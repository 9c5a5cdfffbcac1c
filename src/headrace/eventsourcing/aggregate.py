"""Aggregates: how a command becomes events, and how events become state. Plain functions over plain dataclasses; pure.

    account = Aggregate("account", Account)          # Account() is the state before the first event

    @account.decide
    def withdraw(state: Account, command: Withdraw) -> Withdrawn:
        if command.amount > state.balance:
            refuse(f"there are only {state.balance}")
        return Withdrawn(command.amount)

    @account.evolve
    def withdrawn(state: Account, event: Withdrawn) -> Account:
        return replace(state, balance=state.balance - event.amount)

Which function is meant for what is read from the annotation of its second parameter. A decision is an event, several,
or None; it may be `async`. `evolve` returns the new state, or None if it changed the given one. An event that no
function evolves leaves the state as it is, and so does one that was redacted (`Redacted`), unless there is a function
for those.

What always holds: state is a fold of events and of nothing else. A stored event that the code does not know, or knows
only in older versions, fails a fold; with `unknown="keep"` it leaves the state as it is, and is counted. A fold has a
fingerprint of its code (with that of its state, its events and their upcasts), by which a snapshot of another one is
known; code of other packages is not looked into: give the aggregate another `version` then.
"""

import dataclasses
import inspect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property, partial, partialmethod
from hashlib import sha256
from types import CodeType, FunctionType, MethodType, ModuleType, NoneType, UnionType
from typing import Any, Final, Generic, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from headrace.errors import nearest
from headrace.eventsourcing.command_shape import misfit
from headrace.eventsourcing.errors import (
    ForgottenState,
    InvalidCommand,
    InvalidEventType,
    Refused,
    UndecodableEvent,
    UnknownEventType,
)
from headrace.eventsourcing.event_types import EVENT_TYPES, EventTypes, dump, load
from headrace.eventsourcing.evolution import Several
from headrace.eventsourcing.model import StoredEvent, check_name
from headrace.eventsourcing.traces import Redacted
from headrace.forgetting.sealed import keys_of_state

S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Any])
_SIMPLE: Final = (
    int, float, str, bytes, bool, NoneType, type(Ellipsis), complex, Decimal, date, time, timedelta, UUID, range
)  # fmt: skip


def refuse(reason: str) -> NoReturn:
    """Refuse a command, in a function that decides about it."""
    raise Refused(reason)


@dataclass(slots=True)
class PassedBy:
    """Events that a fold left out: their data was redacted, or the code does not know their types."""

    redacted: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    opened: set[str] = field(
        default_factory=set
    )  # not left out: the keys of all whose personal values are in the state


class Aggregate(Generic[S]):
    """What decides about commands of one kind of thing, and folds its events."""

    def __init__(
        self,
        name: str,
        state: Callable[[], S],
        *,
        types: EventTypes = EVENT_TYPES,
        version: int = 1,
        unknown: Literal["fail", "keep"] = "fail",
    ) -> None:
        check_name("aggregate", name)
        if unknown not in ("fail", "keep"):
            raise InvalidCommand(f"aggregate {name!r}: unknown={unknown!r} is not possible: write 'fail' or 'keep'")
        if "-" in name:
            raise InvalidCommand(f"aggregate {name!r} has a dash in its name, and what is before the first dash of a "
                                 "stream is its category: leave it out")  # fmt: skip
        self.name = name
        self.types = types
        self.initial = state
        self._version = version
        self._keeps_unknown = unknown == "keep"
        self._deciders: dict[type, Callable[[S, Any], Any]] = {}
        self._evolvers: dict[type, Callable[[S, Any], S | None]] = {}
        self._fold = ("", 0)

    def __repr__(self) -> str:
        return f"Aggregate({self.name!r})"

    def stream(self, ident: str) -> str:
        """The stream of one of them."""
        return f"{self.name}-{ident}"

    def decide(self, function: F) -> F:
        """Register what decides about commands of one type."""
        self._register(self._deciders, function)
        return function

    def evolve(self, function: F) -> F:
        """Register what an event of one type does to the state."""
        if inspect.iscoroutinefunction(function):
            raise InvalidCommand(f"{function.__qualname__} is async, and a fold cannot wait: make it a plain function")
        self._register(self._evolvers, function)
        self._fold = ("", 0)
        return function

    def _register(self, functions: dict[type, Any], function: Any) -> None:
        for kind in _second_type(function):
            if functions.get(kind, function).__qualname__ != function.__qualname__:
                both = f"{functions[kind].__qualname__} and {function.__qualname__}"
                raise InvalidCommand(f"aggregate {self.name!r} has two functions for {kind.__name__}, {both}: keep one")
            functions[kind] = function

    # --- deciding

    def decision(self, state: S, command: Any) -> Any:
        """What the command leads to: events in any form, or an awaitable of them. Raises `Refused`."""
        decider = self._deciders.get(type(command))
        if decider is None:
            name, known = type(command).__name__, [each.__name__ for each in self._deciders]
            raise InvalidCommand(f"aggregate {self.name!r} decides about no command {name}: {nearest(name, known)}")
        if wrong := misfit(command):
            raise InvalidCommand(f"command {type(command).__name__} cannot be decided about: {wrong}")
        return decider(state, command)

    def command_type(self, name: str) -> type:
        """The class of commands under its name, as it is stored by those who send them later."""
        for each in self._deciders:
            if each.__qualname__ == name:
                return each
        known = [each.__qualname__ for each in self._deciders]
        raise InvalidCommand(f"aggregate {self.name!r} decides about no command {name}: {nearest(name, known)}")

    def events_of(self, decision: Any) -> list[Any]:
        """A decision as a list of events."""
        if decision is None:
            return []
        if inspect.isawaitable(decision):
            if inspect.iscoroutine(decision):
                decision.close()
            raise InvalidCommand(f"aggregate {self.name!r} decides in an async function here: use an AsyncRepository")
        if dataclasses.is_dataclass(decision):
            return [decision]
        if isinstance(decision, str | bytes) or not isinstance(decision, Iterable):
            raise InvalidCommand(
                f"aggregate {self.name!r} decided {decision!r}, which is not an event: return events or None"
            )
        return list(decision)

    # --- folding

    def evolved(self, state: S, event: Any) -> S:
        """The state after an event."""
        evolver = self._evolvers.get(type(event))
        if evolver is None:
            return state
        after = evolver(state, event)
        return state if after is None else after

    def fold(
        self, state: S, events: Iterable[StoredEvent], passed_by: PassedBy | None = None
    ) -> tuple[S, StoredEvent | None]:
        """The state after stored events, and the last of them; those that were `passed_by` are counted there."""
        last, decode, evolvers = None, self.types.decode, self._evolvers
        if passed_by is not None and self.types.keys is not None:
            decode = partial(decode, opened=passed_by.opened)
        for last in events:
            try:
                event = decode(last)
            except UnknownEventType as error:
                if not self._keeps_unknown:
                    raise
                if passed_by is not None:
                    passed_by.unknown[error.kind] += 1
                continue
            evolver = evolvers.get(type(event))
            if evolver is not None:
                if (after := evolver(state, event)) is not None:
                    state = after
            elif type(event) is Several:
                for each in event:
                    state = self.evolved(state, each)
            elif passed_by is not None and type(event) is Redacted:
                passed_by.redacted += 1
        return state, last

    # --- snapshots

    @property
    def fingerprint(self) -> str:
        """Of all code that makes the state."""
        upcasts = self.types.upcasts
        if self._fold[1] != len(upcasts) or not self._fold[0]:  # some are registered later than others
            parts = [(kind.__qualname__, kind, function) for kind, function in self._evolvers.items()]
            digest = Fingerprint(str(self._version))
            digest.add(self.initial)
            for name, kind, function in sorted(parts, key=lambda part: part[0]):
                digest.add((name, kind, function))
            for step in sorted(upcasts):
                digest.add((step, upcasts[step]))
            self._fold = (digest.text, len(upcasts))
        return self._fold[0]

    def dump_state(self, state: S, opened: Collection[str] = ()) -> bytes:
        """A state as a snapshot keeps it; sealed with the keys of all whose personal values are in it."""
        if not dataclasses.is_dataclass(state):
            kind = type(state).__name__
            raise InvalidEventType(
                f"the state of {self.name!r} is a {kind}, which no snapshot can keep: make it a dataclass"
            )
        data = dump(state)
        if not opened or self.types.keys is None:
            return data
        sealed = self.types.keys.seal_state(data, opened)
        if sealed is None:
            raise ForgottenState(f"somebody in the state of {self.name!r} was forgotten meanwhile")
        return sealed

    def load_state(self, data: bytes, opened: set[str] | None = None) -> S:
        """A state from a snapshot; `opened` gets the keys that it was sealed with."""
        if keys_of_state(data) is not None:
            if self.types.keys is None:
                raise UndecodableEvent(f"a snapshot of {self.name!r} is sealed, and there are no keys: call use_keys")
            found = self.types.keys.open_state(data)
            if found is None:
                raise ForgottenState(f"somebody in a snapshot of {self.name!r} was forgotten")
            data, key_ids = found
            if opened is not None:
                opened |= key_ids
        return load(type(self.initial()), data)


def _second_type(function: Any) -> list[type]:
    kinds = second_types(function, 2)
    if not kinds:
        raise InvalidCommand(
            f"{function.__qualname__} must take a state and a command or event, whose type is annotated: "
            "def withdraw(state: Account, command: Withdraw)"
        )
    return kinds


def second_types(function: Any, *counts: int) -> list[type]:
    """The types that a function's second parameter is annotated with; none if it has another count of parameters."""
    parameters = list(inspect.signature(function).parameters)
    kind = get_type_hints(function).get(parameters[1]) if len(parameters) in counts else None
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return list(kinds) if all(isinstance(each, type) for each in kinds) else []


class Fingerprint:
    """A hash over functions, what they call in their own package, and classes they use; the same in all processes."""

    def __init__(self, start: str) -> None:
        self._digest = sha256(start.encode())
        self._seen = set[int]()

    @property
    def text(self) -> str:
        return self._digest.hexdigest()[:32]

    def add(self, value: Any, package: str = "") -> None:
        if isinstance(value, _SIMPLE):
            self._update(repr(value))
        elif isinstance(value, tuple | list):
            for each in value:
                self.add(each, package)
        elif isinstance(value, frozenset | set):
            self._update(str(sorted(map(repr, value))))  # their own order differs from process to process
        elif isinstance(value, Mapping):
            for key in sorted(value, key=repr):
                self.add((key, value[key]), package)
        elif isinstance(value, CodeType):
            self._update(value.co_code.hex())
            self.add((value.co_names, value.co_varnames, value.co_freevars, value.co_consts), package)
        elif isinstance(value, FunctionType | type) and id(value) not in self._seen:
            own = (value.__module__ or "").partition(".")[0]
            if not package or own == package:
                self._seen.add(id(value))
                self._add_class(value, own) if isinstance(value, type) else self._add_function(value, own)
        else:
            self._add_wrapped(value, package)

    def _add_wrapped(self, value: Any, package: str) -> None:
        """What is in the place of a function, or holds values of its own."""
        if isinstance(value, Enum):
            self._update(repr(value))
        elif isinstance(value, partial | partialmethod):
            self.add((value.func, value.args, value.keywords), package)
        elif isinstance(value, classmethod | staticmethod | MethodType):
            self.add(value.__func__, package)
        elif isinstance(value, cached_property):
            self.add(value.func, package)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type) and id(value) not in self._seen:
            self._seen.add(id(value))
            self.add(tuple(getattr(value, each.name, None) for each in dataclasses.fields(value)), package)
        elif isinstance(wrapped := getattr(value, "__wrapped__", None), FunctionType):  # as functools.cache has it
            self.add(wrapped, package)

    def _add_function(self, function: FunctionType, package: str) -> None:
        self.add((function.__code__, function.__defaults__ or (), function.__kwdefaults__ or {}), package)
        for cell in function.__closure__ or ():
            self.add(cell.cell_contents, package)
        names = _names_in(function.__code__)
        for name in names:
            value = function.__globals__.get(name)
            if not isinstance(value, ModuleType):
                self.add(value, package)
            elif value.__name__.partition(".")[0] == package:  # whatever of it may be meant
                self.add([vars(value).get(other) for other in names], package)

    def _add_class(self, cls: type, package: str) -> None:
        for base in cls.__mro__[1:]:
            self.add(base, package)
        self._update(cls.__qualname__)
        for name, kind in vars(cls).get("__annotations__", {}).items():
            self._update(f"{name}: {kind}")
        for each in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
            self.add((each.default, each.default_factory), package)
        for kind in _classes_in(_hints_of(cls)):
            self.add(kind, package)
        if issubclass(cls, Enum):
            self.add([(each.name, each.value) for each in cls], package)
        for name, value in vars(cls).items():
            # What dataclass() and the like make is not by the user, and follows from the rest.
            if isinstance(value, FunctionType) and value.__code__.co_filename == "<string>":
                continue
            if isinstance(value, property):
                value = value.fget
            if not name.startswith("__") or isinstance(value, FunctionType):
                self._update(name)
                self.add(value, package)

    def _update(self, text: str) -> None:
        self._digest.update(text.encode(errors="backslashreplace"))
        self._digest.update(b"\0")


def _hints_of(cls: type) -> list[Any]:
    try:
        return list(get_type_hints(cls).values())
    except Exception:  # noqa: BLE001 - of names that are not there at run time; their text is all that counts then
        return []


def _classes_in(kinds: Iterable[Any]) -> Iterator[type]:
    """The classes that annotations are made of, such as Line in dict[str, Line]."""
    for kind in kinds:
        if isinstance(kind, type) and not get_args(kind):
            yield kind
        else:
            yield from _classes_in(get_args(kind))


def _names_in(code: CodeType) -> list[str]:
    """Every name that a function, or one inside it, looks up."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return [*code.co_names, *(name for each in inner for name in _names_in(each))]
