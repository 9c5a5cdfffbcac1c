"""Row predicates and facts over batches: the same as for one row after the other."""

import pyarrow as pa
import pytest

from headrace.cep.assembling import Assembler, NotColumnar
from headrace.cep.columnar import ColumnarProgram
from headrace.cep.evaluation import compile_expression
from headrace.cep.match import Event
from headrace.cep.pattern import Pattern
from headrace.cep.reading import Scope, read_expression
from headrace.cep.rowwise import RowProgram
from tests.property.cep_conditions import CONDITIONS, SCHEMA, alike, batch


@pytest.mark.parametrize("text", CONDITIONS)
def test_a_batch_is_evaluated_as_its_rows_are(text):
    expression = read_expression(text, Scope())
    found = Assembler(SCHEMA)
    try:
        kind = found.assemble(expression).type
    except NotColumnar:
        pytest.skip("evaluated in Python")
    program = RowProgram(SCHEMA, (expression,), (expression,), pa.schema([("f0", kind.arrow)]))
    rows = batch()
    evaluate = compile_expression(expression)
    expected = [evaluate(Event(row)) for row in rows.to_pylist()]
    evaluated = program.evaluate(rows)
    shown = evaluated.facts.column(0).to_pylist()
    for row, one, other in zip(rows.to_pylist(), shown, expected, strict=True):
        assert alike(one, other), (row, one, other)
    assert (evaluated.masks == 1).tolist() == [value is True for value in expected]


def test_a_program_names_the_columns_that_it_reads():
    program = ColumnarProgram(
        Pattern.begin("a", "i > 1 AND s = 'a'").next("b", "x > a.y").compile(SCHEMA.names), schema=SCHEMA
    )
    assert set(program.columns) == {"i", "s", "x", "y"}
    assert [str(one.type) for one in program.fact_schema] == ["double", "double"]
