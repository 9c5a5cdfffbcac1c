"""What a user says about a SQLite source, connections to it, and its complaints in one sentence."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headrace.connect.errors import SourceRefused, SourceUnavailable
from headrace.connect.filters import Filters, check_capture_name, check_choices


@dataclass(frozen=True, slots=True)
class SqliteSettings:
    """One source; two that read the same file need a `capture` each, because each forgets what it has passed on."""

    path: Path
    capture: str = "headrace"  # the tables and triggers that are added begin with it
    filters: Filters = field(default_factory=Filters)  # a table is called main.name
    snapshot: str = "initial"
    schema_changes: str = "evolve"
    unseen_changes: str = "reread"  # what may have changed rows and the log does not tell: "reread" or "stop"
    batch_rows: int = 8192
    poll_s: float = 0.02  # how often another's commit is looked for
    prune_rows: int = 20_000  # acknowledged changes are deleted in such portions, so that writers wait little
    busy_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        check_capture_name(self.capture)
        check_choices(self, counts=("batch_rows", "prune_rows"), seconds=("poll_s",))


_OLDEST = (3, 37, 0)  # the first with pragma_table_list


def connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    """A connection that begins no transaction by itself, and reads text as wire text."""
    if sqlite3.sqlite_version_info < _OLDEST:
        raise SourceRefused(
            f"this Python has SQLite {sqlite3.sqlite_version}, and capture needs 3.37 or newer",
            "install a newer Python or SQLite",
        )
    if not path.is_file():
        raise SourceRefused(f"there is no database {path}", f"sqlite3 {path} 'CREATE TABLE …', or correct the path")
    with translated(path):
        connection = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False)
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1")
        return connection


def read_wire(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Have text read as wire text."""
    connection.text_factory = lambda data: data.decode("latin-1")
    return connection


@contextmanager
def translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        said = str(error)
        if "readonly" in said:
            raise SourceRefused(
                f"database {path} may not be written to, and capture puts its triggers there", f"chmod u+w {path}"
            ) from error
        if "locked" in said or "busy" in said or "unable to open" in said or "disk I/O" in said:
            raise SourceUnavailable(f"database {path} cannot be used just now ({said})") from error
        raise SourceRefused(f"database {path} refused a statement ({said})") from error
    except sqlite3.DatabaseError as error:
        raise SourceRefused(f"{path} is not a SQLite database, or is damaged ({error})") from error


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction that writes, from its first statement on."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
