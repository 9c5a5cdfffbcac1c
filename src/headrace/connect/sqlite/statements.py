"""The statements that capture is made of. Pure.

A row of the table of changes is a position, the shape of the table that was changed, an operation, a time, and the
values: those before in the first columns, those after behind them. These columns have no type, so SQLite keeps every
value as it was.

`REPLACE` needs care: rows that it removes fire no trigger unless the writer has set `recursive_triggers`. So what it
could remove is noted first, by a trigger that runs before (operation `x`), and the trigger that runs after makes
deletes of those notes whose row is gone. Where the statement came to nothing (`OR IGNORE`), the notes stay, are read by
nobody, and go with the next statement. Only an index over an expression is not looked into.
"""

# ruff: noqa: S608 - the names in these statements are quoted, and the capture's own is checked

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.connect.sqlite.shape import Shape

_NOW_MS = "CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)"
FIXED_COLUMNS = 4  # position, shape, op, at_ms
KINDS = ("before_insert", "after_insert", "before_update", "after_update", "after_delete")


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def tables_of(capture: str) -> list[str]:
    shapes = "id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, shape TEXT NOT NULL, active INTEGER NOT NULL"
    fixed = "shape INTEGER NOT NULL, op TEXT NOT NULL, at_ms INTEGER NOT NULL"
    is_new = f"NOT EXISTS (SELECT 1 FROM {capture}_state)"
    return [
        f"CREATE TABLE IF NOT EXISTS {capture}_shapes ({shapes})",
        f"CREATE TABLE IF NOT EXISTS {capture}_changes (position INTEGER PRIMARY KEY AUTOINCREMENT, {fixed}, v0)",
        f"CREATE INDEX IF NOT EXISTS {capture}_notes ON {capture}_changes (shape) WHERE op = 'x'",
        f"CREATE TABLE IF NOT EXISTS {capture}_state (installed TEXT NOT NULL, pruned INTEGER NOT NULL)",
        f"INSERT INTO {capture}_state SELECT lower(hex(randomblob(8))), 0 WHERE {is_new}",
    ]


def own_tables(capture: str) -> tuple[str, ...]:
    return (f"{capture}_shapes", f"{capture}_changes", f"{capture}_state")


def trigger_name(capture: str, shape_id: int, kind: str) -> str:
    return f"{capture}_{shape_id}_{kind}"


def note(capture: str, shape_id: int, op: str, why: str = "") -> str:
    """The statement that writes an event without values; `why` is free of quotes."""
    return f"INSERT INTO {capture}_changes (shape, op, at_ms, v0) VALUES ({shape_id}, '{op}', {_NOW_MS}, '{why}')"


def every_row(capture: str, shape: "Shape", shape_id: int) -> str:
    """The statement that writes every row of a table as read."""
    columns = [quote(name) for name in shape.names]
    places = _places(len(columns), len(columns))
    return (
        f"INSERT INTO {capture}_changes (shape, op, at_ms, {places}) "
        f"SELECT {shape_id}, 'r', {_NOW_MS}, {', '.join(columns)} FROM {quote(shape.table)}"
    )


def late_values(capture: str, shape: "Shape", shape_id: int, added: Sequence[str]) -> str:
    """The statement that writes, as updates, the rows that have something in a new column.

    Its default, which every row got at once, or what somebody wrote before the triggers knew the column.
    """
    before = ["NULL" if name in added else quote(name) for name in shape.names]
    after = [quote(name) for name in shape.names]
    changed = " OR ".join(f"{quote(name)} IS NOT NULL" for name in added)
    return (
        f"INSERT INTO {capture}_changes (shape, op, at_ms, {_places(0, 2 * len(after))}) "
        f"SELECT {shape_id}, 'u', {_NOW_MS}, {', '.join(before + after)} FROM {quote(shape.table)} WHERE {changed}"
    )


def triggers_of(capture: str, shape: "Shape", shape_id: int) -> list[str]:
    table = quote(shape.table)
    count = len(shape.columns)
    watched = sorted({name for unique in shape.uniques for name in unique.columns} | set(shape.key))
    watched = watched if shape.key else []  # a row's number is no column that could be named there

    def trigger(kind: str, when: str, *statements: str) -> str:
        body = " ".join(f"{statement};" for statement in statements)
        return f"CREATE TRIGGER {trigger_name(capture, shape_id, kind)} {when} ON {table} FOR EACH ROW BEGIN {body} END"

    def write(op: str, *rows: str) -> str:
        first = 0 if "OLD" in rows else count
        values = [f"{row}.{quote(name)}" for row in rows for name in shape.names]
        return (
            f"INSERT INTO {capture}_changes (shape, op, at_ms, {_places(first, len(values))}) "
            f"VALUES ({shape_id}, '{op}', {_NOW_MS}, {', '.join(values)})"
        )

    notes = f"op = 'x' AND shape = {shape_id}"
    forget = f"DELETE FROM {capture}_changes WHERE {notes}"
    forget_old = f"{forget} AND {_noted_key(capture, shape, 'OLD')}"
    settle = (
        f"UPDATE {capture}_changes SET op = 'd' WHERE {notes} AND ({_noted_key(capture, shape, 'NEW')} "
        f"OR NOT EXISTS (SELECT 1 FROM {table} WHERE {_noted_key(capture, shape, table)}))"
    )
    not_itself = " AND ".join(f"{table}.{quote(name)} IS OLD.{quote(name)}" for name in shape.identity)
    return [
        trigger("before_insert", "BEFORE INSERT", forget, _note_rivals(capture, shape, shape_id, "1")),
        trigger("after_insert", "AFTER INSERT", settle, write("c", "NEW")),
        trigger(
            "before_update",
            f"BEFORE UPDATE{' OF ' if watched else ''}{', '.join(quote(name) for name in watched)}",
            forget,
            _note_rivals(capture, shape, shape_id, f"NOT ({not_itself})"),
        ),
        trigger("after_update", "AFTER UPDATE", forget_old, settle, write("u", "OLD", "NEW")),
        trigger("after_delete", "AFTER DELETE", forget_old, write("d", "OLD")),
    ]


def _places(first: int, count: int) -> str:
    return ", ".join(f"v{place}" for place in range(first, first + count))


def _noted_key(capture: str, shape: "Shape", row: str) -> str:
    """That a noted row is another."""
    return " AND ".join(f"{row}.{quote(name)} IS {capture}_changes.v{place}" for name, place in shape.identity.items())


def _note_rivals(capture: str, shape: "Shape", shape_id: int, condition: str) -> str:
    """Note the rows that stand in the way of the new one; without a unique index none does."""
    table = quote(shape.table)
    columns = [f"{table}.{quote(name)}" for name in shape.names]
    rivals = " OR ".join(
        "("
        + " AND ".join(
            f"{table}.{quote(name)} = NEW.{quote(name)} COLLATE {quote(collation)}"
            for name, collation in zip(unique.columns, unique.collations, strict=True)
        )
        + ")"
        for unique in shape.uniques
    )
    places = _places(0, len(columns))
    if shape.rowid:
        places += f", v{shape.identity[shape.rowid]}"
        columns.append(f"{table}.{quote(shape.rowid)}")
    return (
        f"INSERT INTO {capture}_changes (shape, op, at_ms, {places}) "
        f"SELECT {shape_id}, 'x', {_NOW_MS}, {', '.join(columns)} FROM {table} WHERE ({rivals or 0}) AND {condition}"
    )
