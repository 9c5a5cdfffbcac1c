"""What MEASURES show of matches: values over all rows of a match, by code, and in Python where there is no instruction.

`a.city || b.city` has no instruction, but `a.city` and `b.city` have: code finds such parts for all matches of a call,
and the rest is computed of them as of columns, once for each different combination.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headrace.cep.assembling import Assembler, NotColumnar, Segment
from headrace.cep.evaluation import is_constant
from headrace.cep.expressions import Call, Column, Expression
from headrace.cep.found import Rows
from headrace.cep.kinds import column_of
from headrace.cep.loops.code import run_nodes
from headrace.cep.loops.layout import Longs
from headrace.cep.operations import Foreign
from headrace.cep.rowwise import RowProgram


@dataclass(frozen=True)
class Measured:
    """A value of matches: the parts that code finds, and what is computed of them (nothing: the only part is it)."""

    parts: tuple[Segment, ...]
    rest: RowProgram | None
    type: pa.DataType

    def column(self, call: Rows, states: Longs, wanted: Longs, numbers: Longs) -> pa.Array:
        """The value at each of the wanted rows of matches; `numbers` are those of the matches."""
        found = [_column(part, call, states, wanted, numbers) for part in self.parts]
        if self.rest is None:
            return found[0]
        given = pa.RecordBatch.from_arrays(found, schema=_schema(self.parts))
        return self.rest.evaluate(given).facts.column(0)


def measured(assembler: Assembler, expression: Expression) -> Measured:
    """How a measure is found; one that has no type is refused."""
    known = len(assembler.code), dict(assembler.lanes)
    try:
        whole = assembler.assemble(expression)
    except NotColumnar as refused:
        del assembler.code[known[0] :]
        assembler.lanes = known[1]
        parts: list[Segment] = []
        try:
            rest = _split(assembler, expression, parts)
            schema = _schema(parts)
            result = Assembler(schema).type_of(rest).arrow
        except (NotColumnar, Foreign):
            raise refused from None
        return Measured(tuple(parts), RowProgram(schema, [], [rest], pa.schema([("value", result)])), result)
    return Measured((whole,), None, whole.type.arrow)


def _split(assembler: Assembler, expression: Expression, parts: list[Segment]) -> Expression:
    """The expression over columns `0`, `1` …, each of which code finds."""
    if is_constant(expression):
        return expression
    known = len(assembler.code), dict(assembler.lanes)
    try:
        part = assembler.assemble(expression)
    except NotColumnar:
        del assembler.code[known[0] :]
        assembler.lanes = known[1]
        if not isinstance(expression, Call):
            raise
        return replace(expression, args=tuple(_split(assembler, one, parts) for one in expression.args))
    parts.append(part)
    return Column((str(len(parts) - 1),))


def _schema(parts: "list[Segment] | tuple[Segment, ...]") -> pa.Schema:
    return pa.schema([(str(at), part.type.arrow) for at, part in enumerate(parts)])


def _column(part: Segment, call: Rows, states: Longs, wanted: Longs, numbers: Longs) -> pa.Array:
    longs, doubles = np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.float64)
    known = np.zeros(len(wanted), np.bool_)
    run_nodes(call.look, part.begin, part.end, call.nodes, states, wanted, numbers, longs, doubles, known)
    return column_of(longs, doubles, known, part.type, call.texts)
