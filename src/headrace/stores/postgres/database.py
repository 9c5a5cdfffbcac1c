"""PostgreSQL: how it is reached, for all of its faces."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace import extras
from headrace.stores.batch import TableColumn
from headrace.stores.sql.database import StagingDatabase, with_format_marks
from headrace.stores.sql.statements import TableName, list_names, quote

if TYPE_CHECKING:
    from headrace.stores.frames import Spool

SINKS: Final = 0x68656164  # a family of advisory locks; by itself it is the one for making tables
VIEWS: Final = 0x76696577
STAGE: Final = "headrace_stage"
_LOCK_WAIT: Final = "120s"
# What takes every value of the type on the left without loss, besides itself.
_ALSO: Final = {
    "smallint": ("integer", "bigint", "numeric", "real", "double precision"),
    "integer": ("bigint", "numeric", "double precision"),
    "bigint": ("numeric",),
    "real": ("double precision",),
    "jsonb": ("json", "text"),
}
# A text is read by the column it goes to, and these columns read texts.
_NOT_FROM_TEXT: Final = frozenset({
    "boolean", "smallint", "integer", "bigint", "real", "double precision", "numeric", "bytea", "date",
    "timestamp with time zone", "timestamp without time zone",
})  # fmt: skip


class PostgresDatabase(StagingDatabase):
    """`settings` are psycopg's."""

    kind: ClassVar[str] = "PostgreSQL"
    moment: ClassVar[str] = "timestamptz"
    json_type: ClassVar[str] = "jsonb"
    has_arrays: ClassVar[bool] = True
    column_types: ClassVar[Mapping[str, str]] = {
        "boolean": "boolean", "byte": "smallint", "short": "smallint", "integer": "integer", "long": "bigint",
        "float": "real", "double": "double precision", "string": "text", "char": "text", "varchar": "text",
        "binary": "bytea", "date": "date", "timestamp": "timestamp with time zone",
        "timestamp_ntz": "timestamp without time zone",
    }  # fmt: skip

    def __init__(self, url: str, **settings: Any) -> None:
        self._url, self._settings = url, settings
        self._psycopg = extras.load("psycopg")
        self._open: Any = None

    @staticmethod
    def driver_error() -> type[Exception]:
        error: type[Exception] = extras.load("psycopg").Error
        return error

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

    def try_lock(self, name: str) -> bool:
        ((is_ours,),) = self.run("SELECT pg_try_advisory_lock(hashtextextended(?, 0))", (name,))
        return bool(is_ours)

    def transaction(self) -> Any:
        return self._db.transaction()

    def run(self, statement: str, values: Sequence[Any] = (), *, binary: bool = False) -> list[tuple[Any, ...]]:
        """With `binary` values come in PostgreSQL's binary form, in which bytes take half the room."""
        # Without values psycopg leaves per cent signs alone, as they may stand in a column's name.
        marked = with_format_marks(statement) if values else statement
        cursor = self._db.execute(marked, tuple(values) or None, binary=binary)
        return cursor.fetchall() if cursor.description else []

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        with self._db.cursor() as cursor:
            cursor.executemany(with_format_marks(statement), rows)

    def copy(self, statement: str) -> Any:
        """A COPY FROM STDIN, to be written to."""
        return self._db.cursor().copy(statement)

    @classmethod
    def type_of(cls, kind: Any) -> str | None:
        match kind.typeName():
            case "decimal":
                return f"numeric({kind.precision},{kind.scale})"
            case "array":
                element = cls.type_of(kind.elementType)
                return element and f"{element}[]"
        return super().type_of(kind)

    @staticmethod
    def fits(wanted: str, found: str) -> bool:
        """`found` is from format_type, without parameters."""
        if wanted.endswith("[]"):
            return found.endswith("[]") and PostgresDatabase.fits(wanted[:-2], found[:-2])
        if wanted.startswith("numeric"):
            return found == "numeric"
        if wanted == "text":
            return found not in _NOT_FROM_TEXT and not found.endswith("[]")
        return found == wanted or found in _ALSO.get(wanted, ())

    def describe(self, table: TableName) -> tuple[list[TableColumn], list[list[str]]]:
        columns = self.run(
            "SELECT attname, format_type(atttypid, NULL), attnotnull AND NOT atthasdef AND attidentity = '' "
            "FROM pg_attribute WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped",
            (str(table),),
        )
        uniques = self.run(
            "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND "
            "a.attnum = ANY(i.indkey) WHERE i.indrelid = to_regclass(?) AND i.indisunique AND i.indpred IS NULL "
            "AND i.indexprs IS NULL GROUP BY i.indexrelid",
            (str(table),),
        )
        return [TableColumn(*row) for row in columns], [names for (names,) in uniques]

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
        # By way of a table: alone, `to_regclass` may not know yet what others created since the transaction began.
        return bool(self.run("SELECT 1 FROM pg_class WHERE oid = to_regclass(?)", (str(table),)))

    def guard_definitions(self) -> None:
        self.run("SELECT pg_advisory_xact_lock(?)", (SINKS,))

    def hold(self, family: int, name: str) -> None:
        """Keep others out who write under this name, until the connection ends; wait for one that is at work.

        A restarted writer so waits until a transaction of its killed predecessor has ended one way or the other.
        """
        self.run(f"SET lock_timeout = '{_LOCK_WAIT}'")
        self.run("SELECT pg_advisory_lock(?, hashtext(?))", (family, name))
