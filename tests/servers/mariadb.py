"""A MariaDB of the tests' own: Debian's mariadbd on a free port of loopback, which can be killed and started again."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pymysql
import pytest

from tests.ports import free_port
from tests.servers.redis import wait_for_port

USER, PASSWORD, DATABASE = "headrace", "se cret", "shop"
_SETTINGS = (
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--server-id=1",
    "--log-bin=binlog",
    "--binlog-format=ROW",
    "--innodb-buffer-pool-size=64M",
    "--innodb-flush-log-at-trx-commit=2",  # what is killed here is a process: the machine keeps what it wrote
)


class MariadbServer:
    """With the row-based binary log on, as change capture needs it."""

    name = "MariaDB"
    is_mariadb = True

    def __init__(self, options: Sequence[str] = ()) -> None:
        self._options = list(options)
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-mariadb-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._program = self._install()
        self.start()
        with pymysql.connect(unix_socket=self._socket, user="root", autocommit=True) as db, db.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {DATABASE}")
            cursor.execute(f"CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}'")
            cursor.execute(f"GRANT ALL ON *.* TO '{USER}'@'%'")

    def _install(self) -> str:
        """Make the data folder; the program that runs on it."""
        program, installer = _found("mariadbd"), _found("mariadb-install-db")
        if program is None or installer is None:
            pytest.skip("needs mariadbd: apt-get install mariadb-server")
        arguments = ["--auth-root-authentication-method=normal", "--skip-test-db", *as_user()]
        subprocess.run([installer, "--no-defaults", self._data, *arguments], check=True, capture_output=True)
        return program

    @property
    def url(self) -> str:
        return f"mariadb://{USER}:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{self.port}/{DATABASE}"

    @property
    def _socket(self) -> str:
        return str(self.folder / "socket")

    @property
    def _data(self) -> str:
        return f"--datadir={self.folder / 'data'}"

    def start(self) -> None:
        places = [f"--socket={self._socket}", f"--port={self.port}", f"--log-error={self.folder / 'log'}"]
        places.append(f"--tmpdir={self.folder}")  # a server that starts removes what others have in a common one
        self._process = subprocess.Popen(
            [self._program, "--no-defaults", self._data, *places, *_SETTINGS, *as_user(), *self._options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for_port(self.port, self._process, self.name)

    def kill(self) -> None:
        """Without a farewell: it recovers when it is started again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def end(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _found(program: str) -> str | None:
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def as_user() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []
