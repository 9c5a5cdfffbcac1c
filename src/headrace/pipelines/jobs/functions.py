"""Functions, classes and helper modules of a pipeline's folder, made to work where Spark runs them.

Spark pickles a function by the name of its module, which a worker imports; but a pipeline file is no module that a
worker could find, and neither is a file beside it, on this machine from another folder or on a cluster from any. So
both are pickled by value, with all that they refer to, and sent along besides: for what a function imports only when it
is called, for what can only be had by name (a function with a cache), and for helpers with something in them that
cannot be pickled (a lock, a connection), which workers import.

Which modules are helpers is read from the files' import statements: what a statement names and the folder has.
"""

import ast
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Imports:
    """What a pipeline file imports, and what its helpers do: helpers by name, and the names of all else."""

    helpers: dict[str, Path] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)


def imports_of(file: Path) -> Imports:
    """The imports of a file and of all helper modules that it leads to; what is no Python has none."""
    folder = file.absolute().parent
    found = Imports()
    unread = [file]
    while unread:
        for name in _imported(unread.pop()):
            if name in found.helpers or name in found.others:
                continue
            if (helper := _beside(folder, name)) is None:
                found.others.add(name)
            else:
                found.helpers[name] = helper
                unread += [helper] if helper.is_file() else sorted(helper.rglob("*.py"))
    return found


def _imported(file: Path) -> Iterator[str]:
    """The top-level names of a file's import statements, wherever they stand in it."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return  # whoever imports it says why
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _beside(folder: Path, name: str) -> Path | None:
    if name in sys.stdlib_module_names:
        return None
    file, package = folder / f"{name}.py", folder / name
    if (package / "__init__.py").is_file():
        return package
    if file.is_file():
        return file
    # Python imports a folder without that file as well, where there is nothing else of the name.
    return package if next(package.glob("*.py"), None) and not _is_installed(folder, name) else None


def _is_installed(folder: Path, name: str) -> bool:
    """Whether a module is found elsewhere than in a pipeline's folder."""
    elsewhere = [path for path in sys.path if Path(path).absolute() != folder]
    found = PathFinder.find_spec(name, elsewhere)
    return found is not None and found.origin is not None


# --- what was loaded, and is to be sent

_files: dict[str, Path] = {}  # by the name of their module
_helpers: dict[str, Path] = {}
_sent: set[tuple[str, str]] = set()


def remember(module: str, file: Path, imports: Imports) -> None:
    """A pipeline file that was loaded, for every session from now on."""
    _files[module] = file.absolute()
    _helpers.update(imports.helpers)


def pickle_by_value() -> None:
    """Let functions and classes of loaded files carry all that they are made of."""
    from pyspark import cloudpickle

    for name in (_files.keys() | _helpers.keys()) & sys.modules.keys():
        cloudpickle.register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]
    for name in _helpers.keys() & sys.modules.keys():
        try:
            cloudpickle.dumps(sys.modules[name])  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001 - whatever an object of the user's raises
            cloudpickle.unregister_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]


def send(spark: "SparkSession") -> None:
    """Let functions of loaded files work on the workers of a session."""
    pickle_by_value()
    context = spark.sparkContext
    for name, path in {**_helpers, **_files}.items():
        if (context.applicationId, name) not in _sent:
            _sent.add((context.applicationId, name))
            context.addPyFile(str(path if path.name == f"{name}.py" else _zipped(name, path)))


def _zipped(name: str, path: Path) -> Path:
    """A package, or a file whose module has another name, as Spark sends it; it goes with Spark's own files."""
    from pyspark import SparkFiles

    archive = Path(SparkFiles.getRootDirectory()) / "helpers" / f"{name}.zip"
    archive.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(archive, "w") as made:
        if path.is_file():
            made.write(path, f"{name}.py")
            return archive
        for each in [path, *sorted(path.rglob("*"))]:  # folders too: without an __init__.py they are found by that
            if "__pycache__" not in each.parts:
                made.write(each, each.relative_to(path.parent))
    return archive


# --- Spark's functions before there is a session


def allow_types_by_name() -> None:
    """Let `@F.udf("long")` stand in a file that is loaded before Spark starts.

    Spark asks the JVM for the type as soon as the function is declared, only to show it; asked again when the function
    is used, it gets it. Without a JVM the name stands there meanwhile.
    """
    from pyspark import SparkContext
    from pyspark.sql.udf import UserDefinedFunction

    asked: Any = vars(UserDefinedFunction)["returnType"].fget
    if asked.__module__ == __name__:
        return

    def return_type(function: Any) -> Any:
        started = SparkContext._active_spark_context is not None  # noqa: SLF001 - there is no public way to ask
        return asked(function) if started else function._returnType  # noqa: SLF001

    UserDefinedFunction.returnType = property(return_type)  # type: ignore[assignment,method-assign]
