"""What SQL stores write beside a view's rows: its shape and freshness, and which keys the last batches changed.

Two tables: `headrace_views`, a row for each view, and `headrace_view_changes`. Both change in the transaction that
changes the rows.
"""

import json
from collections.abc import Sequence
from typing import Any

from headrace.pipelines.sink.tables.statements import TableName, listed, quoted
from headrace.pipelines.sink.tables.transaction import Run
from headrace.pipelines.views.freshness import Freshness, Standing
from headrace.pipelines.views.shape import Shape
from headrace.pipelines.views.stores.store import Kept, Label, Tally

VIEWS, CHANGES = "headrace_views", "headrace_view_changes"
_COLUMNS = "shape, revision, batch_id, row_count, written_ms, offsets, watermark_ms, logged_from"


class Books:
    """The two tables in one store; `mark` is its placeholder."""

    def __init__(self, run: Run, table: TableName, mark: str) -> None:
        self._run = run
        self._views, self._changes = table.sibling(VIEWS), table.sibling(CHANGES)
        self._mark = mark

    def create(self) -> None:
        """Make the tables where they are not there."""
        self._run(
            f"CREATE TABLE IF NOT EXISTS {self._views} (name VARCHAR(500) NOT NULL PRIMARY KEY, shape TEXT NOT NULL, "
            "revision BIGINT NOT NULL, batch_id BIGINT NOT NULL, row_count BIGINT NOT NULL, "
            "written_ms BIGINT NOT NULL, offsets TEXT NOT NULL, watermark_ms BIGINT, logged_from BIGINT NOT NULL)",
            (),
        )
        self._run(
            f"CREATE TABLE IF NOT EXISTS {self._changes} (name VARCHAR(500) NOT NULL, revision BIGINT NOT NULL, "
            "row_key TEXT NOT NULL, PRIMARY KEY (name, revision, row_key))",
            (),
        )

    def kept(self, label: Label) -> Kept | None:
        """What is known of a view."""
        found = self._run(
            f"SELECT {_COLUMNS} FROM {self._views} WHERE name = {self._mark}",  # noqa: S608
            (str(label),),
        )
        if not found:
            return None
        shape, revision, batch, rows, written, offsets, watermark, logged = found[0]
        standing = Standing(json.loads(offsets), watermark)
        return Kept(Shape.from_json(shape), Freshness(revision, batch, rows, written, standing), logged)

    def write(self, label: Label, kept: Kept) -> None:
        """Write down what is known of a view, and forget changes that are older than is told."""
        fresh = kept.freshness
        values = (
            str(label), kept.shape.to_json(), fresh.revision, fresh.batch, fresh.rows, fresh.written_ms,
            json.dumps(dict(fresh.standing.offsets)), fresh.standing.watermark_ms, kept.logged_from,
        )  # fmt: skip
        names = _COLUMNS.split(", ")
        self._run(
            f"INSERT INTO {self._views} (name, {_COLUMNS}) VALUES ({', '.join([self._mark] * len(values))}) "  # noqa: S608
            f"ON CONFLICT (name) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in names)}",
            values,
        )
        self._run(
            f"DELETE FROM {self._changes} WHERE name = {self._mark} AND revision <= {self._mark}",  # noqa: S608
            (str(label), kept.logged_from),
        )

    def log(self, label: Label, revision: int, stage: str, where: str) -> None:
        """Remember which keys a batch changed."""
        self._run(
            f"INSERT INTO {self._changes} (name, revision, row_key) "  # noqa: S608
            f"SELECT {self._mark}, {self._mark}, s.headrace_key FROM {stage} s WHERE {where}",
            (str(label), revision),
        )

    def changed(self, label: Label, since: int) -> list[str]:
        """The keys that changed after a revision."""
        found = self._run(
            f"SELECT DISTINCT row_key FROM {self._changes} WHERE name = {self._mark} AND revision > {self._mark} "  # noqa: S608
            "ORDER BY row_key",
            (str(label), since),
        )
        return [key for (key,) in found]

    def forget(self, label: Label) -> None:
        """Strike a view out."""
        for table in (self._views, self._changes):
            self._run(f"DELETE FROM {table} WHERE name = {self._mark}", (str(label),))  # noqa: S608


def tally_statement(table: TableName, stage: str, keys: Sequence[str]) -> str:
    """How the staged rows meet those that are there; to be asked before the merge."""
    same = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in keys)
    there, gone = f"t.{quoted(keys[0])} IS NOT NULL", "s.headrace_deleted"
    clash = f"NOT {gone} AND NOT s.headrace_known AND {there}"
    strange = f"s.headrace_known AND NOT {there}"
    return (
        f"SELECT count(*), count(CASE WHEN NOT {gone} AND NOT {there} THEN 1 END), "  # noqa: S608
        f"count(CASE WHEN {gone} AND {there} THEN 1 END), min(CASE WHEN {clash} THEN s.headrace_key END), "
        f"min(CASE WHEN {strange} THEN s.headrace_key END) FROM {stage} s LEFT JOIN {table} t ON {same}"
    )


def delete_statement(table: TableName, stage: str, keys: Sequence[str]) -> str:
    """What removes the rows that are gone: found by the view's own key, so that its size does not count."""
    names = listed(keys)
    chosen = names if len(keys) == 1 else f"({names})"
    return f"DELETE FROM {table} WHERE {chosen} IN (SELECT {names} FROM {stage} s WHERE s.headrace_deleted)"  # noqa: S608


def read_tally(rows: Sequence[tuple[Any, ...]]) -> Tally:
    """The answer to it."""
    return Tally(*rows[0])
