"""Conditions of patterns as texts for Spark: the JVM finds what `evaluation.py` finds, and never fails."""

from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.cep.evaluation import compile_expression
from headrace.cep.match import Event
from headrace.cep.reading import Scope, read_expression
from headrace.cep.spark_sql import spark_sql
from tests.property.cep_conditions import CONDITIONS, ROWS, SCHEMA, alike, batch

pytestmark = pytest.mark.java


def test_spark_finds_what_is_found_here(spark: SparkSession) -> None:
    expressions = [read_expression(text, Scope()) for text in CONDITIONS]
    texts = [f"{spark_sql(one, SCHEMA)} AS c{number}" for number, one in enumerate(expressions)]
    rows = batch()
    frame = spark.createDataFrame(pa.Table.from_batches([rows]))
    found = frame.selectExpr(*texts).toArrow()
    assert found.num_rows == len(ROWS)
    wrong = []
    for number, (text, one) in enumerate(zip(CONDITIONS, expressions, strict=True)):
        evaluate = compile_expression(one)
        column = found.column(number).to_pylist()
        for row, shown in zip(rows.to_pylist(), column, strict=True):
            expected = evaluate(Event(row))
            if not alike(shown, expected, digits=14):
                wrong.append((text, row, shown, expected))
    assert not wrong, "\n".join(map(str, wrong))


def test_decimals_of_many_digits(spark: SparkSession) -> None:
    """They are compared and chosen as they are; what is whole and needs more than 64 bits is NULL."""
    schema = pa.schema([("d", pa.decimal128(38, 18)), ("e", pa.decimal128(38, 0))])
    given = [{"d": Decimal(text), "e": Decimal(7)} for text in ("99999999999999999999.9", "-2.5", "2.5")]
    frame = spark.createDataFrame(pa.Table.from_pylist(given, schema=schema))
    conditions = {
        "ceil(d)": [None, -2, 3],
        "floor(d)": [None, -3, 2],
        "greatest(d, e) > 7": [True, False, False],
        "coalesce(d, 0) = 2.5": [False, False, True],
        "IF(e = 7, d, e) < 0": [False, True, False],
    }
    for text, wanted in conditions.items():
        expression = read_expression(text, Scope())
        evaluate = compile_expression(expression)
        assert [evaluate(Event(row)) for row in given] == wanted, text
        assert [row[0] for row in frame.selectExpr(spark_sql(expression, schema)).collect()] == wanted, text
