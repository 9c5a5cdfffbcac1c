"""What the envelope needs to know of the format in which records are written; `json_form.py` is one, `avro/` the other.

A *piece* is a part of a record as the format has it while the record is put together: wire text in JSON, bytes in Avro.
The envelope hands pieces around and never looks inside.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

from headrace.connect.change import Message, Origin, SchemaChange
from headrace.connect.table import Row, Table
from headrace.connect.transactions import Block

Piece: TypeAlias = Any
KeyAndValue: TypeAlias = tuple[bytes, bytes]
SchemaIds: TypeAlias = Callable[[str, str], int]  # of a subject and a schema's text; known to readers when it returns


class TableWriters(NamedTuple):
    """What was made for one shape of a table."""

    topic: str
    key: Callable[[Row], bytes | None]
    empty_key: bytes | None  # of a truncate: no row has it
    row: Callable[[Row], Piece]
    whole: Callable[[Row, Piece, Piece, Piece, str, Piece], tuple[bytes | None, bytes]]
    envelope: Callable[[Piece, Piece, Piece, Piece, str, Piece], bytes]  # before, after, origin, place, operation, end
    flat: Callable[[Row, bool], bytes]  # the row alone, and whether it is gone
    key_differs: Callable[[Row, Row], bool]
    headers: tuple[tuple[str, bytes], ...] = ()  # of every record of a row


class Form(Protocol):
    """How records are written."""

    @property
    def null(self) -> Piece:
        """What stands for a row that is not there."""
        ...

    def origin(self, origin: Origin) -> Piece:
        """What all changes of a transaction share of the `source` block."""
        ...

    def place(self, origin: Origin) -> Callable[[Any], Piece]:
        """A function that writes what each change of a transaction has alone: its place."""
        ...

    def end(self, block: Block | None, now_us: int) -> Piece:
        """What stands behind the operation: the transaction, and when the record was written."""
        ...

    def table(self, table: Table, topic: str) -> TableWriters:
        """The writers of a table; `whole` makes key and value of row, old row, origin, place, operation and end."""
        ...

    def transaction(self, told: dict[str, Any]) -> KeyAndValue:
        """Where a transaction begins or ends."""
        ...

    def message(self, message: Message, ts_ms: int, now_us: int) -> KeyAndValue:
        """A message of the database's log."""
        ...

    def schema_change(self, event: SchemaChange, now_us: int) -> KeyAndValue:
        """A table that took another shape."""
        ...
