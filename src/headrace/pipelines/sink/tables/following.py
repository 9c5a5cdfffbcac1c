"""Whether a batch is to be written: pure, from what the target remembers and what Spark brings.

Spark numbers the batches of a query 0, 1, 2 … and keeps the query's id in its checkpoint. After a crash it runs the
last batch again, with the same number and the same rows. So with the same query there are three cases: the number
is new (write), it is the last one written (skip: a replay), or it is older than that, and then the checkpoint is older
than the table: Spark may cut the batches anew, and skipping would lose what is between the cuts.

Another query id means another checkpoint: the old one was deleted, or a second pipeline writes under the same name.
Its numbers begin again at 0 and say nothing about what the target holds, so the user has to say what is meant.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from headrace.pipelines.sink.tables.errors import ForeignQuery

OnNewQuery = Literal["refuse", "continue", "replace"]


class Step(Enum):
    """What to do with a batch."""

    WRITE = "write"
    SKIP = "skip"  # it is in the target already
    TAKE_OVER = "take over"  # another query's rows stay, and this query goes on from here
    START_OVER = "start over"  # another query's rows go, in the same transaction that writes this batch


@dataclass(frozen=True)
class Recorded:
    """The last batch that one query wrote to a sink; `superseded` once another query has taken over."""

    query_id: str
    batch_id: int
    superseded: bool = False


def next_step(
    sink: str,
    recorded: Iterable[Recorded],
    query_id: str,
    batch_id: int,
    on_new_query: OnNewQuery,
    *,
    can_replace: bool = True,
) -> Step:
    """What to do with this batch of this query, or ForeignQuery; `can_replace` is whether the store can begin again."""
    again = "on_new_query='replace' or 'continue'" if can_replace else "on_new_query='continue'"
    rows = list(recorded)
    mine = next((row for row in rows if row.query_id == query_id), None)
    owner = next((row for row in rows if not row.superseded), None)
    if mine is not None and mine.superseded:
        raise ForeignQuery(
            f"sink {sink!r}: query {query_id} was superseded by query {owner.query_id if owner else 'unknown'}, and "
            "two queries cannot write under one name; stop this one or give it a name of its own (name=...)",
            sink, query_id, batch_id,
        )  # fmt: skip
    if mine is not None:
        if batch_id > mine.batch_id:
            return Step.WRITE
        if batch_id == mine.batch_id:
            return Step.SKIP
        raise ForeignQuery(
            f"sink {sink!r}: batch {batch_id} comes after batch {mine.batch_id} was written, so the checkpoint is "
            "older than the target (was it restored from a copy?); restore the target of the same time, or start with "
            f"a new checkpoint and {again}",
            sink, query_id, batch_id,
        )  # fmt: skip
    if owner is None or owner.batch_id < 0:  # a query that never wrote a batch has left nothing to be careful of
        return Step.WRITE
    if on_new_query == "continue":
        return Step.TAKE_OVER
    if on_new_query == "replace":
        return Step.START_OVER
    replacing = "'replace' to begin again with an empty target, " if can_replace else ""
    raise ForeignQuery(
        f"sink {sink!r}: the target was written by query {owner.query_id} up to batch {owner.batch_id}, and batch "
        f"{batch_id} comes from query {query_id} with another checkpoint; say on_new_query={replacing}'continue' to "
        "add to what is there, or name=... if it is another pipeline",
        sink, query_id, batch_id,
    )  # fmt: skip
