"""Delta Lake through delta-rs: rows and the batch's number are one commit in the table's log.

The number stands in the log as Delta's own marker for this (`txn`: an application id and a version), one per sink and
query; a second marker says which query owns the sink. Rows come from the spool in a stream, so a batch need not fit in
memory. A second writer of the same sink that commits in between makes ours fail: delta-rs compares the markers.
Nested types stay as they are. On a local disk the commit and its files are synced before the batch ends.

A version together with deletes is refused: the version of a deleted row would have to be remembered in a second
table, and two Delta tables have no common transaction.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 - Spark's own habit

from headrace.stores.batch import DELETED, Recorded, Settings, Step, TableColumn, Target, decide_step
from headrace.stores.delta import commit_properties, local_path, open_table, sync_commit, write_rows
from headrace.stores.errors import SinkMisconfigured
from headrace.stores.folders import live_folder, path_beside, refuse_in_use, switch_folders
from headrace.stores.frames import (
    Spool,
    check_columns,
    choose_types,
    read_query_id,
    reduce_changes,
    refuse_missing,
    spool_rows,
)

_SCALARS = (
    T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.StringType,
    T.CharType, T.VarcharType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType, T.DecimalType,
)  # fmt: skip
_SPELLING = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def delta_type(kind: T.DataType) -> str | None:
    """The type as Spark spells it, if Delta has it."""
    if isinstance(kind, T.ArrayType):
        inner: Sequence[T.DataType] = [kind.elementType]
    elif isinstance(kind, T.MapType):
        inner = [kind.keyType, kind.valueType]
    elif isinstance(kind, T.StructType):
        inner = [part.dataType for part in kind.fields]
    else:
        return kind.simpleString() if isinstance(kind, _SCALARS) else None
    return kind.simpleString() if all(delta_type(part) for part in inner) else None


def schema_type(kind: Any) -> str:
    """A type out of a Delta log, in Spark's spelling."""
    if isinstance(kind, str):
        return _SPELLING.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{schema_type(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{schema_type(kind['keyType'])},{schema_type(kind['valueType'])}>"
    return f"struct<{','.join(part['name'] + ':' + schema_type(part['type']) for part in kind['fields'])}>"


@dataclass(frozen=True)
class DeltaSink:
    """Given to `foreachBatch`."""

    uri: str
    target: Target
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)  # they may hold secrets

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one batch, unless it is there already."""
        query = read_query_id(df)
        rows = reduce_changes(df, self.target)
        types = choose_types(rows.schema, self.target, delta_type, self._where, "string")
        place = self._place()
        table = open_table(place, self.storage_options)
        step = decide_step(self.target.name, self._recorded(table, query), query, batch_id, self.target.on_new_query)
        if step is Step.SKIP:
            return
        if step is not Step.WRITE and isinstance(place, Path) and place == local_path(self.uri):
            refuse_in_use(place)
        if table is None:
            refuse_missing(self._where, self.target.create)
        else:
            fields = json.loads(table.schema().to_json())["fields"]
            found = [TableColumn(part["name"], schema_type(part["type"]), not part["nullable"]) for part in fields]
            check_columns(self._where, types, found, lambda one, other: one == other)
        with spool_rows(rows) as spool:
            self._write(table if table is not None else place, spool, step, self._marks(query, batch_id))
        if isinstance(place, Path):
            sync_commit(place)

    def beside(self, version: int) -> "DeltaSink":
        """The same sink for a version that is built beside the one in use."""
        return replace(self, uri=path_beside(self.uri, version))

    def switch(self, version: int) -> None:
        """Let that version take the folder's name; an object store has no links, so there it is the user's part."""
        path = local_path(self.uri)
        if path is None:
            raise SinkMisconfigured(
                f"{self._where} lies in an object store, where nothing can be renamed: let readers use "
                f"{path_beside(self.uri, version)}"
            )
        switch_folders(path, version)

    @property
    def _where(self) -> str:
        return f"Delta table {self.uri}"

    def _place(self) -> Path | str:
        path = local_path(self.uri)
        return self.uri if path is None else live_folder(path)

    def _recorded(self, table: Any, query: str) -> list[Recorded]:
        """The log answers for an id we know, so the owner is kept as a number made of its query id."""
        if table is None:
            return []
        owner, mine = table.transaction_version(self._owner_id), table.transaction_version(self._query_mark(query))
        found = []
        if mine is not None:
            found.append(Recorded(query, mine, superseded=owner != _number(query)))
        if owner is not None and owner != _number(query):
            found.append(Recorded(f"number {owner}", table.transaction_version(self._owner_last) or 0))
        return found

    @property
    def _owner_id(self) -> str:
        return f"headrace/{self.target.name}/owner"

    @property
    def _owner_last(self) -> str:
        return f"headrace/{self.target.name}/last"

    def _query_mark(self, query: str) -> str:
        return f"headrace/{self.target.name}/query/{query}"

    def _marks(self, query: str, batch_id: int) -> Any:
        return commit_properties(
            {self._query_mark(query): batch_id, self._owner_id: _number(query), self._owner_last: batch_id},
            custom_metadata={
                "headrace.sink": self.target.name,
                "headrace.query": query,
                "headrace.batch": str(batch_id),
            },
        )

    def _write(self, table: Any, spool: Spool, step: Step, marks: Any) -> None:
        """`table` is where one is to be, if there is none."""
        is_new = isinstance(table, Path | str)
        if not is_new and self.target.keys and step is not Step.START_OVER:
            self._merge(table, spool, marks)
            return
        mode = "error" if is_new else "overwrite" if step is Step.START_OVER else "append"
        rows = _living(spool) if self.target.keys else spool.reader()
        write_rows(table, rows, marks, self.storage_options, mode=mode)

    def _merge(self, table: Any, spool: Spool, marks: Any) -> None:
        same = " AND ".join(f"t.`{key}` = s.`{key}`" for key in self.target.keys)
        columns = {name: f"s.`{name}`" for name in spool.schema.names if name != DELETED}
        columns = {f"`{name}`": value for name, value in columns.items()}
        version = self.target.version
        newer = f" AND (t.`{version}` IS NULL OR s.`{version}` >= t.`{version}`)" if version else ""
        merger = table.merge(spool.reader(), same, source_alias="s", target_alias="t", commit_properties=marks)
        if self.target.delete_when:
            merger = merger.when_matched_delete(f"s.`{DELETED}`{newer}")
        (
            merger.when_matched_update(columns, f"NOT s.`{DELETED}`{newer}")
            .when_not_matched_insert(columns, f"NOT s.`{DELETED}`")
            .execute()
        )


def _number(query: str) -> int:
    return int.from_bytes(hashlib.sha256(query.encode()).digest()[:7], "big")


def _living(spool: Spool) -> pa.RecordBatchReader:
    """The rows that are not deletions, without the flag: what a table that begins empty gets."""
    schema = pa.schema([part for part in spool.schema if part.name != DELETED])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in spool.batches():
            yield batch.filter(pc.invert(batch.column(DELETED))).select(schema.names)

    return pa.RecordBatchReader.from_batches(schema, batches())


def delta(
    uri: str | Path,
    keys: str | Sequence[str] = (),
    *,
    storage_options: Mapping[str, str] | None = None,
    **settings: Unpack[Settings],
) -> DeltaSink:
    """A sink to a Delta table; with `keys` it merges, without it appends."""
    target = Target.of(str(uri), "delta", keys, **settings)
    if target.version and target.delete_when:
        raise SinkMisconfigured(
            "a Delta sink takes version or delete_when, not both: keep a column that says 'deleted' instead of "
            "deleting, or write to postgres(...), duckdb(...) or sqlite(...)"
        )
    return DeltaSink(str(uri), target, dict(storage_options or {}))
