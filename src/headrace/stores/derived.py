"""The contract of every sink: rows in, in the order of the log, with the place they reach up to.

Whoever runs a sink calls, in this order: `open`, which says where to go on; `apply` for one batch after the other;
`close`. A sink writes what one topic says into one target: a table, an index, the keys behind a prefix.

What always holds:
- a batch and its place become visible together, or the batch can be applied again without harm: what `open` answers is
  never ahead of what the target holds;
- whoever opens a sink owns it; an instance that was opened before may write no more, and gets `TakenOver`;
- an error that may pass is a `SinkUnavailable`; the sink is then closed, and opened anew by the runtime;
- a row that the target will never take is a `RowRefused`, and the batch that held it has left nothing behind.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from headrace.stores.errors import RowRefused
from headrace.stores.values import encode_compact

Values: TypeAlias = Mapping[str, Any]
ROW_COLUMN: Final = "headrace_row"  # the key of rows without one: a digest, and which of its equals a row is


class RowChange(NamedTuple):
    """The state of one row after a record; `row` is None where the record says that it is gone.

    The values are what JSON has. A row that is `partial` lacks values which the database did not send again: the ones
    that are stored stay. A sink of every change gets those of tables without a key too: the key is then empty, and
    `before` is the row that was replaced or removed.
    """

    key: Values
    row: Values | None
    partition: int
    offset: int
    timestamp_ms: int
    partial: bool = False
    before: Values | None = None

    @property
    def key_text(self) -> str:
        """The key as one text, for stores that know rows by a text."""
        return key_text(self.key)


def key_text(key: Values) -> str:
    """A key of one column as its bare value, a longer one as a JSON list in the order of the columns' names."""
    if len(key) == 1:
        (value,) = key.values()
        if value.__class__ is int:
            return str(value)
        return value if isinstance(value, str) else encode_compact(value)
    return encode_compact([key[name] for name in sorted(key)])


@dataclass(frozen=True, slots=True)
class Place:
    """How far a sink is: the next offset of each partition of its topic.

    A topic that was deleted and made again has the same name and another id. The id is empty in a place that was stored
    before ids were kept, and where a broker has none.
    """

    topic: str
    offsets: Mapping[int, int]
    topic_id: str = ""

    def to_json(self) -> str:
        """As a sink stores it beside the rows."""
        offsets = {str(partition): offset for partition, offset in sorted(self.offsets.items())}
        known = {"topic_id": self.topic_id} if self.topic_id else {}
        return encode_compact({"topic": self.topic, "offsets": offsets, **known})

    @classmethod
    def from_json(cls, text: str | bytes) -> "Place":
        """What `to_json` wrote."""
        read = json.loads(text)
        offsets = {int(partition): offset for partition, offset in read["offsets"].items()}
        return cls(read["topic"], offsets, read.get("topic_id", ""))


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Changes, and the place behind them, which names every partition of the topic.

    Unless the sink wants every change there is one per key. With `clears` all rows go before the changes come.
    """

    changes: Sequence[RowChange]
    place: Place
    clears: bool = False


class StoredRow(NamedTuple):
    """A row in a form that is equal for equal rows, whether it comes from the log or from the target."""

    key: str
    values: Values


class Sink(Protocol):
    """Keeps one target in step."""

    @property
    def every_change(self) -> bool:
        """Whether each change counts, and not the last of a key alone."""
        ...

    def open(self) -> Place | None:
        """Become the owner; the place that the target holds, None if it is new."""
        ...

    def apply(self, batch: ChangeBatch) -> None:
        """Write a batch and its place."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class ReadableSink(Protocol):
    """A sink whose target can be read back, without owning it: what `verify` needs."""

    def place(self) -> Place | None:
        """Where the target is now."""
        ...

    def scan(self) -> Iterator[Sequence[StoredRow]]:
        """Every row of the target, in chunks."""
        ...

    def look_up(self, keys: Sequence[Values]) -> list[StoredRow]:
        """The rows of these keys, as they are now; those that are not there are left out."""
        ...

    def comparable(self, key: Values, row: Values) -> StoredRow:
        """A row of the log as it would come back from the target, which may have more columns."""
        ...


@runtime_checkable
class RestingSink(Protocol):
    """A sink that holds what only one may hold."""

    def rest(self, *, is_idle: bool = True) -> None: ...


@runtime_checkable
class RebuildableSink(Protocol):
    """A sink that can be built anew beside its target and put in its place."""

    def beside(self) -> Sink:
        """The same sink with an empty target of its own; what an unfinished rebuild left there is gone."""
        ...

    def switch(self) -> None:
        """Put what was built beside in place of the target, with its place in the log; the old target is kept once.

        Whoever owned the old target gets `TargetReplaced`.
        """
        ...


def complete_rows(changes: Sequence[RowChange], stored: Mapping[str, Values]) -> list[RowChange]:
    """Partial rows with what is stored under their key; a store that replaces whole rows needs them so."""
    return [
        change._replace(row={**stored.get(change.key_text, {}), **change.row}, partial=False)
        if change.partial and change.row is not None
        else change
        for change in changes
    ]


def other_key(where: str, key: Sequence[str], change: RowChange) -> RowRefused:
    """A row that is known by other columns than those in the target, which is not empty."""
    reason = f"rows of {where} are known by {', '.join(key)}, and this record by {', '.join(change.key)}"
    return RowRefused(reason, partition=change.partition, offset=change.offset)
