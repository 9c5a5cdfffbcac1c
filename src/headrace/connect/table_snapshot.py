"""Rows of some tables, one table after the other in the order of their names, on from a place.

What sources share that read their first snapshot in one transaction of the database: SQLite, MariaDB and MySQL,
PostgreSQL by triggers. The place is the table that is being read, and the key of the last row that was handed out; a
table without a key begins anew.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

from headrace.connect.table import Row

T = TypeVar("T")
_BEHIND_ALL = "\U0010ffff"


def size_of(row: Row) -> int:
    """About how much memory a row takes: that of its texts and blobs."""
    return sum(len(value) for value in row if isinstance(value, str | bytes))


def take_some(rows: Iterator[Row], count: int, most_bytes: int) -> tuple[list[Row], bool]:
    """So many rows, or about so much of them; and whether it was one of the two, and not the end."""
    found: list[Row] = []
    size = 0
    for row in rows:
        found.append(row)
        size += size_of(row)
        if len(found) == count or size >= most_bytes:
            return found, True
    return found, False


class TableSnapshot(Generic[T]):
    def __init__(self, tables: Iterable[T], place: dict[str, Any] | None) -> None:
        found = sorted(tables, key=self.name_of)
        self._after: list[Any] | None = None
        if place is not None:
            found = [table for table in found if self.name_of(table) >= place["table"]]
            if found and self.name_of(found[0]) == place["table"]:
                self._after = place["after"]
        self.left = found
        self._rows: Iterator[Row] | None = None

    # --- what a database does its own way

    def name_of(self, table: T) -> str:
        raise NotImplementedError

    def key_of(self, table: T, row: Row) -> Sequence[Any] | None:
        """The key of a row as JSON; None if the table has none."""
        raise NotImplementedError

    def select(self, table: T, after: Sequence[Any] | None) -> Iterator[Row]:
        """The rows of a table behind a key, in the order of the keys."""
        raise NotImplementedError

    def leave(self) -> None:
        """A table is read to its end."""

    # --- reading

    @property
    def is_done(self) -> bool:
        return not self.left

    @property
    def begins_table(self) -> bool:
        """Whether the next row is the first that is read of its table in this run."""
        return self._rows is None and not self.is_done

    @property
    def place(self) -> dict[str, Any]:
        """Behind the last row that was read."""
        return {"table": self.name_of(self.left[0]) if self.left else _BEHIND_ALL, "after": self._after}

    def chunks(self, count: int = 5000) -> Iterator[list[Row]]:
        """All that is left, so many rows at a time."""
        while not self.is_done:
            yield self.read(count)[1]

    def read(self, count: int, most_bytes: int | None = None) -> tuple[T, list[Row]]:
        """Some rows of the first table that has any left; with `most_bytes` about so much of them."""
        table = self.left[0]
        if self._rows is None:
            self._rows = self.select(table, self._after)
        if most_bytes is None:
            rows = list(islice(self._rows, count))
            is_full = len(rows) == count
        else:
            rows, is_full = take_some(self._rows, count, most_bytes)
        if not is_full:
            self.leave()
            self._rows = self._after = None
            self.left = self.left[1:]
        elif (key := self.key_of(table, rows[-1])) is not None:
            self._after = list(key)
        return table, rows
