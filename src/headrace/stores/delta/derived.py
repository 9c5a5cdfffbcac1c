"""Delta Lake through delta-rs: a batch is one merge, and the place in the log stands in the same commit.

The place is Delta's own marker for this (`txn`: an application id and a version), one for each partition of the topic
and two for its id.
An instance that finds another place there than the one it left has been taken over. The folder is a link to its present
generation, and a rebuild points it at the next one; in an object store, which has no links, there is no rebuild.
"""

import base64
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace import extras
from headrace.stores.arrow_rows import family_of, grow_schema, retype, stored_row, to_table, widen_schema
from headrace.stores.delta import commit_properties, open_table, sync_commit, write_rows
from headrace.stores.derived import (
    ROW_COLUMN,
    ChangeBatch,
    Place,
    RowChange,
    StoredRow,
    Values,
    complete_rows,
    other_key,
)
from headrace.stores.errors import RowRefused, SinkRefused, SinkUnavailable, TakenOver
from headrace.stores.folders import Generations
from headrace.stores.values import reader_of

_GONE: Final = "__headrace_gone"
_CHUNK_ROWS: Final = 20_000
_TIDY_EVERY: Final = 100  # commits
_HALVES: Final = ("id-high", "id-low")


@dataclass(eq=False)
class DeltaSink:
    """Keeps one Delta table in step with one topic; `folders` is None in an object store, which has no links."""

    name: str
    topic: str
    path: str
    types: Mapping[str, str]
    storage_options: Mapping[str, str] = field(repr=False)  # they may hold secrets
    folders: Generations | None
    every_change: ClassVar[bool] = False
    _folder: Path | str = field(default="", init=False)
    _place: Place | None = field(default=None, init=False)
    _compared: pa.Schema | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._field = extras.load("deltalake").Field
        self._where = f"Delta table {self.path}"

    # --- keeping in step

    def open(self) -> Place | None:
        with self._translated():
            self._folder = self.folders.ensure() if self.folders else self.path
            self._place = self._place_of(self._table(self._folder))
        return self._place

    def apply(self, batch: ChangeBatch) -> None:
        with self._translated():
            if self.folders is not None:
                self.folders.check_current(Path(self._folder), self._where)
            table = self._table(self._folder)
            if self._place_of(table) != self._place:
                raise TakenOver(self.name)
            marks = {self._mark(part): number for part, number in _numbers(batch.place).items()}
            self._write(table, batch, commit_properties(marks))
            if isinstance(self._folder, Path):
                sync_commit(self._folder)
            self._tidy()
            self._place = batch.place if self._table(self._folder) is not None else None

    def close(self) -> None:
        """Nothing is held between batches."""

    def _write(self, table: Any, batch: ChangeBatch, marks: Any) -> None:
        changes = complete_rows(batch.changes, self._rows_of([c.key for c in batch.changes if c.partial], table))
        where = self._where
        living = [change for change in changes if change.row is not None]
        if table is None:
            if living:
                rows = self._first_rows(living)
                self._add(self._folder, rows, marks, description=_describe(list(living[0].key)))
            return  # a table without a column cannot be: until there is a row, the place is not worth keeping
        is_counted = ROW_COLUMN in self._schema(table).names
        others = [change for change in changes if (ROW_COLUMN in change.key) != is_counted]
        if others:
            # The source's table got a key or lost it. For that its topic is emptied, perhaps a few records later.
            if table.to_pyarrow_dataset().count_rows():
                raise other_key(where, _key_in(table.metadata().description), others[0])
            if living:
                table.alter.set_table_description(_describe(list(living[0].key)))
                self._add(
                    self._table(self._folder),
                    self._first_rows(living),
                    marks,
                    mode="overwrite",
                    schema_mode="overwrite",
                )
                return
            changes = []
        if batch.clears or not changes:
            nothing = self._schema(table).empty_table()
            self._add(table, nothing, marks, mode="overwrite" if batch.clears else "append")
            return
        schema = grow_schema(self._schema(table), changes, self.types)
        if new := [column for column in schema if column.name not in self._schema(table).names]:
            # In a commit of its own: it changes no row, so it may stay if the merge does not come about.
            table.alter.add_columns([self._field.from_arrow(column) for column in new])
            table = self._table(self._folder)
        try:
            rows = to_table(changes, schema, where)
        except RowRefused:
            wider = widen_schema(schema, changes, self.types, lambda name: self._held(table, name))
            if wider == schema:
                raise
            schema = wider
            rows = to_table(changes, schema, where)
            # In a commit of its own, too: it says the same of every row.
            whole = table.to_pyarrow_dataset().to_table()
            self._add(table, retype(whole, schema), None, mode="overwrite", schema_mode="overwrite")
            table = self._table(self._folder)
        gone = pa.array([change.row is None for change in changes], pa.bool_())
        same = " AND ".join(f"t.`{name}` = s.`{name}`" for name in changes[0].key)
        columns = {f"`{name}`": f"s.`{name}`" for name in schema.names}
        (
            table.merge(
                rows.append_column(_GONE, gone), same, source_alias="s", target_alias="t", commit_properties=marks
            )
            .when_matched_delete(f"s.`{_GONE}`")
            .when_matched_update(columns, f"NOT s.`{_GONE}`")
            .when_not_matched_insert(columns, f"NOT s.`{_GONE}`")
            .execute()
        )

    def _first_rows(self, living: Sequence[RowChange]) -> pa.Table:
        """Rows of a table that has none yet, in the types that they need."""
        schema = grow_schema(pa.schema([]), living, self.types)
        try:
            return to_table(living, schema, self._where)
        except RowRefused:
            return to_table(living, widen_schema(schema, living, self.types, lambda _: ()), self._where)

    def _add(self, table: Any, rows: pa.Table, marks: Any, **more: Any) -> None:
        write_rows(table, rows, marks, self.storage_options, **more)

    def _held(self, table: Any, column: str) -> Iterator[pa.Array]:
        for batch in table.to_pyarrow_dataset().to_batches(columns=[column]):
            yield batch.column(0)

    def _tidy(self) -> None:
        """Many small files slow readers down; now and then they become few, and old ones go after Delta's own delay."""
        table = self._table(self._folder)
        if table is not None and table.version() % _TIDY_EVERY == _TIDY_EVERY - 1:
            table.optimize.compact()
            table.vacuum(dry_run=False)

    # --- the table

    def _table(self, folder: Path | str) -> Any:
        return open_table(folder, self.storage_options)

    def _schema(self, table: Any) -> pa.Schema:
        return pa.schema(table.schema().to_arrow())

    def _mark(self, part: str) -> str:
        return f"headrace-sync/{self.topic}/{part}"

    def _place_of(self, table: Any) -> Place | None:
        if table is None:
            return None
        offsets: dict[int, int] = {}
        while (offset := table.transaction_version(self._mark(str(len(offsets))))) is not None:
            offsets[len(offsets)] = offset
        halves = [table.transaction_version(self._mark(half)) for half in _HALVES]
        return Place(self.topic, offsets, _join(halves)) if offsets else None

    def _rows_of(self, keys: Sequence[Values], table: Any) -> dict[str, Values]:
        if table is None or not keys:
            return {}
        names = list(keys[0])
        found: dict[str, Values] = {}
        schema = self._schema(table)
        if not set(names) <= set(schema.names):
            return found
        wanted = {stored_row(names, key, schema).key for key in keys}
        first = schema.field(names[0])
        values = pa.array([reader_of(family_of(first.type))(key[names[0]]) for key in keys], first.type)
        chosen = pc.field(names[0]).isin(values)
        if pa.types.is_string(first.type):  # statistics of texts have a type that texts are not compared with
            chosen = pc.field(names[0]).cast(pa.large_string()).isin(values.cast(pa.large_string()))
        for batch in self._batches(table, chosen):
            for row in batch.to_pylist():
                text = stored_row(names, {name: row[name] for name in names}, schema).key
                if text in wanted:
                    found[text] = row
        return found

    def _batches(self, table: Any, chosen: Any = None) -> Iterator[pa.RecordBatch]:
        yield from table.to_pyarrow_dataset().to_batches(batch_size=_CHUNK_ROWS, filter=chosen)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        errors = extras.load("deltalake.exceptions")
        try:
            yield
        except errors.CommitFailedError as error:
            raise SinkUnavailable(f"{self._where} was written by somebody else: {error}") from error
        except (OSError, errors.DeltaError) as error:
            raise SinkUnavailable(f"{self._where}: {error}") from error

    # --- reading back

    def place(self) -> Place | None:
        with self._translated():
            return self._place_of(self._live_table())

    def scan(self) -> Iterator[list[StoredRow]]:
        with self._translated():
            table = self._live_table()
            if table is None:
                return
            schema, key = self._schema(table), _key_in(table.metadata().description)
            for batch in self._batches(table):
                yield [stored_row(key, row, schema) for row in batch.to_pylist()]

    def look_up(self, keys: Sequence[Values]) -> list[StoredRow]:
        with self._translated():
            table = self._live_table()
            return [stored_row(list(keys[0]), row, self._schema(table)) for row in self._rows_of(keys, table).values()]

    def comparable(self, key: Values, row: Values) -> StoredRow:
        if self._compared is None:
            with self._translated():
                table = self._live_table()
                self._compared = self._schema(table) if table is not None else pa.schema([])
        schema = self._compared if all(name in self._compared.names for name in key) else _guess_schema(key, row)
        return stored_row(list(key), row, schema)

    def _live_table(self) -> Any:
        folder = self.folders.current() if self.folders else self.path  # not `_folder`: it may have been replaced
        return None if folder is None else self._table(folder)

    # --- rebuilding

    def beside(self) -> "DeltaSink":
        if self.folders is None:
            raise SinkRefused(
                f"{self._where} lies in an object store, where nothing can be renamed: name another path in "
                "a new section, and let readers use that"
            )
        return replace(self, folders=self.folders.beside())

    def switch(self) -> None:
        assert self.folders is not None
        self.folders.switch()


def _numbers(place: Place) -> dict[str, int]:
    """A place as Delta's markers hold it, numbers under names: the topic's id is two of them."""
    found = {str(partition): offset for partition, offset in place.offsets.items()}
    if place.topic_id:
        halves = struct.unpack(">qq", base64.urlsafe_b64decode(place.topic_id + "=="))
        found |= zip(_HALVES, halves, strict=True)
    return found


def _join(halves: Sequence[int | None]) -> str:
    if None in halves:
        return ""
    return base64.urlsafe_b64encode(struct.pack(">qq", *halves)).rstrip(b"=").decode()


def _describe(key: Sequence[str]) -> str:
    return f"kept in step by headrace, by the key {json.dumps(list(key))}"


def _key_in(description: str | None) -> list[str]:
    """What `_describe` wrote."""
    if not description or "[" not in description:
        raise SinkRefused("the Delta table was not made by this sink and does not tell its key: rebuild it")
    key: list[str] = json.loads(description[description.index("[") :])
    return key


def _guess_schema(key: Values, row: Values) -> pa.Schema:
    return grow_schema(pa.schema([]), [RowChange(key, row, 0, 0, 0)], {})


def delta(
    name: str,
    topic: str,
    path: str | Path,
    *,
    types: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DeltaSink:
    """A sink to a Delta table; `types` are those of columns that it makes."""
    folders = None if "://" in str(path) else Generations(Path(path))
    return DeltaSink(name, topic, str(path), dict(types or {}), dict(storage_options or {}), folders)
