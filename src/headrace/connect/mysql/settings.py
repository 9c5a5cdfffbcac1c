"""What a user says about a MariaDB or MySQL source."""

import secrets
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.filters import Filters, TypeModes, check_choices

_SCHEMES = ("mysql", "mariadb")
_OPTIONS = ("ssl", "ssl_ca", "ssl_cert", "ssl_key")
SIGNAL_TABLE = "headrace_signal"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, and who asks; `options` are those of TLS."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def where(self) -> str:
        """The server, without secrets."""
        return f"{self.host}:{self.port}"


def parse_url(url: str) -> Address:
    """`mysql://user:password@host:port/database`, or `mariadb://…`."""
    parts = urlsplit(url)
    try:
        port = parts.port or 3306
    except ValueError:
        port = 0
    options = tuple(parse_qsl(parts.query))
    if parts.scheme not in _SCHEMES or not port or any(name not in _OPTIONS for name, _ in options):
        shown = url if parts.password is None else url.replace(f":{parts.password}@", ":…@")
        wanted = f"write mysql://user:password@host:3306/database, and after a ? only {', '.join(_OPTIONS)}"
        raise InvalidConnectSetting("url", shown, wanted)
    return Address(
        parts.hostname or "127.0.0.1",
        port,
        unquote(parts.username or "root"),
        unquote(parts.password or ""),
        unquote(parts.path.strip("/")),
        options,
    )


def _new_server_id() -> int:
    """A replica's number must be nobody else's; whoever runs few replicas numbers them from below."""
    return 0x4000_0000 + secrets.randbelow(0x3FFF_FFFF)


@dataclass(frozen=True, slots=True)
class MysqlSettings:
    """One source; a database in the URL is all that is captured, unless filters say otherwise."""

    url: str
    filters: Filters = field(default_factory=Filters)  # a table is called database.table
    types: TypeModes = field(default_factory=TypeModes)
    snapshot: str = "initial"
    schema_changes: str = "evolve"
    unseen_changes: str = "reread"  # what may have changed rows and the log does not tell: "reread" or "stop"
    server_id: int = field(default_factory=_new_server_id)
    heartbeat_s: float = 10.0
    batch_rows: int = 8192
    capture: str = "headrace"  # the name by which a signal means this source alone
    signal_table: str = ""  # database.table with columns id, type, data; headrace_signal of the URL's database

    def __post_init__(self) -> None:
        parse_url(self.url)
        if self.signal_table and not all(self.signal_table.partition(".")):
            raise InvalidConnectSetting("signal_table", self.signal_table, "write database.table")
        check_choices(self, counts=("batch_rows",), seconds=("heartbeat_s",))
        if not 0 < self.server_id < 1 << 32:
            raise InvalidConnectSetting("server_id", self.server_id, "use a number from 1 to 4294967295")

    @property
    def signal_name(self) -> tuple[str, str] | None:
        """Database and name of the signal table; None if neither the setting nor the URL tells."""
        if self.signal_table:
            database, _, table = self.signal_table.partition(".")
            return database, table
        database = parse_url(self.url).database
        return (database, SIGNAL_TABLE) if database else None
