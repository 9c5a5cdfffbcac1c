"""Which databases can be captured: by the scheme of the URL, and for PostgreSQL by the word `method`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from headrace.client.cluster import Cluster
from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.filters import Filters
from headrace.connect.source import Source, TableReader

LOG, TRIGGERS = "log", "triggers"
METHODS: Final = (LOG, TRIGGERS)
_NOT_OPTIONS: Final = ("url", "path", "filters", "types", "temporary", "goes_on")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of database: its settings' class, what its types can be written as, and how a source is made."""

    connector: str  # as Debezium's source block names it
    settings: type[Any]
    types: type[Any] | None
    make: Callable[[Any, Cluster, str], Source]
    read_anew: Callable[[Any, Sequence[str]], None]  # have a running source read tables again, while it streams
    tables: Callable[[Any], TableReader]  # the same database beside a running source

    @property
    def options(self) -> dict[str, type]:
        """The keys of a section that belong to the source, each with its kind."""
        return {
            field.name: _kind_of(field.default) for field in fields(self.settings) if field.name not in _NOT_OPTIONS
        }

    def configured(self, url: str, filters: Filters, options: Mapping[str, Any], types: Mapping[str, Any]) -> Any:
        """The settings of a source, checked by their own class."""
        more: dict[str, Any] = dict(options)
        if self.types is not None:
            more["types"] = self.types(**types)
        elif types:
            raise InvalidConnectSetting("types", dict(types), f"{self.connector} has none to choose")
        place = {"path": _path_of(url)} if "path" in {field.name for field in fields(self.settings)} else {"url": url}
        return self.settings(**place, filters=filters, **more)


def kind_of(url: str, method: str) -> Kind:
    """The kind for a URL; its driver is imported now. The URL itself is never told: it may hold a password."""
    scheme = urlsplit(url).scheme
    if method not in METHODS:
        raise InvalidConnectSetting("method", method, f"choose {' or '.join(METHODS)}")
    if scheme in ("postgresql", "postgres"):
        return _postgres() if method == LOG else _triggers()
    if scheme in ("mysql", "mariadb"):
        return _mysql()
    if scheme == "sqlite":
        return _sqlite()
    raise InvalidConnectSetting("url", f"{scheme}:…", "write postgresql://…, mysql://…, mariadb://… or sqlite:///path")


def _postgres() -> Kind:
    from headrace.connect.postgres.requests import request_snapshot
    from headrace.connect.postgres.settings import PostgresSettings
    from headrace.connect.postgres.source import PostgresSource
    from headrace.connect.postgres.table_reading import PostgresTables
    from headrace.connect.postgres.types import TypeModes

    def read_anew(settings: Any, tables: Sequence[str]) -> None:
        request_snapshot(settings.url, tables, slot=settings.slot)

    def make(settings: Any, *_: Any) -> Source:
        return PostgresSource(settings)

    return Kind("postgresql", PostgresSettings, TypeModes, make, read_anew, PostgresTables)


def _triggers() -> Kind:
    from headrace.connect.postgres.types import TypeModes
    from headrace.connect.triggers.capture import read_anew
    from headrace.connect.triggers.settings import TriggerSettings
    from headrace.connect.triggers.source import TriggerSource
    from headrace.connect.triggers.table_reading import TriggerTables

    def make(settings: Any, *_: Any) -> Source:
        return TriggerSource(settings)

    return Kind("postgresql", TriggerSettings, TypeModes, make, read_anew, TriggerTables)


def _mysql() -> Kind:
    from headrace.connect.mysql.history import TopicHistory
    from headrace.connect.mysql.requests import request_snapshot
    from headrace.connect.mysql.settings import MysqlSettings, TypeModes
    from headrace.connect.mysql.source import MysqlSource
    from headrace.connect.mysql.table_reading import MysqlTables

    def make(settings: Any, cluster: Cluster, connector: str) -> Source:
        return MysqlSource(settings, TopicHistory(cluster, connector))

    return Kind("mysql", MysqlSettings, TypeModes, make, request_snapshot, MysqlTables)


def _sqlite() -> Kind:
    from headrace.connect.sqlite.capture import read_anew
    from headrace.connect.sqlite.settings import SqliteSettings
    from headrace.connect.sqlite.source import SqliteSource
    from headrace.connect.sqlite.table_reading import SqliteTables

    def make(settings: Any, *_: Any) -> Source:
        return SqliteSource(settings)

    return Kind("sqlite", SqliteSettings, None, make, read_anew, SqliteTables)


def _kind_of(default: Any) -> type:
    """The kind of an option by its default; an option without one, or None by default, is a number here."""
    return int if default is None or default is MISSING else type(default)


def _path_of(url: str) -> Path:
    """sqlite:///relative.db, sqlite:////absolute.db."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc or len(path) < 2:
        raise InvalidConnectSetting("url", url, "write sqlite:///relative.db or sqlite:////absolute/path.db")
    return Path(path[1:])
