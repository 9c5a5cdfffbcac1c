"""A new version of a target, written beside it and then put in its place: the names, and the switch itself.

In a database the switch is one transaction: the table, the table of its deletions and the memory of its batches change
names together. On disk it is two renames, and a switch that was broken off between them is finished by the next. A
switch that is done already changes nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from headrace.pipelines.sink.tables.errors import SinkMisconfigured
from headrace.pipelines.sink.tables.statements import BATCHES, TableName, quoted
from headrace.pipelines.sink.tables.target import Target
from headrace.pipelines.sink.tables.transaction import Run


def target_beside(target: Target, version: int) -> Target:
    """Where a version is written until it takes over."""
    return replace(target, table=_table_name(target.table, version), name=_sink_name(target.name, version))


def path_beside(path: str, version: int) -> str:
    """The folder of a version until it takes over."""
    return f"{path}.v{version}"


def _table_name(table: str, version: int) -> str:
    return f"{table}__v{version}"


def _sink_name(name: str, version: int) -> str:
    return f"{name}@v{version}"


def switch_tables(
    run: Run, exists: Callable[[TableName], bool], table: TableName, name: str, version: int, mark: str
) -> None:
    """Put the tables of a version in place, inside a transaction of the caller's."""
    built = table.sibling(_table_name(table.name, version))
    kept = table.sibling(_table_name(table.name, version - 1))
    if not exists(built):
        if exists(table):
            return  # it was done before
        raise SinkMisconfigured(f"{built} is not there: build version {version} before switching to it")
    if exists(kept):
        raise SinkMisconfigured(f"{kept} is in the way of the version that is replaced: drop or rename it")
    for old, new in ((table, kept), (built, table)):
        for source, goal in ((old, new), (old.tombstones, new.tombstones)):
            if exists(source):
                run(f"ALTER TABLE {source} RENAME TO {quoted(goal.name)}", ())
    batches = table.sibling(BATCHES)
    for before, after in ((name, _sink_name(name, version - 1)), (_sink_name(name, version), name)):
        run(f"UPDATE {batches} SET sink = {mark} WHERE sink = {mark}", (after, before))  # noqa: S608


def switch_folders(path: Path, version: int) -> None:
    """Put the folder of a version in place."""
    built, kept = Path(path_beside(str(path), version)), Path(path_beside(str(path), version - 1))
    if not built.exists():
        if path.exists():
            return
        raise SinkMisconfigured(f"{built} is not there: build version {version} before switching to it")
    if path.exists():
        if kept.exists():
            raise SinkMisconfigured(f"{kept} is in the way of the version that is replaced: move it away")
        path.rename(kept)
    built.rename(path)
