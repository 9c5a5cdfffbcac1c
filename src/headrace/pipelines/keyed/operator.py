"""What an operator over keyed state is: declared tables, and pure vectorised code that gets columns and gives columns.

An operator never sees one key alone. It is called for a bucket of keys with the rows of all of them, reads the state of
just these keys, and answers with `Changes`: rows to emit, state to keep, timers to set. It keeps nothing itself, so it
may be a frozen dataclass of its settings, and it must not depend on how rows were cut into calls.

In every call the keys have numbers 0 … n-1 that hold for this call only. `Keyed` is how rows say whose they are.

All times are microseconds since 1970 as `int64`, which is what a timestamp column of Arrow holds. What always holds:

- A key is the same if all its columns are equal; null equals null, NaN equals NaN, -0.0 equals 0.0.
- What `on_rows` or `on_timers` gave back is there at the next call for that key, also after a restart.
- A timer that is due goes off once, after the rows of the same micro-batch.

An operator to which the order of rows matters says so (`Plan.ordered`): then rows wait in the bucket, whole and in no
order of keys, until the watermark has passed them, and come to `on_rows` in their order, each key's together. What is
late or has no time comes to `on_arrival` instead, at once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.pipelines.errors import PipelineError

Longs = NDArray[np.int64]

NO_WATERMARK: Final = -(2**63)
"""The watermark as long as there is none: earlier than every time."""

FINAL_WATERMARK: Final = 253_402_300_799_999_000
"""The watermark behind everything: the end of the year 9999, the last moment that Python and Spark both can name."""

NEVER: Final = 2**63 - 1
"""A timer set to this is taken away."""


class Clock(Enum):
    """Which clocks wake an operator; it can read the watermark and the wall clock with each but `NONE`."""

    NONE = "none"
    """It asks for no time: there are no timers, and `Times` says nothing."""
    EVENT = "event"
    """Event timers. Without new rows a micro-batch runs only when the watermark has moved."""
    WALL = "wall"
    """Event timers and wall timers. Micro-batches run with every trigger, also without new rows: give the query a
    trigger of some time. An `availableNow` run ends when everything is read and emitted; wall timers that are yet to
    come wait for the next run."""


@dataclass(frozen=True)
class Values:
    """A table with one or several rows a key, replaced whole: `Changes.put` for a key hides all it had before.

    With `time`, a column of whole numbers or timestamps without nulls, a key's rows are kept in its order, and
    `Changes.expire` takes away what lies before a time, of all keys.
    """

    name: str
    schema: pa.Schema
    time: str | None = None


@dataclass(frozen=True)
class Rows:
    """A table of rows that only grows, a key's in the order of `time` (equal times in the order of arrival).

    `Changes.append` adds to it, `Changes.expire` takes away what lies before a time, `Changes.delete` all of a key.
    A null in `time` is refused.
    """

    name: str
    schema: pa.Schema
    time: str


Table = Values | Rows


@dataclass(frozen=True)
class Ordered:
    """Rows are given in the order of `time`, a timestamp; equal ones in that of `ties`, whole numbers, then of arrival.

    A null comes before all numbers.
    """

    time: str
    ties: tuple[str, ...] = ()


@dataclass(frozen=True)
class Keyed:
    """Rows and whose they are: row i belongs to key number `key[i]` of the call."""

    key: Longs
    rows: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.key)


def put_together(*parts: Keyed | None) -> Keyed | None:
    """Rows one part behind the other; None where there is none."""
    given = [part for part in parts if part is not None]
    if len(given) < 2:
        return given[0] if given else None
    return Keyed(np.concatenate([part.key for part in given]), pa.concat_batches([part.rows for part in given]))


@dataclass(frozen=True)
class Batch:
    """The rows of a call: `rows` has all input columns (the keys' too), `key[i]` is the number of row i's key.

    `keys` has a row for each key that occurs, in an order without meaning. The rows keep the order in which they came
    from each partition of the input. A key has a row at least, unless a row is for all keys (`Plan.to_all`).
    """

    keys: pa.RecordBatch
    key: Longs
    rows: pa.RecordBatch
    number: int = 0
    """With `Plan.ordered`, in `on_rows`: how many rows the bucket had given in order before. So row i is number
    `number + i`, and of a key's rows a later one has a greater number. They are sorted by `key`."""

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True)
class Due:
    """The keys whose timer has come: `event_us[i]` or `wall_us[i]` is when it was set for, `NEVER` if it is not due."""

    keys: pa.RecordBatch
    event_us: Longs
    wall_us: Longs

    def __len__(self) -> int:
        return len(self.event_us)


@dataclass(frozen=True)
class Times:
    """What the clocks say, the same in all calls of a micro-batch; a replayed micro-batch sees the same again.

    A timer is due when `watermark_us` (or `wall_us`) has reached it. Rows older than the watermark do come: what to do
    with them is the operator's business.
    """

    watermark_us: int = NO_WATERMARK
    wall_us: int = NO_WATERMARK


class State(Protocol):
    """What is kept of the keys of this call."""

    def read(self, table: str, some: Longs | None = None) -> Keyed:
        """A table's rows of the keys of this call, in the order of key numbers (and of `time` within a key).

        Or only of the keys with the numbers `some`, which rise: what is not asked for is not touched.
        """
        ...

    def timers(self, clock: Clock) -> Longs:
        """When each key of this call has its timer on that clock (`EVENT` or `WALL`); `NEVER` if it has none."""
        ...

    def count(self, name: str) -> int:
        """How far one of the operator's counters is in this bucket (`Changes.counts`)."""
        ...

    @property
    def bucket(self) -> int:
        """Which bucket this is: a number that it keeps for ever."""
        ...


@dataclass(frozen=True)
class Timers:
    """One timer a key and clock: key number `key[i]` is woken at `at_us[i]`, or never; an earlier setting is replaced.

    A time that has already come is due at the next call for timers.
    """

    key: Longs
    at_us: Longs


@dataclass(frozen=True)
class Changes:
    """What a call gives back; what is not named stays as it is.

    In a call the deletes come first, then puts and appends, then expiry. A key may be in only one of a table's delete
    and put. Row order: `emit` goes out as it is; a table's rows may come in any order of keys.
    """

    emit: Keyed | None = None
    """Rows of `Plan.output`; the engine puts the columns of their keys in front."""
    more: Iterable[Keyed] = ()
    """Further such rows, of operators without order, made as they are asked for: what a call emits need never be in
    memory whole."""
    put: Mapping[str, Keyed] = field(default_factory=lambda: MappingProxyType({}))
    """All rows that the named keys have from now on, in a `Values` table."""
    append: Mapping[str, Keyed] = field(default_factory=lambda: MappingProxyType({}))
    """Rows to add to a `Rows` table."""
    delete: Mapping[str, Longs] = field(default_factory=lambda: MappingProxyType({}))
    """Key numbers (in any order, each once) that lose all their rows of a table."""
    expire: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Rows of a table whose time lies before this are gone, of all keys of the bucket; a bound never moves back."""
    event_timers: Timers | None = None
    wall_timers: Timers | None = None
    counts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Added to the operator's counters, which are kept with the state (exactly once) and shown by `inspect`."""


NOTHING: Final = Changes()


@dataclass(frozen=True)
class Plan:
    """What an operator needs and gives, once its input is known."""

    output: pa.Schema
    """The columns of `Changes.emit`, without the keys'."""
    tables: tuple[Table, ...] = ()
    clock: Clock = Clock.NONE
    to_all: str | None = None
    """A column of flags. A row in which it is set is for all keys: it comes to every bucket, under its own key, and in
    its call `Batch.keys` has every key that the bucket keeps something of. That is dear, so it is for what is rare."""
    parameters: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    """What decides what the kept rows mean beside their columns, by the name that a user knows it by: a window's size,
    what an aggregate is of, the columns of rows that are kept as bytes. They are written down with the state, and a
    query that goes on with it has to have the same. Texts, numbers, types, and dataclasses of them."""
    behind_us: int = 0
    """How far behind the query's watermark the rows may be that come: `Times` has it so much earlier."""
    ordered: Ordered | None = None
    """Whether rows come in order; its clock is `EVENT`, and the operator is an `OrderedOperator`."""
    common: tuple[Table, ...] = ()
    """Tables that belong to the bucket and to no key: every call can read and write them, with 0 as the key number."""
    first: tuple[str, ...] = ()
    """With `to_all`: rows for all keys come before all others of a micro-batch, in one call, in the order of these
    columns. The others wait in memory, or in a file if they are many. Without it they come as they come."""
    call_rows: int | None = None
    """How many rows a call has at most, where what is emitted may be many times what came; None: as many as suits."""


class Operator(Protocol):
    """Pure code over one bucket of keys. It is pickled to where the state is."""

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        """Asked when the query is built; a user's mistake (no such column, a type that will not do) is refused here."""
        ...

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """New rows of some keys."""
        ...

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        """Timers that have come, all that are due in the bucket in one call; a timer that went off is no longer set."""
        ...


class OrderedOperator(Operator, Protocol):
    """An operator with `Plan.ordered`: `on_rows` gets what the watermark has passed, in order."""

    def on_arrival(self, batch: Batch, state: State, times: Times) -> Changes:
        """Rows that do not wait: those not after the watermark or without a time, and those for all keys."""
        ...


class BadOperator(PipelineError):
    """An operator broke its promise: unknown table, wrong columns, a key number that the call does not have."""


class BadKey(PipelineError):
    """Key columns that do not exist or cannot be compared."""


class BadState(PipelineError):
    """Stored state that this program or this setting cannot read."""


class Untimed:
    """The base of operators that set no timer."""

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:  # noqa: ARG002 - it is never called
        """No timer is ever due."""
        return NOTHING
