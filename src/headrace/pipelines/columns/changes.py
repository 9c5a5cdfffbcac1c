"""Envelopes of changes as rows of a table that come and go, for who trusts what `before` says. Pure.

This is `table_changes(trust_before=True)` for records that are here as columns. What it does stands there as
expressions of Spark's (`operators/tables/changes.py`), which are its measure: the same rows, the same records refused.
"""

import json
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.pipelines.columns.unavailable import is_placeholder, placeholders
from headrace.pipelines.errors import BadRecord

OPERATIONS: Final = ("c", "r", "u", "d", "t")
_COMES, _GOES, _TRUNCATE = (0, 1, 2), (2, 3), 4
_NONE: Final = -1
Flags = NDArray[np.bool_]
_ESCAPES: Final = {code: f"\\u{code:04X}" for code in range(32)} | {
    ord(plain): f"\\{short}" for plain, short in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)
}


@dataclass(frozen=True)
class Refusals:
    """What is said of a record that cannot be."""

    truncate: str
    operation: str
    no_after: str
    no_key: str
    no_before: str
    only_key: str
    left_out: str


@dataclass(frozen=True)
class TrustedChanges:
    """From the columns of envelopes to those of a table as changes, which `form` says: the row's, then the form's."""

    form: pa.Schema
    key: tuple[str, ...]
    table: str | None
    ignores_truncates: bool
    refusals: Refusals

    @property
    def _names(self) -> list[str]:
        return self.form.names[:-3]

    def __call__(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Of each record the row that goes and the row that comes, as far as it has them."""
        operation = _operations(records.column("op"))
        kept = np.asarray(records.column("op").is_valid())
        if self.ignores_truncates:
            kept &= operation != _TRUNCATE
        if not kept.all():
            records, operation = records.filter(pa.array(kept)), operation[kept]
        count = records.num_rows
        images = [records.column(name) for name in ("before", "after")]
        before, after = (dict(zip(image.type.names, image.flatten(), strict=True)) for image in images)
        there = [np.asarray(image.is_valid()) for image in images]
        whole, left_out = self._whole(before, after)
        keys = [_coalesced([after[name], before[name]]) for name in self.key]
        self._check(records, operation, there, keys, before, left_out)
        turns = np.empty((count, 2), np.bool_)
        turns[:, 0], turns[:, 1] = np.isin(operation, _GOES), np.isin(operation, _COMES)
        chosen = (np.arange(count)[:, None] + np.array([0, count]))[turns]
        comes = chosen >= count
        record = np.where(comes, chosen - count, chosen)
        places, mine = pa.array(chosen), pa.array(record)
        row = [pa.concat_arrays([before[name], whole[name]]).take(places) for name in self._names]
        version = self._versions(records, keys, mine, comes)
        weight = pa.array(np.where(comes, 1, -1).astype(np.int32))
        return pa.RecordBatch.from_arrays([*row, weight, version, _times(records).take(mine)], schema=self.form)

    def _whole(
        self, before: dict[str, pa.Array], after: dict[str, pa.Array]
    ) -> tuple[dict[str, pa.Array], list[Flags]]:
        """The row as it is now, large values that were not sent again from `before`; and where one is nowhere."""
        whole, left_out = {}, []
        for name in self._names:
            now, was = after[name], before[name]
            if placeholders(now.type):
                lost, was_lost = is_placeholder(now), is_placeholder(was)
                known = np.asarray(was.is_valid()) & ~was_lost
                if (lost & known).any():
                    count = len(now)
                    now = pa.concat_arrays([now, was]).take(pa.array(np.arange(count) + count * (lost & known)))
                if name not in self.key:
                    left_out.append((lost & ~known) | was_lost)
            whole[name] = now
        return whole, left_out

    def _check(
        self,
        records: pa.RecordBatch,
        operation: NDArray[np.int64],
        there: list[Flags],
        keys: list[pa.Array],
        before: dict[str, pa.Array],
        left_out: list[Flags],
    ) -> None:
        """Refuse the first record that cannot be."""
        was, now = there
        only_key = operation == OPERATIONS.index("d")
        others = [name for name in self._names if name not in self.key]
        for name in others:
            only_key = only_key & ~np.asarray(before[name].is_valid())
        said = self.refusals
        none = np.zeros(len(operation), np.bool_)
        wrong = [
            (operation == _TRUNCATE, said.truncate),
            (operation == _NONE, said.operation),
            (np.isin(operation, _COMES) & ~now, said.no_after),
            (np.any([~np.asarray(key.is_valid()) for key in keys], axis=0), said.no_key),
            (np.isin(operation, _GOES) & ~was, said.no_before),
            (only_key if others else none, said.only_key),
            (np.any(left_out, axis=0) if left_out else none, said.left_out),
        ]
        bad = np.any([flags for flags, _ in wrong], axis=0)
        if not bad.any():
            return
        row = int(np.argmax(bad))
        words = next(words for flags, words in wrong if flags[row])
        place = "?" if "_partition" not in records.schema.names else records.column("_partition")[row].as_py()
        table = self.table if self.table is not None else records.column("_topic")[row].as_py()
        raise BadRecord(
            f"the change at offset {records.column('_offset')[row].as_py()} of partition {place} of {table} {words}"
        )

    def _versions(self, records: pa.RecordBatch, keys: list[pa.Array], mine: pa.Array, comes: Flags) -> pa.Array:
        """Of what a change takes back only table and key are known."""
        kind = self.form.field(len(self.form) - 2).type
        of_table = pa.repeat(self.table, len(mine)) if self.table is not None else records.column("_topic").take(mine)
        offset = records.column("_offset").take(mine)
        position = _positions(records)
        columns = [
            of_table,
            self._key_texts(records.column("_key"), keys).take(mine),
            pa.array(np.asarray(offset), mask=~comes),
            pa.nulls(len(mine), pa.string()) if position is None else _where(comes, position.take(mine)),
        ]
        return pa.StructArray.from_arrays(columns, fields=list(kind))

    def _key_texts(self, given: pa.Array, keys: list[pa.Array]) -> pa.Array:
        """The records' keys where they are JSON already, and else the keys as JSON."""
        is_json = pc.and_(pc.starts_with(given, "{"), pc.invert(pc.starts_with(given, '{"schema":'))).fill_null(False)
        others = np.flatnonzero(~np.asarray(is_json))
        if not len(others):
            return given
        rows = zip(*(key.take(pa.array(others)).to_pylist() for key in keys), strict=True)
        made = [f"{{{','.join(map(_member, self.key, row))}}}" for row in rows]
        places = np.arange(len(given))
        places[others] = len(given) + np.arange(len(others))
        return pa.concat_arrays([given, pa.array(made, pa.string())]).take(pa.array(places))


def _operations(column: pa.Array) -> NDArray[np.int64]:
    found = pc.index_in(column, pa.array(OPERATIONS)).fill_null(_NONE)
    return np.asarray(found, np.int64)


def _member(name: str, value: object) -> str:
    shown = f'"{_escaped(value)}"' if isinstance(value, str) else json.dumps(value)
    return f'"{_escaped(name)}":{shown}'


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


def _coalesced(columns: list[pa.Array]) -> pa.Array:
    found = columns[0]
    for column in columns[1:]:
        if not found.null_count:
            break
        found = pc.coalesce(found, column)
    return found


def _where(flags: Flags, column: pa.Array) -> pa.Array:
    return pc.if_else(pa.array(flags), column, pa.scalar(None, column.type))


def _inner(records: pa.RecordBatch) -> dict[str, pa.Array]:
    """What the source says of the change, without what it never says."""
    if "source" not in records.schema.names or not pa.types.is_struct(records.schema.field("source").type):
        return {}
    source = records.column("source")
    return dict(zip(source.type.names, source.flatten(), strict=True))


def _positions(records: pa.RecordBatch) -> pa.Array | None:
    """Where in the database's log a change stands, as text; None if no record says so."""
    inner = {name: column for name, column in _inner(records).items() if column.null_count < len(column)}
    ways = [_text(inner["lsn"])] if "lsn" in inner else []
    if "file" in inner:
        places = [_text(inner[name]) for name in ("file", "pos", "row") if name in inner]
        # Arrow makes no row at all where there is nothing to join.
        joined = pc.binary_join_element_wise(places[0].fill_null(""), *places[1:], ":", null_handling="skip")
        ways.append(_where(np.asarray(inner["file"].is_valid()), joined))
    ways += [_text(inner["position"])] if "position" in inner else []
    return _coalesced(ways) if ways else None


def _text(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _times(records: pa.RecordBatch) -> pa.Array:
    """When the change was made: by the database, by who captured it, by the broker."""
    inner = _inner(records)
    ways = [inner["ts_ms"]] if "ts_ms" in inner else []
    ways += [records.column(name) for name in ("ts_ms", "_timestamp") if name in records.schema.names]
    found = pa.nulls(records.num_rows, _TIME)
    for way in ways:
        if not found.null_count:
            break
        # Only where it counts: what no time can hold is no mistake in a column that is not asked.
        found = pc.coalesce(found, _moment(_where(np.asarray(found.is_null()), way)))
    return found


_TIME: Final = pa.timestamp("us", tz="UTC")


def _moment(column: pa.Array) -> pa.Array:
    if pa.types.is_integer(column.type):
        column = column.cast(pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    return column.cast(_TIME)


def can_read(records: pa.Schema, key: tuple[str, ...], table: str | None) -> bool:
    """Whether envelopes of these columns are read here, exactly as Spark's expressions read them."""
    types, names = pa.types, records.names
    if not {"before", "after", "op", "_key", "_offset"} <= set(names) or (table is None and "_topic" not in names):
        return False
    before, after = records.field("before").type, records.field("after").type
    if not types.is_struct(before) or [*map(_plain, before)] != [*map(_plain, after)]:
        return False
    wanted = {"op": pa.string(), "_key": pa.string(), "_topic": pa.string(), "_offset": pa.int64()}
    if any(name in names and records.field(name).type != kind for name, kind in wanted.items()):
        return False
    if not all(_is_simple(after.field(name).type) for name in key):
        return False
    if "source" not in names:
        source = {}
    elif types.is_struct(records.field("source").type):
        source = {field.name: field.type for field in records.field("source").type}
    else:
        return False
    texts = [source[name] for name in ("lsn", "file", "pos", "row", "position") if name in source]
    moments = [source["ts_ms"]] if "ts_ms" in source else []
    moments += [records.field(name).type for name in ("ts_ms", "_timestamp") if name in names]
    return all(_is_simple(kind) and not types.is_boolean(kind) for kind in texts) and all(
        kind == _TIME or kind in (pa.int32(), pa.int64()) for kind in moments
    )


def _plain(field: pa.Field) -> tuple[str, pa.DataType]:
    return field.name, field.type


def _is_simple(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_boolean(kind) or types.is_signed_integer(kind))
