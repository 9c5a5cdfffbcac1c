"""What differs between MariaDB and MySQL, and whether a server is fit to be read."""

from dataclasses import dataclass

from headrace.connect.errors import SourceRefused
from headrace.connect.mysql.connection import Connection, ask
from headrace.connect.mysql.gtid import GtidState, MariaDbState, MysqlState

MARIADB, MYSQL = "mariadb", "mysql"


@dataclass(frozen=True, slots=True)
class Server:
    """A server, as far as reading it depends on that."""

    flavor: str
    version: str
    has_checksum: bool
    lower_case_table_names: int = 0

    @property
    def is_mariadb(self) -> bool:
        """Which of the two."""
        return self.flavor == MARIADB

    def parse_state(self, text: str) -> GtidState:
        """Transactions that were seen."""
        return MariaDbState.parse(text) if self.is_mariadb else MysqlState.parse(text)


def examine(connection: Connection) -> Server:
    """The server behind a connection; one whose log does not hold what is needed is refused."""
    version = ask(connection, "SELECT version()")[0][0]
    flavor = MARIADB if "mariadb" in version.lower() else MYSQL
    wanted = "'log_bin', 'binlog_format', 'binlog_row_image', 'binlog_checksum', 'gtid_mode', "
    wanted += "'binlog_transaction_compression', 'binlog_row_value_options', 'lower_case_table_names'"
    found = dict(ask(connection, f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({wanted})"))
    if found.get("log_bin") != "ON":
        raise SourceRefused(
            "the server writes no binary log (log_bin is OFF)",
            "start it with --log-bin --server-id=1, or put log_bin and server_id=1 into the [mysqld] section of its "
            "configuration, and restart it",
        )
    if found.get("binlog_format", "ROW") != "ROW":
        raise SourceRefused(
            f"the binary log does not hold rows (binlog_format is {found['binlog_format']})",
            "SET GLOBAL binlog_format = ROW, and have every session connect anew",
        )
    if found.get("binlog_row_image", "FULL") != "FULL":
        raise SourceRefused(
            f"the binary log does not hold whole rows (binlog_row_image is {found['binlog_row_image']})",
            "SET GLOBAL binlog_row_image = FULL, and have every session connect anew",
        )
    if flavor == MYSQL and found.get("gtid_mode") != "ON":
        raise SourceRefused(
            f"transactions have no GTIDs (gtid_mode is {found.get('gtid_mode')})",
            "SET GLOBAL enforce_gtid_consistency = ON, then SET GLOBAL gtid_mode = OFF_PERMISSIVE, ON_PERMISSIVE and "
            "ON, one after the other",
        )
    if found.get("binlog_transaction_compression") == "ON":
        raise SourceRefused(
            "the binary log is compressed by whole transactions, which is not read here",
            "SET GLOBAL binlog_transaction_compression = OFF",
        )
    if "PARTIAL_JSON" in found.get("binlog_row_value_options", ""):
        raise SourceRefused(
            "the binary log holds only what changed inside JSON documents", "SET GLOBAL binlog_row_value_options = ''"
        )
    has_checksum = found.get("binlog_checksum", "NONE") != "NONE"
    return Server(flavor, version, has_checksum, int(found.get("lower_case_table_names", 0)))


def current_state(connection: Connection, server: Server) -> GtidState:
    """The transactions that the log holds now."""
    variable = "@@global.gtid_binlog_pos" if server.is_mariadb else "@@global.gtid_executed"
    return server.parse_state(ask(connection, f"SELECT {variable}")[0][0] or "")
