"""The process that Spark's Python workers are forked from, with what they need already loaded.

Spark starts such a process for the workers of tasks and forks a worker whenever one is wanted. Spark's own daemon loads
nothing, so that every worker imports pyarrow, pandas and the rest anew; a worker forked from here finds them in memory,
shared with all others. For each planning step of a Python data source Spark starts its own daemon, whatever is set;
where processes are forked (`forkserver`) this one takes its place.

What always holds: no thread of this process that a worker would miss. OpenBLAS would start some when numpy is loaded,
so it is kept from it (workers are one a core and gain nothing from them); the one that jemalloc starts within pyarrow
is taken care of by jemalloc itself when a process forks. Standard output belongs to Spark, which reads a port from it:
what an import prints goes to standard error.
"""

import contextlib
import gc
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

PRELOADED: Final = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.json",
    "pandas",
    "numba",
    "pyspark.worker",
    "pyspark.sql.datasource",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    "headrace.pipelines.source.datasource",
    "headrace.pipelines.source.stream",
    "headrace.pipelines.sink.topic.writers",
    "headrace.pipelines.keyed.processor",
)

_TASKS: Final = "pyspark.worker"
_SPARK_IS_GONE: Final = (BrokenPipeError, EOFError, SystemExit)  # and the worker that notices ends itself


def preload(modules: Iterable[str] = PRELOADED) -> list[str]:
    """Import what is there of these; the names of those that are not, which a worker will ask for itself if it must."""
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    absent = []
    with contextlib.redirect_stdout(sys.stderr):
        for name in modules:
            try:
                importlib.import_module(name)
            except ImportError:
                absent.append(name)
    os.register_at_fork(after_in_child=_seed_anew)
    return absent


def _seed_anew() -> None:
    """NumPy's chance as Python does it with its own: all workers would draw the same numbers from the one loaded."""
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()


def warm_loops() -> None:
    """Have the compiled loops in memory before workers are forked; only tasks read and write records."""
    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(ImportError):
        from headrace.pipelines.columns.warm import warm

        warm()


def quiet(worker: Callable[[Any, bool], int]) -> Callable[[Any, bool], int]:
    """A worker that ends without a word when Spark is gone: nobody is left to hear it."""

    def run(socket: Any, authenticated: bool) -> int:
        try:
            return worker(socket, authenticated)
        except BrokenPipeError:
            return 1  # not 0: that would be a worker to be used again

    return run


def quiet_planning() -> None:
    """In a worker that Spark's own daemon forked: end it without a word when Spark is gone.

    Spark starts its own daemon for the steps of planning, whatever is set, and does not always wait for a worker's last
    word. The daemon then prints a traceback where nothing failed. A worker gets here once it has loaded our source.
    """
    main: Any = sys.modules["__main__"]
    if getattr(main.__spec__, "name", None) == "pyspark.daemon":
        main.traceback = _QuietTraceback


class _QuietTraceback:
    """What Spark's daemon uses of `traceback`."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        if not all(isinstance(error, _SPARK_IS_GONE) for error in _chain(sys.exception())):
            traceback.print_exc()


def end_with_spark() -> None:
    """In the process that Spark runs a streaming source in: end it without a word when Spark is gone.

    Spark ends a query by closing the socket to this process, and the process would then fail to report that over the
    same socket, with a traceback on the user's terminal.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    is_runner = spec is not None and spec.name == "pyspark.sql.streaming.python_streaming_source_runner"
    if is_runner and sys.exc_info()[0] is EOFError:
        os._exit(0)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error:
        yield error
        error = error.__context__


def shelf() -> contextlib.AbstractContextManager[None]:
    """A folder that tasks share runs of keyed state in, if what that needs is there."""
    try:
        from headrace.pipelines.keyed.shelf import shared_shelf
    except ImportError:
        return contextlib.nullcontext()
    return shared_shelf()


def main() -> None:
    from pyspark import daemon

    # The module that the workers will run, as Spark's daemon is given it.
    kind = sys.argv[1] if len(sys.argv) > 1 else ""
    preload((*PRELOADED, *([kind] if kind.startswith("pyspark") else [])))
    if kind == _TASKS:
        from headrace.pipelines.spark.internals import allow_types_by_name

        warm_loops()
        allow_types_by_name()  # in helper modules that a worker imports
    # What is loaded stays: a collection in a worker must not touch, and so copy, every page of it.
    gc.collect()
    gc.freeze()
    if kind == _TASKS:
        daemon.worker = quiet(daemon.worker)  # type: ignore[assignment]  # the same but for the arguments' names
    else:
        vars(daemon)["traceback"] = _QuietTraceback
    with shelf() if kind == _TASKS else contextlib.nullcontext():
        daemon.manager()


if __name__ == "__main__":
    main()
