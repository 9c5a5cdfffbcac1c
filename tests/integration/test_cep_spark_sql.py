"""Conditions of patterns as texts for Spark: the JVM finds what `evaluation.py` finds, and never fails."""

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
