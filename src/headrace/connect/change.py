"""What a source hands out: changes of rows, and the events beside them, in the order of the source's commits.

A change carries raw values, as the database sent them. The envelope writes them; nothing in between looks inside.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from headrace.connect.table import Row, Table

CREATE, UPDATE, DELETE, READ, TRUNCATE, MESSAGE = "c", "u", "d", "r", "t", "m"
OPERATIONS: Final = (CREATE, UPDATE, DELETE, READ, TRUNCATE, MESSAGE)

Position: TypeAlias = dict[str, Any]  # JSON; only the source that made it understands it


@dataclass(frozen=True, slots=True)
class Origin:
    """What all changes of one transaction share; `members` is their part of the `source` block, as JSON members."""

    transaction_id: str | None
    ts_us: int
    members: str

    @property
    def ts_ms(self) -> int:
        """When the transaction was committed, or the row read."""
        return self.ts_us // 1000


class Change(NamedTuple):
    """One row's change; `place` is its own part of the `source` block, as JSON members."""

    table: Table
    op: str
    before: Row | None
    after: Row | None
    origin: Origin
    place: str


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """A transaction is complete; what it held stands before it."""

    origin: Origin


@dataclass(frozen=True, slots=True)
class Message:
    """A message that an application wrote into the database's log."""

    prefix: str
    content: bytes
    transactional: bool
    origin: Origin
    place: str


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A table took another shape; the changes behind this event have it."""

    table: Table
    before: Table | None
    what: str
    origin: Origin
    place: str


@dataclass(frozen=True, slots=True)
class UnseenChange:
    """Rows of a table may have changed here, and the log does not tell which; `what` says how, in a clause.

    It stays inside a source, which does as its setting `unseen_changes` says.
    """

    table: Table
    what: str
    origin: Origin
    place: str
    because: str = ""  # why the table cannot be read again, if that is so


Event: TypeAlias = Change | TransactionEnd | Message | SchemaChange | UnseenChange


@dataclass(frozen=True, slots=True)
class Batch:
    """Events in order, and the position behind the last of them."""

    events: list[Event]
    position: Position
    is_last: bool = False  # nothing will ever come behind it
