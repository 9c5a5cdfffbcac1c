"""What a source lets a user choose: tables, columns and how they are hidden, keys, policies.

Patterns are regular expressions on the whole name, as in Debezium: `schema.table` for tables, `schema.table.column` for
columns. A list of what to include and one of what to exclude are alternatives.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from json import loads
from typing import Any, Final

from headrace.connect.errors import InvalidConnectSetting, SourceRefused
from headrace.connect.personal import PersonalColumns, Seal, sealed_columns
from headrace.connect.table import CALLED, UNCHANGED, Codec, Column, Raw, Row, Table, from_wire, json_wire
from headrace.connect.unseen import POLICIES as UNSEEN_POLICIES

Columns = Mapping[str, bool]  # by name: whether it may be null


def check_choice(chosen: Mapping[str, Sequence[str]]) -> None:
    """Refuse what can be told without the database: no columns, one of them twice, a text for a list."""
    for table, columns in chosen.items():
        wanted = f'write key_columns = {{ "{table}" = ["…"] }}'
        if not isinstance(columns, list | tuple) or not columns or not all(isinstance(one, str) for one in columns):
            raise InvalidConnectSetting(f"key_columns of {table}", columns, f"it is a list of columns: {wanted}")
        if len(set(columns)) < len(columns):
            raise InvalidConnectSetting(f"key_columns of {table}", columns, "it names a column twice")


def check_key_columns(chosen: Mapping[str, Sequence[str]], tables: Mapping[str, Columns]) -> None:
    """Refuse a table that is not captured, and columns that are not there or may be null."""
    for table, columns in chosen.items():
        if table not in tables:
            raise SourceRefused(
                f"key_columns names table {table}, which is not captured (captured are: {_listed(tables)})",
                "correct the name, as schema.table",
            )
        known = tables[table]
        for column in columns:
            if column not in known:
                raise SourceRefused(
                    f"key_columns names column {column} of {table}, which has only {', '.join(known)}",
                    "correct the name",
                )
            if known[column]:
                raise SourceRefused(
                    f"key_columns names column {column} of {table}, which may be null, and a record with no key "
                    "cannot be found again",
                    f"make {column} NOT NULL, or choose others",
                )


def unknown_table(pattern: str, names: Sequence[str], where: str = "") -> SourceRefused:
    """A table that is not there, with those that are."""
    plain = pattern.replace("\\.", ".")
    if not names:
        return SourceRefused(
            f"there is no table {plain}, nor any other in {where or 'this database'}", f"CREATE TABLE {plain} (…)"
        )
    close = [name for name in names if plain.rpartition(".")[2] in name.rpartition(".")[2]] or names
    there = _listed(close)
    return SourceRefused(
        f"there is no table {plain}{f' in {where}' if where else ''} (there are {there})",
        f"CREATE TABLE {plain} (…), or correct the name",
    )


def check_captured(wanted: Iterable[str], captured: Collection[str], form: str) -> None:
    """Refuse tables that are not captured; `form` is how a name is written."""
    for name in wanted:
        if name not in captured:
            raise SourceRefused(
                f"table {name} is not captured (captured are: {_listed(captured)})", f"correct the name, as {form}"
            )


def _listed(names: Collection[str]) -> str:
    return ", ".join(list(names)[:5]) + (" …" if len(names) > 5 else "") or "none"


def keyed(table: Table, columns: Iterable[str]) -> Table:
    """A table whose records are keyed by these columns; as it is if none are named."""
    wanted = list(columns)
    if not wanted:
        return table
    places = {column.name: index for index, column in enumerate(table.columns)}
    for column in wanted:
        if column not in places:
            raise SourceRefused(
                f"column {column} of {table.full_name}, which key_columns names, is not there any more",
                "correct key_columns and start again",
            )
    return replace(table, key=tuple(places[column] for column in wanted))


def refuse_nulls(table: Table) -> Callable[[Row], None]:
    """A function that refuses a row whose key is not known; what was checked at the start may have changed since."""

    def check(row: Row) -> None:
        for place in table.key:
            if row[place] is None or row[place] is UNCHANGED:
                raise SourceRefused(
                    f"a row of {table.full_name} has no value in {table.columns[place].name}, which key_columns names",
                    "make the column NOT NULL, or choose others",
                )

    return check


SNAPSHOT_MODES: Final = ("initial", "initial-only", "never", "when-needed")
_TYPE_MODES: Final = {
    "decimal": ("string", "precise", "double"),
    "time": ("adaptive", "isostring"),
    "binary": ("base64", "hex"),
    "interval": ("string", "numeric"),
}
SCHEMA_POLICIES: Final = ("evolve", "block", "skip")


def check_choices(settings: Any, *, counts: tuple[str, ...] = (), seconds: tuple[str, ...] = ()) -> None:
    """Refuse a snapshot mode or policy that does not exist, a count below 1, a time that is not above 0."""
    policies = {
        "snapshot": SNAPSHOT_MODES,
        "schema_changes": SCHEMA_POLICIES,
        "unseen_changes": UNSEEN_POLICIES,
    }
    for name, allowed in policies.items():
        if getattr(settings, name) not in allowed:
            raise InvalidConnectSetting(name, getattr(settings, name), f"choose among {', '.join(allowed)}")
    for name in counts:
        if getattr(settings, name) < 1:
            raise InvalidConnectSetting(name, getattr(settings, name), "use 1 or more")
    for name in seconds:
        if getattr(settings, name) <= 0:
            raise InvalidConnectSetting(name, getattr(settings, name), "use more than 0 seconds")


def check_capture_name(name: str) -> None:
    """Refuse what cannot be the beginning of the names that a capture gives in a database."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name):
        wanted = "use up to 41 lower-case letters, digits and underscores, a letter first"
        raise InvalidConnectSetting("capture", name, wanted)


@dataclass(frozen=True, slots=True)
class TypeModes:
    """How types are written for which there is more than one way."""

    decimal: str = "string"
    time: str = "adaptive"
    binary: str = "base64"

    def __post_init__(self) -> None:
        for chosen in fields(self):
            value, allowed = getattr(self, chosen.name), _TYPE_MODES[chosen.name]
            if value not in allowed:
                raise InvalidConnectSetting(f"types.{chosen.name}", value, f"choose {' or '.join(allowed)}")


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
    personal: Mapping[str, PersonalColumns] = field(default_factory=dict)  # by a table's full name: what is sealed
    seal: Seal | None = field(default=None, compare=False, repr=False)  # with what, once there are keys

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
        if self.include_tables:
            return _any(self.include_tables, full_name)
        return not _any(self.exclude_tables, full_name)

    def key_of(self, full_name: str) -> tuple[str, ...]:
        """The columns that were chosen as a table's key; none if the database's own key is meant."""
        return tuple(self.key_columns.get(full_name, ()))

    def shows(self, table: str, column: str) -> bool:
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
        sealed = sealed_columns(table, self.personal.get(table.full_name), self.seal)
        return tuple(
            (index, sealed[index] if index in sealed else self.disguised(table.full_name, column))
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
