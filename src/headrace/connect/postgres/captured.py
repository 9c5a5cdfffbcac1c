"""The tables of a source: which they are, the shapes that they have, and how their rows are asked for.

Now and then it looks at the catalog for what the log does not tell (`table_states.py`). What it finds it writes into
the log as a mark, because the log may not have come so far yet: where the mark stands, everything before it has been
read, and there it is acted upon. Until then the old state is kept, so that a crash in between forgets nothing.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import psycopg

from headrace.connect.change import (
    TRUNCATE,
    Change,
    Event,
    Message,
    Origin,
    Place,
    Position,
    SchemaChange,
    UnseenChange,
)
from headrace.connect.incremental import Range, ReadChunk
from headrace.connect.postgres.catalog import Catalog, CatalogTable
from headrace.connect.postgres.chunks import is_standby, read_between
from headrace.connect.postgres.publication import NotPublished, ensure_publication
from headrace.connect.postgres.relation import Relation
from headrace.connect.postgres.rows import RowQuery
from headrace.connect.postgres.settings import PostgresSettings
from headrace.connect.postgres.shapes import Shapes
from headrace.connect.postgres.table_states import Look, TableState, look, new_parts, unseen_between
from headrace.connect.rereading import Rereading
from headrace.connect.table import Table
from headrace.telemetry.logs import get_logger

log = get_logger(__name__)
FOUND: Final = "headrace.tables"  # the prefix of messages that say what was found
_GONE: Final = "the table was dropped or renamed"


class CapturedTables:
    """What a source knows of its tables, over the connection that it asks questions with."""

    def __init__(
        self, connection: psycopg.Connection[tuple[Any, ...]], settings: PostgresSettings, stored: Position
    ) -> None:
        """`stored` is the position to go on from, empty at the beginning."""
        self._connection = connection
        self._settings = settings
        self._catalog = Catalog(connection)
        known: dict[str, str] = stored.get("shapes", {})
        self.refused: dict[str, str] = {}  # tables that are left out, and why; any thread may look
        self._listed = {table.full_name: table for table in self._every(known)}
        self._tables: dict[str, Table] = {}
        self._pending: set[str] = set()  # what was found of these stands in the log, and was not read there yet
        self._ahead = ""  # the horizon when all of these are taken; empty if it stays
        self._settle_xid = 0  # transactions before this one may have written to a table before it was published
        self.is_due = False  # whether a table was altered, so that it is time to look
        # Columns, and those of keys, that the log told of once and not any more: should they come back, nobody tells
        # their values.
        self._missed = {name: set(columns) for name, columns in stored.get("missed", {}).items()}
        self.queries: dict[str, RowQuery] = {}
        self.learn(known)
        self.states = {name: TableState.from_json(state) for name, state in stored.get("tables", {}).items()}
        self.horizon: str = stored.get("horizon", "")
        if not self.horizon:
            self.forget_past(known if stored else None)

    def forget_past(self, known: dict[str, str] | None = None) -> None:
        """Take the tables as they are now for the first look; with `known`, only those that were captured before."""
        seen = self._look(self.listed, "")
        self.states, self.horizon = seen.states, seen.horizon
        if known is not None:  # a position of a time when states were not kept
            published = self._published()
            for name in set(self.states) - published & set(known):
                if name in known:
                    self.states[name] = replace(self.states[name], id=0)  # it is not the table that was published
                else:
                    del self.states[name]

    def _look(self, tables: list[CatalogTable], since: str) -> Look:
        settings = self._settings
        return look(self._connection, tables, settings.filters.key_of, settings.publication_name, since)

    def _table_of(self, name: str) -> Table:
        """A table that was captured and may be gone, of which its key is remembered then."""
        return self._tables.get(name) or self.shapes.view(self.states[name].as_relation)

    def _published(self) -> set[str]:
        rows = self._connection.execute(
            "select schemaname || '.' || tablename from pg_publication_tables where pubname = %s",
            [self._settings.publication_name],
        )
        return {name for (name,) in rows}

    def _every(self, known: dict[str, str]) -> list[CatalogTable]:
        found = []
        for table in self._catalog.captured(self._settings.filters, known):
            if table.can_be_captured or table.full_name in known:
                found.append(table)
            else:  # one table holds up no other; it is looked at again and again
                self._refuse(table.full_name, str(table.refusal))
        name = self._settings.signal_table
        if name and all(table.full_name != name for table in found):
            found += [table for table in self._catalog.tables() if table.full_name == name]
        return found

    def learn(self, known: dict[str, str]) -> None:
        """Look at every table as it is now."""
        settings = self._settings
        self.shapes = Shapes(settings.schema_changes, settings.types, self._catalog.type, self._key_of, known)
        for table in self._listed.values():
            self._prepare(table)

    def _key_of(self, relation: Relation) -> tuple[str, ...]:
        """The key of a table whose whole row is its identity: its own, or else the chosen one."""
        return self._catalog.key_of(relation) or self._settings.filters.key_of(relation.full_name)

    def _prepare(self, table: CatalogTable) -> None:
        made = self._tables[table.full_name] = self.shapes.learn(self._catalog.relation(table))
        self.queries[table.full_name] = RowQuery(table, made, self._catalog.types_of(table.id))

    def publish(self) -> None:
        """Have the log hold the tables' changes."""
        settings = self._settings
        tables = [table for table in self._listed.values() if table.can_be_captured]
        if ensure_publication(
            self._connection, settings.publication_name, tables, managed=settings.managed_publication
        ):
            row = self._connection.execute("select pg_current_xact_id()::text").fetchone()
            assert row is not None
            self._settle_xid = int(row[0])

    @property
    def listed(self) -> list[CatalogTable]:
        """The captured tables as the catalog has them; the signal table is none of them."""
        return [table for name, table in self._listed.items() if name != self._settings.signal_table]

    @property
    def every(self) -> list[Table]:
        """The captured tables in the shapes that they have in the log."""
        now = list(self._tables.items())  # in one step: another thread may ask, too
        return [table for name, table in now if name != self._settings.signal_table]

    def get(self, name: str) -> Table | None:
        """A captured table in the shape that it has in the log."""
        return None if name == self._settings.signal_table else self._tables.get(name)

    def __getitem__(self, name: str) -> Table:
        return self._tables[name]

    def resolve(
        self, relation: Relation, origin: Origin, place: Place, is_known: bool
    ) -> tuple[Table | None, list[Event]]:
        """What an announcement in the log means: the table, None if nobody wants it, and what is told of it."""
        name = relation.full_name
        events: list[Event] = []
        if not is_known:
            for called, state in self.states.items():
                if state.id == relation.id and called != name and called not in self._pending:
                    what = f"it was called {name} for a while"
                    events.append(UnseenChange(self._table_of(called), what, origin, place))
        if not self._settings.filters.captures(name) and name != self._settings.signal_table:
            return None, events
        if is_known:
            return self.shapes.recall(relation), []
        table, told = self.shapes.take(relation, origin, place)
        if table is not None:
            self._note_missing(self._tables.get(name, table), table)
            self._tables[name] = table
        last = self.states.get(name)
        is_other = last is not None and last.id != relation.id and name not in self._pending
        if last is not None and is_other:
            # Even if it goes away before anybody looks, its rows are told under this name.
            self.states[name] = replace(last, id=0)
        self.is_due |= bool(told) or last is None or is_other
        return table, [*events, *told]

    def _note_missing(self, before: Table, now: Table) -> None:
        """Rows in the log lack columns from here on, or are known by others."""
        if before is not now:
            missed = {column.name for column in before.columns} - {column.name for column in now.columns}
            missed |= {column.name for column in before.key_columns} - {column.name for column in now.key_columns}
            self._miss(now.full_name, missed)

    def types_of(self, table: Table) -> dict[str, str]:
        """The types of a table's columns by name, as SQL writes them."""
        return self._catalog.types_of(table.id)

    def read_between(self, wanted: Range, name: str) -> ReadChunk | None:
        """The next rows of a range, between watermarks of this name."""
        return read_between(
            self._connection, self._catalog, self.shapes, wanted, name, self._settings.chunk_rows
        )  # fmt: skip

    # --- what the log does not tell

    @property
    def is_settling(self) -> bool:
        """Whether it is too early to look: who wrote to a table before it was published may not have committed."""
        if not self._settle_xid:
            return False
        row = self._connection.execute("select pg_snapshot_xmin(pg_current_snapshot())::text").fetchone()
        if row is None or int(row[0]) <= self._settle_xid:
            return True
        self._settle_xid = 0
        return False

    def look(self) -> list[Event]:
        """Look for what happened to tables; it is written into the log, or answered where that takes no marks."""
        self.is_due = False
        signals = self._settings.signal_table
        every = [table for table in self._catalog.tables() if self._is_wanted(table.full_name)]
        before, self._listed = self._listed, {table.full_name: table for table in every}
        because = ""
        try:
            self.publish()
        except NotPublished as refusal:
            because = str(refusal)
        if self.is_settling:
            self._listed = before | self._listed  # new ones are found once more
            return []
        chosen = [table for table in every if table.full_name != signals]
        seen = self._look(chosen, self.horizon)
        found: dict[str, dict[str, Any]] = {}
        for table in chosen:
            name = table.full_name
            now = seen.states.get(name)
            if now is None or name in self._pending:
                continue
            lacks = "" if table.can_be_captured else str(table.refusal)
            old = self.states.get(name)
            if old is None:
                if lacks or because:
                    self._refuse(name, lacks or because)
                else:
                    self.refused = {other: why for other, why in self.refused.items() if other != name}
                    found[name] = {"state": now.as_json(), "new": True}
            elif what := unseen_between(old, now, seen.changed.get(name, ())) or self._came_back(
                table, is_changed=old.shape != now.shape
            ):
                reason = lacks or (because if old.id != now.id else "")
                found[name] = {
                    "state": now.as_json(), "what": what, "because": reason, "truncated": old.truncated
                }  # fmt: skip
            elif parts := new_parts(old, now):
                found[name] = {"state": now.as_json(), "parts": parts}
            else:
                self.states[name] = replace(now, truncated=old.truncated)
        for name in (self.states.keys() | self._tables.keys()) - self._listed.keys() - self._pending - {signals}:
            found[name] = {"gone": True}
        if not found:
            if not self._pending:
                self.horizon = seen.horizon
            return []
        if not self._pending:
            self._ahead = seen.horizon
        content = json.dumps({"reader": self._settings.slot, "tables": found})
        if is_standby(self._connection):
            return [Message(FOUND, content.encode(), True, Origin(None, 0), ())]
        self._pending |= found.keys()
        self._connection.execute("select pg_logical_emit_message(true, %s, %s::text)", [FOUND, content])
        return []

    def _came_back(self, table: CatalogTable, *, is_changed: bool) -> str:
        """What the log did not have for a while and the table has now, as a clause."""
        name = table.full_name
        if not is_changed and name not in self._missed:
            return ""
        there = self._catalog.types_of(table.id).keys()
        back = sorted(self._missed.get(name, set()) & there)
        if back:
            return f"{back[0]} was {'not in its key' if back[0] in table.key else 'no column of it'} for a while"
        known = self._tables.get(name)
        self._miss(name, {column.name for column in known.columns} - there if known is not None else set())
        return ""

    def _miss(self, name: str, columns: set[str]) -> None:
        if columns:
            self._missed.setdefault(name, set()).update(columns)

    @property
    def missed(self) -> dict[str, list[str]]:
        """Of each table, the columns that its topic may have old values of; as it is stored."""
        return {name: sorted(columns) for name, columns in self._missed.items()}

    def _is_wanted(self, name: str) -> bool:
        return self._settings.filters.captures(name) or name == self._settings.signal_table

    def _refuse(self, name: str, why: str) -> None:
        if self.refused.get(name) != why:
            self.refused = {**self.refused, name: why}
            log.warning("table not captured", table=name, reason=why, slot=self._settings.slot)

    def act(self, event: Event, rereading: Rereading) -> Iterator[Event]:
        """The event itself, or what follows from it if it is what a look found."""
        if isinstance(event, Message) and event.prefix == FOUND:
            report = json.loads(event.content)
            if report["reader"] == self._settings.slot:
                for name, found in report["tables"].items():
                    yield from self._take(name, found, event, rereading)
                if self._ahead and not self._pending:  # what was found counts once
                    self.horizon, self._ahead = self._ahead, ""
            return
        if isinstance(event, Change) and event.op == TRUNCATE and event.origin.transaction_id is not None:
            name = event.table.full_name
            if name in self.states:
                self.states[name] = self.states[name].after_truncate(event.origin.transaction_id)
                self.is_due = True  # its file is another one now, which must not be taken for the work of later DDL
        yield event

    def _take(self, name: str, found: dict[str, Any], mark: Message, rereading: Rereading) -> Iterator[Event]:
        self._pending.discard(name)
        incremental, origin, place = rereading.incremental, mark.origin, mark.place
        if "gone" in found:
            table = self._table_of(name)
            self.states.pop(name, None)
            self._missed.pop(name, None)
            self._tables.pop(name, None)
            self.shapes.forget(name)
            rereading.stopped.resume(name)
            incremental.remaining = incremental.remaining.without([name])
            yield SchemaChange(table, table, _GONE, origin, place)
            yield Change(table, TRUNCATE, None, None, origin, place)
            return
        here = next((table for table in self._catalog.tables() if table.full_name == name), None)
        if here is None:
            return  # it went meanwhile, which the next look finds
        before = self.states.get(name)
        if before is not None and before.truncated != found.get("truncated", before.truncated):
            self.is_due = True  # the log has told of a truncate since the look, which may explain what it found
            self._ahead = ""
            return
        self._missed.pop(name, None)
        self.states[name] = TableState.from_json(found["state"])
        if before is not None:
            self.states[name] = self.states[name].after_truncate(before.truncated)
        is_read = self._settings.snapshot != "never"
        if "new" in found:
            self._prepare(here)
            log.info("new table captured", table=name, slot=self._settings.slot)
            if is_read:
                incremental.remaining = incremental.remaining.with_tables([name])
        elif "parts" in found:
            for part in found["parts"] if is_read and name not in rereading.stopped else ():
                incremental.remaining = incremental.remaining.with_part(name, part)
        else:
            taken, told = self.shapes.take(self._catalog.relation(here), origin, place)
            yield from told
            if taken is not None:
                self._tables[name] = taken
                yield UnseenChange(taken, found["what"], origin, place, found["because"])
