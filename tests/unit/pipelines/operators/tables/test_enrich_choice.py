"""What `enrich` refuses before anything is done, each in one sentence."""

import re
from typing import Any

import pytest
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType, TimestampType

from headrace.pipelines.operators.errors import BadField
from headrace.pipelines.operators.tables.enrichment.enrich import check_how
from headrace.pipelines.operators.tables.enrichment.enrich import choose as choose_columns

ID = StructType([StructField(name, StringType()) for name in ("table", "key", "offset", "lsn")])


def shape(**columns: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def versions(key: StructType, row: StructType) -> StructType:
    """What `row_versions` makes of a topic."""
    about = shape(row=row, gone=BooleanType(), partition=LongType(), offset=LongType(), _version=ID, _time=AT)
    return StructType([*key.fields, *about.fields])


AT = TimestampType()
ORDERS = shape(customer_id=LongType(), cents=LongType(), at=AT)
CITIES = shape(name=StringType(), city=StringType())
CUSTOMERS = versions(shape(id=LongType()), CITIES)


def choose(
    events: StructType = ORDERS,
    table: StructType = CUSTOMERS,
    on: Any = None,
    columns: Any = None,
    prefix: str = "",
    joined: str = "_joined",
) -> Any:
    return choose_columns(events, table, {"customer_id": "id"} if on is None else on, columns, prefix, joined)


def test_all_columns_but_the_key_are_added() -> None:
    assert choose().columns == ("name", "city")
    assert choose().by == ("customer_id",)
    assert choose(columns="city").columns == ("city",)
    assert choose(columns=[]).columns == ()
    same = versions(shape(customer_id=LongType()), CITIES)
    assert choose(table=same, on="customer_id").pairs == (("customer_id", "customer_id"),)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"on": []}, "enrich joins on no column: write on='order'"),
        ({"on": {"customer": "id"}}, "names 'customer', which is not a column: did you mean 'customer_id'?"),
        ({"on": {"customer_id": "name"}}, "by the table's primary key, which is id, and on names name of the table"),
        ({"on": {"customer_id": "id", "at": "at"}}, "which is id, and on names id, at"),
        (
            {"table": versions(shape(id=StringType()), CITIES)},
            "is bigint, with 'id' of the table, which is string: cast",
        ),
        ({"columns": "town"}, "columns in enrich names 'town', which is not a column"),
        ({"columns": ["city", "city"]}, "names 'city' twice"),
        ({"table": shape(id=LongType())}, "it has no column 'row': write .transform(row_versions(key=['…']))"),
        ({"table": versions(shape(), CITIES)}, "it has no key: write .transform(row_versions(key=['…']))"),
        ({"table": shape(id=LongType(), _weight=LongType())}, "has only what is left after each micro-batch"),
        ({"events": shape(customer_id=LongType(), name=StringType())}, "both have a column 'name': write prefix='…'"),
        ({"events": shape(customer_id=LongType(), _joined=ID)}, "have one already: write joined='_joined_…'"),
        ({"events": shape(customer_id=LongType(), _aside=ID)}, "have one already: drop it before"),
    ],
)
def test_mistakes_are_told_in_a_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadField, match=re.escape(sentence)):
        choose(**given)


def test_a_prefix_tells_columns_apart() -> None:
    events = shape(customer_id=LongType(), name=StringType())
    assert choose(events=events, prefix="customer_").columns == ("name", "city")


def test_only_inner_and_left() -> None:
    assert (check_how("left"), check_how("inner")) == (True, False)
    with pytest.raises(BadField, match="right and full are for join_tables"):
        check_how("full")
