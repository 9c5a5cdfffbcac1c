"""Names that Avro takes: what it does not becomes an underscore, as Debezium's adjustment does it. Pure."""

import re
from collections.abc import Iterable
from typing import Final

from headrace.connect.errors import SourceRefused

_WRONG: Final = re.compile(r"[^A-Za-z0-9_]")


def field_name(name: str) -> str:
    """A field's name; one that begins with a digit gets an underscore before it."""
    fitting = _WRONG.sub("_", name)
    return fitting if fitting and not fitting[0].isdigit() else f"_{fitting}"


def full_name(name: str) -> str:
    """A schema's name: parts between dots, each a name."""
    return ".".join(field_name(part) for part in name.split("."))


def check_distinct(table: str, columns: Iterable[str]) -> None:
    """Refuse columns that Avro cannot tell apart."""
    seen: dict[str, str] = {}
    for column in columns:
        other = seen.setdefault(field_name(column), column)
        if other != column:
            raise SourceRefused(
                f"columns {other!r} and {column!r} of {table} have the same name in Avro ({field_name(column)})",
                'name one of them in exclude_columns, or write format = "json"',
            )
