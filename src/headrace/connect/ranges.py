"""What is left to read of tables in a snapshot: ranges of keys, each with how far it has come. Pure.

A range is read in the order of its table's key, so its lower bound is all that has to be remembered in between. Keys
are what the source can write to JSON and read back as it was; nothing here looks inside.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

Key: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """The rows of a table with keys above `after` and up to `upto`; None is the table's own end.

    `part` is the number of the only partition that is read, 0 if it is the whole table.
    """

    table: str
    after: Key | None = None
    upto: Key | None = None
    part: int = 0


@dataclass(frozen=True, slots=True)
class Remaining:
    """Every range that is not read to its end."""

    ranges: tuple[Range, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def moved(self, before: Range, after: Key) -> tuple[Self, Range]:
        """One range has come so far."""
        now = replace(before, after=after)
        return replace(self, ranges=tuple(now if found == before else found for found in self.ranges)), now

    def done(self, finished: Range) -> Self:
        """One range is read to its end."""
        return replace(self, ranges=tuple(found for found in self.ranges if found != finished))

    def with_tables(self, tables: Sequence[str]) -> Self:
        """More tables, each from its beginning; one that is being read begins anew."""
        kept = tuple(found for found in self.ranges if found.table not in tables)
        return replace(self, ranges=(*kept, *(Range(table) for table in tables)))

    def with_part(self, table: str, part: int) -> Self:
        """One partition of a table, unless all of that is to be read anyway."""
        wanted = Range(table, part=part)
        is_there = wanted in self.ranges or Range(table) in self.ranges
        return self if is_there else replace(self, ranges=(*self.ranges, wanted))

    def without(self, tables: Sequence[str]) -> Self:
        """Some tables are not to be read on."""
        return replace(self, ranges=tuple(found for found in self.ranges if found.table not in tables))

    @property
    def tables(self) -> list[str]:
        """The tables that are not read to their ends."""
        return list(dict.fromkeys(found.table for found in self.ranges))

    def as_json(self) -> list[dict[str, Any]]:
        """As it is stored."""
        return [
            {
                "table": found.table,
                "after": list(found.after) if found.after is not None else None,
                "upto": list(found.upto) if found.upto is not None else None,
                **({"part": found.part} if found.part else {}),
            }
            for found in self.ranges
        ]

    @classmethod
    def from_json(cls, stored: list[dict[str, Any]]) -> Self:
        """As it was stored."""
        return cls(
            tuple(
                Range(
                    one["table"],
                    tuple(one["after"]) if one["after"] is not None else None,
                    tuple(one["upto"]) if one["upto"] is not None else None,
                    one.get("part", 0),
                )
                for one in stored
            )
        )
