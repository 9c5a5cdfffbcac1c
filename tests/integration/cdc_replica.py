"""A copy of some tables, made from a source's events alone; it believes nothing: every image must fit what it has."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from headrace.connect.change import Batch, Change, Event, Position, SchemaChange
from headrace.connect.source import Source
from headrace.connect.table import Table

Rows = dict[tuple[Any, ...], dict[str, Any]]


class Replica:
    """What a consumer would hold; records and position are stored together, as the runtime does."""

    def __init__(self) -> None:
        self.tables: dict[str, Rows] = {}
        self.schema_changes: list[SchemaChange] = []
        self.events = 0
        self.was_emptied = False
        self.is_partial = False  # a snapshot goes on at a later instant: rows not read yet may change before they come

    def apply(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, SchemaChange):
                self.schema_changes.append(event)
                self._reshape(event)
            elif isinstance(event, Change):
                self.events += 1
                self._apply(event)

    def _reshape(self, event: SchemaChange) -> None:
        rows = self.tables.setdefault(event.table.full_name, {})
        new = {column.name for column in event.table.columns}
        for key, row in list(rows.items()):
            rows[key] = {name: value for name, value in row.items() if name in new}

    def _apply(self, change: Change) -> None:
        table = change.table
        rows = self.tables.setdefault(table.full_name, {})
        before, after = table.python_row(change.before), table.python_row(change.after)
        if change.op == "t":
            self.was_emptied |= bool(table.key or rows)
            rows.clear()
            return
        if not table.key:
            self._count(rows, before, after)
            return
        if before is not None:
            held = rows.pop(_key(table, before), None)
            assert held is not None or self.is_partial or self.was_emptied, (
                f"{change.op} of a row that is not there: {before}"
            )
            if held is not None:
                assert {name: before[name] for name in held if name in before} == held, (change.op, held, before)
        if after is not None:
            key = _key(table, after)
            assert change.op == "r" or key not in rows, f"{change.op} of a row that is there: {after}"
            rows[key] = after

    def _count(self, rows: Rows, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        """Rows without a key: equal ones are numbered from 1."""
        if before is not None:
            number = sum(key[0] == counted(before) for key in rows)
            assert number or self.is_partial or self.was_emptied, f"a row that is not there: {before}"
            rows.pop((counted(before), number), None)
        if after is not None:
            rows[counted(after), sum(key[0] == counted(after) for key in rows) + 1] = after


def counted(row: dict[str, Any]) -> str:
    """A row without a key, by its values; nulls of columns that came later are the same as none."""
    return json.dumps({name: value for name, value in row.items() if value is not None}, sort_keys=True, default=str)


def _key(table: Table, row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[column.name] for column in table.key_columns)


class Follower:
    """Runs a source as the runtime does, and can be cut off anywhere."""

    def __init__(self, make: Callable[[], Source], replica: Replica | None = None) -> None:
        self._make = make
        self.replica = replica or Replica()
        self.position: Position | None = None
        self.source: Source | None = None

    def start(self) -> None:
        self.source = self._make()
        self.source.open(json.loads(json.dumps(self.position)) if self.position is not None else None)

    def step(self, timeout_s: float = 0.0, *, lose: bool = False) -> Batch | None:
        """One batch; with `lose`, what it brought is forgotten, as by a crash before it was durable."""
        assert self.source is not None
        batch = self.source.next_batch(timeout_s)
        if batch is None:
            return None
        if lose:
            self.crash()
            return batch
        self.replica.is_partial = "snapshot" in batch.position
        self.replica.apply(batch.events)
        self.position = json.loads(json.dumps(batch.position))
        self.source.acknowledge(self.position)
        return batch

    def crash(self) -> None:
        """The process is gone; what was stored stays."""
        if self.source is not None:
            self.source.close()
            self.source = None

    def run(self) -> None:
        """From the start to where nothing more comes."""
        self.start()
        self.drain()

    def drain(self, timeout_s: float = 0.2) -> None:
        while (batch := self.step(timeout_s)) is not None:
            if batch.is_last:
                return
