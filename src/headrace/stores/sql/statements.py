"""The merge of a staged batch as SQL, for the stores that speak it: pure text.

All three take `INSERT … ON CONFLICT`. With a version, what was deleted is remembered with its version in a table
beside the target, in the same transaction: otherwise an older row that comes late would bring a deleted one back.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.stores.batch import DELETED

BATCHES = "headrace_batches"


@dataclass(frozen=True)
class TableName:
    """A table, perhaps in a schema."""

    name: str
    schema: str | None = None

    @classmethod
    def parse(cls, text: str) -> "TableName":
        """`table` or `schema.table`."""
        schema, dot, name = text.rpartition(".")
        return cls(name, schema if dot else None)

    def sibling(self, name: str) -> "TableName":
        """Another table in the same schema."""
        return TableName(name, self.schema)

    @property
    def tombstones(self) -> "TableName":
        """Where versions of deleted rows are remembered."""
        name = f"headrace_deleted_{self.name}"
        if len(name.encode()) > 63:  # PostgreSQL would cut it, perhaps to the same name as another table's
            name = f"headrace_deleted_{hashlib.sha256(self.name.encode()).hexdigest()[:32]}"
        return self.sibling(name)

    def __str__(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}" if self.schema else quoted(self.name)


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Sequence[str], prefix: str = "") -> str:
    """Names, quoted, with commas between."""
    return ", ".join(prefix + quoted(name) for name in names)


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
            chosen = listed(self.columns)
            return [
                f"INSERT INTO {self.table} ({chosen}) SELECT {chosen} FROM {self.stage} s WHERE {self.stage_where}"  # noqa: S608
            ]
        if not self.deletes:
            return [self._upsert()]
        if self.version is None:
            return [self._delete(), self._upsert()]
        return [self._bury(self.version), self._delete(), self._upsert(), self._unbury(self.version)]

    def _same_key(self, one: str, other: str) -> str:
        return " AND ".join(f"{one}.{quoted(key)} = {other}.{quoted(key)}" for key in self.keys)

    def _delete(self) -> str:
        if self.version is None:
            # Not EXISTS: SQLite would go through the whole stage for each row of the table.
            return (
                f"DELETE FROM {self.table} WHERE ({listed(self.keys)}) IN (SELECT {listed(self.keys)} "  # noqa: S608
                f"FROM {self.stage} s WHERE {self.stage_where} AND s.{quoted(DELETED)})"
            )
        version = quoted(self.version)
        newer = f" AND (t.{version} IS NULL OR s.{version} >= t.{version})"
        return (
            f"DELETE FROM {self.table} AS t WHERE EXISTS (SELECT 1 FROM {self.stage} s WHERE {self.stage_where} "  # noqa: S608
            f"AND s.{quoted(DELETED)} AND {self._same_key('s', 't')}{newer})"
        )

    def _upsert(self) -> str:
        rest = [column for column in self.columns if column not in self.keys]
        buried = ""
        newer = ""
        if self.version is not None:
            version = quoted(self.version)
            newer = f" WHERE t.{version} IS NULL OR excluded.{version} >= t.{version}"
            if self.deletes:
                buried = (
                    f" AND NOT EXISTS (SELECT 1 FROM {self.table.tombstones} d WHERE {self._same_key('d', 's')} "  # noqa: S608
                    f"AND (s.{version} IS NULL OR d.{version} > s.{version}))"
                )
        sets = ", ".join(f"{quoted(column)} = excluded.{quoted(column)}" for column in rest)
        action = f"DO UPDATE SET {sets}{newer}" if rest else "DO NOTHING"
        alive = f" AND NOT s.{quoted(DELETED)}" if self.deletes else ""
        return (
            f"INSERT INTO {self.table} AS t ({listed(self.columns)}) SELECT {listed(self.columns, 's.')} "  # noqa: S608
            f"FROM {self.stage} s WHERE {self.stage_where}{alive}{buried} ON CONFLICT ({listed(self.keys)}) {action}"
        )

    def _bury(self, version: str) -> str:
        columns = (*self.keys, version)
        return (
            f"INSERT INTO {self.table.tombstones} AS t ({listed(columns)}) SELECT {listed(columns, 's.')} "  # noqa: S608
            f"FROM {self.stage} s WHERE {self.stage_where} AND s.{quoted(DELETED)} AND s.{quoted(version)} IS NOT NULL "
            f"ON CONFLICT ({listed(self.keys)}) DO UPDATE SET {quoted(version)} = excluded.{quoted(version)} "
            f"WHERE excluded.{quoted(version)} >= t.{quoted(version)}"
        )

    def _unbury(self, version: str) -> str:
        """A key that lives again needs no tombstone: the row's own version guards it."""
        return (
            f"DELETE FROM {self.table.tombstones} AS d WHERE EXISTS (SELECT 1 FROM {self.stage} s "  # noqa: S608
            f"WHERE {self.stage_where} AND NOT s.{quoted(DELETED)} AND {self._same_key('s', 'd')} "
            f"AND s.{quoted(version)} >= d.{quoted(version)})"
        )


def create_table(table: TableName, columns: Sequence[tuple[str, str]], keys: Sequence[str]) -> str:
    """A table with these columns and types, and the keys as its primary key."""
    parts = [f"{quoted(name)} {kind}" for name, kind in columns]
    if keys:
        parts.append(f"PRIMARY KEY ({listed(keys)})")
    return f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(parts)})"


def create_batches(table: TableName, moment: str) -> str:
    """The memory of what was written; `moment` is the store's type for an instant."""
    return (
        f"CREATE TABLE IF NOT EXISTS {table} (sink VARCHAR(500) NOT NULL, query_id VARCHAR(100) NOT NULL, batch_id "
        f"BIGINT NOT NULL, superseded BOOLEAN NOT NULL, written_at {moment} NOT NULL, PRIMARY KEY (sink, query_id))"
    )
