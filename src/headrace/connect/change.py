"""What a source hands out: changes of rows, and the events beside them, in the order of the source's commits.

A change carries raw values, as the database sent them. The envelope writes them; nothing in between looks inside.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from headrace.connect.table import Row, Table

CREATE, UPDATE, DELETE, READ, TRUNCATE, MESSAGE = "c", "u", "d", "r", "t", "m"
OPERATIONS: Final = (CREATE, UPDATE, DELETE, READ, TRUNCATE, MESSAGE)

Position: TypeAlias = dict[str, Any]  # JSON; only the source that made it understands it


def with_values(**members: Any) -> dict[str, Any]:
    """Members of a position, or of a source's facts: those that say something."""
    return {name: value for name, value in members.items() if value}


Member: TypeAlias = int | str | None  # of a `source` block
Place: TypeAlias = int | tuple[Member, ...] | None  # what a change has alone of it: one value, or several


@dataclass(frozen=True, slots=True)
class Origin:
    """What all changes of one transaction share of the `source` block, and the names of what each has alone.

    A place holds the values of `own`, but for the sequence: Debezium's text of the last commit before the transaction
    and of the change's own place, which follows from them.
    """

    transaction_id: str | None
    ts_us: int  # when the transaction was committed, or the row read
    snapshot: str = ""  # "false" of changes, "true" or "incremental" of rows that were read, "" if nothing is known
    shared: Mapping[str, Member] = field(default_factory=dict)
    own: tuple[str, ...] = ()
    committed_lsn: int | None = None  # where the last commit before it ended, in PostgreSQL's log

    @property
    def ts_ms(self) -> int:
        return self.ts_us // 1000

    @property
    def members(self) -> dict[str, Member]:
        """Its part of the `source` block."""
        if not self.snapshot:
            return {}
        times: dict[str, Member] = {"ts_ms": self.ts_us // 1000, "ts_us": self.ts_us, "ts_ns": self.ts_us * 1000}
        return {**times, "snapshot": self.snapshot, **self.shared}

    @property
    def sequence_head(self) -> str:
        """The sequence up to a change's own place, behind which `"]` closes it."""
        return '[null,"' if self.committed_lsn is None else f'["{self.committed_lsn}","'

    def placed(self, place: Place) -> dict[str, Member]:
        """The whole block of one change."""
        if self.own[:1] == ("sequence",):
            return {**self.members, "sequence": f'{self.sequence_head}{place}"]', self.own[1]: _one(place)}
        values = place if isinstance(place, tuple) else (place,) if self.own else ()
        return {**self.members, **dict(zip(self.own, values, strict=True))}


def _one(place: Place) -> Member:
    assert not isinstance(place, tuple)
    return place


class Change(NamedTuple):
    table: Table
    op: str
    before: Row | None
    after: Row | None
    origin: Origin
    place: Place


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
    place: Place


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A table took another shape; the changes behind this event have it."""

    table: Table
    before: Table | None
    what: str
    origin: Origin
    place: Place


@dataclass(frozen=True, slots=True)
class UnseenChange:
    """Rows of a table may have changed here, and the log does not tell which; `what` says how, in a clause.

    It stays inside a source, which does as its setting `unseen_changes` says.
    """

    table: Table
    what: str
    origin: Origin
    place: Place
    because: str = ""  # why the table cannot be read again, if that is so


class Ready(NamedTuple):
    """A record that needs no envelope: what is captured has the form of one."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...]
    origin: Origin


Event: TypeAlias = Change | TransactionEnd | Message | SchemaChange | UnseenChange | Ready


@dataclass(frozen=True, slots=True)
class Batch:
    """Events in order, and the position behind the last of them."""

    events: list[Event]
    position: Position
    is_last: bool = False  # nothing will ever come behind it


class Block(NamedTuple):
    """The number of a change in its transaction, and among those of its table."""

    id: str
    total_order: int
    data_collection_order: int


class TransactionLog:
    """Counts the changes of the transaction that is being written."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._total = 0
        self._by_table: dict[str, int] = {}

    @property
    def state(self) -> dict[str, Any] | None:
        """How far the transaction is counted that is not complete; None if there is none."""
        return None if self._id is None else {"id": self._id, "total": self._total, "tables": dict(self._by_table)}

    def resume(self, state: dict[str, Any]) -> None:
        """Go on counting where another was."""
        self._id, self._total, self._by_table = state["id"], state["total"], dict(state["tables"])

    def count(self, origin: Origin, table: str) -> tuple[Block, dict[str, Any] | None]:
        """The block of one more change, and at the first what says that its transaction began."""
        begun = None
        if origin.transaction_id != self._id:
            assert origin.transaction_id is not None
            self._id = origin.transaction_id
            self._total = 0
            self._by_table = {}
            begun = self._describe("BEGIN", origin)
        self._total += 1
        order = self._by_table[table] = self._by_table.get(table, 0) + 1
        return Block(str(self._id), self._total, order), begun

    def end(self, origin: Origin) -> dict[str, Any] | None:
        """What says that a transaction ended; None if nothing of it was captured."""
        if origin.transaction_id is None or origin.transaction_id != self._id:
            return None
        self._id = None
        return self._describe("END", origin)

    def _describe(self, status: str, origin: Origin) -> dict[str, Any]:
        ended = status == "END"
        tables = [{"data_collection": table, "event_count": count} for table, count in self._by_table.items()]
        return {
            "status": status,
            "id": origin.transaction_id,
            "event_count": self._total if ended else None,
            "data_collections": tables if ended else None,
            "ts_ms": origin.ts_ms,
        }
