"""The contract of every source: a position in, batches of events out, and an acknowledgement back.

Whoever runs a source calls, in this order: `open` with the position that it stored with the last records (None the
first time), `next_batch` again and again, `acknowledge` once a batch's records and position are durable, `close`.

What always holds:
- a batch's position stands for everything up to its last event: opened there, the source goes on with the next event
  and with nothing before it;
- the source keeps whatever it needs to go on from the last acknowledged position, and may forget what is before;
- an error that may pass is a `SourceUnavailable`; the source is then closed, and opened anew by the runtime.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, NamedTuple, Protocol, runtime_checkable

from headrace.connect.change import Batch, Position
from headrace.connect.table import Row, Table, TableName


class Source(Protocol):
    """Changes of one database."""

    def open(self, position: Position | None) -> None:
        """Begin behind this position, or at the beginning."""
        ...

    def next_batch(self, timeout_s: float) -> Batch | None:
        """The next events; None if there were none for that long. A batch without events moves the position alone."""
        ...

    def position(self) -> Position:
        """Behind the last batch that was handed out."""
        ...

    def acknowledge(self, position: Position) -> None:
        """Everything up to here is durable elsewhere."""
        ...

    def close(self) -> None:
        """Let go of everything; what is not acknowledged comes again after the next `open`."""
        ...


@runtime_checkable
class KnowsTables(Protocol):
    """A source that knows its tables before their first row."""

    def table_names(self) -> list[TableName]:
        """The captured tables, once it is open."""
        ...


@runtime_checkable
class TellsFacts(Protocol):
    """A source that knows something about itself: its slot, the log that is kept for it, how far snapshots are."""

    def facts(self) -> dict[str, Any]:
        """What is known now; asked from another thread than the one that reads."""
        ...


class TableRows(NamedTuple):
    """A table at one instant; `is_reached` says whether a capture at a position has told all that these rows hold."""

    table: Table
    chunks: Iterator[Sequence[Row]]
    is_reached: Callable[[Position], bool]


class TableReader(Protocol):
    """Reads captured tables beside a capture and changes nothing of it: what `headrace cdc verify` needs."""

    database: str

    def names(self) -> list[TableName]: ...

    def rows(self, name: str) -> AbstractContextManager[TableRows]:
        """One of them by its full name, as it is now."""
        ...


def chunked(rows: Iterator[Row], count: int = 5000) -> Iterator[Sequence[Row]]:
    while chunk := list(islice(rows, count)):
        yield chunk
