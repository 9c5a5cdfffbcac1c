"""The least, the greatest, the first n, all values of a group that loses values too: kept as weighted rows in order.

Of a large group only its head is looked at: the first rows in the order, some more than are asked for. What lies behind
the last of the head goes to the tail, unread and as it comes, also what is taken away from there. When the head has
lost so much that it cannot answer, the tail is read, put together, and the head filled again. A change behind the head,
which in a large group is the usual one, costs one row whatever the group's size. The worst is a queue, whose first are
always the ones that go: there the tail is read once for as many changes as a head is long, which is why heads grow with
their groups.

What always holds: a key that has a tail has a head, and every row of the tail comes after every row of the head. So the
last of the head says where a change belongs. It may come nearer, when the last is taken away; it moves on only when
the tail is read. Where rows are ranked with ties, those that are equal in the order are never parted, so that a rank is
known from the head alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.operator import Keyed, Rows, Table, Values
from headrace.pipelines.keyed.settings import LATER
from headrace.pipelines.operators.aggregation.algebra import Call, Flags, Part, Step
from headrace.pipelines.operators.aggregation.ordering import DENSE_RANK, first_of, first_ranked, places, rank_in_key
from headrace.pipelines.operators.grouping import Longs, group_rows, highest

TIMES: Final = "(times)"
"""How often a row is there."""
RANK_FIELD: Final = pa.field("rank", pa.int64())
"""The rank of a row, where it is asked for."""
_SHARE: Final = 256
_AT: Final = pa.field("(at)", pa.int64(), nullable=False)


@dataclass(frozen=True)
class Pile:
    """Rows of some columns: row i belongs to key `key[i]` and is there `weight[i]` times."""

    key: Longs
    columns: tuple[pa.Array, ...]
    weight: Longs

    def __len__(self) -> int:
        return len(self.key)

    def take(self, rows: Longs) -> "Pile":
        return Pile(self.key[rows], tuple(each.take(pa.array(rows)) for each in self.columns), self.weight[rows])


def pile_up(piles: Sequence[Pile]) -> Pile:
    """All rows, one pile behind the other."""
    columns = zip(*(pile.columns for pile in piles), strict=True)
    return Pile(
        np.concatenate([pile.key for pile in piles]),
        tuple(pa.concat_arrays(parts) for parts in columns),
        np.concatenate([pile.weight for pile in piles]),
    )


@dataclass(frozen=True)
class Net:
    """Rows of a pile put together: of each key and place one, in this order, and its weight, which is not 0."""

    key: Longs
    place: Longs
    row: Longs
    weight: Longs

    def take(self, rows: Longs | Flags) -> "Net":
        return Net(self.key[rows], self.place[rows], self.row[rows], self.weight[rows])


def add_up(pile: Pile, place: Longs) -> Net:
    """Equal rows of a key put together."""
    groups = group_rows(pile.key, place)
    if not len(groups.starts):
        return Net(pile.key, place, pile.key, pile.weight)
    sums = np.add.reduceat(pile.weight[groups.order], groups.starts)
    some = np.flatnonzero(sums)
    row = groups.firsts[some]
    return Net(pile.key[row], place[row], row, sums[some])


def find_differing(count: int, one: tuple[Longs, Longs], other: tuple[Longs, Longs]) -> Flags:
    """The keys whose lists differ; a side is keys, in order, and values."""
    sizes = [np.bincount(key, minlength=count) for key, _ in (one, other)]
    found: Flags = sizes[0] != sizes[1]
    alike = [value[~found[key]] for key, value in (one, other)]
    whose = one[0][~found[one[0]]]
    found[whose[alike[0] != alike[1]]] = True
    return found


class _Split(NamedTuple):
    """Rows put together, and which of these are the head; of the keys in `whole` the tail is among them.

    `tie` is the place of each row of the pile by the order alone, which is the same for rows that are equal in it.
    """

    pile: Pile
    place: Longs
    tie: Longs
    net: Net
    is_head: Flags
    whole: Flags


@dataclass(frozen=True)
class Ordered(Part):
    """The first `limit` rows (all, if None) of `fields`, in their order; rows with a null in `wanted` do not count.

    What comes out is a list of rows with the columns `shown`; with `bare` a list of values, with `single` one value.
    A head is filled with some rows more than asked for: `spare`, and the more the larger the group is. With a `ranking`
    the limit is one of ranks, by the first `order` fields, and rows come out with their rank. Where a table only grows
    (`inserts`) there is no tail: what is not shown now never will be.
    """

    name: str
    fields: tuple[pa.Field, ...]
    descending: tuple[bool, ...]
    limit: int | None
    shown: tuple[str, ...]
    wanted: tuple[str, ...] = ()
    bare: bool = False
    single: bool = False
    spare: int = field(default=16, repr=False)  # how much more is kept changes nothing of what it means
    ranking: str | None = field(default=None, metadata=LATER)
    order: int | None = field(default=None, metadata=LATER)
    inserts: bool = field(default=False, metadata=LATER)

    @property
    def result(self) -> pa.DataType:
        kinds = {each.name: each.type for each in self.fields}
        if self.single:
            return kinds[self.shown[0]]
        if self.bare:
            return pa.list_(kinds[self.shown[0]])
        shown = [pa.field(name, kinds[name]) for name in self.shown]
        return pa.list_(pa.struct([*shown, *([RANK_FIELD] if self.ranking else [])]))

    @property
    def columns(self) -> tuple[str, ...]:
        return ("rows", "tail") if self._has_tail else ()

    @property
    def tables(self) -> tuple[Table, ...]:
        rows = [*self.fields, pa.field(TIMES, pa.int64(), nullable=False)]
        head = Values(f"{self.name}.head", pa.schema(rows))
        return (head, Rows(f"{self.name}.tail", pa.schema([_AT, *rows]), _AT.name)) if self._has_tail else (head,)

    @property
    def _has_tail(self) -> bool:
        return self.limit is not None and not self.inserts

    def step(self, call: Call, held: list[Longs]) -> Step:
        head = _as_pile(call.state.read(self.tables[0].name), 0)
        fresh = self._fresh(call)
        none = np.zeros(call.count, np.bool_)
        if not self._has_tail:
            return self._stepped(call.count, head, self._split([head, fresh], none, none, held), held)
        rows = held[0] + np.bincount(fresh.key, fresh.weight, call.count).astype(np.int64)
        numbers = [rows, held[1]]
        has_tail = held[1] > 0
        split = self._split([head, fresh], has_tail, none, numbers)
        if has_tail.any() and (worn := self._worn(split, numbers)).any():
            behind = _as_pile(call.state.read(self.tables[1].name), 1)
            behind = behind.take(np.flatnonzero(worn[behind.key]))
            split = self._split([head, fresh, behind], has_tail, worn, numbers)
        return self._stepped(call.count, head, split, numbers)

    def _fresh(self, call: Call) -> Pile:
        there = call.weight != 0
        for name in self.wanted:
            there &= np.asarray(call.rows.column(name).is_valid())
        columns = tuple(call.rows.column(each.name) for each in self.fields)
        return Pile(call.key, columns, call.weight).take(np.flatnonzero(there))

    def _size(self, rows: Longs) -> Longs:
        there = np.maximum(rows, 0)
        size: Longs = (self.limit or 0) + self.spare + 2 * np.sqrt(there).astype(np.int64) + there // _SHARE
        return size

    def _split(self, piles: list[Pile], has_tail: Flags, whole: Flags, numbers: list[Longs]) -> _Split:
        """All rows put together; the head is the first of the piles."""
        pile = pile_up(piles)
        place = places(pile.columns, self.descending)
        tie = place if self.order is None else places(pile.columns[: self.order], self.descending[: self.order])
        found = add_up(pile, place)
        if self.limit is None:
            return _Split(pile, place, tie, found, np.ones(len(found.key), np.bool_), whole)
        if self.inserts:
            is_head = np.zeros(len(found.key), np.bool_)
            is_head[first_ranked(found.key, tie[found.row], found.weight, self.limit, self.ranking)[0]] = True
            return _Split(pile, place, tie, found, is_head, whole)
        count, heads, size = len(whole), len(piles[0]), self._size(numbers[0])
        last = highest(count, pile.key[:heads], tie[:heads], -1)
        is_head = (whole | ~has_tail)[found.key] | (tie[found.row] <= last[found.key])
        rank = np.zeros(len(is_head), np.int64)
        rank[is_head] = _first_rank(found.key[is_head], tie[found.row[is_head]])
        cut = whole | (np.bincount(found.key[is_head], minlength=count) > 2 * size)
        return _Split(pile, place, tie, found, is_head & ((rank < size[found.key]) | ~cut[found.key]), whole)

    def _worn(self, split: _Split, numbers: list[Longs]) -> Flags:
        """Keys whose head cannot answer any more, or whose tail is mostly rows that cancel out.

        To read tails costs every key of the call its own: so if one has to, those half as bad are mended with it.
        """
        rows, tail = numbers
        count, size, limit = len(rows), self._size(rows), self.limit or 0
        head = split.net.take(split.is_head)
        there = self._ranks(count, head, split.tie)
        behind = np.maximum(rows - np.bincount(head.key, head.weight, count), 0)
        if not ((tail > 0) & ((there < limit) | (tail > 2 * behind + size))).any():
            return np.zeros(count, np.bool_)
        worn: Flags = (tail > 0) & ((there < limit + (size - limit) // 4) | (tail > 1.5 * behind + size // 2))
        return worn

    def _ranks(self, count: int, head: Net, tie: Longs) -> Longs:
        """How many ranks the rows of a head have: as many as there are rows, or different ones among them."""
        if self.ranking != DENSE_RANK:
            return np.bincount(head.key, np.maximum(head.weight, 0), count).astype(np.int64)
        some = head.take(head.weight > 0)
        return np.bincount(some.key[_first_rank(some.key, tie[some.row]) == rank_in_key(some.key)], minlength=count)

    def _stepped(self, count: int, head: Pile, split: _Split, numbers: list[Longs]) -> Step:
        kept, moved = split.net.take(split.is_head), split.net.take(~split.is_head)
        stored = split.place[: len(head)]
        old, was = self._first(head.key, split.tie[: len(head)], head.weight)
        new, now = self._first(kept.key, split.tie[kept.row], kept.weight)
        dirty = find_differing(count, (head.key, stored), (kept.key, kept.place))
        dirty |= find_differing(count, (head.key, head.weight), (kept.key, kept.weight))
        put = kept.take(dirty[kept.key])
        empty = dirty & (np.bincount(kept.key, minlength=count) == 0)
        tables = [table.name for table in self.tables]
        writes = {tables[0]: _as_rows(split.pile, put, self.tables[0])}
        deletes = {tables[0]: np.flatnonzero(empty)}
        appends = {}
        if self._has_tail:
            rows, tail = numbers
            appends[tables[1]] = _as_rows(split.pile, moved, self.tables[1])
            deletes[tables[1]] = np.flatnonzero(split.whole)
            numbers = [rows, np.where(split.whole, 0, tail) + np.bincount(moved.key, minlength=count)]
        return Step(
            numbers,
            self._results(count, split.pile, head.key[old], old, was),
            self._results(count, split.pile, kept.key[new], kept.row[new], now),
            find_differing(count, (head.key[old], stored[old]), (kept.key[new], kept.place[new])),
            put=writes,
            append=appends,
            delete=deletes,
        )

    def _first(self, key: Longs, tie: Longs, weight: Longs) -> tuple[Longs, Longs]:
        if self.limit is None:
            rows = first_of(key, weight, None)
            return rows, rows
        return first_ranked(key, tie, weight, self.limit, self.ranking)

    def _results(self, count: int, pile: Pile, key: Longs, row: Longs, rank: Longs) -> pa.Array:
        """The rows of a pile that each key shows."""
        names = [each.name for each in self.fields]
        columns = [pile.columns[names.index(name)] for name in self.shown]
        if self.single:
            index = np.full(count, -1, np.int64)
            index[key] = row
            return columns[0].take(pa.array(index, mask=index < 0))
        taken = [*(column.take(pa.array(row)) for column in columns), *([pa.array(rank)] if self.ranking else [])]
        kind = self.result.value_type
        cells = taken[0] if self.bare else pa.StructArray.from_arrays(taken, fields=list(kind))
        ends = np.cumsum(np.bincount(key, minlength=count))
        return pa.ListArray.from_arrays(pa.array(np.append(0, ends), pa.int32()), cells, type=self.result)


def _first_rank(key: Longs, tie: Longs) -> Longs:
    """0, 1, 2 … within each stretch of equal keys, of rows that tie the first one's."""
    rank = rank_in_key(key)
    fresh = np.append(True, (key[1:] != key[:-1]) | (tie[1:] != tie[:-1])) if len(key) else np.zeros(0, np.bool_)
    return rank[np.maximum.accumulate(np.where(fresh, np.arange(len(key)), 0))] if len(key) else rank


def _as_pile(held: Keyed, skipped: int) -> Pile:
    *columns, weight = held.rows.columns[skipped:]
    return Pile(held.key, tuple(columns), np.asarray(weight, np.int64))


def _as_rows(pile: Pile, some: Net, table: Table) -> Keyed:
    columns = [column.take(pa.array(some.row)) for column in pile.columns]
    columns += [pa.array(some.weight, pa.int64())]
    if isinstance(table, Rows):
        columns.insert(0, pa.array(np.zeros(len(some.row), np.int64)))
    return Keyed(some.key, pa.RecordBatch.from_arrays(columns, schema=table.schema))
