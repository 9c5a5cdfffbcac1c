"""Delta Lake through delta-rs, on a local disk or in an object store."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from headrace import extras
from headrace.stores.folders import sync


def local_path(uri: str) -> Path | None:
    """The folder on a local disk; None for an object store, where nothing can be renamed or linked."""
    plain = uri.removeprefix("file://")
    return None if "://" in plain else Path(plain)


def open_table(where: Path | str, storage_options: Mapping[str, str]) -> Any:
    """The table; None if there is none."""
    delta_table, options = extras.load("deltalake").DeltaTable, dict(storage_options) or None
    if not delta_table.is_deltatable(str(where), options):
        return None
    return delta_table(str(where), storage_options=options)


def commit_properties(marks: Mapping[str, int], **more: Any) -> Any:
    """Numbers that a commit keeps under names, by Delta's own marker (`txn`: an application id and a version)."""
    deltalake = extras.load("deltalake")
    transactions = [deltalake.Transaction(name, number) for name, number in marks.items()]
    return deltalake.CommitProperties(app_transactions=transactions, **more)


def write_rows(table: Any, rows: Any, marks: Any, storage_options: Mapping[str, str], **more: Any) -> None:
    """One commit, to a table or to the place of one that is made by it."""
    extras.load("deltalake").write_deltalake(
        str(table) if isinstance(table, Path) else table,
        rows,
        commit_properties=marks,
        storage_options=dict(storage_options) or None,
        **more,
    )


def sync_commit(folder: Path) -> None:
    """What the last commit added, on a local disk; elsewhere the object store answers for it."""
    log = folder / "_delta_log"
    if not log.is_dir():
        return
    commit = max(log.glob("*.json"))
    for line in commit.read_text(encoding="utf-8").splitlines():
        added = json.loads(line).get("add")
        if added is not None:
            file = folder / unquote(added["path"])
            sync(file)
            sync(file.parent)
    for part in (commit, log, folder):
        sync(part)
