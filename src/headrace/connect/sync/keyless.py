"""Rows without a key: a table is then a bag, in which equal rows are counted.

In a target each row stands by itself, as in the database, with one more column for its key: `headrace_row`, a digest of
its values and which of its equals it is, from 1. So the rows of a bag have the same keys whatever happened to it, in
whatever order: a batch that runs twice, a rebuild and a comparison come to the same rows. How many equals there are is
asked of the target, which has the numbers from 1 to that.

Columns that are null are left out of the digest: a row stays what it is when a column is added to its table. Pure.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.connect.sync.decoding import RecordFormat, read_value
from headrace.connect.sync.meanings import UnreadableRecord, is_unavailable
from headrace.connect.sync.reduction import BrokenRecord, LogRecord, reduce_records
from headrace.connect.units import units_in, with_units
from headrace.stores.derived import ROW_COLUMN, RowChange, StoredRow, Values

NO_KEY: Final = "the record has no key, by which {sink} finds rows: choose one with key_columns in the capture"
_UNTOLD: Final = "the record has no key and does not tell the row before it: ALTER TABLE … REPLICA IDENTITY FULL"
_NOT_THERE: Final = "the record removes a row of which the target has no more: read the table again"

LookUp = Callable[[Sequence[Values]], Iterable[StoredRow]]
_digested = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


@dataclass(slots=True)
class _Equals:
    """What a batch does to rows that are equal."""

    row: dict[str, Any]
    came: list[LogRecord] = field(default_factory=list)
    went: list[LogRecord] = field(default_factory=list)


def digest_of(row: Values) -> str:
    """The same for equal rows, and in practice only for these."""
    text = _digested({name: value for name, value in row.items() if value is not None})
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def key_of(digest: str, number: int) -> dict[str, Any]:
    """The key of one of several equal rows."""
    return {ROW_COLUMN: f"{digest}-{number}"}


def row_events(found: LogRecord, form: RecordFormat) -> Iterator[tuple[dict[str, Any], bool]]:
    """The rows that a record without a key removes and adds, and whether it adds; raises `UnreadableRecord`."""
    if found.record.value is None:
        raise UnreadableRecord("the record has neither a key nor a value")
    read = read_value(found.record.value, form)
    if read.after is None or read.op == "u":
        if not read.before:
            raise UnreadableRecord(_UNTOLD)
        yield read.before, False
    if read.after is not None:
        row = {
            name: (read.before or {}).get(name, value) if is_unavailable(value) else value
            for name, value in read.after.items()
        }
        if any(map(is_unavailable, row.values())):
            raise UnreadableRecord(_UNTOLD)
        yield row, True


def count_rows(digests: Iterable[str], look_up: LookUp) -> dict[str, int]:
    """How many equal rows the target has of each: looked for by doubling, and then by halves."""
    counts = dict.fromkeys(digests, 0)
    beyond: dict[str, int] = {}
    asked = dict.fromkeys(counts, 1)
    while asked:
        there = {row.key for row in look_up([key_of(digest, number) for digest, number in asked.items()])}
        for digest, number in list(asked.items()):
            if f"{digest}-{number}" in there:
                counts[digest] = number
            else:
                beyond[digest] = number
            if digest not in beyond:
                asked[digest] = number * 2
            elif beyond[digest] - counts[digest] > 1:
                asked[digest] = (beyond[digest] + counts[digest]) // 2
            else:
                del asked[digest]
    return counts


def reduce_rows(
    records: Iterable[LogRecord], form: RecordFormat, sink: str, look_up: LookUp | None
) -> tuple[list[RowChange], list[BrokenRecord]]:
    """The changes of a batch, with keys and without, and what is wrong with the rest.

    `look_up` finds rows of the target; a `sink` for which there is none cannot hold rows without a key.
    """
    reduced = reduce_records(records, form)
    if look_up is None:
        reason = NO_KEY.format(sink=sink)
        return reduced.changes, [*reduced.broken, *(BrokenRecord(*found, reason) for found in reduced.keyless)]
    if reduced.keyless:
        reduced.changes.extend(bag_changes(reduced.keyless, form, look_up, reduced.broken))
    return reduced.changes, reduced.broken


def bag_changes(
    records: Iterable[LogRecord], form: RecordFormat, look_up: LookUp, broken: list[BrokenRecord]
) -> list[RowChange]:
    """What records without a key do to the rows of a target; those that cannot be used are added to `broken`."""
    bag: dict[str, _Equals] = {}
    for found in records:
        try:
            events = list(row_events(found, form))
        except UnreadableRecord as error:
            broken.append(BrokenRecord(*found, str(error)))
            continue
        for row, is_added in events:
            digest = digest_of(row)
            equals = bag.get(digest)
            if equals is None:
                equals = bag[digest] = _Equals(row)
            (equals.came if is_added else equals.went).append(found)
    touched = {digest: equals for digest, equals in bag.items() if len(equals.came) != len(equals.went)}
    counts = count_rows(touched, look_up)
    changes: list[RowChange] = []
    for digest, equals in touched.items():
        row, came, went = equals.row, equals.came, equals.went
        before, after = counts[digest], counts[digest] + len(came) - len(went)
        if after < 0:
            broken.extend(BrokenRecord(*found, _NOT_THERE) for found in went[after:])
        numbers = range(before + 1, after + 1)
        for number, found in zip(numbers, came[len(came) - len(numbers) :], strict=True):
            changes.append(_change(key_of(digest, number), row, found))
        gone = range(max(after, 0) + 1, before + 1)
        changes.extend(_change(key_of(digest, number), None, went[-1]) for number in gone)
    return changes


def _change(key: dict[str, Any], row: dict[str, Any] | None, found: LogRecord) -> RowChange:
    partition, record = found
    if row is not None:
        if record.headers and (units := units_in(record.headers)):
            row = with_units(row, units)
        row = {**row, **key}
    return RowChange(key, row, partition, record.offset, record.timestamp)
