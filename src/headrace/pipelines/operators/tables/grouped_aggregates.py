"""Which part keeps which aggregate of a group, and which aggregates cannot be kept."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from headrace.pipelines.operators.errors import BadAggregate, BadField
from headrace.pipelines.operators.fields import nearest
from headrace.pipelines.operators.ordered_partials import Best, Collected, Distinct
from headrace.pipelines.operators.partials import Aggregate, Count, Mean, Total
from headrace.pipelines.operators.tables.grouped_heads import Ordered
from headrace.pipelines.operators.tables.grouped_parts import DecimalMean, Doubles, Marks, Part, Sums, WholeMean
from headrace.pipelines.operators.tables.top_n import TopN


@dataclass(frozen=True)
class Grouping:
    """The parts of a group, and the fields whose different values an operator before has to mark, by mark."""

    parts: Mapping[str, Part]
    marked: Mapping[str, str]
    fields: tuple[str, ...]
    """Every column that is looked at."""


def grouping(aggregates: Mapping[str, Aggregate], rows: pa.Schema) -> Grouping:
    """Aggregates over rows of that schema; refuses what is not there, has the wrong type, or cannot be subtracted."""
    parts: dict[str, Part] = {}
    marks: dict[str, str] = {}
    fields: list[str] = []
    for name, each in aggregates.items():
        fields += looked_at(name, each, rows)
        if isinstance(each, Distinct) and each.field is not None:
            each.state(rows.field(each.field).type)
            mark = marks.setdefault(each.field, f"_mark_{len(marks)}")
            parts[name] = Marks(mark)
        else:
            parts[name] = part_of(name, each, rows)
    return Grouping(parts, {mark: field for field, mark in marks.items()}, tuple(dict.fromkeys(fields)))


def looked_at(name: str, each: Aggregate, rows: pa.Schema) -> tuple[str, ...]:
    """The columns of an aggregate, which have to be there."""
    found = each.names if isinstance(each, TopN) else (each.field,) if each.field is not None else ()
    for column in found:
        if column not in rows.names:
            raise BadField(f"{name}: there is no column {column!r}: {nearest(column, rows.names)}")
    return found


def part_of(name: str, each: Aggregate, rows: pa.Schema) -> Part:
    """What keeps one aggregate."""
    if isinstance(each, TopN):
        return each.part(name, rows)
    if isinstance(each, Count):
        return Sums(each, pa.null())
    if each.field is None or not isinstance(each, Total | Mean | Best | Collected):
        raise BadAggregate(
            f"{name}: {each.named} cannot be kept of a table, because it cannot take back a row that is gone: use "
            "count, sum, avg, min, max, count_distinct, collect or top_n"
        )
    kind = rows.field(each.field).type
    each.state(kind)
    field = pa.field(each.field, kind)
    if isinstance(each, Best):
        return Ordered(name, (field,), (each.greatest,), 1, (each.field,), (each.field,), single=True)
    if isinstance(each, Collected):
        return Ordered(name, (field,), (False,), None, (each.field,), (each.field,), bare=True)
    if pa.types.is_floating(kind):
        return Doubles(name, each.field, isinstance(each, Mean))
    if isinstance(each, Mean):
        return WholeMean(each, kind) if pa.types.is_integer(kind) else DecimalMean(each, kind)
    return Sums(each, kind)
