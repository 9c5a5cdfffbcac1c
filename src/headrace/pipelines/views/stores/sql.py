"""What SQL stores share: a batch's rows, its number and its freshness in one transaction, and reading of whole batches.

A store brings the connection (`sqlite.py`, `postgres.py`, `duckdb.py`); the merge is that of the table sinks.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from headrace.pipelines.operators.tables.consolidate import FLAGS
from headrace.pipelines.sink.tables.following import Step
from headrace.pipelines.sink.tables.statements import BATCHES, Merge, TableName, create_batches, create_table
from headrace.pipelines.sink.tables.target import Target
from headrace.pipelines.sink.tables.transaction import Numbered, Run, record_batch, step_of
from headrace.pipelines.sink.tables.versions import switch_tables, target_beside
from headrace.pipelines.views.errors import NoSuchView
from headrace.pipelines.views.freshness import Freshness
from headrace.pipelines.views.question import Question
from headrace.pipelines.views.shape import Column, check_same
from headrace.pipelines.views.sql_answer import Dialect, Statement, by_key, select
from headrace.pipelines.views.stores.sql_books import Books, delete_statement, read_tally, tally_statement
from headrace.pipelines.views.stores.store import (
    MOST_LOGGED,
    Answer,
    Changes,
    Kept,
    Label,
    Row,
    ViewBatch,
    changes_of,
    check_tally,
    follows,
)
from headrace.pipelines.views.values import loaded_key

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headrace.pipelines.sink.tables.spool import Spool


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


def never_written(view: str) -> NoSuchView:
    """There is no such view in the store."""
    return NoSuchView(f"view {view!r} has never been written: run the file that declares it (headrace pipeline run)")
