"""Which databases changes are read from, and what each does its own way."""

import os
import re
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from headrace.connect.change import Position
from headrace.connect.changes.databases import Kind
from headrace.connect.errors import BadToken, InvalidConnectSetting, PositionLost
from headrace.connect.filters import Filters

_ROWS: Final = 1024  # at once: small enough to be handed on soon, large enough to cost little
_MOST_BYTES: Final = 8 * 1024 * 1024
_ONE_RANGE: Final = 1 << 62
_NO_SLOT: Final = "it is of a stream without a slot, and the database kept nothing for a reader that is gone"


def _filters(tables: Sequence[str], schema: str, key_columns: Mapping[str, Sequence[str]] | None) -> Filters:
    named = [table if "." in table or not schema else f"{schema}.{table}" for table in tables]
    return Filters(include_tables=[re.escape(table) for table in sorted(named)], key_columns=key_columns or {})


S = TypeVar("S", bound=Any)


def _bounded(source: S) -> S:
    source.most_bytes = _MOST_BYTES
    return source


def _names(filters: Filters) -> list[str]:
    return [re.sub(r"\\(.)", r"\1", pattern) for pattern in filters.include_tables]


def postgres(
    url: str,
    tables: Sequence[str],
    slot: str | None,
    *,
    snapshot: bool,
    key_columns: Mapping[str, Sequence[str]] | None,
    settings: Mapping[str, Any],
) -> Kind:
    from headrace.connect.postgres.settings import PostgresSettings
    from headrace.connect.postgres.source import PostgresSource, moved

    filters = _filters(tables, "public", key_columns)
    named = _names(filters)
    chosen = PostgresSettings(
        url,
        slot=slot or f"headrace_changes_{uuid4().hex[:16]}",
        filters=filters,
        snapshot="initial" if snapshot else "never",
        snapshot_range_rows=_ONE_RANGE,
        snapshot_workers=1,
        chunk_rows=_ROWS,
        batch_messages=_ROWS,
        temporary=slot is None,
    )
    if "publication" not in settings:
        # Readers without a slot share one for the same tables, which the last of them takes away.
        shared = f"headrace_changes_{sha256(repr(named).encode()).hexdigest()[:12]}"
        chosen = replace(chosen, publication=slot or shared, shared_publication=slot is None)
    chosen = replace(chosen, **settings)

    def make(_position: Position | None) -> PostgresSource:
        return _bounded(PostgresSource(chosen))

    return Kind(
        {"source": "postgresql", "slot": slot or "", "tables": named},
        make,
        moved,
        key_of=filters.key_of,
        why_not="" if slot else _NO_SLOT,
    )


def mysql(
    url: str,
    tables: Sequence[str],
    slot: str | None,
    *,
    snapshot: bool,
    key_columns: Mapping[str, Sequence[str]] | None,
    settings: Mapping[str, Any],
) -> Kind:
    from headrace.connect.mysql.history import TokenHistory
    from headrace.connect.mysql.settings import MysqlSettings, parse_url
    from headrace.connect.mysql.source import MysqlSource, moved

    if slot is not None:
        raise InvalidConnectSetting("slot", slot, "MariaDB and MySQL keep their log by their own rules: leave it out")
    database = parse_url(url).database
    for table in tables:
        if "." not in table and not database:
            raise InvalidConnectSetting("tables", table, "the URL names no database: write database.table")
    filters = _filters(tables, database, key_columns)
    chosen = MysqlSettings(url, filters=filters, snapshot="initial" if snapshot else "never", batch_rows=_ROWS)
    chosen = replace(chosen, **settings)
    history = TokenHistory()

    def make(position: Position | None) -> MysqlSource:
        if position is not None:
            history.take(position)
        return _bounded(MysqlSource(chosen, history))

    def stored(source: Any, position: Position) -> Position:
        return {**position, "server": source.identity(), "shapes": history.shapes_of(position, source.captures)}

    def verify(source: Any, position: Position) -> None:
        here, there = source.identity(), position.get("server", "")
        if here and there and here != there:
            raise BadToken("it is of another server", "resume where it was made, or begin anew without resume")
        if not source.holds(position):
            raise PositionLost("the server's log does not reach as far as the position, as after a backup was put back")

    return Kind(
        {"source": "mysql", "database": database, "tables": _names(filters)},
        make,
        moved,
        stored=stored,
        verify=verify,
        key_of=filters.key_of,
    )


def sqlite(
    url: str,
    tables: Sequence[str],
    slot: str | None,
    *,
    snapshot: bool,
    key_columns: Mapping[str, Sequence[str]] | None,
    settings: Mapping[str, Any],
) -> Kind:
    from headrace.connect.sqlite.capture import acknowledged, uninstall
    from headrace.connect.sqlite.connection import SqliteSettings
    from headrace.connect.sqlite.source import SqliteSource, moved

    path = sqlite_path(url)
    filters = _filters(tables, "main", key_columns)
    capture = slot or _own_name()
    chosen = SqliteSettings(
        path, capture=capture, filters=filters, snapshot="initial" if snapshot else "never", batch_rows=_ROWS
    )
    chosen = replace(chosen, **settings)

    def make(_position: Position | None) -> SqliteSource:
        if slot is None:
            remove_orphans(path, chosen.busy_timeout_s)
        return _bounded(SqliteSource(chosen))

    def remembered() -> Position | None:
        return None if slot is None or snapshot else acknowledged(path, slot, chosen.busy_timeout_s)

    def release() -> None:
        if slot is None and path.is_file():
            uninstall(path, capture, chosen.busy_timeout_s)

    return Kind(
        {"source": "sqlite", "slot": slot or "", "tables": _names(filters)},
        make,
        moved,
        key_of=filters.key_of,
        why_not="" if slot else _NO_SLOT,
        remembered=remembered,
        release=release,
    )


def sqlite_path(url: str) -> Path:
    """sqlite:///relative.db, sqlite:////absolute.db."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc or len(path) < 2:
        raise InvalidConnectSetting("url", url, "write sqlite:///relative.db or sqlite:////absolute/path.db")
    return Path(path[1:])


# --- captures of SQLite that live as long as their reader
#
# Their names say whose they are, so that those of a process that was killed are taken away by the next reader: triggers
# that nobody reads would write for ever. Only what is of this machine's processes, in the same container, is judged.

_OWN: Final = re.compile(r"(headrace_tmp_([0-9a-f]{6})_([0-9a-f]{1,8})_([0-9a-f]{1,12})_[0-9a-f]+)_state")
_NUMBERS = count(1)
_NUMBERS_LOCK = threading.Lock()


def _own_name() -> str:
    with _NUMBERS_LOCK:
        number = next(_NUMBERS)
    return f"headrace_tmp_{_here()}_{os.getpid():x}_{_started(os.getpid())}_{number:x}"


def _here() -> str:
    """This machine and container, as far as numbers of processes mean something."""
    try:
        space = os.readlink("/proc/self/ns/pid")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        space = boot = ""
    return sha256(f"{socket.gethostname()}{space}{boot}".encode()).hexdigest()[:6]


def _started(pid: int) -> str:
    """When a process began, "0" where the system does not tell; empty if there is none."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text()
        return f"{int(told.rpartition(')')[2].split()[19]):x}"
    except FileNotFoundError:
        return "" if Path("/proc/self/stat").exists() else "0"
    except OSError:
        return "0"


def remove_orphans(path: Path, busy_timeout_s: float) -> None:
    """Take away what readers of this machine left in a database when they were killed."""
    from headrace.connect.sqlite.capture import list_captures, uninstall

    here = _here()
    for name in list_captures(path, busy_timeout_s):
        found = _OWN.fullmatch(f"{name}_state")
        if found is not None and found[2] == here and _started(int(found[3], 16)) != found[4]:
            uninstall(path, name, busy_timeout_s)
