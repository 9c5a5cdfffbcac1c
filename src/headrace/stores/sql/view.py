"""What SQL stores share: a batch's rows, its number and its freshness in one transaction, and reading of whole batches.

A store brings the connection (`sqlite.py`, `postgres.py`, `duckdb.py`); the merge is that of the table sinks.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from headrace.stores.batch import Numbered, Step, Target
from headrace.stores.sql.answer import Dialect, Statement, by_key, select
from headrace.stores.sql.batch import Run, record_batch, step_of, switch_tables, target_beside
from headrace.stores.sql.statements import BATCHES, Merge, TableName, create_batches, create_table, listed, quoted
from headrace.stores.views.freshness import Freshness, Standing
from headrace.stores.views.question import Question
from headrace.stores.views.shape import Column, Shape, check_same
from headrace.stores.views.store import (
    FLAGS,
    MOST_LOGGED,
    Answer,
    Changes,
    Kept,
    Label,
    Row,
    Tally,
    ViewBatch,
    changes_of,
    check_tally,
    follows,
    never_written,
)
from headrace.stores.views.values import loaded_key

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headrace.stores.frames import Spool


class Writing(Protocol):
    """A connection that writes; no other writes the same view meanwhile."""

    run: Run

    def transaction(self) -> AbstractContextManager[Any]:
        """What is done inside is done whole, or not at all."""
        ...

    def stage(self, spool: "Spool", types: Mapping[str, str]) -> str:
        """Load the rows, with their flags, into a table that is gone with the connection; its name."""
        ...

    def exists(self, table: TableName) -> bool:
        """Whether a table is there."""
        ...

    def tell(self, label: Label, revision: int) -> None:
        """Let readers know, once the transaction is done."""
        ...


class SqlStore(ABC):
    """Keeps each view as a table of its name."""

    mark: str
    moment: str  # the type of an instant

    @abstractmethod
    def writing(self, label: Label) -> AbstractContextManager[Writing]:
        """A connection for one view."""

    @abstractmethod
    def types(self, schema: "StructType", target: Target) -> dict[str, str]:
        """The store's types of the columns that are spooled, flags included."""

    @abstractmethod
    def table(self, view: str) -> TableName:
        """The table of a view."""

    @abstractmethod
    def now(self, ms: int) -> Any:
        """An instant as the memory of batches keeps it."""

    def write(self, batch: ViewBatch) -> Freshness | None:
        """Write a batch and its freshness as one; None if it is there already."""
        target = self._target(batch)
        types = self.types(batch.schema, target)
        numbered = Numbered(batch.query_id, batch.batch_id)
        with self.writing(batch.label) as db:
            table = TableName.parse(target.table)
            table = replace(table, schema=self.table(batch.label.view).schema)
            batches, books = table.sibling(BATCHES), Books(db.run, table, self.mark)
            with db.transaction():
                step = step_of(db.run, batches, target, numbered, self.mark)
                if step is Step.SKIP:
                    return None
                before = books.kept(batch.label)
                fresh_start = step is Step.START_OVER
                if fresh_start:
                    db.run(f"DROP TABLE IF EXISTS {table}", ())
                elif before:
                    check_same(str(batch.label), before.shape, batch.shape)
                rows = {name: kind for name, kind in types.items() if name not in FLAGS}
                db.run(create_table(table, list(rows.items()), target.keys), ())
                stage = db.stage(batch.spool, types)
                tally = read_tally(db.run(tally_statement(table, stage, target.keys), ()))
                check_tally(batch.label, target.keys, tally, upserts=batch.upserts)
                _, upsert = Merge(table, stage, tuple(rows), target.keys, deletes=True).statements()
                for statement in (delete_statement(table, stage, target.keys), upsert):
                    db.run(statement, ())
                record_batch(db.run, batches, target, numbered, self.mark, step, self.now(batch.now_ms))
                is_logged = tally.changed <= MOST_LOGGED
                kept = follows(before, batch, tally, logged=is_logged, fresh_start=fresh_start)
                if is_logged:
                    books.log(batch.label, kept.freshness.revision, stage, "1 = 1")
                books.write(batch.label, kept)
                db.tell(batch.label, kept.freshness.revision)
        return kept.freshness

    def switch(self, view: str, version: int) -> None:
        """Let a version that was built beside take the view's place; once more changes nothing."""
        new, live = Label(view, version), Label(view)
        with self.writing(live) as db:
            table = self.table(view)
            books = Books(db.run, table, self.mark)
            with db.transaction():
                switch_tables(db.run, db.exists, table, f"view:{view}", version, self.mark)
                built = books.kept(new)
                if built is None:
                    return  # it was done before
                before = books.kept(live)
                revision = max(built.freshness.revision, before.freshness.revision if before else 0) + 1
                for label in (new, live):
                    books.forget(label)
                books.write(live, Kept(built.shape, replace(built.freshness, revision=revision), revision))
                db.tell(live, revision)

    def bookkeeping(self, run: Run, table: TableName) -> None:
        """Make the tables that stand beside views."""
        run(create_batches(table.sibling(BATCHES), self.moment), ())
        Books(run, table, self.mark).create()

    def _target(self, batch: ViewBatch) -> Target:
        view = batch.label.view
        target = Target(
            self.table(view).name, f"view:{view}", batch.shape.key, delete_when="headrace_deleted",
            on_new_query=batch.on_new_query,
        )  # fmt: skip
        return target if batch.label.version is None else target_beside(target, batch.label.version)


class SqlReader:
    """Reads one view; every answer comes from one snapshot of the store."""

    def __init__(
        self,
        view: str,
        table: TableName,
        snapshot: Callable[[], AbstractContextManager[Run]],
        dialect: Dialect,
        value: Callable[[Column, Any], Any],
        *,
        wait: Callable[[int, float], None],
        close: Callable[[], None],
    ) -> None:
        """`snapshot` gives a connection that sees one moment; `value` makes a stored value one of Python's."""
        self._label, self._table = Label(view), table
        self._snapshot, self._dialect, self._value = snapshot, dialect, value
        self.wait, self.close = wait, close

    def kept(self) -> Kept:
        """What is known of the view."""
        with self._read() as (kept, _):
            return kept

    def row(self, values: Sequence[Any]) -> Answer:
        """The row with this key, or none."""
        with self._read() as (kept, run):
            shape = kept.shape
            asked = by_key(str(self._table), shape, values, self._dialect)
            return Answer(kept, self._rows(kept, run, asked))

    def page(self, question: Question) -> Answer:
        """The rows that a question asks for."""
        with self._read() as (kept, run):
            return Answer(kept, self._rows(kept, run, select(str(self._table), kept.shape, question, self._dialect)))

    def changes(self, since: int) -> Changes:
        """What changed since a revision."""
        with self._read() as (kept, run):
            if not kept.logged_from <= since <= kept.freshness.revision:
                return Changes(kept, None)
            shape = kept.shape
            texts = Books(run, self._table, self._dialect.mark).changed(self._label, since)
            if len(texts) > MOST_LOGGED:  # the whole view comes faster than so many rows one by one
                return Changes(kept, None)
            keys = {text: loaded_key(shape, text) for text in texts}
            rows: dict[str, Row] = {}
            for text, key in keys.items():
                asked = by_key(str(self._table), shape, list(key.values()), self._dialect)
                found = self._rows(kept, run, asked)
                if found:
                    rows[text] = found[0]
            return Changes(kept, changes_of(keys, rows))

    @contextmanager
    def _read(self) -> Iterator[tuple[Kept, Run]]:
        with self._snapshot() as run:
            kept = Books(run, self._table, self._dialect.mark).kept(self._label)
            if kept is None:
                raise never_written(self._label.view)
            yield kept, run

    def _rows(self, kept: Kept, run: Run, asked: Statement) -> list[Row]:
        columns = kept.shape.columns
        return [
            {column.name: self._value(column, value) for column, value in zip(columns, row, strict=True)}
            for row in run(asked.text, asked.values)
        ]


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
