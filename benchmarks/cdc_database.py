"""The database whose changes are captured: a real PostgreSQL, the table, and what is done to it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from headrace.testing.postgres import Postgres

TABLE, SENTINEL = "orders", "sentinel"
_TABLES = f"""
CREATE TABLE {TABLE} (
    id bigint PRIMARY KEY, customer integer NOT NULL, amount numeric(10, 2) NOT NULL, note text,
    placed timestamptz NOT NULL
);
CREATE TABLE {SENTINEL} (id bigint PRIMARY KEY);
"""
_ROWS = (
    f"INSERT INTO {TABLE} SELECT n, n %% 1000, (n %% 100000) / 100.0, 'order number ' || n, "
    "'2026-01-01'::timestamptz + n * interval '1 second' FROM generate_series(%s::bigint, %s::bigint) n"
)
_BETWEEN = "id BETWEEN %s AND %s"
PER_TRANSACTION = 100
# Of ten transactions six insert, three update and one deletes.
_TURNS = "iuiiuidiui"


@contextmanager
def database(folder: Path) -> Iterator[str]:
    """A PostgreSQL, started and stopped; its address."""
    # Commits need not wait for the disk: what is measured is how fast changes are captured, not how fast they are made.
    settings = {"max_wal_size": "4GB", "synchronous_commit": "off"}
    with Postgres(folder / "postgres", settings=settings) as server:
        yield server.url


def make_tables(url: str, rows: int) -> None:
    """The tables, fresh, with so many orders in them."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"DROP TABLE IF EXISTS {TABLE}, {SENTINEL}")
        db.execute(_TABLES)
        if rows:
            db.execute(_ROWS, (1, rows))
        db.execute(f"VACUUM ANALYZE {TABLE}")


def change(url: str, changes: int, first: int) -> None:
    """So many changes in transactions of a hundred, on orders from `first` on; then the sentinel."""
    inserted = updated = deleted = first
    with psycopg.connect(url) as db:
        for number in range(changes // PER_TRANSACTION):
            turn = _TURNS[number % len(_TURNS)]
            if turn == "i":
                db.execute(_ROWS, (inserted, inserted + PER_TRANSACTION - 1))
                inserted += PER_TRANSACTION
            elif turn == "u":
                where = (updated, updated + PER_TRANSACTION - 1)
                db.execute(f"UPDATE {TABLE} SET amount = amount + 1, note = note || '!' WHERE {_BETWEEN}", where)
                updated += PER_TRANSACTION
            else:
                where = (deleted, deleted + PER_TRANSACTION - 1)
                db.execute(f"DELETE FROM {TABLE} WHERE {_BETWEEN}", where)
                deleted += PER_TRANSACTION
            db.commit()
        db.execute(f"INSERT INTO {SENTINEL} VALUES (%s)", (first,))
        db.commit()


def trickle(url: str, per_s: int, seconds: float, first: int) -> int:
    """Orders one by one at an even pace, each with the time of its commit in its note; how many."""
    count = int(per_s * seconds)
    with psycopg.connect(url, autocommit=True) as db:
        # A commit that does not wait for the disk is sent when the server's writer wakes, every 200 ms: nothing else
        # would be seen.
        db.execute("SET synchronous_commit = on")
        started = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, started + number / per_s - time.monotonic()))
            db.execute(
                f"INSERT INTO {TABLE} VALUES (%s, 0, 0, %s, now())", (first + number, str(time.time_ns() // 1000))
            )
    return count


def table_now(url: str) -> dict[int, tuple[int, str, str]]:
    """What is in the table of orders."""
    with psycopg.connect(url) as db:
        found = db.execute(f"SELECT id, customer, amount::text, note FROM {TABLE}").fetchall()
    return {key: (customer, amount, note) for key, customer, amount, note in found}


def drop_slot(url: str, slot: str) -> None:
    """Have the server forget how far a capture was; it ends whoever still holds the slot."""
    with psycopg.connect(url, autocommit=True) as db:
        for _ in range(200):
            found = db.execute("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", (slot,)).fetchone()
            if found is None:
                return
            if found[0] is not None:
                db.execute("SELECT pg_terminate_backend(%s)", (found[0],))
                time.sleep(0.05)
                continue
            db.execute("SELECT pg_drop_replication_slot(%s)", (slot,))


def wait_for_slot(url: str, slot: str, patience_s: float = 60.0) -> None:
    """Until a capture streams: what happens from now on is not lost on it."""
    deadline = time.monotonic() + patience_s
    with psycopg.connect(url, autocommit=True) as db:
        asked = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active AND confirmed_flush_lsn IS NOT NULL"
        while db.execute(asked, (slot,)).fetchone() is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"slot {slot} is not in use")
            time.sleep(0.05)
