"""Reading a pipeline file: Python that declares jobs. A mistake in it is one sentence with the file and the line."""

import importlib.util
import sys
import traceback
from collections.abc import Collection, Sequence
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import CodeType

from headrace.errors import HeadraceError
from headrace.extras import missing_extra
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.jobs.declare import Job
from headrace.pipelines.jobs.functions import Imports, find_imports, remember
from headrace.pipelines.spark.internals import active_context, allow_types_by_name, hush_python


class BadFile(PipelineError):
    """A pipeline file that cannot be read as one."""


def load(file: Path, only: Collection[str] = ()) -> list[Job]:
    """The jobs that a file declares, in its order; with `only`, these."""
    return load_files([file], only)


def load_files(files: Sequence[Path], only: Collection[str] = ()) -> list[Job]:
    """The jobs that files declare, to run in one session; with `only`, these."""
    stems = [file.stem for file in files]
    for file in files:
        if not file.is_file():
            raise BadFile(f"{file} is not a file: name the Python file that declares jobs or views")
        if stems.count(file.stem) > 1:  # a module is called so
            raise BadFile(f"two files are called {file.stem}: give one another name, or run it by itself")
    found = [job for file in files for job in _declared(file)]
    named = " and ".join(map(str, files))
    names = [job.name for job in found]
    for name in names:
        if names.count(name) > 1:
            raise BadFile(f"{named} declares two jobs named {name!r}: give one another name=…")
    for name in only:
        if name not in names:
            raise BadFile(f"{named} has no job {name!r}: it has {', '.join(names)}")
    return [job for job in found if not only or job.name in only]


def _declared(file: Path) -> list[Job]:
    found = _jobs(file)
    if not found:
        raise BadFile(f"{file} declares no job: put @job(…) over a function (from headrace.pipelines import job)")
    return found


class _AsWritten(SourceFileLoader):
    """Compiles the file whenever it is read: bytecode that was kept counts as its own if both are of one second."""

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - the protocol's
        return self.source_to_code(self.get_data(self.path), self.path)


def _jobs(file: Path) -> list[Job]:
    name = f"headrace_pipeline_{file.stem}"
    if file.suffix != ".py":
        raise BadFile(f"{file} is not a Python file: its name ends in .py")
    loader = _AsWritten(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    assert spec is not None, "there is one where a loader is given"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    imports = find_imports(file)
    if "pyspark" in imports.others and find_spec("pyspark"):
        allow_types_by_name()
        hush_python()
    folder = str(file.parent.absolute())
    sys.path.insert(0, folder)
    try:
        loader.exec_module(module)
    except HeadraceError:
        raise
    except SyntaxError as error:
        raise BadFile(f"{error.filename}:{error.lineno}: {error.msg}") from error
    except ModuleNotFoundError as error:
        if (missing := missing_extra(error)) is not None:
            raise BadFile(f"{_place(error, file)}: {missing}") from error
        raise BadFile(
            f"{_place(error, file)}: {type(error).__name__}: {error}: install it where headrace is, or mend the import"
        ) from error
    except Exception as error:
        if isinstance(error, ImportError) and "relative import" in str(error):
            raise BadFile(
                f"{_place(error, file)}: a pipeline file is not part of a package: write 'import pricing' where there "
                "is 'from . import pricing'"
            ) from error
        if _wants_spark(error):
            raise BadFile(
                f"{_place(error, file)}: this needs Spark, which starts after the file is read: write it inside the "
                'job\'s function, or as SQL text such as "cents > 100"'
            ) from error
        raise BadFile(f"{_place(error, file)}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(folder)
        # For what is imported later on; behind all else, so that a file beside it never stands in for a package.
        sys.path.append(folder)
    _check_helpers(file, imports)
    remember(name, file, imports)
    found = [value for value in vars(module).values() if isinstance(value, Job)]
    return sorted({id(job): job for job in found}.values(), key=lambda job: job.line)


def _check_helpers(file: Path, imports: Imports) -> None:
    """Two folders may each have a module of one name, but a process has only one of them."""
    for name, helper in imports.helpers.items():
        loaded = getattr(sys.modules.get(name), "__file__", None)  # a folder without __init__.py has none
        if loaded is not None and helper.resolve() not in (Path(loaded).resolve(), Path(loaded).resolve().parent):
            raise BadFile(
                f"{file} imports {name!r}, and {loaded} is loaded by that name: give one of the two another name, or "
                "run the files apart"
            )


def _wants_spark(error: BaseException) -> bool:
    """Whether PySpark was asked for something that takes a session, as `F.col("cents")` does, and there is none."""
    *_, last = traceback.extract_tb(error.__traceback__)
    if "pyspark" not in Path(last.filename).parts:
        return False
    from pyspark.errors import PySparkException

    if active_context() is not None:
        return False
    if isinstance(error, PySparkException):  # some of its functions raise this, the others assert it
        return error.getCondition() in ("SESSION_OR_CONTEXT_NOT_EXISTS", "NO_ACTIVE_OR_DEFAULT_SESSION")
    return isinstance(error, AssertionError)


def _place(error: BaseException, file: Path) -> str:
    """The last line of the user's own file on the way to the error."""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [frame for frame in frames if Path(frame.filename).absolute() == file.absolute()]
    return f"{file}:{mine[-1].lineno}" if mine else str(file)
