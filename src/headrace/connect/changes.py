"""Changes of a database as something to iterate over, without any broker.

    for change in headrace.changes("postgresql://…", tables=["public.orders"]):
        print(change.op, change.table, change.key, change.after)

Without `slot` the stream begins now, or with a snapshot if one is asked for, and ends with the loop. With a `slot` the
database remembers how far this reader has come, and keeps its log until then: changes are handed out in batches, a
batch counts as read when the first change behind it is asked for, and comes again after a crash otherwise. A snapshot
is then made only the first time; one that was not read to its end does not come again.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Self
from urllib.parse import urlsplit
from uuid import uuid4

from headrace.connect.change import Batch, Message, Position, SchemaChange
from headrace.connect.change import Change as RawChange
from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.filters import keyed
from headrace.connect.source import Source

_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class RowChange:
    """One change: `op` is c(reate), u(pdate), d(elete), r(ead, of a snapshot), t(runcate), m(essage) or s(chema).

    `after` holds `headrace.connect.table.UNCHANGED` for a large value that the database did not send again.
    """

    op: str
    table: str
    key: dict[str, Any] | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    transaction: str | None
    ts_us: int


class Changes:
    """The changes of one database; iterate over it in `for` or `async for`, and close it or use it in `with`."""

    def __init__(
        self,
        source: Source,
        *,
        start: Position | None = None,
        key_of: Callable[[str], tuple[str, ...]] = lambda _table: (),
    ) -> None:
        self._source = source
        self._key_of = key_of
        self._start = start
        self._is_open = False
        self._closing = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closing.set()
        if self._is_open:
            self._is_open = False
            self._source.close()

    def __iter__(self) -> Iterator[RowChange]:
        try:
            for batch in self._batches():
                yield from shown(batch, self._key_of)
                self._source.acknowledge(batch.position)
        finally:
            self.close()

    def _batches(self) -> Iterator[Batch]:
        self._open()
        while not self._closing.is_set():
            batch = self._source.next_batch(_POLL_S)
            if batch is not None:
                yield batch
                if batch.is_last:
                    return

    def _open(self) -> None:
        if not self._is_open:
            self._source.open(self._start)
            self._is_open = True

    async def __aiter__(self) -> AsyncIterator[RowChange]:
        try:
            await asyncio.to_thread(self._open)
            while not self._closing.is_set():
                batch = await asyncio.to_thread(self._source.next_batch, _POLL_S)
                if batch is None:
                    continue
                for change in shown(batch, self._key_of):
                    yield change
                self._source.acknowledge(batch.position)
                if batch.is_last:
                    return
        finally:
            self.close()


def shown(batch: Batch, key_of: Callable[[str], tuple[str, ...]] = lambda _table: ()) -> Iterator[RowChange]:
    """The events of a batch that a reader of changes wants to see; `key_of` tells a table's chosen key."""
    for event in batch.events:
        if isinstance(event, RawChange):
            table, op, before, after, origin, _ = event
            table = keyed(table, key_of(table.full_name))
            row = after if after is not None else before
            whole = table.python_row(row)
            key = {column.name: whole[column.name] for column in table.key_columns} if whole and table.key else None
            old, new = table.python_row(before), table.python_row(after)
            yield RowChange(op, table.full_name, key, old, new, origin.transaction_id, origin.ts_us)
        elif isinstance(event, Message):
            message = {"prefix": event.prefix, "content": event.content}
            yield RowChange("m", "", None, None, message, event.origin.transaction_id, event.origin.ts_us)
        elif isinstance(event, SchemaChange):
            columns = {column.name: column.type_name for column in event.table.columns}
            origin = event.origin
            yield RowChange(
                "s", event.table.full_name, None, {"change": event.what}, columns, origin.transaction_id, origin.ts_us
            )


def changes(
    url: str,
    tables: Sequence[str] = (),
    *,
    slot: str | None = None,
    snapshot: bool = False,
    key_columns: Mapping[str, Sequence[str]] | None = None,
    **settings: Any,
) -> Changes:
    """The changes of these tables (`schema.table`; all of them if none is named) from now on.

    `snapshot` begins with every row. `key_columns` names the columns of a table's key, where it is not the primary key.
    `slot` names a place that the database remembers; dropping it is up to you.
    Anything else is a setting of the source.
    """
    scheme = urlsplit(url).scheme
    if scheme not in ("postgresql", "postgres"):
        raise InvalidConnectSetting("url", f"{scheme}:…", "changes are read from postgresql://…")
    from headrace.connect.filters import Filters
    from headrace.connect.postgres.settings import PostgresSettings
    from headrace.connect.postgres.source import PostgresSource

    if isinstance(tables, str):
        raise InvalidConnectSetting("tables", tables, f"it is a list: write [{tables!r}]")
    named = [table if "." in table else f"public.{table}" for table in tables]
    filters = Filters(include_tables=[table.replace(".", "\\.") for table in named], key_columns=key_columns or {})
    chosen = PostgresSettings(
        url,
        slot=slot or f"headrace_changes_{uuid4().hex[:16]}",
        filters=filters,
        snapshot="initial" if snapshot else "never",
        temporary=slot is None,
        goes_on=slot is not None,
    )
    # The publication stays in the database, so readers of the same tables share one.
    chosen = replace(chosen, publication=slot or _publication(named), **settings)
    source = PostgresSource(chosen)
    return Changes(source, start=None, key_of=filters.key_of)


def _publication(tables: Sequence[str]) -> str:
    return f"headrace_changes_{sha256(repr(sorted(tables)).encode()).hexdigest()[:12]}"
