"""Parquet: a batch is a folder that appears by one rename, so the folder's name is the record of what was written.

    path/headrace_sink=NAME/headrace_query=ID/headrace_batch=00000007/part-….parquet
    path/_headrace/…          which queries wrote, in their order, and the schema
    path/_headrace_staging/…  batches at work; what crashed attempts left is removed by the next batch

Any reader of partitioned Parquet sees whole batches only (names that begin with `_` are hidden by convention), with
the three names as columns: handy to read what is new. `read_parquet_sink` leaves them out. Files are synced before
they are shown. The path is on a disk that the driver and the executors share. There is no upsert: a file cannot be
changed in part.
"""

import hashlib
import json
import shutil
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.stores.batch import OnNewQuery, Recorded, Step, TableColumn, Target, decide_step
from headrace.stores.errors import SinkMisconfigured
from headrace.stores.folders import (
    live_folder,
    make_folders,
    path_beside,
    refuse_in_use,
    replace_text,
    show_folder,
    switch_folders,
)
from headrace.stores.frames import check_columns, read_query_id, reduce_changes

_PLACES = ("headrace_sink", "headrace_query", "headrace_batch")


@dataclass(frozen=True)
class ParquetSink:
    """Given to `foreachBatch`."""

    path: Path
    target: Target

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one batch, unless it is there already."""
        path = live_folder(self.path)
        replace(self, path=path).write(df, batch_id, is_named=path == self.path)

    def write(self, df: DataFrame, batch_id: int, *, is_named: bool) -> None:
        """To this very folder; `is_named` if it was given by this name, and not found behind a link."""
        query = read_query_id(df)
        rows = reduce_changes(df, self.target)
        owners = self._owners()
        step = decide_step(
            self.target.name, self._recorded(owners), query, batch_id, self.target.on_new_query, can_replace=False
        )
        if step is Step.SKIP:
            return
        if step is not Step.WRITE and is_named:
            refuse_in_use(self.path)
        self._check(rows.schema)
        if not owners or owners[-1] != query:
            # Before the first batch: a crash in between leaves a query that owns the sink and has written nothing yet.
            replace_text(self._notes, json.dumps([*owners, query]))
        staging = self.path / "_headrace_staging"
        mine = staging / hashlib.sha256(self.target.name.encode()).hexdigest()[:16]
        shutil.rmtree(mine, ignore_errors=True)
        make_folders(mine)
        staged = mine / uuid.uuid4().hex
        rows.write.parquet(staged.absolute().as_uri())
        for extra in [*staged.glob(".*"), staged / "_SUCCESS"]:
            extra.unlink(missing_ok=True)
        show_folder(staged, self._query_folder(query) / f"headrace_batch={batch_id:08}")

    def beside(self, version: int) -> "ParquetSink":
        """The same sink for a version that is built beside the one in use."""
        return replace(self, path=Path(path_beside(str(self.path), version)))

    def switch(self, version: int) -> None:
        """Let that version take the folder's name."""
        switch_folders(self.path, version)

    @property
    def _notes(self) -> Path:
        return self.path / "_headrace" / f"queries-{quote(self.target.name, safe='')}.json"

    def _query_folder(self, query: str) -> Path:
        return (
            self.path / f"headrace_sink={quote(self.target.name, safe='')}" / f"headrace_query={quote(query, safe='')}"
        )

    def _owners(self) -> list[str]:
        try:
            return list(json.loads(self._notes.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return []

    def _recorded(self, owners: list[str]) -> list[Recorded]:
        found = []
        for query in owners:
            folders = self._query_folder(query).glob("headrace_batch=*")
            last = max((int(folder.name.partition("=")[2]) for folder in folders), default=-1)
            found.append(Recorded(query, last, superseded=query != owners[-1]))
        return found

    def _check(self, schema: StructType) -> None:
        where, notes = f"Parquet folder {self.path}", self.path / "_headrace" / "schema.json"
        wanted = {field.name: field.dataType.simpleString() for field in schema.fields}
        for name in _PLACES:
            if name in wanted:
                raise SinkMisconfigured(f"{where}: the column {name!r} has a name that the sink itself uses: rename it")
        try:
            known: dict[str, Any] = json.loads(notes.read_text(encoding="utf-8"))
        except FileNotFoundError:
            replace_text(notes, json.dumps(wanted))
            return
        found = [TableColumn(name, kind, required=True) for name, kind in known.items()]
        check_columns(where, wanted, found, lambda one, other: one == other)


def parquet(
    path: str | Path,
    *,
    name: str | None = None,
    on_new_query: OnNewQuery = "refuse",
    columns: tuple[str, ...] = (),
    **other: Any,
) -> ParquetSink:
    """A sink that appends batches of Parquet files to a folder."""
    if other:
        raise SinkMisconfigured(
            f"a Parquet sink appends and takes no {next(iter(other))}: to upsert or delete by key "
            "use delta(...) or duckdb(...)"
        )
    if on_new_query == "replace":
        raise SinkMisconfigured(
            "a Parquet sink cannot replace all files in one step: write to another folder, or remove this one first"
        )
    if "://" in str(path):
        raise SinkMisconfigured(
            f"a Parquet sink writes to a local or mounted folder, not to {path}; use delta(...) there"
        )
    target = Target(str(path), name or "parquet", columns=tuple(columns), on_new_query=on_new_query)
    return ParquetSink(Path(path), target)


def read_parquet_sink(spark: SparkSession, path: str | Path) -> DataFrame:
    """The rows of all complete batches, without the columns that say which batch they came in."""
    found = spark.read.option("basePath", str(path)).parquet(
        f"{path}/headrace_sink=*/headrace_query=*/headrace_batch=*"
    )
    return found.drop(*_PLACES)
