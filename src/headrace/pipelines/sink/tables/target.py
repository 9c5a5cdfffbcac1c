"""What a user says about a sink, checked when it is said."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from headrace.pipelines.sink.tables.errors import ColumnMismatch, SinkMisconfigured
from headrace.pipelines.sink.tables.following import OnNewQuery

DELETED = "headrace_deleted"  # the flag that goes with each row of a batch as far as the merge


@dataclass(frozen=True)
class Target:
    """Where the rows go and how they are merged.

    `keys` empty means append. `order_by` says which of several rows of one key in one batch is the last; without it
    the version counts, then a column `offset` if there is one. `columns` are those written; by default all, except a
    boolean column that only says what to delete.
    """

    table: str
    name: str
    keys: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    delete_when: str | None = None
    version: str | None = None
    columns: tuple[str, ...] = ()
    create: bool = True
    on_new_query: OnNewQuery = "refuse"

    def __post_init__(self) -> None:
        if not self.table:
            raise SinkMisconfigured("a sink needs a table to write to: table='...'")
        if self.on_new_query not in get_args(OnNewQuery):
            raise SinkMisconfigured(
                f"sink {self.name!r}: on_new_query is 'refuse', 'continue' or 'replace', not {self.on_new_query!r}"
            )
        if not self.keys:
            given = [
                word
                for word, value in (
                    ("delete_when", self.delete_when),
                    ("version", self.version),
                    ("order_by", self.order_by),
                )
                if value
            ]
            if given:
                raise SinkMisconfigured(
                    f"sink {self.name!r}: {given[0]} needs keys=[...]; without keys rows are only appended"
                )

    def written(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The columns that the table gets, of those that the DataFrame has."""
        self._require(columns, self.keys, "keys")
        self._require(columns, self.order_by, "order_by")
        self._require(columns, (self.version,) if self.version else (), "version")
        self._require(columns, self.columns, "columns")
        chosen = self.columns or tuple(column for column in columns if column != self.delete_when)
        for column in (*self.keys, *((self.version,) if self.version else ())):
            if column not in chosen:
                raise SinkMisconfigured(
                    f"sink {self.name!r}: the column {column!r} is a key or the version and has to be in columns=[...]"
                )
        if len(set(chosen)) < len(chosen):
            twice = next(column for column in chosen if chosen.count(column) > 1)
            raise ColumnMismatch(f"sink {self.name!r}: the column {twice!r} stands twice in the DataFrame", twice)
        return chosen

    def ordering(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The columns by which the last row of a key is told, most important first; none if nothing tells."""
        order = ((self.version,) if self.version else ()) + self.order_by
        if not order and "offset" in columns:
            return ("offset",)
        return order

    def _require(self, columns: Sequence[str], wanted: Iterable[str], setting: str) -> None:
        for column in wanted:
            if column not in columns:
                raise ColumnMismatch(
                    f"sink {self.name!r}: {setting} names the column {column!r}, and the DataFrame has only "
                    f"{', '.join(columns)}",
                    column,
                )


def words(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """One name or several, as a tuple."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)
