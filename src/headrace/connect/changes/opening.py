"""`headrace.changes`: from an address to a stream of changes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from headrace.connect.changes.databases import DatabaseReader
from headrace.connect.changes.row_change import Choice, Marks, RowChange
from headrace.connect.changes.stream import Changes, Reader
from headrace.connect.changes.token import Token
from headrace.connect.errors import InvalidConnectSetting

_DATABASES: Final = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}
_FORMS: Final = (
    "changes are read from postgresql://…, mysql://…, mariadb://…, sqlite:///path, kafka://host:port/topic and "
    "http://host:port/views/NAME"
)


def changes(
    url: str,
    tables: Sequence[str] = (),
    *,
    slot: str | None = None,
    snapshot: bool = False,
    resume: str | None = None,
    key_columns: Mapping[str, Sequence[str]] | None = None,
    operations: Sequence[str] = (),
    columns: Sequence[str] = (),
    where: Callable[[RowChange], bool] | None = None,
    heartbeat_s: float | None = None,
    acknowledge: bool = True,
    token_secret: str = "",
    **settings: Any,
) -> Changes:
    """The changes of a database, a topic or a view from now on; of these tables, or of all if none is named.

    `snapshot` begins with every row that is there, and a slot anew. `resume` is the `position` of a change: the stream
    goes on behind it. `slot` names a place that the database remembers (PostgreSQL, SQLite), so that nothing is lost
    while nobody reads; dropping it is up to you. `key_columns` names the columns of a table's key, where it is not the
    primary key. `operations`, `columns` and `where`, a function of a change, choose what is handed out. With
    `heartbeat_s` a change with the op "h" comes whenever nothing else did for so long. With `acknowledge=False` the
    database keeps its log until `Changes.acknowledge` is called. With `token_secret` positions are signed. Anything
    else is a setting of the source.
    """
    choice = Choice.of(operations, columns, where)
    if isinstance(tables, str):
        raise InvalidConnectSetting("tables", tables, f"it is a list: write [{tables!r}]")
    marks = Marks(token_secret)
    reader = _reader(url, tables, slot, marks, snapshot=snapshot, key_columns=key_columns, settings=settings)
    return Changes(
        reader,
        resume=None if resume is None else Token.parsed(resume, token_secret),
        choice=choice,
        heartbeat_s=heartbeat_s,
        acknowledge=acknowledge,
    )


def _reader(
    url: str,
    tables: Sequence[str],
    slot: str | None,
    marks: Marks,
    *,
    snapshot: bool,
    key_columns: Mapping[str, Sequence[str]] | None,
    settings: Mapping[str, Any],
) -> Reader:
    scheme = urlsplit(url).scheme
    if scheme in _DATABASES:
        from headrace.connect.changes import kinds

        make: Any = getattr(kinds, _DATABASES[scheme])
        try:
            kind = make(url, tables, slot, snapshot=snapshot, key_columns=key_columns, settings=settings)
        except TypeError as error:
            raise _unknown(settings, error) from error
        return DatabaseReader(kind, marks)
    if scheme not in ("kafka", "http", "https"):
        raise InvalidConnectSetting("url", f"{scheme}:…", _FORMS)
    for name, given in (("slot", slot), ("key_columns", key_columns)):
        if given:
            raise InvalidConnectSetting(name, given, f"{scheme}:// has none: leave it out")
    try:
        if scheme == "kafka":
            from headrace.connect.changes.topic import TopicReader

            return TopicReader(url, tables, marks, snapshot=snapshot, **settings)
        from headrace.connect.changes.view import ViewReader

        if tables:
            raise InvalidConnectSetting("tables", list(tables), "a view is one table: leave it out")
        return ViewReader(url, marks, snapshot=snapshot, **settings)
    except TypeError as error:
        raise _unknown(settings, error) from error


def _unknown(settings: Mapping[str, Any], error: TypeError) -> Exception:
    """Of a setting that does not exist, in one sentence; anything else stays what it is."""
    text = str(error)
    for name in settings:
        if f"'{name}'" in text and "unexpected keyword" in text:
            return InvalidConnectSetting(name, settings[name], "there is no such setting for this source")
    return error
