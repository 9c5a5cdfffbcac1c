"""Parquet files kept in step: rows in buckets by key, a manifest that names the files, and the place in it.

A batch rewrites the buckets that it touches and then replaces the manifest, in one rename: that is the commit. Files
that neither this manifest nor the one before names are removed, so who began to read a moment ago is not disturbed.
Larger batches cost less: a sink that lags takes full ones by itself, and `batch_records` sets how large.

The folder is a link to its present generation, and a rebuild points it at the next one. `read` answers the rows.
"""

import json
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.stores.arrow_rows import (
    grow_schema,
    retype,
    schema_from_text,
    schema_to_text,
    stored_row,
    to_table,
    widen_schema,
)
from headrace.stores.derived import ChangeBatch, Place, RowChange, StoredRow, Values, complete_rows
from headrace.stores.errors import InvalidConnectSetting, RowRefused, SinkUnavailable, TakenOver
from headrace.stores.folders import Generations, replace_text, sync

MANIFEST: Final = "manifest.json"
_KEY: Final = "__headrace_key"


@dataclass(eq=False)
class ParquetSink:
    """Keeps one folder of Parquet files in step with one topic."""

    name: str
    topic: str
    folders: Generations
    buckets: int
    types: Mapping[str, str]
    every_change: ClassVar[bool] = False
    _folder: Path = field(default=Path(), init=False)
    _manifest: dict[str, Any] | None = field(default=None, init=False)
    _compared: pa.Schema | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._where = f"Parquet folder {self.folders}"

    # --- keeping in step

    def open(self) -> Place | None:
        """Find the manifest; opening makes a new one, so that whoever was here before notices."""
        with self._translated():
            self._folder = self.folders.ensure()
            found = _read_manifest(self._folder)
            self._manifest = found or {
                "buckets": self.buckets,
                "files": {},
                "place": None,
                "key": [],
                "kept": [],
                "schema": schema_to_text(pa.schema([])),
            }
            self._commit({**self._manifest, "kept": []})
        place = self._manifest["place"]
        return Place.from_json(place) if place else None

    def apply(self, batch: ChangeBatch) -> None:
        """New files, then a new manifest."""
        with self._translated():
            self.folders.check_current(self._folder, self._where)
            assert self._manifest is not None
            found = _read_manifest(self._folder)
            if found is None or found["token"] != self._manifest["token"]:
                raise TakenOver(self.name)
            files = {} if batch.clears else dict(found["files"])
            living = [change for change in batch.changes if change.row is not None]
            schema = grow_schema(schema_from_text(found["schema"]), living, self.types)
            by_bucket: defaultdict[int, list[RowChange]] = defaultdict(list)
            for change in batch.changes:
                by_bucket[crc32(change.key_text.encode()) % found["buckets"]].append(change)
            try:
                files = self._merged(files, by_bucket, schema)
            except RowRefused:
                wider = widen_schema(schema, living, self.types, lambda name: self._held(files, name))
                if wider == schema:
                    raise
                schema = wider
                # A column has one type in all files.
                files = self._merged(files, {**{int(bucket): [] for bucket in files}, **by_bucket}, schema)
            key = list(batch.changes[0].key) if batch.changes else found["key"]
            kept = [name for name in found["files"].values() if name not in files.values()]
            self._commit(
                {
                    **found,
                    "files": files,
                    "place": batch.place.to_json(),
                    "key": key,
                    "kept": kept,
                    "schema": schema_to_text(schema),  # a column has one type, whichever bucket saw it first
                }
            )

    def close(self) -> None:
        """Nothing is held between batches."""

    def _merged(
        self, files: Mapping[str, str], by_bucket: Mapping[int, Sequence[RowChange]], schema: pa.Schema
    ) -> dict[str, str]:
        """The files once these buckets are written."""
        found = dict(files)
        for bucket, changes in by_bucket.items():
            written = self._merge(found.pop(str(bucket), None), changes, schema)
            if written:
                found[str(bucket)] = written
        return found

    def _held(self, files: Mapping[str, str], column: str) -> Iterator[pa.Array]:
        for name in files.values():
            if column in pq.read_schema(self._folder / name).names:
                yield pq.read_table(self._folder / name, columns=[column])[column]

    def _merge(self, old: str | None, changes: Sequence[RowChange], schema: pa.Schema) -> str | None:
        """The bucket's new file; None if no row is left."""
        before = retype(pq.read_table(self._folder / old), schema) if old else None
        keys = pa.array([change.key_text for change in changes], pa.string())
        if before is not None and any(change.partial for change in changes):
            touched = before.filter(pc.is_in(before[_KEY], keys)).to_pylist()
            changes = complete_rows(changes, {row.pop(_KEY): row for row in touched})
        living = [change for change in changes if change.row is not None]
        parts = []
        if before is not None:
            parts.append(before.filter(pc.invert(pc.is_in(before[_KEY], keys))))
        if living:
            texts = pa.array([change.key_text for change in living], pa.string())
            parts.append(to_table(living, schema, self._where).append_column(_KEY, texts))
        merged = pa.concat_tables(parts, promote_options="default") if parts else None
        if merged is None or not merged.num_rows:
            return None
        name = f"{uuid.uuid4().hex}.parquet"
        pq.write_table(merged, self._folder / name, compression="zstd")
        sync(self._folder / name)
        return name

    def _commit(self, manifest: dict[str, Any]) -> None:
        """The folder holds the old manifest or the new one, whatever happens."""
        manifest["token"] = uuid.uuid4().hex
        replace_text(self._folder / MANIFEST, json.dumps(manifest))
        self._manifest = manifest
        named = {*manifest["files"].values(), *manifest["kept"]}
        for file_path in self._folder.glob("*.parquet"):
            if file_path.name not in named:
                file_path.unlink()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SinkUnavailable(f"{self._where}: {error}") from error

    # --- reading back

    def place(self) -> Place | None:
        found = self._live_manifest()
        return Place.from_json(found["place"]) if found and found["place"] else None

    def scan(self) -> Iterator[list[StoredRow]]:
        """Every row, a bucket at a time."""
        with self._translated():
            found = self._live_manifest()
            if found:
                for name in found["files"].values():
                    yield self._stored(found, name, None)

    def look_up(self, keys: Sequence[Values]) -> list[StoredRow]:
        wanted = pa.array([RowChange(key, None, 0, 0, 0).key_text for key in keys], pa.string())
        with self._translated():
            found = self._live_manifest()
            files = found["files"].values() if found else ()
            return [row for name in files for row in self._stored(found or {}, name, wanted)]

    def comparable(self, key: Values, row: Values) -> StoredRow:
        if self._compared is None:
            found = self._live_manifest()
            self._compared = schema_from_text(found["schema"]) if found else pa.schema([])
        schema = grow_schema(self._compared, [RowChange(key, row, 0, 0, 0)], self.types)
        return stored_row(list(key), row, schema)

    def _stored(self, manifest: Mapping[str, Any], name: str, wanted: pa.Array | None) -> list[StoredRow]:
        table = pq.read_table(manifest["folder"] / name)
        if wanted is not None:
            table = table.filter(pc.is_in(table[_KEY], wanted))
        rows = table.drop_columns([_KEY]).to_pylist()
        return [stored_row(manifest["key"], row, table.schema) for row in rows]

    def _live_manifest(self) -> dict[str, Any] | None:
        """The manifest in use and its folder; whoever keeps it in step goes on to notice that it was replaced."""
        with self._translated():
            folder = self.folders.current()
            found = None if folder is None else _read_manifest(folder)
            return None if found is None else {**found, "folder": folder}

    # --- rebuilding

    def beside(self) -> "ParquetSink":
        return replace(self, folders=self.folders.beside())

    def switch(self) -> None:
        with self._translated():
            self.folders.switch()


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    try:
        read: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return read
    except FileNotFoundError:
        return None


def read(path: str | Path) -> pa.Table:
    """The rows that a sink keeps at this path, as of one moment."""
    folder = Path(path).resolve()
    found = _read_manifest(folder)
    tables = [pq.read_table(folder / name) for name in (found or {"files": {}})["files"].values()]
    if not tables:
        return pa.table({})
    return pa.concat_tables(tables, promote_options="default").drop_columns([_KEY])


def parquet(
    name: str, topic: str, path: str | Path, *, buckets: int = 16, types: Mapping[str, str] | None = None
) -> ParquetSink:
    """A sink to a folder of Parquet files; `types` are those of columns that it makes."""
    if not 1 <= buckets <= 4096:
        raise InvalidConnectSetting("buckets", buckets, "choose 1 to 4096")
    return ParquetSink(name, topic, Generations(Path(path)), buckets, dict(types or {}))
