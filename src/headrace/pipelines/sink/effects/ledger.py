"""The memory of what was sent, in SQLite or PostgreSQL: one connection, one thread, each step durable at its end."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace import extras
from headrace.pipelines.sink.effects.record import DONE, FAILED, SENDING, WAITING, Pending, Result
from headrace.stores.batch import Numbered, Step, Target
from headrace.stores.errors import SinkMisconfigured
from headrace.stores.sql.batch import record_batch, step_of
from headrace.stores.sql.statements import BATCHES, TableName, create_batches

_BATCHES = TableName(BATCHES)
_SCHEMA_LOCK = 0x68656164
_CREATE = (
    "CREATE TABLE IF NOT EXISTS headrace_outbox (sink VARCHAR(500) NOT NULL, key TEXT NOT NULL, lane TEXT, seq BIGINT "
    "NOT NULL, state VARCHAR(10) NOT NULL, attempts INTEGER NOT NULL, error TEXT, payload TEXT, changed_at {moment} "
    "NOT NULL, "
    "PRIMARY KEY (sink, key))"
)
_INDEX = "CREATE INDEX IF NOT EXISTS headrace_outbox_open ON headrace_outbox (sink, seq) WHERE state <> 'done'"


class Ledger:
    """What one sink has sent and has still to send."""

    def __init__(self, db: Any, target: Target, mark: str) -> None:
        self._db = db
        self._target = target
        self._mark = mark

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Statements are written with `?`."""
        cursor = self._db.execute(statement.replace("?", self._mark), tuple(values))
        return cursor.fetchall() if cursor.description else []

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE" if self._mark == "?" else "BEGIN")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            # A connection that broke has rolled back by itself.
            if not getattr(self._db, "closed", False):
                self._db.execute("ROLLBACK")
            raise

    def prepare(self) -> None:
        """The tables, if they are not there."""
        moment = "TEXT" if self._mark == "?" else "timestamptz"
        with self._transaction():
            if self._mark != "?":
                self._run("SELECT pg_advisory_xact_lock(?)", (_SCHEMA_LOCK,))
            self._run(create_batches(_BATCHES, moment))
            self._run(_CREATE.format(moment=moment))
            self._run(_INDEX)

    def step(self, batch: Numbered) -> Step:
        """Whether the batch is to be taken in."""
        return step_of(self._run, _BATCHES, self._target, batch, "?")

    def take_in(self, batch: Numbered, records: Iterable[tuple[str, str | None, str]]) -> None:
        """All records (key, lane, payload) and the batch's number; a key that is known is not taken in again."""
        with self._transaction():
            step = self.step(batch)
            if step is Step.SKIP:
                return
            seq = self._run("SELECT coalesce(max(seq), 0) FROM headrace_outbox WHERE sink = ?", (self._target.name,))[
                0
            ][0]
            statement = (
                "INSERT INTO headrace_outbox (sink, key, lane, seq, state, attempts, payload, changed_at) "
                "VALUES (?, ?, ?, ?, 'waiting', 0, ?, ?) ON CONFLICT (sink, key) DO NOTHING"
            )
            now, name = self._now(), self._target.name
            self._db.cursor().executemany(
                statement.replace("?", self._mark),
                ((name, key, lane, seq + at, payload, now) for at, (key, lane, payload) in enumerate(records, 1)),
            )
            record_batch(self._run, _BATCHES, self._target, batch, "?", step, now)

    def pending(self, after_seq: int, limit: int) -> list[Pending]:
        """What is waiting or in doubt, in order; not what stands behind a failed record of its lane."""
        rows = self._run(
            "SELECT key, lane, seq, attempts, payload FROM headrace_outbox o WHERE sink = ? AND seq > ? AND state <> "
            "'done' AND state <> 'failed' AND NOT EXISTS (SELECT 1 FROM headrace_outbox f WHERE f.sink = o.sink "
            "AND f.lane = o.lane AND f.state = 'failed' AND f.seq < o.seq) ORDER BY seq LIMIT ?",
            (self._target.name, after_seq, limit),
        )
        return [Pending(*row) for row in rows]

    def claim(self, pending: Iterable[Pending]) -> None:
        """From here on these are in doubt until their result is remembered."""
        self._mark_all((SENDING, p.attempts, None, self._now(), self._target.name, p.key) for p in pending)

    def remember(self, results: Iterable[Result], attempts: int) -> None:
        """How attempts ended. What is done keeps its key and gives up its payload."""
        self._mark_all(
            (
                r.state(attempts),
                r.pending.attempts + (r.error is not None),
                r.error,
                self._now(),
                self._target.name,
                r.pending.key,
            )
            for r in results
        )

    def _mark_all(self, rows: Iterable[tuple[Any, ...]]) -> None:
        statement = (
            "UPDATE headrace_outbox SET state = ?, attempts = ?, error = ?, changed_at = ?, payload = CASE WHEN "
            "? = 'done' THEN NULL ELSE payload END WHERE sink = ? AND key = ?"
        )
        with self._transaction():
            self._db.cursor().executemany(
                statement.replace("?", self._mark), [(*row[:4], row[0], *row[4:]) for row in rows]
            )

    def failed(self) -> list[tuple[str, int, str, str]]:
        """Key, attempts, error and payload of what was given up."""
        rows = self._run(
            "SELECT key, attempts, error, payload FROM headrace_outbox WHERE sink = ? AND state = ? ORDER BY seq",
            (self._target.name, FAILED),
        )
        return [(key, attempts, error, payload) for key, attempts, error, payload in rows]

    def retry_failed(self) -> int:
        """What was given up waits again, with all its attempts; how many."""
        with self._transaction():
            count = len(self.failed())
            self._run(
                "UPDATE headrace_outbox SET state = ?, attempts = 0 WHERE sink = ? AND state = ?",
                (WAITING, self._target.name, FAILED),
            )
            return count

    def counts(self) -> dict[str, int]:
        """How many records are in each state."""
        rows = self._run(
            "SELECT state, count(*) FROM headrace_outbox WHERE sink = ? GROUP BY state", (self._target.name,)
        )
        return {DONE: 0, FAILED: 0, WAITING: 0, SENDING: 0, **dict(rows)}

    def _now(self) -> Any:
        now = datetime.now(UTC)
        return now.isoformat() if self._mark == "?" else now


@contextmanager
def opened(store: str, target: Target) -> Iterator[Ledger]:
    """The ledger at `sqlite:///path` or `postgresql://…`."""
    if store.startswith("sqlite:///"):
        path = Path(store.removeprefix("sqlite:///"))
        path.parent.mkdir(parents=True, exist_ok=True)
        db: Any = sqlite3.connect(path, timeout=120, isolation_level=None)
        db.execute("PRAGMA synchronous = FULL")
        mark = "?"
    elif store.startswith(("postgresql://", "postgres://")):
        db, mark = extras.load("psycopg").connect(store, autocommit=True), "%s"
    else:
        raise SinkMisconfigured("an outbox is kept in store='sqlite:///path' or store='postgresql://…'")
    try:
        ledger = Ledger(db, target, mark)
        ledger.prepare()
        yield ledger
    finally:
        db.close()
