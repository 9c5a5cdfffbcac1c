"""The types a store gives to the columns of a batch: pure."""

from collections.abc import Callable

from pyspark.sql.types import DataType, StructType

from headrace.pipelines.sink.tables.errors import ColumnMismatch
from headrace.pipelines.sink.tables.target import DELETED, Target


def store_types(
    schema: StructType, target: Target, named: Callable[[type[DataType]], str | None], where: str, json: str = "TEXT"
) -> dict[str, str]:
    """The store's type for every column that is written, in the DataFrame's order."""
    return types_by_field(schema, target, lambda kind: named(type(kind)), where, json)


def types_by_field(
    schema: StructType, target: Target, named: Callable[[DataType], str | None], where: str, json: str
) -> dict[str, str]:
    """The same, where the type's parameters count (a decimal's digits, an array's elements)."""
    types = {}
    for field in schema.fields:
        if target.keys and field.name == DELETED:
            continue
        kind = json if field.metadata.get("headrace") == "json" else named(field.dataType)
        if kind is None:
            raise ColumnMismatch(
                f"{where} has no type for the column {field.name!r} ({field.dataType.simpleString()}): cast it to "
                "another type or leave it out",
                field.name,
            )
        types[field.name] = kind
    return types
