"""The contract of batch sinks: what a user says about one, and whether a batch is to be written. Pure.

Spark numbers the batches of a query 0, 1, 2 … and keeps the query's id in its checkpoint. After a crash it runs the
last batch again, with the same number and the same rows. So with the same query there are three cases: the number
is new (write), it is the last one written (skip: a replay), or it is older than that, and then the checkpoint is older
than the table: Spark may cut the batches anew, and skipping would lose what is between the cuts.

Another query id means another checkpoint: the old one was deleted, or a second pipeline writes under the same name.
Its numbers begin again at 0 and say nothing about what the target holds, so the user has to say what is meant.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypedDict, Unpack, get_args

from headrace.errors import nearest
from headrace.stores.errors import ColumnMismatch, ForeignQuery, SinkMisconfigured

OnNewQuery = Literal["refuse", "continue", "replace"]
DELETED = "headrace_deleted"  # the flag that goes with each row of a batch as far as the merge


@dataclass(frozen=True)
class Target:
    """Where the rows go and how they are merged.

    `keys` empty means append. `order_by` says which of several rows of one key in one batch is the last; without it
    the version counts, then a column `offset` if there is one. `columns` are those written; by default all, except a
    boolean column that only says what to delete.
    """

    table: str
    name: str
    keys: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    delete_when: str | None = None
    version: str | None = None
    columns: tuple[str, ...] = ()
    create: bool = True
    on_new_query: OnNewQuery = "refuse"

    @classmethod
    def of(cls, table: str, otherwise: str, keys: str | Sequence[str], **settings: Unpack["Settings"]) -> "Target":
        """From what a user gives to a sink's function; without a name it is called `otherwise`."""
        for word in settings:
            if word not in Settings.__annotations__:
                raise SinkMisconfigured(f"a sink has no setting {word!r}: {nearest(word, Settings.__annotations__)}")
        given: dict[str, Any] = {**settings, "name": settings.get("name") or otherwise, "keys": words(keys)}
        given |= {word: words(given.get(word)) for word in ("order_by", "columns")}
        return cls(table, **given)

    def __post_init__(self) -> None:
        if not self.table:
            raise SinkMisconfigured("a sink needs a table to write to: table='...'")
        if self.on_new_query not in get_args(OnNewQuery):
            raise SinkMisconfigured(
                f"sink {self.name!r}: on_new_query is 'refuse', 'continue' or 'replace', not {self.on_new_query!r}"
            )
        if not self.keys:
            given = [
                word
                for word, value in (
                    ("delete_when", self.delete_when),
                    ("version", self.version),
                    ("order_by", self.order_by),
                )
                if value
            ]
            if given:
                raise SinkMisconfigured(
                    f"sink {self.name!r}: {given[0]} needs keys=[...]; without keys rows are only appended"
                )

    def choose_columns(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The columns that the table gets, of those that the DataFrame has."""
        self._require(columns, self.keys, "keys")
        self._require(columns, self.order_by, "order_by")
        self._require(columns, (self.version,) if self.version else (), "version")
        self._require(columns, self.columns, "columns")
        chosen = self.columns or tuple(column for column in columns if column != self.delete_when)
        for column in (*self.keys, *((self.version,) if self.version else ())):
            if column not in chosen:
                raise SinkMisconfigured(
                    f"sink {self.name!r}: the column {column!r} is a key or the version and has to be in columns=[...]"
                )
        if len(set(chosen)) < len(chosen):
            twice = next(column for column in chosen if chosen.count(column) > 1)
            raise ColumnMismatch(f"sink {self.name!r}: the column {twice!r} stands twice in the DataFrame", twice)
        return chosen

    def choose_order(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The columns that decide which row of a key is the last, most important first; none if there are none."""
        order = ((self.version,) if self.version else ()) + self.order_by
        if not order and "offset" in columns:
            return ("offset",)
        return order

    def _require(self, columns: Sequence[str], wanted: Iterable[str], setting: str) -> None:
        for column in wanted:
            if column not in columns:
                raise ColumnMismatch(
                    f"sink {self.name!r}: {setting} names the column {column!r}, and the DataFrame has only "
                    f"{', '.join(columns)}",
                    column,
                )


class Settings(TypedDict, total=False):
    """What the functions of all table sinks take, with the meaning and the defaults of `Target`."""

    name: str | None
    order_by: str | Sequence[str] | None
    delete_when: str | None
    version: str | None
    columns: Sequence[str] | None
    create: bool
    on_new_query: OnNewQuery


@dataclass(frozen=True)
class TableColumn:
    """A column as the store declares it."""

    name: str
    type: str
    required: bool = False  # not null, and no default


def words(value: str | Sequence[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


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


def decide_step(
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


@dataclass(frozen=True)
class Numbered:
    """A batch as Spark counts it."""

    query_id: str
    batch_id: int
