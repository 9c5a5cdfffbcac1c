"""A batch with a row that the target will never take: find the row, bury it, write the rest.

Some targets say which row it was; of the others it is found by halves. While that goes on the place stays where it was,
so a crash repeats the search and loses nothing.

What a batch does to rows without a key depends on how many of them the target has, so a part of it must never be
applied twice. Such a batch is halved by its records: each part moves the place.
"""

from collections.abc import Callable, Iterator, Sequence

from headrace.connect.sync.reduction import BrokenRecord, LogRecord
from headrace.records import Record
from headrace.stores.derived import ChangeBatch, Place, RowChange, Sink
from headrace.stores.errors import RowRefused


def apply_or_bury(
    sink: Sink, batch: ChangeBatch, before: Place, records: Sequence[LogRecord]
) -> Iterator[BrokenRecord]:
    """Apply a batch; each row that cannot be applied is handed out, and must be buried before the next is asked for."""
    changes = list(batch.changes)
    while True:
        try:
            _apply(sink, ChangeBatch(changes, batch.place, batch.clears))
            return
        except RowRefused as refusal:
            if not changes:
                raise
            bad = _refused(changes, refusal)
            if bad is None:
                break
            yield BrokenRecord(bad.partition, _record_of(bad, records), str(refusal))
            changes.remove(bad)
    middle = len(changes) // 2
    yield from apply_or_bury(sink, ChangeBatch(changes[:middle], before, batch.clears), before, records)
    yield from apply_or_bury(sink, ChangeBatch(changes[middle:], batch.place), before, records)


def apply_in_parts(
    sink: Sink,
    records: Sequence[LogRecord],
    before: Place,
    place: Place,
    reduce: Callable[[Sequence[LogRecord]], Sequence[RowChange]],
) -> Iterator[BrokenRecord]:
    """The same for rows that are counted: a record that is refused does nothing, and the place goes past it."""
    left = list(records)
    while True:
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
            yield BrokenRecord(*bad, str(refusal))
            left.remove(bad)
    first, rest = left[: len(left) // 2], left[len(left) // 2 :]
    reached = {found.partition: found.record.offset + 1 for found in first}
    between = Place(place.topic, {**before.offsets, **reached}, place.topic_id)
    yield from apply_in_parts(sink, first, before, between, reduce)
    yield from apply_in_parts(sink, rest, between, place, reduce)


def _apply(sink: Sink, batch: ChangeBatch) -> None:
    try:
        sink.apply(batch)
    except UnicodeEncodeError as error:
        # JSON can write half of a surrogate pair, which is not a character: no store can hold it.
        raise RowRefused("a text holds half of a surrogate pair, which is not a character") from error


def _refused(changes: Sequence[RowChange], refusal: RowRefused) -> RowChange | None:
    """The change that was meant, if that is known."""
    if len(changes) == 1:
        return changes[0]
    place = (refusal.partition, refusal.offset)
    return next((change for change in changes if (change.partition, change.offset) == place), None)


def _record_of(change: RowChange, records: Sequence[LogRecord]) -> Record:
    place = (change.partition, change.offset)
    return next(found.record for found in records if (found.partition, found.record.offset) == place)
