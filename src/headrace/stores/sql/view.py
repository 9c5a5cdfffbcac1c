"""Views in SQL databases: a batch's rows, its number and its freshness in one transaction, and whole batches read.

A store brings the connection, and how its readers wait; the merge is that of the batch sinks.
"""

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

from headrace.stores.batch import Numbered, Step, Target
from headrace.stores.sql.answer import Dialect, Statement, by_key, select
from headrace.stores.sql.database import Database, StagingDatabase
from headrace.stores.sql.statements import Merge, TableName, create_table, list_names, quote
from headrace.stores.sql.transaction import create_batches, read_step, record_batch, switch_tables, target_beside
from headrace.stores.views.question import Question
from headrace.stores.views.shape import Shape, check_same, load_key
from headrace.stores.views.store import (
    FLAGS,
    MOST_LOGGED,
    Answer,
    Changes,
    Freshness,
    Kept,
    Label,
    Row,
    Standing,
    Tally,
    ViewBatch,
    changes_of,
    check_tally,
    never_written,
    next_kept,
    take_over,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Run: TypeAlias = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
D = TypeVar("D", bound=Database)
VIEWS, CHANGES = "headrace_views", "headrace_view_changes"
_COLUMNS = "shape, revision, batch_id, row_count, written_ms, offsets, watermark_ms, logged_from"


class SqlStore(ABC):
    """Keeps each view as a table of its name."""

    engine: ClassVar[type[StagingDatabase]]

    @abstractmethod
    def writing(self, label: Label) -> AbstractContextManager[StagingDatabase]:
        """A connection for one view, with the tables that stand beside it; no other writes the view meanwhile."""

    def types(self, schema: "StructType", target: Target) -> dict[str, str]:
        from headrace.stores.frames import choose_types

        engine = self.engine
        return choose_types(schema, target, engine.type_of, f"{engine.kind} view {target.table}", engine.json_type)

    def prepare(self, found: "DataFrame") -> "DataFrame":
        return self.engine.prepare(found)

    def table(self, view: str) -> TableName:
        return TableName(view)

    def announce(self, db: Database, label: Label, revision: int) -> None:  # noqa: B027 - most say nothing
        """Let readers know, once the transaction is done; where nothing is said they look for themselves."""

    def write(self, batch: ViewBatch) -> Freshness | None:
        """Write a batch and its freshness as one; None if it is there already."""
        target = self._target(batch)
        types = self.types(batch.schema, target)
        numbered = Numbered(batch.query_id, batch.batch_id)
        table = self.table(batch.label.view).sibling(target.table)
        with self.writing(batch.label) as db:
            books = Books(db.run, table)
            with db.transaction():
                step = read_step(db, table, target, numbered)
                if step is Step.SKIP:
                    return None
                before = books.kept(batch.label)
                fresh_start = step is Step.START_OVER
                if fresh_start:
                    db.run(f"DROP TABLE IF EXISTS {table}")
                elif before:
                    check_same(str(batch.label), before.shape, batch.shape)
                rows = {name: kind for name, kind in types.items() if name not in FLAGS}
                db.run(create_table(table, list(rows.items()), target.keys))
                stage = db.stage(batch.spool, types)
                tally = Tally(*db.run(tally_statement(table, stage, target.keys))[0])
                check_tally(batch.label, target.keys, tally, upserts=batch.upserts)
                _, upsert = Merge(table, stage, tuple(rows), target.keys, deletes=True).statements()
                for statement in (delete_statement(table, stage, target.keys), upsert):
                    db.run(statement)
                record_batch(db, table, target, numbered, step, batch.now_ms)
                is_logged = tally.changed <= MOST_LOGGED
                kept = next_kept(before, batch, tally, logged=is_logged, fresh_start=fresh_start)
                if is_logged:
                    books.log(batch.label, kept.freshness.revision, stage)
                books.write(batch.label, kept)
                self.announce(db, batch.label, kept.freshness.revision)
        return kept.freshness

    def switch(self, view: str, version: int) -> None:
        new, live = Label(view, version), Label(view)
        with self.writing(live) as db:
            table = self.table(view)
            books = Books(db.run, table)
            with db.transaction():
                switch_tables(db, table, f"view:{view}", version)
                built = books.kept(new)
                if built is None:
                    return  # it was done before
                before = books.kept(live)
                kept = take_over(built, before)
                for label in (new, live):
                    books.forget(label)
                books.write(live, kept)
                self.announce(db, live, kept.freshness.revision)

    def make_books(self, db: Database, view: str) -> None:
        """Make the tables that stand beside views."""
        create_batches(db, self.table(view))
        Books(db.run, self.table(view)).create()

    def _target(self, batch: ViewBatch) -> Target:
        view = batch.label.view
        target = Target(
            self.table(view).name, f"view:{view}", batch.shape.key, delete_when="headrace_deleted",
            on_new_query=batch.on_new_query,
        )  # fmt: skip
        return target if batch.label.version is None else target_beside(target, batch.label.version)


class Connections(Generic[D]):
    """A connection for each thread that reads."""

    def __init__(self, make: Callable[[], D]) -> None:
        self._make = make
        self._own = threading.local()
        self._all: list[D] = []
        self.is_closed = False

    def get(self) -> D:
        """The thread's own."""
        db: D | None = getattr(self._own, "db", None)
        if db is None or db.is_broken:
            db = self._own.db = self._make()
            self._all.append(db)
        return db

    def drop(self) -> None:
        """The thread's own is of no use any more."""
        if getattr(self._own, "db", None) is not None:
            self._own.db.close()

    def close(self) -> None:
        self.is_closed = True
        for db in self._all:
            db.close()


class SqlReader:
    """Reads one view; every answer comes from one snapshot of the store."""

    def __init__(
        self,
        view: str,
        table: TableName,
        snapshot: Callable[[], AbstractContextManager[Run]],
        dialect: Dialect,
        *,
        wait: Callable[[int, float], None],
        close: Callable[[], None],
    ) -> None:
        """`snapshot` runs statements that see one moment."""
        self._label, self._table = Label(view), table
        self._snapshot, self._dialect = snapshot, dialect
        self.wait, self.close = wait, close

    def kept(self) -> Kept:
        with self._read() as (kept, _):
            return kept

    def row(self, values: Sequence[Any]) -> Answer:
        with self._read() as (kept, run):
            shape = kept.shape
            asked = by_key(self._table, shape, values, self._dialect)
            return Answer(kept, self._rows(kept, run, asked))

    def page(self, question: Question) -> Answer:
        with self._read() as (kept, run):
            return Answer(kept, self._rows(kept, run, select(self._table, kept.shape, question, self._dialect)))

    def changes(self, since: int) -> Changes:
        with self._read() as (kept, run):
            if not kept.logged_from <= since <= kept.freshness.revision:
                return Changes(kept, None)
            shape = kept.shape
            texts = Books(run, self._table).changed(self._label, since)
            if len(texts) > MOST_LOGGED:  # the whole view comes faster than so many rows one by one
                return Changes(kept, None)
            keys = {text: load_key(shape, text) for text in texts}
            rows: dict[str, Row] = {}
            for text, key in keys.items():
                asked = by_key(self._table, shape, list(key.values()), self._dialect)
                found = self._rows(kept, run, asked)
                if found:
                    rows[text] = found[0]
            return Changes(kept, changes_of(keys, rows))

    @contextmanager
    def _read(self) -> Iterator[tuple[Kept, Run]]:
        with self._snapshot() as run:
            kept = Books(run, self._table).kept(self._label)
            if kept is None:
                raise never_written(self._label.view)
            yield kept, run

    def _rows(self, kept: Kept, run: Run, asked: Statement) -> list[Row]:
        columns = kept.shape.columns
        return [
            {column.name: self._dialect.loaded(column, value) for column, value in zip(columns, row, strict=True)}
            for row in run(asked.text, asked.values)
        ]


class Books:
    """What stands beside a view's rows: its shape and freshness, and which keys the last batches changed.

    Two tables: `headrace_views`, a row for each view, and `headrace_view_changes`. Both change in the transaction that
    changes the rows.
    """

    def __init__(self, run: Run, table: TableName) -> None:
        self._run = run
        self._views, self._changes = table.sibling(VIEWS), table.sibling(CHANGES)

    def create(self) -> None:
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
        found = self._run(
            f"SELECT {_COLUMNS} FROM {self._views} WHERE name = ?",  # noqa: S608
            (str(label),),
        )
        if not found:
            return None
        shape, revision, batch, rows, written, offsets, watermark, logged = found[0]
        standing = Standing(json.loads(offsets), watermark)
        return Kept(Shape.from_json(shape), Freshness(revision, batch, rows, written, standing), logged)

    def write(self, label: Label, kept: Kept) -> None:
        """Write down what is known of a view, and drop changes that are not remembered any more."""
        fresh = kept.freshness
        values = (
            str(label), kept.shape.to_json(), fresh.revision, fresh.batch, fresh.rows, fresh.written_ms,
            json.dumps(dict(fresh.standing.offsets)), fresh.standing.watermark_ms, kept.logged_from,
        )  # fmt: skip
        names = _COLUMNS.split(", ")
        self._run(
            f"INSERT INTO {self._views} (name, {_COLUMNS}) VALUES ({', '.join(['?'] * len(values))}) "  # noqa: S608
            f"ON CONFLICT (name) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in names)}",
            values,
        )
        self._run(
            f"DELETE FROM {self._changes} WHERE name = ? AND revision <= ?",  # noqa: S608
            (str(label), kept.logged_from),
        )

    def log(self, label: Label, revision: int, stage: str) -> None:
        """Remember which keys a batch changed."""
        self._run(
            f"INSERT INTO {self._changes} (name, revision, row_key) "  # noqa: S608
            f"SELECT ?, ?, s.headrace_key FROM {stage} s",
            (str(label), revision),
        )

    def changed(self, label: Label, since: int) -> list[str]:
        """The keys that changed after a revision."""
        found = self._run(
            f"SELECT DISTINCT row_key FROM {self._changes} WHERE name = ? AND revision > ? "  # noqa: S608
            "ORDER BY row_key",
            (str(label), since),
        )
        return [key for (key,) in found]

    def forget(self, label: Label) -> None:
        for table in (self._views, self._changes):
            self._run(f"DELETE FROM {table} WHERE name = ?", (str(label),))  # noqa: S608


def tally_statement(table: TableName, stage: str, keys: Sequence[str]) -> str:
    """How the staged rows meet those that are there; to be asked before the merge."""
    same = " AND ".join(f"t.{quote(key)} = s.{quote(key)}" for key in keys)
    there, gone = f"t.{quote(keys[0])} IS NOT NULL", "s.headrace_deleted"
    clash = f"NOT {gone} AND NOT s.headrace_known AND {there}"
    strange = f"s.headrace_known AND NOT {there}"
    return (
        f"SELECT count(*), count(CASE WHEN NOT {gone} AND NOT {there} THEN 1 END), "  # noqa: S608
        f"count(CASE WHEN {gone} AND {there} THEN 1 END), min(CASE WHEN {clash} THEN s.headrace_key END), "
        f"min(CASE WHEN {strange} THEN s.headrace_key END) FROM {stage} s LEFT JOIN {table} t ON {same}"
    )


def delete_statement(table: TableName, stage: str, keys: Sequence[str]) -> str:
    """What removes the rows that are gone: found by the view's own key, so that its size does not count."""
    names = list_names(keys)
    chosen = names if len(keys) == 1 else f"({names})"
    return f"DELETE FROM {table} WHERE {chosen} IN (SELECT {names} FROM {stage} s WHERE s.headrace_deleted)"  # noqa: S608
