"""What can be asked of a source from outside, while it runs somewhere else: through the database that it reads."""

from collections.abc import Sequence
from contextlib import closing

from headrace.connect.errors import SourceRefused
from headrace.connect.mysql.catalog import Selection, read_tables
from headrace.connect.mysql.connection import connect, translated
from headrace.connect.mysql.flavor import examine
from headrace.connect.mysql.settings import MysqlSettings, parse_url
from headrace.connect.mysql.signal_table import SignalTable
from headrace.connect.signals import EXECUTE, STOP


def request_snapshot(settings: MysqlSettings, tables: Sequence[str]) -> None:
    """Have every row of these tables (`database.table`) read again, while the log runs on."""
    _ask(settings, EXECUTE, tables)


def stop_snapshot(settings: MysqlSettings, tables: Sequence[str] = ()) -> None:
    """Have these tables not read on, or none at all if none is named; what was read stays."""
    _ask(settings, STOP, tables)


def _ask(settings: MysqlSettings, kind: str, tables: Sequence[str]) -> None:
    address = parse_url(settings.url)
    signals = SignalTable(address, settings.signal_name)
    with closing(connect(address)) as connection:
        with translated(address):
            server = examine(connection)
            every = read_tables(connection, is_mariadb=server.is_mariadb)
        captures = Selection(settings.filters, address.database, hidden=settings.signal_name)
        captured = [".".join(name) for name in every if captures(name)]
        for name in tables:
            if name not in captured:
                there = ", ".join(captured[:5]) + (" …" if len(captured) > 5 else "") or "none"
                raise SourceRefused(
                    f"table {name} is not captured (captured are: {there})", "correct the name, as database.table"
                )
        signals.check(connection, server)
        signals.send(connection, kind, tables, settings.capture)
