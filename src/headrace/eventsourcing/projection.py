"""Projections: how events become views. Plain functions, each for one type of event; pure.

    accounts = Projection("accounts", category="account")

    @accounts.on
    def opened(view: View, event: Opened, stored: StoredEvent) -> None:
        view.put(stored.stream, {"owner": event.owner, "balance": 0})

    @accounts.on
    def deposited(view: View, event: Deposited, stored: StoredEvent) -> None:
        row = view.get(stored.stream)
        view.put(stored.stream, {**row, "balance": row["balance"] + event.amount})

Which events a function is for is read from the annotation of its second parameter; the third may be left out. A view
has one table of the projection's name, or the `tables` that are named: those with no columns hold rows by key, each a
JSON object; those with columns are written in one's own SQL (`view.run`), where `{name}` stands for the table.

What always holds: a projection sees only the events that it has functions for, in the order of positions. It has a
fingerprint of its code, by which a view that other code has made is known; code of other packages is not looked into:
give the projection another `version` then.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from headrace.errors import nearest
from headrace.eventsourcing.aggregate import Fingerprint, second_types
from headrace.eventsourcing.errors import InvalidProjection
from headrace.eventsourcing.event_types import EVENT_TYPES, EventTypes
from headrace.eventsourcing.model import Query, StoredEvent, where

KEYED: Final = ""  # instead of a table's columns: rows by key
_MOST_BYTES: Final = 40  # of a table's name: PostgreSQL's are 63 bytes, and ours are longer while they are rebuilt
_NAMED: Final = re.compile(r"\{(\w+)\}")
F = TypeVar("F", bound=Callable[..., Any])


class Rows(Protocol):
    """A table whose rows are found by a key."""

    def get(self, key: str, default: Any = None) -> Any:
        """The row under a key."""
        ...

    def put(self, key: str, row: Any) -> None:
        """Replace the row under a key; it is a dict, or a dataclass, that JSON can hold."""
        ...

    def delete(self, key: str) -> None:
        """Have no row under a key."""
        ...


class View(Rows, Protocol):
    """What a projection's functions write to. As `Rows` it is its first table."""

    def table(self, name: str) -> Rows:
        """One of its tables."""
        ...

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """A statement in SQL, in the view's own transaction, with `?` for values and `{name}` for tables."""
        ...

    def write(self, statement: str, values: Sequence[Any]) -> None:
        """As `run`, for a table with columns, without an answer: calls in a row with one statement are sent together,
        which is much faster."""
        ...


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a view; `columns` are as in CREATE TABLE, each of `indexes` is what one is made on."""

    name: str
    columns: str = KEYED
    indexes: tuple[str, ...] = ()


Apply = Callable[[View, Any, StoredEvent], None]


class Projection:
    """What makes a view of events."""

    def __init__(
        self,
        name: str,
        *,
        tables: Mapping[str, str] | Iterable[str] = (),
        indexes: Mapping[str, Sequence[str]] | None = None,
        types: EventTypes = EVENT_TYPES,
        version: int = 1,
        category: str = "",
        tags: Iterable[str] = (),
    ) -> None:
        """`category` and `tags` are those of the events that it takes.

        `tables` are names, or names and columns: `{"balances": "owner text PRIMARY KEY, cents bigint"}`; `indexes` are
        columns by table: `{"balances": ["cents"]}`.
        """
        _check_table(f"projection {name!r}", name)
        self.name, self.types = name, types
        self.tables = _tables_of(name, tables, indexes or {})
        self._category, self._tags, self._version = category, tuple(tags), version
        where(tags=self._tags, category=category)  # what is wrong with them is said here
        self._functions: dict[type, tuple[Any, Apply]] = {}
        self._code = ""

    def __repr__(self) -> str:
        return f"Projection({self.name!r})"

    def on(self, function: F) -> F:
        """Register what events of one type do to the view."""
        kinds, has_stored = _event_types_of(function)
        if inspect.iscoroutinefunction(function):
            raise InvalidProjection(
                f"{function.__qualname__} is async, and a view's transaction does not wait: make it a plain function"
            )
        apply: Apply = function if has_stored else lambda view, event, _: function(view, event)
        for kind in kinds:
            if kind in self._functions and self._functions[kind][0].__qualname__ != function.__qualname__:
                both = f"{self._functions[kind][0].__qualname__} and {function.__qualname__}"
                raise InvalidProjection(
                    f"projection {self.name!r} has two functions for {kind.__name__}, {both}: keep one"
                )
            self.types.name_of(kind)  # it is an event
            self._functions[kind] = (function, apply)
        self._code = ""
        return function

    @property
    def appliers(self) -> dict[type, Apply]:
        """What to call for an event of each type."""
        return {kind: apply for kind, (_, apply) in self._functions.items()}

    @property
    def query(self) -> Query:
        """The events that it is made of."""
        if not self._functions:
            raise InvalidProjection(
                f"projection {self.name!r} has no functions: register one for each type of event with @{self.name}.on"
            )
        names = [self.types.name_of(kind) for kind in self._functions]
        return where(types=names, tags=self._tags, category=self._category)

    @property
    def fingerprint(self) -> str:
        """Of all code that makes the view, and of what it is made of."""
        if not self._code:
            digest = Fingerprint(str(self._version))
            digest.add([self.name, str(self.query), *(str(table) for table in self.tables)])
            functions = {self.types.name_of(kind): function for kind, (function, _) in self._functions.items()}
            for name in sorted(functions):
                digest.add(name)
                digest.add(functions[name])
            self._code = digest.text
        return self._code

    def table_named(self, name: str) -> Table:
        """One of its tables; the first, without a name."""
        if not name:
            return self.tables[0]
        for table in self.tables:
            if table.name == name:
                return table
        known = [table.name for table in self.tables]
        raise InvalidProjection(f"projection {self.name!r} has no table {name!r}: {nearest(name, known)}")

    def fill_names(self, statement: str, spelled: Mapping[str, str]) -> str:
        """A statement with its tables as they are called just now; other braces stay what they are."""
        return _NAMED.sub(lambda found: spelled.get(found[1], found[0]), statement)


def _check_table(what: str, name: str) -> None:
    if not name.isidentifier() or len(name.encode()) > _MOST_BYTES or "__" in name:
        raise InvalidProjection(
            f"{what} cannot be a table's name: use letters, digits and single underscores, {_MOST_BYTES} bytes or fewer"
        )


def _tables_of(
    name: str, given: Mapping[str, str] | Iterable[str], indexes: Mapping[str, Sequence[str]]
) -> tuple[Table, ...]:
    if isinstance(given, str):
        raise InvalidProjection(f"tables={given!r} is one text: give a list, as in tables=[{given!r}]")
    columns = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given, KEYED)
    columns = columns or {name: KEYED}
    for each in columns:
        _check_table(f"table {each!r}", each)
    for each in indexes:
        if each not in columns:
            raise InvalidProjection(f"projection {name!r} has no table {each!r} to index: {nearest(each, columns)}")
    return tuple(Table(each, made_of, tuple(indexes.get(each, ()))) for each, made_of in columns.items())


def _event_types_of(function: Any) -> tuple[list[type], bool]:
    """The event types of a function's second parameter, and whether it takes a third."""
    kinds = second_types(function, 2, 3)
    if not kinds:
        raise InvalidProjection(
            f"{function.__qualname__} must take a view and an event, whose type is annotated, and may take how it is "
            "stored: def opened(view: View, event: Opened, stored: StoredEvent)"
        )
    return kinds, len(inspect.signature(function).parameters) == 3
