"""What is imported by name: packages that are extras, with what is said when one is not installed, and users' modules.

A package of an extra is imported where it is used and not before. Whoever lacks one gets one sentence with the command
that installs it, wherever the import stands: `load` says it where we import on purpose, `look_for` where nothing is
imported yet, `missing_extra` for an import that failed on the way, which the command line asks once for all commands.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from headrace.errors import HeadraceError, nearest

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
    "websockets": "dashboard",
    "sqlglot": "cep",
    "regex": "percolation",
    "Stemmer": "percolation",
    "jwt": "oauth",
    "cryptography": "forgetting",
    "opentelemetry": "otel",
    "grpc": "grpc",
    "grpc_health": "grpc",
    "grpc_reflection": "grpc",
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


class InvalidName(HeadraceError):
    """A text that names nothing that can be imported."""


def import_here(module: str, what: str) -> Any:
    """A user's own module, which may be in the folder we are in; whatever is wrong with it is one sentence."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0] and error.name != module:
            raise InvalidName(f"{what}: {module} needs {error.name}, which is not installed") from error
        raise InvalidName(f"{what}: there is no module {module} here ({os.getcwd()})") from None
    except SystemExit:
        raise InvalidName(f"{what}: {module} ends the program (sys.exit) when it is imported: leave that out") from None
    except Exception as error:
        raise InvalidName(f"{what}: {module} fails with {type(error).__name__}: {error}") from error


def import_named(target: str, what: str, is_one: Callable[[Any], bool]) -> Any:
    """What MODULE:NAME names, if it `is_one`; its module is imported."""
    module, colon, name = target.partition(":")
    if not colon or not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise InvalidName(f"{what} {target!r} is not the name of one: write MODULE:NAME")
    found = import_here(module, f"{what} {target!r}")
    known = {each for each, value in vars(found).items() if not each.startswith("_") and is_one(value)}
    if name not in known:
        hint = nearest(name, known) if known else "it has none at all"
        raise InvalidName(f"{what} {target!r}: {module} has no {what} {name!r}: {hint}")
    return getattr(found, name)


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
