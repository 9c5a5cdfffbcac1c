"""A SQLite connection that one thread closes while another reads."""

import sqlite3
import threading
from pathlib import Path

from headrace.stores.sqlite.database import SqliteDatabase


def test_whoever_reads_while_it_is_closed_has_an_error_and_no_crash(tmp_path: Path) -> None:
    """Python's driver crashes the process here: a server that ends did, while somebody waited for a view's news."""
    for _ in range(300):
        db = SqliteDatabase(tmp_path / "shop.db")
        db.connect()
        reads = threading.Event()
        ended: list[sqlite3.Error] = []

        def read(db=db, reads=reads, ended=ended) -> None:
            try:
                while True:
                    db.run("SELECT name FROM sqlite_master WHERE name = ?", ("orders",))
                    reads.set()
            except sqlite3.Error as error:
                ended.append(error)

        reading = threading.Thread(target=read)
        reading.start()
        assert reads.wait(60)
        db.close()
        reading.join(60)
        assert "closed" in str(ended[0])
