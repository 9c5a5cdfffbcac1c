"""A batch with rows that the target will never take: find them, bury them, write the rest.

Some targets say which row it was; of the others it is found by halves. Where one row after the other is refused (all
of them, if the table has another key than the target) halves are tried as well: the work grows with the rows, and not
with their square. While that goes on the place stays where it was, so a crash repeats the search and loses nothing.

A batch has the last change of each key alone. Where that is refused, what the record before it says counts: a record
that is refused does nothing, and takes none before it along.

What a batch does to rows without a key depends on how many of them the target has, so a part of it must never be
applied twice. Such a batch is halved by its records: each part moves the place.
"""

from collections.abc import Callable, Sequence
from typing import Final

from headrace.connect.sync.reduction import BrokenRecord, LogRecord
from headrace.stores.derived import ChangeBatch, Place, RowChange, Sink
from headrace.stores.errors import RowRefused

_ONE_BY_ONE: Final = 8  # refusals of a batch, before it is halved
Reduce = Callable[[Sequence[LogRecord]], Sequence[RowChange]]
Bury = Callable[[Sequence[BrokenRecord]], None]  # the records are durable among the dead letters when it returns


def apply_or_bury(
    sink: Sink,
    records: Sequence[LogRecord],
    before: Place,
    place: Place,
    reduce: Reduce,
    bury: Bury,
    *,
    clears: bool = False,
) -> None:
    """Apply what records come to; what cannot be applied is buried before the place moves past it."""
    changes = reduce(records)
    try:
        _apply(sink, ChangeBatch(changes, place, clears))
        return
    except RowRefused:
        pass
    while refused := _apply_rest(sink, changes, before, clears=clears):
        held = {(found.partition, found.record.offset): found for found in records}
        broken = [BrokenRecord(*held[bad.partition, bad.offset], reason) for bad, reason in refused]
        bury(broken)
        records = [] if sink.every_change else _earlier(records, broken)
        if not records:
            break
        changes, clears = reduce(records), False
    _apply(sink, ChangeBatch((), place))


def _earlier(records: Sequence[LogRecord], refused: Sequence[BrokenRecord]) -> list[LogRecord]:
    """The records of the same keys before those that were refused."""
    ends = {bad.record.key: (bad.partition, bad.record.offset) for bad in refused}
    found: list[LogRecord] = []
    for one in records:
        end = ends.get(one.record.key)
        if end == (one.partition, one.record.offset):
            del ends[one.record.key]
        elif end is not None:
            found.append(one)
    return found


def _apply_rest(
    sink: Sink, changes: Sequence[RowChange], place: Place, *, clears: bool
) -> list[tuple[RowChange, str]]:  # fmt: skip
    """Apply what can be applied; the changes that cannot, each with the reason."""
    refused: list[tuple[RowChange, str]] = []
    for _ in range(_ONE_BY_ONE):
        try:
            _apply(sink, ChangeBatch(changes, place, clears))
            return refused
        except RowRefused as refusal:
            if not changes:
                raise
            where = (refusal.partition, refusal.offset)
            bad = next((change for change in changes if (change.partition, change.offset) == where), None)
            if bad is None and len(changes) == 1:
                bad = changes[0]
            if bad is None:
                break
            refused.append((bad, str(refusal)))
            changes = [change for change in changes if change is not bad]
    middle = len(changes) // 2
    refused += _apply_rest(sink, changes[:middle], place, clears=clears)
    return refused + _apply_rest(sink, changes[middle:], place, clears=False)


def apply_in_parts(
    sink: Sink,
    records: Sequence[LogRecord],
    before: Place,
    place: Place,
    reduce: Reduce,
    bury: Bury,
) -> None:
    """The same for rows that are counted: a record that is refused does nothing, and the place goes past it."""
    left = list(records)
    for _ in range(_ONE_BY_ONE):
        try:
            _apply(sink, ChangeBatch(reduce(left), place))
            return
        except RowRefused as refusal:
            if not left:
                raise
            where = (refusal.partition, refusal.offset)
            bad = next((found for found in left if (found.partition, found.record.offset) == where), None)
            if bad is None and len(left) == 1:
                bad = left[0]
            if bad is None:
                break
            bury([BrokenRecord(*bad, str(refusal))])
            left.remove(bad)
    first, rest = left[: len(left) // 2], left[len(left) // 2 :]
    reached = {found.partition: found.record.offset + 1 for found in first}
    between = Place(place.topic, {**before.offsets, **reached}, place.topic_id)
    apply_in_parts(sink, first, before, between, reduce, bury)
    apply_in_parts(sink, rest, between, place, reduce, bury)


def _apply(sink: Sink, batch: ChangeBatch) -> None:
    try:
        sink.apply(batch)
    except UnicodeEncodeError as error:
        # JSON can write half of a surrogate pair, which is not a character: no store can hold it.
        raise RowRefused("a text holds half of a surrogate pair, which is not a character") from error
