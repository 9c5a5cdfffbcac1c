"""`join_tables`: two tables as changes in, their join as changes out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headrace.pipelines.errors import BadOption
from headrace.pipelines.keyed.apply import BUCKETS, Part, keyed
from headrace.pipelines.keyed.cells import SideRows
from headrace.pipelines.keyed.hashing import can_hash
from headrace.pipelines.keyed.keys import is_comparable
from headrace.pipelines.operators.errors import BadField, On, key_pairs, require
from headrace.pipelines.operators.frames import Transform, arrow_schema
from headrace.pipelines.operators.tables.form import (
    INSERTS,
    TIME,
    VERSIONS,
    WEIGHT,
    check_form,
    only_grows,
    row_names,
    version_column,
)
from headrace.pipelines.operators.tables.joins.operator import LEFT, RIGHT, TableJoin
from headrace.pipelines.operators.tables.row_bytes import check_columns
from headrace.pipelines.operators.tables.straight import cells_of

HOW: Final = ("inner", "left", "right", "full")
_LEFT, _RIGHT = "the left table of join_tables", "the right table of join_tables"


def join_tables(
    right: DataFrame, *, on: On, how: str = "inner", prefix: str = "", buckets: int | None = None
) -> Transform:
    """The join of two tables as changes, as a table as changes: `orders.transform(join_tables(customers, on=…))`.

    `on` are the columns that must be equal: a name or several that both tables have, which the result has once, or
    `{"customer_id": "id"}` where they are called differently, left before right. Any columns will do, be they the
    primary key of both tables, of one, or of none. A null equals nothing. `how` is `"inner"`, or `"left"`, `"right"`,
    `"full"` to keep the rows of that side (of both) that find none, with nulls.

    `prefix` is put before the names of the right table's columns, for tables that have columns of the same name.
    """
    names = tuple(_On(*pair) for pair in key_pairs(on, "join_tables"))
    if how not in HOW:
        raise BadOption(f"how={how!r} in join_tables: choose {', '.join(map(repr, HOW[:-1]))} or {HOW[-1]!r}")
    return lambda left: _join(left, right, names, how, prefix, buckets)


@dataclass(frozen=True)
class _On:
    left: str
    right: str

    @property
    def is_shared(self) -> bool:
        """Whether the result has it once."""
        return self.left == self.right


def _join(
    left: DataFrame, right: DataFrame, on: tuple[_On, ...], how: str, prefix: str, buckets: int | None
) -> DataFrame:
    types = arrow_schema(left), arrow_schema(right)
    _check(types, on, left.isStreaming, right.isStreaming)
    shared = {each.left for each in on if each.is_shared}
    ours, theirs = ([name for name in row_names(each.names) if name not in shared] for each in types)
    _check_clash([*ours, *shared], [f"{prefix}{name}" for name in theirs])
    keys = [f"(on {place})" for place in range(len(on))]
    sides = {
        LEFT: (left, [each.left for each in on], _side(left, ours)),
        RIGHT: (right, [each.right for each in on], _side(right, theirs)),
    }
    rows = {name: frame.select(side.alias(name)) for name, (frame, _, side) in sides.items()}
    parts = []
    for name, (frame, columns, side) in sides.items():
        cells = {
            each: side if each == name else fn.lit(None).cast(rows[each].schema[each].dataType)
            for each in (LEFT, RIGHT)
        }
        named = [fn.col(f"`{column}`").alias(key) for column, key in zip(columns, keys, strict=True)]
        parts.append(frame.select(*named, *(cell.alias(each) for each, cell in cells.items())))
    both = parts[0].unionByName(parts[1])
    kinds = arrow_schema(both)
    operator = TableJoin(
        kinds.field(LEFT).type, kinds.field(RIGHT).type, how in ("left", "full"), how in ("right", "full"), prefix
    )
    straight = [
        _straight(frame, name, columns, kinds) or part
        for (name, (frame, columns, _)), part in zip(sides.items(), parts, strict=True)
    ]
    ways = straight if any(isinstance(way, Part) for way in straight) else ()
    emitted = both.transform(keyed(operator, by=keys, buckets=buckets or BUCKETS, parts=ways))
    places = {each.left: key for each, key in zip(on, keys, strict=True) if each.is_shared}
    wanted = [fn.col(f"`{places.get(name, name)}`").alias(name) for name in row_names(left.columns)]
    wanted += [fn.col(f"`{prefix}{name}`") for name in theirs]
    grows = how == "inner" and only_grows(left) and only_grows(right)
    weight = fn.col(WEIGHT).alias(WEIGHT, metadata={INSERTS: True}) if grows else fn.col(WEIGHT)
    return emitted.select(*wanted, weight, VERSIONS, TIME)


def _straight(frame: DataFrame, side: str, on: Sequence[str], kinds: pa.Schema) -> Part | None:
    """One side's rows, taken from where they are read; None if they are not read straight."""
    cells = cells_of(frame)
    if cells is None or not all(can_hash(cells.rows.field(name).type) for name in on):
        return None
    return Part(cells.frame, SideRows(kinds, side, tuple(on)))


def _side(frame: DataFrame, names: Sequence[str]) -> Column:
    return fn.struct(*(f"`{name}`" for name in [*names, WEIGHT, version_column(frame.columns), TIME]))


def _check(types: tuple[pa.Schema, pa.Schema], on: tuple[_On, ...], left_streams: bool, right_streams: bool) -> None:
    """Refuse tables that cannot be joined so."""
    for found, what in zip(types, (_LEFT, _RIGHT), strict=True):
        check_form(found, what)
        check_columns(pa.schema([found.field(name) for name in row_names(found.names)]), what)
    if left_streams != right_streams:
        still = _RIGHT if left_streams else _LEFT
        raise BadField(f"{still} is not a stream and the other is one: read both with spark.readStream")
    require([each.left for each in on], row_names(types[0].names), "on in join_tables")
    require([each.right for each in on], row_names(types[1].names), "on in join_tables, for the right table,")
    for each in on:
        ours, theirs = types[0].field(each.left).type, types[1].field(each.right).type
        if not is_comparable(ours):
            raise BadField(f"join_tables: {each.left!r} is {ours}, which cannot be compared: join on a field of it")
        if ours != theirs:
            raise BadField(
                f"join_tables: {each.left!r} is {ours} on the left and {each.right!r} is {theirs} on the right, and "
                f"equal values of two types are not equal here: cast one, as in .withColumn({each.right!r}, "
                f"col({each.right!r}).cast('{_spark_name(ours)}'))"
            )


def _check_clash(ours: Sequence[str], theirs: Sequence[str]) -> None:
    if both := sorted(set(ours) & set(theirs)):
        raise BadField(
            f"join_tables: both tables have a column {both[0]!r}: rename one, or write prefix='right_' to put that "
            "before all names of the right table"
        )


def _spark_name(kind: pa.DataType) -> str:
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind).simpleString()
