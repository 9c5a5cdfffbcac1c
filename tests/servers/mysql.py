"""A MySQL 8 of the tests' own, where `HEADRACE_MYSQL` names its mysqld; else MariaDB, which speaks nearly the same."""

import os
import subprocess
from collections.abc import Sequence

from tests.servers.mariadb import MariadbServer, as_user

_NAMED = os.environ.get("HEADRACE_MYSQL")
_SETTINGS = (
    "--gtid-mode=ON",
    "--enforce-gtid-consistency=ON",
    "--mysqlx=OFF",
    # The default wants passwords encrypted, for which the driver wants one package more.
    "--default-authentication-plugin=mysql_native_password",
)


class MysqlServer(MariadbServer):
    """With GTIDs on, as change capture needs them."""

    name = "MySQL"
    is_mariadb = False

    def __init__(self, program: str, options: Sequence[str] = ()) -> None:
        self._named = program
        super().__init__([*_SETTINGS, *options])

    def _install(self) -> str:
        subprocess.run(
            [self._named, "--no-defaults", self._data, "--initialize-insecure", *as_user()],
            check=True,
            capture_output=True,
        )
        return self._named


def binlog_server(options: Sequence[str] = ()) -> MariadbServer:
    """A server whose binary log is to be read."""
    return MysqlServer(_NAMED, options) if _NAMED else MariadbServer(options)
