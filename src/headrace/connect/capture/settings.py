"""What a user says about a capture: a section `[cdc.NAME]` of `headrace.toml`, or the options of a command.

    [cdc.shop]
    url = "postgresql://headrace:${SHOP_PASSWORD}@127.0.0.1/shop"
    tables = ["public.orders", "public.customers"]

What is not listed here belongs to the source: see the settings of its kind.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from headrace.client.cluster import Cluster
from headrace.connect.delivery import TopicSettings
from headrace.connect.envelope import AVRO, FORMATS, JSON, TopicNames
from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.filters import Filters
from headrace.connect.personal import Seal, read_personal
from headrace.connect.sections import InvalidSettingsFile, checked, shown_address
from headrace.connect.source import Source, TableReader
from headrace.records import Codec

LOG, TRIGGERS = "log", "triggers"
METHODS: Final = (LOG, TRIGGERS)
_NOT_OPTIONS: Final = ("url", "path", "filters", "types", "temporary", "shared_publication")


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
    from headrace.connect.postgres.chunks import request_snapshot
    from headrace.connect.postgres.settings import PostgresSettings
    from headrace.connect.postgres.snapshot import PostgresTables
    from headrace.connect.postgres.source import PostgresSource
    from headrace.connect.postgres.types import TypeModes

    def read_anew(settings: Any, tables: Sequence[str]) -> None:
        request_snapshot(settings.url, tables, slot=settings.slot)

    def make(settings: Any, *_: Any) -> Source:
        return PostgresSource(settings)

    return Kind("postgresql", PostgresSettings, TypeModes, make, read_anew, PostgresTables)


def _triggers() -> Kind:
    from headrace.connect.postgres.types import TypeModes
    from headrace.connect.triggers.capture import TriggerTables, read_anew
    from headrace.connect.triggers.settings import TriggerSettings
    from headrace.connect.triggers.source import TriggerSource

    def make(settings: Any, *_: Any) -> Source:
        return TriggerSource(settings)

    return Kind("postgresql", TriggerSettings, TypeModes, make, read_anew, TriggerTables)


def _mysql() -> Kind:
    from headrace.connect.filters import TypeModes
    from headrace.connect.mysql.history import TopicHistory
    from headrace.connect.mysql.settings import MysqlSettings
    from headrace.connect.mysql.signal_table import request_snapshot
    from headrace.connect.mysql.snapshot import MysqlTables
    from headrace.connect.mysql.source import MysqlSource

    def make(settings: Any, cluster: Cluster, connector: str) -> Source:
        return MysqlSource(settings, TopicHistory(cluster, connector))

    return Kind("mysql", MysqlSettings, TypeModes, make, request_snapshot, MysqlTables)


def _sqlite() -> Kind:
    from headrace.connect.sqlite.capture import read_anew
    from headrace.connect.sqlite.connection import SqliteSettings
    from headrace.connect.sqlite.snapshot import SqliteTables
    from headrace.connect.sqlite.source import SqliteSource

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


SECTION: Final = "cdc"
_FILTERS: Final = {
    "tables": ("include_tables", list), "exclude_tables": ("exclude_tables", list),
    "columns": ("include_columns", list), "exclude_columns": ("exclude_columns", list),
    "mask_columns": ("mask_columns", list), "hash_columns": ("hash_columns", list), "hash_salt": ("hash_salt", str),
    "truncate_columns": ("truncate_columns", dict), "key_columns": ("key_columns", dict),
}  # fmt: skip
_WRITING: Final[Mapping[str, type]] = {
    "schemas": bool, "tombstones": bool, "unwrap": str, "skipped_operations": list, "transaction_metadata": bool,
    "outbox_prefix": str, "format": str,
}  # fmt: skip
_OWN: Final[Mapping[str, type]] = {
    "url": str, "method": str, "prefix": str, "topic": str, "partitions": int, "compression": str, "types": dict,
    "registry": str, "personal": dict,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """One capture; `source` are the settings of its kind."""

    name: str
    kind: Kind
    source: Any = field(repr=False)  # its URL may hold a password
    filters: Filters
    names: TopicNames
    topics: TopicSettings
    writing: Mapping[str, Any]
    registry: str = field(default="", repr=False)  # as may this
    database: str = ""  # where it is, as others may see it


def from_section(name: str, section: Mapping[str, Any], seal: Seal | None = None) -> CaptureSettings:
    """One section, checked; raises before anything is done. Personal columns are sealed by `seal`."""
    where = f"{SECTION}.{name}"
    if "url" not in section:
        raise InvalidSettingsFile(f'section [{where}] has no url: add url = "postgresql://…"')
    url = str(section["url"])
    kind = kind_of(url, str(section.get("method", LOG)))
    known = {**_OWN, **{key: of for key, (_, of) in _FILTERS.items()}, **_WRITING, **kind.options}
    given = checked(where, section, known)
    personal = read_personal(where, given.get("personal", {}), given.get("format", JSON))
    chosen = {_FILTERS[key][0]: value for key, value in given.items() if key in _FILTERS}
    filters = Filters(**chosen, personal=personal, seal=seal)
    options = _named(name, kind) | {key: value for key, value in given.items() if key in kind.options}
    writing = {key: value for key, value in given.items() if key in _WRITING}
    if "skipped_operations" in writing:
        writing["skipped_operations"] = frozenset(writing["skipped_operations"])
    registry = given.get("registry", "")
    check_format(where, writing.get("format", JSON), registry)
    template = {"template": given["topic"]} if "topic" in given else {}
    return CaptureSettings(
        name,
        kind,
        kind.configured(url, filters, options, given.get("types", {})),
        filters,
        TopicNames(given.get("prefix", name), **template),
        TopicSettings(given.get("partitions", 1), codec=Codec.named(given.get("compression", "none"))),
        writing,
        registry,
        shown_address(url),
    )


def check_format(where: str, form: str, registry: str) -> None:
    """Refuse a format that there is not, and a registry that would not be asked."""
    if form not in FORMATS:
        raise InvalidConnectSetting(f"{where}.format", form, f"choose {' or '.join(FORMATS)}")
    if registry and form != AVRO:
        raise InvalidConnectSetting(f"{where}.registry", "…", 'only Avro has one: add format = "avro"')


def _named(name: str, kind: Kind) -> dict[str, str]:
    """What a capture is called in the database, unless it is said: two of them must not take each other's place."""
    word = "headrace_" + re.sub(r"[^a-z0-9_]", "_", name.lower())[:32]
    return {key: word for key in ("slot", "capture") if key in kind.options}
