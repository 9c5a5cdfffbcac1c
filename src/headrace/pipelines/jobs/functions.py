"""Functions, classes and helper modules of a pipeline's folder, made to work where Spark runs them.

Spark pickles a function by the name of its module, which a worker imports; but a pipeline file is no module that a
worker could find, and neither is a file beside it, on this machine from another folder or on a cluster from any. So
both are pickled by value, with all that they refer to, and sent along besides: for what a function imports only when it
is called, for what can only be had by name, and for helpers with something in them that cannot be pickled (a lock, a
connection), which workers import.

Which modules are helpers is read from the files' import statements: what a statement names and the folder has.
"""

import ast
import copyreg
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache, update_wrapper
from importlib.machinery import PathFinder
from pathlib import Path
from pickle import PicklingError
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Imports:
    """What a pipeline file imports, and what its helpers do: helpers by name, and the names of all else."""

    helpers: dict[str, Path] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)


def find_imports(file: Path) -> Imports:
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

    copyreg.pickle(type(lru_cache(len)), _reduce_cached)
    for name in (_files.keys() | _helpers.keys()) & sys.modules.keys():
        cloudpickle.register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]
    for name in _helpers.keys() & sys.modules.keys():
        if _why_not_sendable(sys.modules[name]):
            cloudpickle.unregister_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]


def _reduce_cached(cached: Any) -> Any:
    """A function with a cache, which Python pickles by name alone: of a loaded file by value, as any other function.

    Otherwise a worker would have to import the whole pipeline file for it, where there is no session to declare a UDF.
    It may call itself, so it is made first and gets its function then.
    """
    if cached.__module__ not in _files.keys() | _helpers.keys():
        return cached.__qualname__
    return _make_cached, (cached.cache_parameters(),), cached.__wrapped__, None, None, _fill_cached


def _make_cached(parameters: dict[str, Any]) -> Any:
    held: list[Any] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        return held[0](*args, **kwargs)

    made: Any = lru_cache(**parameters)(call)
    made.held = held
    return made


def _fill_cached(made: Any, function: Any) -> None:
    made.held.append(function)
    update_wrapper(made, function)


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


def explain(error: BaseException) -> str | None:
    """Why a function could not be sent to the workers, and what to do; None if that is not what went wrong."""
    if not isinstance(error, PicklingError):
        return None
    mend = "make it inside the function, or in a module beside this file, which each worker imports for itself"
    for module in (sys.modules[name] for name in _files.keys() & sys.modules.keys()):
        values = {name: value for name, value in vars(module).items() if not name.startswith("__")}
        functions = {name: getattr(value, "func", value) for name, value in values.items()}  # a udf holds its function
        functions = {name: value for name, value in functions.items() if isinstance(value, FunctionType)}
        for name in (name for name in values if name not in functions):
            users = [user for user, function in functions.items() if name in _names_in(function.__code__)]
            if users and (reason := _why_not_sendable(values[name])) and reason in str(error):
                kind = type(values[name])
                return (
                    f"{name}, a {kind.__module__}.{kind.__qualname__}, which {' and '.join(users)} "
                    f"{'use' if len(users) > 1 else 'uses'}, cannot be sent to Spark's workers: {mend}"
                )
    what = str(error).removeprefix("Could not serialize object: ")
    return f"a function holds something that cannot be sent to Spark's workers ({what}): {mend}"


def _why_not_sendable(value: object) -> str | None:
    """Why something cannot be pickled; None if it can."""
    from pyspark import cloudpickle

    try:
        cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    except Exception as error:  # noqa: BLE001 - whatever an object of the user's raises
        return str(error) or type(error).__name__
    return None


def _names_in(code: CodeType) -> set[str]:
    """The global names that a function's code has, and that of functions inside it."""
    inner = [_names_in(each) for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*inner)
