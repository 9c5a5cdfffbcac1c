"""What can be asked of a source from outside, while it runs somewhere else: through the database that it reads."""

from collections.abc import Sequence

from headrace.connect.postgres.catalog import Catalog, unknown_table
from headrace.connect.postgres.chunks import check_marks
from headrace.connect.postgres.connection import connect
from headrace.connect.postgres.slot import SlotState, slot_state
from headrace.connect.signals import EXECUTE, SIGNAL, STOP, signal_message


def request_snapshot(url: str, tables: Sequence[str], *, slot: str = "") -> None:
    """Have every row of these tables (`schema.table`) read again, while the log runs on."""
    with connect(url) as connection:
        every = Catalog(connection).tables()
        for name in tables:
            if all(table.full_name != name for table in every):
                raise unknown_table(name, every)
        check_marks(connection)
        content = signal_message(EXECUTE, tables, slot)
        connection.execute("select pg_logical_emit_message(true, %s, %s::text)", [SIGNAL, content])


def stop_snapshot(url: str, tables: Sequence[str] = (), *, slot: str = "") -> None:
    """Have these tables not read on, or none at all if none is named; what was read stays."""
    with connect(url) as connection:
        content = signal_message(STOP, tables, slot)
        connection.execute("select pg_logical_emit_message(true, %s, %s::text)", [SIGNAL, content])


def read_slot(url: str, slot: str) -> SlotState | None:
    """How the database sees a reader: whether it is there, and how much log is kept for it."""
    with connect(url) as connection:
        return slot_state(connection, slot)
