"""Statements for the stores that speak SQL: names, and the merge of a staged batch. Pure text.

All but MariaDB take `INSERT … ON CONFLICT`. With a version, what was deleted is remembered with its version in a table
beside the target, in the same transaction: otherwise an older row that comes late would bring a deleted one back.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.stores.batch import DELETED


@dataclass(frozen=True)
class TableName:
    """A table, perhaps in a schema. As a text it is what SQL takes; `plain` is for people."""

    name: str
    schema: str = ""

    @classmethod
    def parse(cls, text: str) -> "TableName":
        """`table` or `schema.table`."""
        schema, _, name = text.rpartition(".")
        return cls(name, schema)

    def sibling(self, name: str) -> "TableName":
        """Another table in the same schema."""
        return TableName(name, self.schema)

    def with_suffix(self, suffix: str) -> "TableName":
        return self.sibling(f"{self.name}__{suffix}")

    @property
    def state(self) -> "TableName":
        """Where a derived table's place in the log stands."""
        return self.with_suffix("sync")

    @property
    def tombstones(self) -> "TableName":
        """Where versions of deleted rows are remembered."""
        name = f"headrace_deleted_{self.name}"
        if len(name.encode()) > 63:  # PostgreSQL would cut it, perhaps to the same name as another table's
            name = f"headrace_deleted_{hashlib.sha256(self.name.encode()).hexdigest()[:32]}"
        return self.sibling(name)

    @property
    def plain(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name

    def __str__(self) -> str:
        return f"{quote(self.schema)}.{quote(self.name)}" if self.schema else quote(self.name)


def quote(name: str) -> str:
    """A name as SQL takes it, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def list_names(names: Iterable[str], prefix: str = "") -> str:
    """Names, quoted, with commas between."""
    return ", ".join(prefix + quote(name) for name in names)


def upsert_rows(table: TableName, columns: Sequence[str], keys: Sequence[str], source: str) -> str:
    """`INSERT … ON CONFLICT`, which all but MariaDB have."""
    sets = ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in columns if name not in keys)
    action = f"DO UPDATE SET {sets}" if sets else "DO NOTHING"
    return f"INSERT INTO {table} ({list_names(columns)}) {source} ON CONFLICT ({list_names(keys)}) {action}"


@dataclass(frozen=True)
class Merge:
    """Everything the statements depend on. `stage_where` picks the rows of the stage that count."""

    table: TableName
    stage: str
    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()
    version: str | None = None
    deletes: bool = False
    stage_where: str = "true"

    def statements(self) -> list[str]:
        """To be run in this order, in one transaction."""
        if not self.keys:
            chosen = list_names(self.columns)
            return [
                f"INSERT INTO {self.table} ({chosen}) SELECT {chosen} FROM {self.stage} s WHERE {self.stage_where}"  # noqa: S608
            ]
        if not self.deletes:
            return [self._upsert()]
        if self.version is None:
            return [self._delete(), self._upsert()]
        return [self._bury(self.version), self._delete(), self._upsert(), self._unbury(self.version)]

    def _same_key(self, one: str, other: str) -> str:
        return " AND ".join(f"{one}.{quote(key)} = {other}.{quote(key)}" for key in self.keys)

    def _delete(self) -> str:
        if self.version is None:
            # Not EXISTS: SQLite would go through the whole stage for each row of the table.
            return (
                f"DELETE FROM {self.table} WHERE ({list_names(self.keys)}) IN (SELECT {list_names(self.keys)} "  # noqa: S608
                f"FROM {self.stage} s WHERE {self.stage_where} AND s.{quote(DELETED)})"
            )
        version = quote(self.version)
        newer = f" AND (t.{version} IS NULL OR s.{version} >= t.{version})"
        return (
            f"DELETE FROM {self.table} AS t WHERE EXISTS (SELECT 1 FROM {self.stage} s WHERE {self.stage_where} "  # noqa: S608
            f"AND s.{quote(DELETED)} AND {self._same_key('s', 't')}{newer})"
        )

    def _upsert(self) -> str:
        rest = [column for column in self.columns if column not in self.keys]
        buried = ""
        newer = ""
        if self.version is not None:
            version = quote(self.version)
            newer = f" WHERE t.{version} IS NULL OR excluded.{version} >= t.{version}"
            if self.deletes:
                buried = (
                    f" AND NOT EXISTS (SELECT 1 FROM {self.table.tombstones} d WHERE {self._same_key('d', 's')} "  # noqa: S608
                    f"AND (s.{version} IS NULL OR d.{version} > s.{version}))"
                )
        sets = ", ".join(f"{quote(column)} = excluded.{quote(column)}" for column in rest)
        action = f"DO UPDATE SET {sets}{newer}" if rest else "DO NOTHING"
        alive = f" AND NOT s.{quote(DELETED)}" if self.deletes else ""
        return (
            f"INSERT INTO {self.table} AS t ({list_names(self.columns)}) SELECT {list_names(self.columns, 's.')} "  # noqa: S608
            f"FROM {self.stage} s WHERE {self.stage_where}{alive}{buried} "
            f"ON CONFLICT ({list_names(self.keys)}) {action}"
        )

    def _bury(self, version: str) -> str:
        columns = (*self.keys, version)
        return (
            f"INSERT INTO {self.table.tombstones} AS t ({list_names(columns)}) SELECT {list_names(columns, 's.')} "  # noqa: S608
            f"FROM {self.stage} s WHERE {self.stage_where} AND s.{quote(DELETED)} AND s.{quote(version)} IS NOT NULL "
            f"ON CONFLICT ({list_names(self.keys)}) DO UPDATE SET {quote(version)} = excluded.{quote(version)} "
            f"WHERE excluded.{quote(version)} >= t.{quote(version)}"
        )

    def _unbury(self, version: str) -> str:
        """A key that lives again needs no tombstone: the row's own version guards it."""
        return (
            f"DELETE FROM {self.table.tombstones} AS d WHERE EXISTS (SELECT 1 FROM {self.stage} s "  # noqa: S608
            f"WHERE {self.stage_where} AND NOT s.{quote(DELETED)} AND {self._same_key('s', 'd')} "
            f"AND s.{quote(version)} >= d.{quote(version)})"
        )


def create_table(table: TableName, columns: Sequence[tuple[str, str]], keys: Sequence[str]) -> str:
    """A table with these columns and types, and the keys as its primary key."""
    parts = [f"{quote(name)} {kind}" for name, kind in columns]
    if keys:
        parts.append(f"PRIMARY KEY ({list_names(keys)})")
    return f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(parts)})"
