"""Rows of the log as Arrow tables, for the stores that keep columns. Pure.

A store's schema decides how values are read; a column that is not there yet gets the type of its first value, and a
wider one as soon as a later value needs it, or the one that the user named. What JSON nests stays JSON, as text.
"""

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.stores.derived import RowChange, StoredRow, Values, key_text
from headrace.stores.errors import InvalidConnectSetting, RowRefused
from headrace.stores.values import NATIVE, Family, Misfit, canonicalize, family_of_value, reader_of, widen

_NEW: Final = {
    Family.BOOLEAN: pa.bool_(), Family.INTEGER: pa.int64(), Family.FLOAT: pa.float64(), Family.DECIMAL: pa.string(),
    Family.TEXT: pa.string(), Family.JSON: pa.string(),
}  # fmt: skip
_NAMED: Final = {
    "boolean": pa.bool_(), "integer": pa.int64(), "float": pa.float64(), "text": pa.string(), "binary": pa.binary(),
    "date": pa.date32(), "timestamp": pa.timestamp("us"), "instant": pa.timestamp("us", "UTC"),
}  # fmt: skip
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def schema_to_text(schema: pa.Schema) -> str:
    """A schema as text, for what is kept beside rows."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def schema_from_text(text: str) -> pa.Schema:
    """The way back."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def named_type(column: str, word: str) -> pa.DataType:
    """The type that a user named."""
    if match := _DECIMAL.fullmatch(word):
        return pa.decimal128(int(match[1]), int(match[2]))
    if word not in _NAMED:
        raise InvalidConnectSetting(f"types.{column}", word, f"choose among {', '.join(_NAMED)} and decimal(P,S)")
    return _NAMED[word]


def family_of(kind: pa.DataType) -> Family:
    """What kind of values a column of this type holds."""
    for test, family in _TESTS:
        if test(kind):
            return family
    if pa.types.is_timestamp(kind):
        return Family.TIMESTAMP if kind.tz is None else Family.INSTANT
    return Family.TEXT


_TESTS: Final = (
    (pa.types.is_boolean, Family.BOOLEAN),
    (pa.types.is_integer, Family.INTEGER),
    (pa.types.is_floating, Family.FLOAT),
    (pa.types.is_decimal, Family.DECIMAL),
    (pa.types.is_binary, Family.BINARY),
    (pa.types.is_large_binary, Family.BINARY),
    (pa.types.is_date, Family.DATE),
    (pa.types.is_time, Family.TIME),
)


def grow_schema(schema: pa.Schema, changes: Iterable[RowChange], types: Mapping[str, str]) -> pa.Schema:
    """The schema, with the columns that these rows bring."""
    known = set(schema.names)
    for change in changes:
        for name, value in (change.row or {}).items():
            if name in known:
                continue
            family = family_of_value(value)
            if family is not None:
                known.add(name)
                kind = named_type(name, types[name]) if name in types else _NEW[family]
                schema = schema.append(pa.field(name, kind))
    return schema


def widen_schema(
    schema: pa.Schema,
    changes: Sequence[RowChange],
    types: Mapping[str, str],
    held: Callable[[str], Iterable[pa.Array]],
) -> pa.Schema:
    """The schema with wider types where these rows need them, for the columns whose types nobody named.

    `held` answers what the store has of a column: numbers with more digits than a double holds become texts.
    """
    families = {name: family_of(schema.field(name).type) for name in schema.names if name not in types}
    for change in [*changes, *changes]:  # what came before a column was widened must fit, too
        for name, value in (change.row or {}).items():
            if name in families:
                families[name] = widen(families[name], value)
    for name, family in families.items():
        was = schema.field(name).type
        if family is Family.FLOAT and pa.types.is_integer(was) and any(map(_has_many_digits, held(name))):
            families[name] = Family.TEXT
    return pa.schema(
        [
            column.with_type(_NEW[families[column.name]])
            if column.name in families and families[column.name] is not family_of(column.type)
            else column
            for column in schema
        ]
    )


def _has_many_digits(numbers: pa.Array) -> bool:
    return bool(pc.any(pc.greater(pc.abs_checked(pc.cast(numbers, pa.decimal128(20))), 2**53)).as_py())


def retype(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table whose columns have the types of this schema, where that has them."""
    for place, column in enumerate(table.schema):
        if column.name in schema.names and column.type != schema.field(column.name).type:
            kind = schema.field(column.name).type
            table = table.set_column(place, pa.field(column.name, kind), table[column.name].cast(kind))
    return table


def to_table(changes: Sequence[RowChange], schema: pa.Schema, store: str) -> pa.Table:
    """The changes' rows; what does not fit is refused by its place."""
    columns = []
    for column in schema:
        family = family_of(column.type)
        read, native = reader_of(family), NATIVE.get(family)
        values: list[Any] = []
        for change in changes:
            value = (change.row or change.key).get(column.name)
            try:
                values.append(value if value is None or value.__class__ is native else read(value))
            except Misfit as misfit:
                raise _refused(store, column.name, str(misfit), change) from misfit
        columns.append(_array(values, column, changes, store))
    return pa.table(columns, schema=schema)


def _array(values: list[Any], column: pa.Field, changes: Sequence[RowChange], store: str) -> pa.Array:
    try:
        return pa.array(values, column.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        for value, change in zip(values, changes, strict=True):
            try:
                pa.array([value], column.type)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                raise _refused(store, column.name, str(error), change) from error
        raise


def _refused(store: str, column: str, reason: str, change: RowChange) -> RowRefused:
    return RowRefused(f"column {column!r} of {store}: {reason}", partition=change.partition, offset=change.offset)


def stored_row(key: Sequence[str], row: Values, schema: pa.Schema) -> StoredRow:
    """A row, from the log or from the store, in a form that compares."""
    values = {
        name: canonicalize(value, family_of(schema.field(name).type))
        for name, value in row.items()
        if name in schema.names
    }
    return StoredRow(key_text({name: values[name] for name in key}), values)
