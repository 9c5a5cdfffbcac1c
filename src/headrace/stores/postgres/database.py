"""PostgreSQL: how it is reached, for all of its faces."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace import extras
from headrace.stores.sql.database import StagingDatabase, with_format_marks
from headrace.stores.sql.statements import TableName, list_names, quote

if TYPE_CHECKING:
    from headrace.stores.frames import Spool

SINKS: Final = 0x68656164  # a family of advisory locks; by itself it is the one for making tables
VIEWS: Final = 0x76696577
STAGE: Final = "headrace_stage"
_LOCK_WAIT: Final = "120s"


class PostgresDatabase(StagingDatabase):
    """`settings` are psycopg's."""

    kind: ClassVar[str] = "PostgreSQL"
    moment: ClassVar[str] = "timestamptz"

    def __init__(self, url: str, **settings: Any) -> None:
        self._url, self._settings = url, settings
        self._psycopg = extras.load("psycopg")
        self._open: Any = None

    def connect(self) -> None:
        self.close()
        self._open = self._psycopg.connect(self._url, autocommit=True, **self._settings)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    @property
    def is_broken(self) -> bool:
        return self._open is None or bool(self._open.closed)

    @property
    def _db(self) -> Any:
        if self._open is None:  # perhaps by another thread, which closed it
            raise self._psycopg.OperationalError("the connection is closed")
        return self._open

    def transaction(self) -> Any:
        return self._db.transaction()

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        # Without values psycopg leaves per cent signs alone, as they may stand in a column's name.
        cursor = (
            self._db.execute(with_format_marks(statement), tuple(values)) if values else self._db.execute(statement)
        )
        return cursor.fetchall() if cursor.description else []

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        with self._db.cursor() as cursor:
            cursor.executemany(with_format_marks(statement), rows)

    def copy(self, statement: str) -> Any:
        """A COPY FROM STDIN, to be written to."""
        return self._db.cursor().copy(statement)

    def stage(self, spool: "Spool", types: Mapping[str, str]) -> str:
        """In the caller's transaction, and gone with it."""
        from headrace.stores.postgres.batch import copy_text

        names = spool.schema.names
        columns = ", ".join(f"{quote(name)} {types.get(name, 'boolean')}" for name in names)
        self.run(f"CREATE TEMP TABLE {STAGE} ({columns}) ON COMMIT DROP")
        with self.copy(f"COPY {STAGE} ({list_names(names)}) FROM STDIN") as copy:
            for part in spool.batches():
                copy.write(memoryview(copy_text(part)))
        self.run(f"ANALYZE {STAGE}")  # the merge joins it with the target
        return STAGE

    def notices(self, timeout_s: float) -> list[str]:
        """What a channel that is listened to says next."""
        return [notice.payload for notice in self._db.notifies(timeout=timeout_s, stop_after=1)]

    def exists(self, table: TableName) -> bool:
        return bool(self.run("SELECT to_regclass(?) IS NOT NULL", (str(table),))[0][0])

    def guard_definitions(self) -> None:
        self.run("SELECT pg_advisory_xact_lock(?)", (SINKS,))

    def hold(self, family: int, name: str) -> None:
        """Keep others out who write under this name, until the connection ends; wait for one that is at work.

        A restarted writer so waits until a transaction of its killed predecessor has ended one way or the other.
        """
        self.run(f"SET lock_timeout = '{_LOCK_WAIT}'")
        self.run("SELECT pg_advisory_lock(?, hashtext(?))", (family, name))
