"""The outbox as a sink: take the batch in, then send what is pending."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from headrace.pipelines.sink.effects.delivery import Pace, Send, deliver
from headrace.pipelines.sink.effects.ledger import FailedRecord, Ledger, open_ledger
from headrace.stores.batch import Numbered, OnNewQuery, Step, Target, words
from headrace.stores.errors import SinkMisconfigured
from headrace.stores.frames import Spool, read_query_id, spool_rows


@dataclass(frozen=True)
class Outbox:
    """Given to `foreachBatch`; a batch ends when each of its records is done or given up."""

    store: str = field(repr=False)  # it may hold a password
    send: Send
    key: str
    target: Target
    order_by: tuple[str, ...] = ()
    order_key: str | None = None
    pace: Pace = field(default_factory=Pace)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Take one batch in, unless it is there already, and send what is pending."""
        batch = Numbered(read_query_id(df), batch_id)
        with self._ledger() as ledger:
            if ledger.step(batch) is not Step.SKIP:
                with spool_rows(self._records(df)) as spool:
                    ledger.take_in(batch, _rows(spool))
            # Also when the batch was taken in before: it is run again because it did not come to its end.
            deliver(ledger, self.send, self.pace)

    def failed(self) -> list[FailedRecord]:
        """What was given up, in its order."""
        with self._ledger() as ledger:
            return [FailedRecord(key, tried, error, json.loads(text)) for key, tried, error, text in ledger.failed()]

    def retry_failed(self) -> int:
        """Have what was given up sent again with the next batch; how many."""
        with self._ledger() as ledger:
            return ledger.retry_failed()

    def counts(self) -> dict[str, int]:
        """How many records are in each state."""
        with self._ledger() as ledger:
            return ledger.counts()

    @contextmanager
    def _ledger(self) -> Iterator[Ledger]:
        with open_ledger(self.store, self.target) as ledger:
            yield ledger

    def _records(self, df: DataFrame) -> DataFrame:
        missing = F.raise_error(
            F.lit(
                f"outbox {self.target.name!r}: a record's key ({self.key}) is null: give every record a key of its own"
            )
        )
        lane = F.expr(self.order_key).cast("string") if self.order_key else F.lit(None).cast("string")
        ordered = df.orderBy(*self.order_by) if self.order_by else df
        return ordered.select(
            F.coalesce(F.expr(self.key).cast("string"), missing.cast("string")).alias("key"),
            lane.alias("lane"),
            F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("payload"),
        )


def _rows(spool: Spool) -> Iterator[tuple[str, str | None, str]]:
    for part in spool.batches():
        yield from zip(*(part.column(index).to_pylist() for index in range(3)), strict=True)


def outbox(
    store: str,
    send: Send,
    key: str,
    *,
    name: str = "outbox",
    order_key: str | None = None,
    order_by: str | Sequence[str] | None = None,
    attempts: int = 5,
    first_pause_s: float = 0.5,
    longest_pause_s: float = 60.0,
    parallel: int = 4,
    on_new_query: OnNewQuery = "continue",
) -> Outbox:
    """Sends each record once: `send(record, key)`, where `key` (a column or a SQL expression) tells records apart.

    Two rows with the same key are one record. With `order_key` the records that share it are sent one after another,
    in the order of `order_by`, and one that failed holds up those behind it until `retry_failed()`. A pipeline that
    was reset goes on (`on_new_query="continue"`): the keys are remembered, so what was sent before is not sent again.
    """
    if on_new_query == "replace":
        raise SinkMisconfigured("an outbox does not forget what it sent: on_new_query is 'continue' or 'refuse'")
    if order_key and not order_by:
        raise SinkMisconfigured(f"outbox {name!r}: order_key needs order_by=..., the column that tells the order")
    if attempts < 1 or parallel < 1:
        raise SinkMisconfigured(f"outbox {name!r}: attempts and parallel are at least 1")
    target = Target("headrace_outbox", name, on_new_query=on_new_query)
    return Outbox(
        store, send, key, target, words(order_by), order_key, Pace(attempts, first_pause_s, longest_pause_s, parallel)
    )
