"""A driver is imported in its store's folder alone, and by the captures, which read a database as a source."""

import ast
from pathlib import Path

import headrace

ROOT = Path(headrace.__file__).parent
HOMES = {
    "psycopg": ("stores/postgres/", "connect/postgres/", "connect/triggers/", "testing/"),
    "pymysql": ("stores/mariadb/", "connect/mysql/"),
    "duckdb": ("stores/duckdb/",),
    # A scratch file of a comparison is nobody's store, nor is an index that is made from a log.
    "sqlite3": (
        "stores/sqlite/",
        "connect/sqlite/",
        "connect/sync/source_rows.py",
        "connect/capture/verification.py",
        "eventsourcing/stream_list.py",
        "eventsourcing/verification.py",
        "storage/event_index.py",
    ),
    "redis": ("stores/redis/",),
    "deltalake": ("stores/delta/",),
    "tantivy": ("stores/tantivy/",),
}


def modules_of(tree: ast.AST) -> set[str]:
    """What a file imports, by a statement or by `extras.load`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("load") and node.args:
            given = node.args[0]
            names |= {given.value} if isinstance(given, ast.Constant) and isinstance(given.value, str) else set()
    return {name.partition(".")[0] for name in names}


def test_drivers_stay_at_home() -> None:
    strays = []
    seen: set[str] = set()
    for file in ROOT.rglob("*.py"):
        where = str(file.relative_to(ROOT))
        for driver in modules_of(ast.parse(file.read_text())) & HOMES.keys():
            seen.add(driver)
            if not where.startswith(HOMES[driver]):
                strays.append(f"{where} imports {driver}")
    assert strays == []
    assert seen == HOMES.keys()
