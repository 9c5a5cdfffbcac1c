"""Packages that are extras: which extra brings which, and what is said when one is not installed.

A package of an extra is imported where it is used and not before. Whoever lacks one gets one sentence with the command
that installs it, wherever the import stands: `load` says it where we import on purpose, `look_for` where nothing is
imported yet, `missing_extra` for an import that failed on the way, which the command line asks once for all commands.
"""

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from headrace.errors import HeadraceError

# By the name that is imported. A test compares it with pyproject.toml.
EXTRA_OF: Mapping[str, str] = {
    "pyspark": "spark",
    "py4j": "spark",
    "numba": "spark",
    "numpy": "spark",
    "pandas": "spark",
    "prometheus_client": "spark",
    "pyarrow": "spark",
    "google.protobuf": "spark",
    "fastavro": "avro",
    "psycopg": "postgres",
    "pymysql": "mysql",
    "redis": "redis",
    "tantivy": "search",
    "deltalake": "warehouse",
    "duckdb": "warehouse",
    "zmq": "gateways",
    "pynng": "gateways",
    "starlette": "dashboard",
    "uvicorn": "dashboard",
    "jinja2": "dashboard",
    "jwt": "oauth",
    "opentelemetry": "otel",
}


class MissingExtra(HeadraceError):
    """A package of an extra is not installed."""

    def __init__(self, package: str, extra: str, what: str = "this") -> None:
        super().__init__(f"{what} needs the package {package}, which is not installed: pip install 'headrace[{extra}]'")
        self.package = package
        self.extra = extra


def load(module: str, what: str = "this") -> Any:
    """The module of an extra, or one sentence that says how to install it, and what for."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (missing := missing_extra(error, what)) is None:
            raise
        raise missing from error


def missing_extra(error: BaseException, what: str = "this") -> MissingExtra | None:
    """The failed import of a package of an extra as one sentence; None for any other error."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    for package, extra in EXTRA_OF.items():
        if error.name == package or package.startswith(f"{error.name}.") or error.name.startswith(f"{package}."):
            return MissingExtra(package, extra, what)
    return None


def look_for(package: str, what: str) -> MissingExtra | None:
    """Whether a package of an extra is missing, without importing it."""
    return None if importlib.util.find_spec(package) else MissingExtra(package, EXTRA_OF[package], what)


def export_lazily(module: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names are loaded when first asked for.

    Most imports of a package want one part of it, and no part of another extra; an editor wants to know all names.
    """

    def getattribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home = importlib.import_module(homes[name])
        # What is given out may be the module itself.
        return home if homes[name].endswith(f".{name}") and not hasattr(home, name) else getattr(home, name)

    return getattribute, lambda: sorted(homes)
