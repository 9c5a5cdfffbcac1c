"""Nested columns as JSON, for stores without nested types; done by Spark, natively."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

# A null field is not the same as no field; and what Spark would leave out could not be told apart any more.
_AS_IT_IS = {"ignoreNullFields": "false"}


def is_json(kind: DataType, keep_scalar_arrays: bool) -> bool:
    """Whether a column of this type becomes JSON."""
    if isinstance(kind, ArrayType):
        return not keep_scalar_arrays or isinstance(kind.elementType, ArrayType | MapType | StructType | VariantType)
    return isinstance(kind, MapType | StructType | VariantType)


def nested_as_json(df: DataFrame, *, keep_scalar_arrays: bool) -> DataFrame:
    """The same rows, with nested columns as JSON text; the column's metadata says so."""
    columns = []
    for field in df.schema.fields:
        column = F.col("`" + field.name.replace("`", "``") + "`")
        if is_json(field.dataType, keep_scalar_arrays):
            column = F.to_json(column, _AS_IT_IS).alias(field.name, metadata={"headrace": "json"})
        columns.append(column)
    return df.select(*columns)
