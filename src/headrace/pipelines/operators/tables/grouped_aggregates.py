"""Which part keeps which aggregate of a group, and which aggregates cannot be kept."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.pipelines.operators.errors import BadAggregate, BadField, nearest
from headrace.pipelines.operators.ordered_partials import Best, BestBy, Collected, Distinct
from headrace.pipelines.operators.partials import Aggregate, Count, Mean, Total
from headrace.pipelines.operators.tables.distinct import Different
from headrace.pipelines.operators.tables.grouped_heads import Ordered
from headrace.pipelines.operators.tables.grouped_parts import DecimalMean, Doubles, Marks, Part, Sums, WholeMean
from headrace.pipelines.operators.top_n import TopN


@dataclass(frozen=True)
class Grouping:
    """The parts of a group, and the fields whose different values an operator before has to mark, by mark."""

    parts: Mapping[str, Part]
    marked: Mapping[str, str]
    fields: tuple[str, ...]
    """Every column that is looked at."""


def grouping(aggregates: Mapping[str, Aggregate], rows: pa.Schema, *, inserts: bool = False) -> Grouping:
    """Aggregates over rows of that schema; refuses what is not there, has the wrong type, or cannot be subtracted.

    With `inserts` the table only grows.
    """
    parts: dict[str, Part] = {}
    marks: dict[str, str] = {}
    fields: list[str] = []
    for name, each in aggregates.items():
        fields += looked_at(name, each, rows.names)
        if isinstance(each, Distinct) and each.field is not None:
            kind = rows.field(each.field).type
            each.state(kind)
            if inserts and not pa.types.is_nested(kind):
                parts[name] = Different(name, each.field, kind)
                continue
            mark = marks.setdefault(each.field, f"_mark_{len(marks)}")
            parts[name] = Marks(mark)
        else:
            part = part_of(name, each, rows)
            parts[name] = replace(part, inserts=inserts) if isinstance(part, Ordered) else part
    return Grouping(parts, {mark: field for field, mark in marks.items()}, tuple(dict.fromkeys(fields)))


def looked_at(name: str, each: Aggregate, columns: Collection[str]) -> tuple[str, ...]:
    """The columns of an aggregate, which have to be there."""
    for column in each.names:
        if column not in columns:
            raise BadField(f"{name}: there is no column {column!r}: {nearest(column, columns)}")
    present = each.present if isinstance(each, TopN | BestBy) else None
    return each.names if present is None else (*each.names, present)


def part_of(name: str, each: Aggregate, rows: pa.Schema) -> Part:
    """What keeps one aggregate."""
    if isinstance(each, TopN):
        return each.part(name, rows)
    if isinstance(each, Count):
        return Sums(each, pa.null())
    if each.field is None or not isinstance(each, Total | Mean | Best | Collected):
        raise BadAggregate(
            f"{name}: {each.named} cannot be kept of a table, because it cannot take back a row that is gone: use "
            "count, sum, avg, min, max, min_by, max_by, count_distinct, collect or top_n"
        )
    if isinstance(each, BestBy):
        both = tuple(pa.field(column, rows.field(column).type) for column in dict.fromkeys((each.by, each.field)))
        each.state(pa.struct(both))
        wanted = (each.by, *([each.present] if each.present else []))
        return Ordered(name, both, (each.greatest,) * len(both), 1, (each.field,), wanted, single=True)
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
