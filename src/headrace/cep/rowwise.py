"""Row predicates and facts evaluated for whole batches of rows: in Arrow here, or as texts for Spark.

Columns become lanes, and the code of an expression runs over all rows at once, compiled. What code has no instruction
for (functions of texts, decimals of many digits) is evaluated in Python once for each different combination of values.

What always holds: the results are those of `evaluation.py`, whichever way they are found.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.cep.assembling import Assembler, NotColumnar, Segment
from headrace.cep.evaluation import compile_expression
from headrace.cep.expressions import Column, Expression, columns
from headrace.cep.kinds import Kind, Type, column_of
from headrace.cep.lanes import NO_NODES, fill
from headrace.cep.loops.code import run_rows
from headrace.cep.loops.layout import S_WIDTH, Flags, Longs
from headrace.cep.match import Event
from headrace.cep.spark_sql import spark_sql

_NO_STATES = np.empty((0, S_WIDTH), np.int64)


@dataclass(frozen=True)
class Evaluated:
    """What stepping needs to know of some rows."""

    masks: Longs
    facts: pa.RecordBatch


class RowProgram:
    """Predicates and facts over rows of one schema."""

    def __init__(
        self, schema: pa.Schema, predicates: Sequence[Expression], facts: Sequence[Expression], fact_schema: pa.Schema
    ) -> None:
        self._schema = schema
        self._predicates = tuple(predicates)
        self._facts = tuple(facts)
        self._fact_schema = fact_schema
        self._assembler = Assembler(schema)
        self._tests = [self._assemble(one) for one in self._predicates]
        self._values = [None if isinstance(one, Column) else self._assemble(one) for one in self._facts]
        self.predicate_sql = tuple(spark_sql(one, schema) for one in self._predicates)
        self.fact_sql = tuple(spark_sql(one, schema) for one in self._facts)
        self.columns = tuple(
            dict.fromkeys(column.name for one in (*self._predicates, *self._facts) for column in columns(one))
        )

    def _assemble(self, expression: Expression) -> Segment | None:
        """The code of an expression; None if it is evaluated in Python."""
        known = len(self._assembler.code), dict(self._assembler.lanes)
        try:
            return self._assembler.assemble(expression)
        except NotColumnar:
            del self._assembler.code[known[0] :]
            self._assembler.lanes = known[1]
            return None

    def evaluate(self, rows: pa.RecordBatch) -> Evaluated:
        lanes = [self._lane(lane.of, found, rows) for lane, found in self._assembler.lanes.items()]
        look, texts = fill(self._assembler, lanes, len(rows))
        masks = np.zeros(len(rows), np.int64)
        longs, doubles = np.empty(len(rows), np.int64), np.empty(len(rows), np.float64)
        known = np.empty(len(rows), np.bool_)

        def run(segment: Segment) -> None:
            run_rows(look, segment.begin, segment.end, NO_NODES, _NO_STATES, 0, longs, doubles, known)

        for bit, (predicate, test) in enumerate(zip(self._predicates, self._tests, strict=True)):
            is_true: Flags
            if test is None:
                found = [value is True for value in _evaluated(predicate, rows)]
                is_true = np.array(found, np.bool_)
            elif test.type.kind is not Kind.BOOL:
                continue
            else:
                run(test)
                is_true = known & (longs != 0)
            masks |= is_true.astype(np.int64) << bit
        facts = []
        for one, value, wanted in zip(self._facts, self._values, self._fact_schema, strict=True):
            if isinstance(one, Column):
                column = _column(one, rows)
                facts.append(_cast(column, wanted.type))
            elif value is None:
                facts.append(pa.array(_evaluated(one, rows), wanted.type))
            else:
                run(value)
                facts.append(column_of(longs.copy(), doubles.copy(), known.copy(), value.type, texts).cast(wanted.type))
        if not facts:
            return Evaluated(masks, pa.RecordBatch.from_arrays([], schema=pa.schema([])))
        return Evaluated(masks, pa.RecordBatch.from_arrays(facts, schema=self._fact_schema))

    def _lane(self, of: Expression, found: Type, rows: pa.RecordBatch) -> pa.Array:
        if isinstance(of, Column):
            return _cast(_column(of, rows), found.arrow)
        return pa.array(_evaluated(of, rows), found.arrow)


def _column(column: Column, rows: pa.RecordBatch) -> pa.Array:
    found = rows.column(rows.schema.get_field_index(column.name))
    for part in column.path[1:]:
        if not pa.types.is_struct(found.type) or found.type.get_field_index(part) < 0:
            return pa.nulls(len(rows))
        found = pc.struct_field(found, part)
    return found


def _cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type == wanted:
        return column
    if pa.types.is_date(wanted) and not pa.types.is_date(column.type):
        return column.cast(wanted, safe=False)
    return column.cast(wanted, safe=not pa.types.is_timestamp(wanted))


def _evaluated(expression: Expression, rows: pa.RecordBatch) -> list[object]:
    """In Python: once for each combination of values that occurs."""
    evaluate = compile_expression(expression)
    names = list(dict.fromkeys(column.name for column in columns(expression)))
    if not names:
        return [evaluate(Event({}))] * len(rows)
    given = [rows.column(rows.schema.get_field_index(name)) for name in names]
    if len(given) == 1 and not pa.types.is_nested(given[0].type) and not pa.types.is_dictionary(given[0].type):
        encoded = given[0].dictionary_encode("encode")
        found = [evaluate(Event({names[0]: value})) for value in encoded.dictionary.to_pylist()]
        return [found[at] for at in encoded.indices.to_pylist()]
    seen: dict[tuple[str, ...], object] = {}
    results = []
    for values in zip(*(one.to_pylist() for one in given), strict=True):
        key = tuple(map(repr, values))
        if key not in seen:
            seen[key] = evaluate(Event(dict(zip(names, values, strict=True))))
        results.append(seen[key])
    return results
