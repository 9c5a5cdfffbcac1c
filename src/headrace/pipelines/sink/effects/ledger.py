"""The memory of what was sent, in SQLite or PostgreSQL: one connection, one thread, each step durable at its end."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.stores.batch import Numbered, Step, Target
from headrace.stores.errors import SinkMisconfigured
from headrace.stores.postgres.database import PostgresDatabase
from headrace.stores.sql.database import Database
from headrace.stores.sql.statements import TableName
from headrace.stores.sql.transaction import BATCHES, create_batches, read_step, record_batch
from headrace.stores.sqlite.database import SqliteDatabase

WAITING, SENDING, DONE, FAILED = "waiting", "sending", "done", "failed"
_OUTBOX = TableName("headrace_outbox")
_CREATE = (
    "CREATE TABLE IF NOT EXISTS headrace_outbox (sink VARCHAR(500) NOT NULL, key TEXT NOT NULL, lane TEXT, seq BIGINT "
    "NOT NULL, state VARCHAR(10) NOT NULL, attempts INTEGER NOT NULL, error TEXT, payload TEXT, changed_at {moment} "
    "NOT NULL, "
    "PRIMARY KEY (sink, key))"
)
_INDEX = "CREATE INDEX IF NOT EXISTS headrace_outbox_open ON headrace_outbox (sink, seq) WHERE state <> 'done'"


@dataclass(frozen=True)
class Pending:
    """A record to be sent. Records of one lane are sent one after another; None is a lane of its own."""

    key: str
    lane: str | None
    seq: int
    attempts: int
    payload: str


@dataclass(frozen=True)
class FailedRecord:
    """A record that was given up, and why."""

    key: str
    attempts: int
    error: str
    record: Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """How one attempt ended: `error` None is success."""

    pending: Pending
    error: str | None = None
    final: bool = False

    def state(self, attempts: int) -> str:
        """The record's next state, if that many attempts are allowed."""
        if self.error is None:
            return DONE
        return FAILED if self.final or self.pending.attempts + 1 >= attempts else WAITING


class Ledger:
    """What one sink has sent and has still to send."""

    def __init__(self, db: Database, target: Target) -> None:
        self._db, self._target = db, target

    def prepare(self) -> None:
        """The tables, if they are not there."""
        with self._db.transaction():
            self._db.guard_definitions()
            create_batches(self._db, _OUTBOX)
            self._db.run(_CREATE.format(moment=self._db.moment))
            self._db.run(_INDEX)

    def step(self, batch: Numbered) -> Step:
        """Whether the batch is to be taken in."""
        return read_step(self._db, _OUTBOX, self._target, batch)

    def last_batch(self, query_id: str) -> int:
        """The number of the batch that was taken in last; -1 if there is none."""
        rows = self._db.run(
            f"SELECT batch_id FROM {BATCHES} WHERE sink = ? AND query_id = ?",  # noqa: S608
            (self._target.name, query_id),
        )
        return int(rows[0][0]) if rows else -1

    def take_in(self, batch: Numbered, records: Iterable[tuple[str, str | None, str]]) -> None:
        """All records (key, lane, payload) and the batch's number; a key that is known is not taken in again."""
        with self._db.transaction():
            step = self.step(batch)
            if step is Step.SKIP:
                return
            name, now = self._target.name, self._db.instant()
            ((seq,),) = self._db.run("SELECT coalesce(max(seq), 0) FROM headrace_outbox WHERE sink = ?", (name,))
            statement = (
                "INSERT INTO headrace_outbox (sink, key, lane, seq, state, attempts, payload, changed_at) "
                "VALUES (?, ?, ?, ?, 'waiting', 0, ?, ?) ON CONFLICT (sink, key) DO NOTHING"
            )
            rows = ((name, key, lane, seq + at, payload, now) for at, (key, lane, payload) in enumerate(records, 1))
            self._db.run_many(statement, rows)
            record_batch(self._db, _OUTBOX, self._target, batch, step)

    def pending(self, after_seq: int, limit: int) -> list[Pending]:
        """What is waiting or in doubt, in order; not what stands behind a failed record of its lane."""
        rows = self._db.run(
            "SELECT key, lane, seq, attempts, payload FROM headrace_outbox o WHERE sink = ? AND seq > ? AND state <> "
            "'done' AND state <> 'failed' AND NOT EXISTS (SELECT 1 FROM headrace_outbox f WHERE f.sink = o.sink "
            "AND f.lane = o.lane AND f.state = 'failed' AND f.seq < o.seq) ORDER BY seq LIMIT ?",
            (self._target.name, after_seq, limit),
        )
        return [Pending(*row) for row in rows]

    def claim(self, pending: Iterable[Pending]) -> None:
        """From here on these are in doubt until their result is remembered."""
        self._mark_all((SENDING, p.attempts, None, self._db.instant(), self._target.name, p.key) for p in pending)

    def remember(self, results: Iterable[Result], attempts: int) -> None:
        """How attempts ended. What is done keeps its key and gives up its payload."""
        self._mark_all(
            (
                r.state(attempts),
                r.pending.attempts + (r.error is not None),
                r.error,
                self._db.instant(),
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
        with self._db.transaction():
            self._db.run_many(statement, [(*row[:4], row[0], *row[4:]) for row in rows])

    def failed(self) -> list[tuple[str, int, str, str]]:
        """Key, attempts, error and payload of what was given up."""
        rows = self._db.run(
            "SELECT key, attempts, error, payload FROM headrace_outbox WHERE sink = ? AND state = ? ORDER BY seq",
            (self._target.name, FAILED),
        )
        return [(key, attempts, error, payload) for key, attempts, error, payload in rows]

    def count_failed(self) -> int:
        """How many were given up; quick, however many were sent."""
        ((count,),) = self._db.run(
            "SELECT count(*) FROM headrace_outbox WHERE sink = ? AND state <> 'done' AND state = ?",
            (self._target.name, FAILED),
        )
        return int(count)

    def forget_done(self, before_ms: int) -> None:
        """Keep no keys of what was sent before a time: for whom batches do not come again after so long."""
        self._db.run(
            "DELETE FROM headrace_outbox WHERE sink = ? AND state = ? AND changed_at < ?",
            (self._target.name, DONE, self._db.instant(before_ms)),
        )

    def try_alone(self) -> bool:
        """Whether nobody else sends for this sink: true for one at a time, until its ledger is closed."""
        return self._db.try_lock(f"headrace_outbox {self._target.name}")

    def retry_failed(self) -> int:
        """What was given up waits again, with all its attempts; how many."""
        with self._db.transaction():
            count = len(self.failed())
            self._db.run(
                "UPDATE headrace_outbox SET state = ?, attempts = 0 WHERE sink = ? AND state = ?",
                (WAITING, self._target.name, FAILED),
            )
            return count

    def counts(self) -> dict[str, int]:
        """How many records are in each state."""
        rows = self._db.run(
            "SELECT state, count(*) FROM headrace_outbox WHERE sink = ? GROUP BY state", (self._target.name,)
        )
        return {DONE: 0, FAILED: 0, WAITING: 0, SENDING: 0, **dict(rows)}


@contextmanager
def open_ledger(store: str, target: Target) -> Iterator[Ledger]:
    """The ledger at `sqlite:///path` or `postgresql://…`."""
    if store.startswith("sqlite:///"):
        database: Database = SqliteDatabase(Path(store.removeprefix("sqlite:///")))
    elif store.startswith(("postgresql://", "postgres://")):
        database = PostgresDatabase(store)
    else:
        raise SinkMisconfigured("an outbox is kept in store='sqlite:///path' or store='postgresql://…'")
    with database.open() as db:
        ledger = Ledger(db, target)
        ledger.prepare()
        yield ledger
