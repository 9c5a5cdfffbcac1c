"""What the information schema says of tables: their shapes as they are now."""

# ruff: noqa: S608 - these statements are our own text, and a name in one is escaped

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.connect.filters import Filters, check_key_columns, unknown_table
from headrace.connect.mysql.connection import Connection, ask
from headrace.connect.mysql.ddl import Name
from headrace.connect.mysql.shape import Shape, ShapeColumn

SYSTEM = ("mysql", "information_schema", "performance_schema", "sys")
_NOT_SYSTEM = "table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')"
# In each, {which} says of which tables.
_TABLES = (
    "SELECT table_schema, table_name, engine, c.character_set_name FROM information_schema.tables "
    "LEFT JOIN information_schema.collations c ON c.collation_name = table_collation "
    "WHERE table_type = 'BASE TABLE' AND {which} ORDER BY 1, 2"
)
_COLUMNS = (
    "SELECT table_schema, table_name, column_name, column_type, character_set_name, is_nullable "
    "FROM information_schema.columns WHERE {which} ORDER BY table_schema, table_name, ordinal_position"
)
_KEYS = (
    "SELECT table_schema, table_name, index_name, column_name, nullable, sub_part FROM information_schema.statistics "
    "WHERE non_unique = 0 AND {which} "
    "ORDER BY table_schema, table_name, index_name <> 'PRIMARY', index_name, seq_in_index"
)
_JSON_CHECKS = (
    "SELECT constraint_schema, table_name, check_clause FROM information_schema.check_constraints "
    "WHERE check_clause LIKE 'json_valid(%'"
)


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table as it is now."""

    shape: Shape
    engine: str


def read_tables(connection: Connection, *, is_mariadb: bool, only: Name | None = None) -> dict[Name, CatalogTable]:
    """Every table that is no system's, or one alone."""
    which = _NOT_SYSTEM
    checks = _JSON_CHECKS
    if only is not None:
        database, name = map(literal, only)
        which = f"table_schema = {database} AND table_name = {name}"
        checks += f" AND constraint_schema = {database} AND table_name = {name}"
    columns: dict[Name, list[ShapeColumn]] = {}
    json_columns = set()
    if is_mariadb:  # there JSON is a text with a check
        for schema, table, clause in ask(connection, checks):
            json_columns.add((schema, table, clause.removeprefix("json_valid(").rstrip(")").strip("`")))
    for schema, table, name, kind, charset, nullable in ask(connection, _COLUMNS.format(which=which)):
        is_json = (schema, table, name) in json_columns
        kept = "utf8mb4" if kind == "json" else charset
        columns.setdefault((schema, table), []).append(ShapeColumn(name, kind, kept, nullable == "YES", is_json))
    indexes: dict[Name, dict[str, list[tuple[str, bool]]]] = {}
    for schema, table, index, name, nullable, part in ask(connection, _KEYS.format(which=which)):
        usable = nullable != "YES" and part is None and name is not None
        indexes.setdefault((schema, table), {}).setdefault(index, []).append((name, usable))
    found = {}
    for schema, table, engine, charset in ask(connection, _TABLES.format(which=which)):
        key: tuple[str, ...] = ()
        for parts in indexes.get((schema, table), {}).values():
            if all(usable for _, usable in parts):
                key = tuple(name for name, _ in parts)
                break
        shape = Shape(schema, table, tuple(columns.get((schema, table), ())), key, charset or "utf8mb4")
        found[schema, table] = CatalogTable(shape, engine or "")
    return found


def database_charset(connection: Connection) -> Callable[[str], str]:
    """A function that says which character set a database gives new tables."""

    def charset_of(database: str) -> str:
        rows = ask(
            connection,
            "SELECT default_character_set_name FROM information_schema.schemata "
            f"WHERE schema_name = {literal(database)}",
        )
        return str(rows[0][0]) if rows else "utf8mb4"

    return charset_of


class Selection:
    """Which tables are captured: by the filters, and by the database in the URL if there are no others.

    The one that is `hidden` holds what is ours alone.
    """

    def __init__(self, filters: Filters, database: str, hidden: Name | None = None) -> None:
        self._filters = filters
        self._database = database
        self._hidden = hidden
        self._known: dict[Name, bool] = {}

    def __call__(self, name: Name) -> bool:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._decide(name)
        return known

    def _decide(self, name: Name) -> bool:
        if name[0] in SYSTEM or name == self._hidden:
            return False
        if self._database and not self._filters.include_tables and name[0] != self._database:
            return False
        return self._filters.captures(f"{name[0]}.{name[1]}")

    def as_json(self) -> dict[str, Any]:
        """As it is stored with a position: which tables were captured up to there."""
        filters = self._filters
        return {
            "database": self._database,
            "tables": list(filters.include_tables),
            "exclude_tables": list(filters.exclude_tables),
        }

    def at(self, stored: Mapping[str, Any] | None) -> "Selection":
        """What was captured at a stored position; the same as now, if an older version stored it and did not say."""
        if stored is None:
            return self
        filters = Filters(include_tables=stored["tables"], exclude_tables=stored["exclude_tables"])
        return Selection(filters, stored["database"], self._hidden)

    def check(self, every: dict[Name, CatalogTable]) -> list[CatalogTable]:
        """The captured tables; a mistake in the settings is refused."""
        for pattern in self._filters.include_tables:
            one = Filters(include_tables=[pattern])
            if not any(one.captures(f"{schema}.{table}") for schema, table in every):
                raise unknown_table(pattern, [f"{schema}.{table}" for schema, table in every])
        found = [table for name, table in every.items() if self(name)]
        check_key_columns(
            self._filters.key_columns,
            {
                table.shape.full_name: {column.name: column.optional for column in table.shape.columns}
                for table in found
            },
        )
        return [replace(table, shape=self.ordered(table.shape)) for table in found]

    def ordered(self, shape: Shape) -> Shape:
        """A shape with the key in whose order its rows are read: its own, or what was chosen as one."""
        return shape if shape.key else replace(shape, key=self._chosen(shape))

    def _chosen(self, shape: Shape) -> tuple[str, ...]:
        return self._filters.key_of(shape.full_name)

    def is_keyed(self, shape: Shape) -> bool:
        """Whether records of a table have a key: its own, or one that was chosen."""
        return bool(shape.key or self._chosen(shape))


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
