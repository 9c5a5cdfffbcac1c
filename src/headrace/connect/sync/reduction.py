"""Many records of many keys, in the order of the source, to the last change of each key. Pure.

Only the last record of a key is read, which is most of what makes a sink that lags catch up fast. What a later record
of the same batch replaces is not looked at, so a broken record that was mended within the batch troubles nobody.
Earlier records of a key count where the last one is broken, or leaves out values that it did not change.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.connect.sync.decoding import RecordFormat, read_key, read_value
from headrace.connect.sync.meanings import UnreadableRecord, is_unavailable
from headrace.connect.units import units_in, with_units
from headrace.records import Record
from headrace.stores.derived import RowChange


class LogRecord(NamedTuple):
    """A record, and the partition that it was read from."""

    partition: int
    record: Record


class BrokenRecord(NamedTuple):
    """A record that cannot be used, and why."""

    partition: int
    record: Record
    reason: str


class Reduced(NamedTuple):
    """The changes of a batch, and what is wrong with the rest."""

    changes: list[RowChange]
    broken: list[BrokenRecord]
    keyless: list[LogRecord]  # records without a key, which no key reduces: `keyless.py` counts their rows


def reduce_records(records: Iterable[LogRecord], form: RecordFormat) -> Reduced:
    by_key: defaultdict[bytes | None, list[LogRecord]] = defaultdict(list)
    for found in records:
        by_key[found.record.key].append(found)
    keyless = by_key.pop(None, [])
    changes: list[RowChange] = []
    broken: list[BrokenRecord] = []
    for key_bytes, held in by_key.items():
        try:
            key = read_key(key_bytes, form)
        except UnreadableRecord as error:
            broken.extend(BrokenRecord(*found, str(error)) for found in held)
            continue
        change = _last_change(key, held, form, broken)
        if change is not None:
            changes.append(change)
    return Reduced(changes, broken, keyless)


def each_change(records: Iterable[LogRecord], form: RecordFormat) -> Reduced:
    """Every record as a change of its own; the tombstone behind a delete says nothing new and is left out."""
    changes: list[RowChange] = []
    broken: list[BrokenRecord] = []
    gone: set[tuple[int, bytes | None]] = set()
    for found in records:
        place = (found.partition, found.record.key)
        try:
            if found.record.key is None and found.record.value is None:
                raise UnreadableRecord("the record has neither a key nor a value")
            key = read_key(found.record.key, form) if found.record.key is not None else {}
            read = read_value(found.record.value, form)
        except UnreadableRecord as error:
            broken.append(BrokenRecord(*found, str(error)))
            continue
        if found.record.value is None and place in gone:
            continue
        if read.after is None:
            gone.add(place)
        else:
            gone.discard(place)
        change = _change(key, found, read.after, read.before or {}, form)
        changes.append(change if key else change._replace(before=read.before))
    return Reduced(changes, broken, [])


def _last_change(
    key: dict[str, Any], held: list[LogRecord], form: RecordFormat, broken: list[BrokenRecord]
) -> RowChange | None:
    """The last one that can be read, with what it leaves out taken from those before it."""
    row: dict[str, Any] | None = None
    last: LogRecord | None = None
    for found in reversed(held):
        try:
            read = read_value(found.record.value, form)
        except UnreadableRecord as error:
            broken.append(BrokenRecord(*found, str(error)))
            continue
        if last is None:
            last, row = found, read.after
            if row is None or not form.leaves_out(found.record.value):
                return _whole(key, found, row)
        elif row is not None:
            # What was before this change is told by the one before it, or is gone.
            if read.after is None:
                return _change(key, last, row, {}, form)
            _fill(row, read.after)
        if row is not None and read.before is not None:
            _fill(row, read.before)
        if row is not None and not any(map(is_unavailable, row.values())):
            break
    return None if last is None else _change(key, last, row, {}, form)


def _fill(row: dict[str, Any], earlier: dict[str, Any]) -> None:
    for name, value in row.items():
        if is_unavailable(value) and name in earlier:
            row[name] = earlier[name]


def _change(
    key: dict[str, Any], found: LogRecord, row: dict[str, Any] | None, before: dict[str, Any], form: RecordFormat
) -> RowChange:
    if row is None or not form.leaves_out(found.record.value):
        return _whole(key, found, row)
    _fill(row, before)
    known = {name: value for name, value in row.items() if not is_unavailable(value)}
    return _whole(key, found, known)._replace(partial=len(known) < len(row))


def _whole(key: dict[str, Any], found: LogRecord, row: dict[str, Any] | None) -> RowChange:
    partition, record = found
    if record.headers and (units := units_in(record.headers)):
        key, row = with_units(key, units), None if row is None else with_units(row, units)
    # The key's columns belong to the row, and a plain value need not repeat them.
    if row is not None and not key.keys() <= row.keys():
        row = {**key, **row}
    return RowChange(key, row, partition, record.offset, record.timestamp)
