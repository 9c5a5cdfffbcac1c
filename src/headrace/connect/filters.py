"""Which tables and columns are captured, and which columns are hidden.

Patterns are regular expressions on the whole name, as in Debezium: `schema.table` for tables, `schema.table.column` for
columns. A list of what to include and one of what to exclude are alternatives.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from json import loads
from typing import Final

from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.keys import check_choice
from headrace.connect.table import CALLED, Codec, Column, Raw, Table, from_wire, json_wire

QUOTE: Final = '"'


@dataclass(frozen=True)
class Filters:
    """What is captured of a database, and how much of it is shown."""

    include_tables: Sequence[str] = ()
    exclude_tables: Sequence[str] = ()
    include_columns: Sequence[str] = ()
    exclude_columns: Sequence[str] = ()
    mask_columns: Sequence[str] = ()  # shown as asterisks
    hash_columns: Sequence[str] = ()  # shown as a keyed SHA-256, equal for equal values
    hash_salt: str = ""
    truncate_columns: Mapping[str, int] = field(default_factory=dict)  # shown up to so many characters
    key_columns: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by a table's full name: what its key is

    def __post_init__(self) -> None:
        for one, other in (("include_tables", "exclude_tables"), ("include_columns", "exclude_columns")):
            if getattr(self, one) and getattr(self, other):
                raise InvalidConnectSetting(
                    other, getattr(self, other), f"{one} is given too, and one of them is enough"
                )
        for name in ("include_tables", "exclude_tables", "include_columns", "exclude_columns", "mask_columns"):
            for pattern in getattr(self, name):
                _compiled(name, pattern)
        for pattern, length in self.truncate_columns.items():
            _compiled("truncate_columns", pattern)
            if length < 0:
                raise InvalidConnectSetting(f"truncate_columns[{pattern!r}]", length, "a length is 0 or more")
        for pattern in self.hash_columns:
            _compiled("hash_columns", pattern)
        check_choice(self.key_columns)
        if self.hash_columns and not self.hash_salt:
            raise InvalidConnectSetting(
                "hash_salt", "", "without a salt of your own a hash of few possible values is easily undone"
            )

    def captures(self, full_name: str) -> bool:
        """Whether a table is captured."""
        if self.include_tables:
            return _any(self.include_tables, full_name)
        return not _any(self.exclude_tables, full_name)

    def key_of(self, full_name: str) -> tuple[str, ...]:
        """The columns that were chosen as a table's key; none if the database's own key is meant."""
        return tuple(self.key_columns.get(full_name, ()))

    def shows(self, table: str, column: str) -> bool:
        """Whether a column is shown at all."""
        name = f"{table}.{column}"
        if self.include_columns:
            return _any(self.include_columns, name)
        return not _any(self.exclude_columns, name)

    def disguised(self, table: str, column: Column) -> Column:
        """The column as it is shown: masked, hashed, truncated, or as it is."""
        name = f"{table}.{column.name}"
        codec = column.codec
        if _any(self.mask_columns, name):
            return replace(column, codec=_shown_as(lambda _: '"********"'))
        if _any(self.hash_columns, name):
            return replace(column, codec=_shown_as(partial(_digest_json, self.hash_salt.encode(), codec.to_json)))
        for pattern, length in self.truncate_columns.items():
            if _any([pattern], name):
                shown = _shown_as(partial(_truncated_json, length, codec.to_json))
                avro = None if codec.avro is None else shown.schema
                return replace(column, codec=replace(shown, schema=codec.schema, to_python=codec.to_python, avro=avro))
        return column

    def view(self, table: Table) -> tuple[tuple[int, Column], ...]:
        """The columns of a table that are shown, with their places in its rows; the key's are among them always."""
        return tuple(
            (index, self.disguised(table.full_name, column))
            for index, column in enumerate(table.columns)
            if index in table.key or self.shows(table.full_name, column.name)
        )


def _shown_as(write: Callable[[Raw], str]) -> Codec:
    return Codec(CALLED, write, lambda raw: write(raw)[1:-1], {"type": "string"})


def _digest_json(salt: bytes, write: Callable[[Raw], str], raw: Raw) -> str:
    """Of what would be written, so that every source has the same hash of the same value."""
    return f'"{hmac.new(salt, write(raw).strip(QUOTE).encode("latin-1"), hashlib.sha256).hexdigest()}"'


def _truncated_json(length: int, write: Callable[[Raw], str], raw: Raw) -> str:
    """So many characters of a text; what is no text stays whole."""
    written = write(raw)
    if not written.startswith(QUOTE):
        return written
    return json_wire(loads(from_wire(written))[:length])


def _any(patterns: Sequence[str], name: str) -> bool:
    return any(_compiled("", pattern).fullmatch(name) for pattern in patterns)


@lru_cache(maxsize=1024)
def _compiled(setting: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidConnectSetting(setting, pattern, f"it is not a valid regular expression ({error})") from error
