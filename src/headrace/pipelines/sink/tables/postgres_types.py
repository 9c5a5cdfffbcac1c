"""Spark's types in PostgreSQL: what a new table gets, and what an existing column takes. Pure."""

from pyspark.sql import types as T  # noqa: N812 - Spark's own habit

_NAMES: dict[type[T.DataType], str] = {
    T.BooleanType: "boolean", T.ByteType: "smallint", T.ShortType: "smallint", T.IntegerType: "integer",
    T.LongType: "bigint", T.FloatType: "real", T.DoubleType: "double precision", T.StringType: "text",
    T.CharType: "text", T.VarcharType: "text", T.BinaryType: "bytea", T.DateType: "date",
    T.TimestampType: "timestamp with time zone", T.TimestampNTZType: "timestamp without time zone",
}  # fmt: skip

# What takes every value of the type on the left without loss, besides itself.
_ALSO: dict[str, frozenset[str]] = {
    "smallint": frozenset({"integer", "bigint", "numeric", "real", "double precision"}),
    "integer": frozenset({"bigint", "numeric", "double precision"}),
    "bigint": frozenset({"numeric"}),
    "real": frozenset({"double precision"}),
    "jsonb": frozenset({"json", "text"}),
}
# A text is read by the column it goes to, and these columns read texts.
_NOT_FROM_TEXT = frozenset({
    "boolean", "smallint", "integer", "bigint", "real", "double precision", "numeric", "bytea", "date",
    "timestamp with time zone", "timestamp without time zone",
})  # fmt: skip


def postgres_type(kind: T.DataType) -> str | None:
    """The type of a column in a new table; None if there is none."""
    if isinstance(kind, T.DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    if isinstance(kind, T.ArrayType):
        element = postgres_type(kind.elementType)
        return element and f"{element}[]"
    return _NAMES.get(type(kind))


def fits(wanted: str, found: str) -> bool:
    """Whether a column of type `found` (from format_type, without parameters) takes the values of `wanted`."""
    if wanted.endswith("[]"):
        return found.endswith("[]") and fits(wanted[:-2], found[:-2])
    if wanted.startswith("numeric"):
        return found == "numeric"
    if wanted == "text":
        return found not in _NOT_FROM_TEXT and not found.endswith("[]")
    return found == wanted or found in _ALSO.get(wanted, ())
