"""`session`: the one place where a Spark session is made, on this machine or on a cluster.

On this machine it is set for short micro-batches and a short start; on a cluster only for what holds everywhere: the
rest is the cluster's business. What is set stands in `settings`, and `conf` overrides any of it.

A start takes long enough to look like a hang, so its steps are reported; whoever shows them decides how. For a session
that a script starts itself they are shown here: a spinner in a terminal, one line a step elsewhere, and nothing in a
notebook, whose cells are for results, or with `HEADRACE_PROGRESS=0`.
"""

import hashlib
import os
import pkgutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console, ConsoleRenderable, RichCast
from rich.spinner import Spinner
from rich.status import Status

from headrace import extras
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.spark.forkserver import ForkServer, start_server
from headrace.pipelines.spark.internals import (
    active_context,
    fill_source_environment,
    find_gateway,
    hush_python,
    initializing_meanwhile,
    leave_out_checksum_files,
    set_permissions_in_process,
    start_context,
)
from headrace.pipelines.spark.java import cache_folder, find_java
from headrace.pipelines.spark.launch import is_plain, start_gateway
from headrace.pipelines.spark.settings import (
    FILE_WRITER,
    JAVA_OPTIONS,
    LOCAL_CHECKPOINTS,
    is_local,
    log_settings_file,
    merge_settings,
    settings_for,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipelines.spark.java import Java

Report = Callable[[str], None]
SWITCH: Final = "HEADRACE_PROGRESS"

OPTIONS_VARIABLE = "HEADRACE_JAVA_OPTIONS"
"""Further options for the JVM of a session on this machine; `conf` goes before them."""


def session(
    name: str,
    *,
    master: str = "local[*]",
    conf: Mapping[str, object] = MappingProxyType({}),
    state_dir: str | Path | None = None,
    jvm_kafka: bool = False,
    report: Report | None = None,
) -> "SparkSession":
    """A Spark session called `name`, with `format("headrace")` in it.

    `state_dir` is where checkpoints go when a query names no place of its own, and Spark's scratch files; `jvm_kafka`
    adds Spark's own `format("kafka")`, whose jars are fetched at first use. Asked again for the same, it answers with
    the session that runs; while one runs that is different, it refuses.

    A start takes some seconds, on a machine's first time more: its steps go to `report`, and without one they are shown
    on standard error (never in a notebook, and not with HEADRACE_PROGRESS=0).
    """
    with nullcontext(report) if report else show_steps() as report_step:
        return _session(name, master, conf, state_dir, jvm_kafka, report_step)


def _session(
    name: str,
    master: str,
    conf: Mapping[str, object],
    state_dir: str | Path | None,
    jvm_kafka: bool,
    report: Report,
) -> "SparkSession":
    local = is_local(master)
    extras.load("pyspark", "a pipeline")
    java = find_java()
    folder = None if state_dir is None else _made(Path(state_dir))
    defaults = settings_for(
        master, cores=_cores(), python=sys.executable, log_file=log_settings_file(), state_dir=folder
    )
    if local and (options := os.environ.get(OPTIONS_VARIABLE)):
        defaults[JAVA_OPTIONS] += f" {options}"
    chosen = merge_settings(defaults, {"spark.app.name": name, "spark.master": master, **conf})
    if jvm_kafka:
        _add_kafka(chosen, report)
    if running := _running(chosen, name):
        return running
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with _forking() if local else nullcontext():
        if local and is_plain(os.environ, _home()):
            context = _start(java, chosen, report)
        else:
            report(f"starting Spark on {master}")
            context = _start_by_script(chosen)
    from pyspark.sql import SparkSession

    hush_python()
    spark = SparkSession.builder.config(conf=context.getConf()).getOrCreate()
    _chosen[spark.sparkContext.applicationId] = chosen
    has_our_files = (
        local
        and chosen.get(FILE_WRITER) == LOCAL_CHECKPOINTS[FILE_WRITER]
        and "spark.hadoop.fs.file.impl" not in chosen
    )
    if has_our_files:
        leave_out_checksum_files(spark)
    _register_sources(spark)
    _settle_meanwhile(spark, has_our_files=has_our_files)
    return spark


# What each session of this process was asked for, to know it again.
_chosen: dict[str, dict[str, str]] = {}
_jars_of_jvm: list[str] = []


_servers: list[ForkServer] = []


@contextmanager
def _forking() -> Iterator[None]:
    """Have the JVM and the context that start meanwhile take their Python processes from our server.

    Where the user named another Python, that one is taken.
    """
    if os.environ["PYSPARK_PYTHON"] != sys.executable or "PYSPARK_DRIVER_PYTHON" in os.environ:
        yield
        return
    are_compiled = _compile_meanwhile()
    if not _servers or not _servers[0].is_running:
        _servers[:] = filter(None, [start_server(loops=are_compiled)])
    if _servers:
        os.environ["PYSPARK_PYTHON"] = str(_servers[0].python)
    try:
        yield
    finally:
        os.environ["PYSPARK_PYTHON"] = sys.executable


def _compile_meanwhile() -> bool:
    """The first start on a machine compiles the loops that read records; done while the JVM starts, nobody waits.

    Later ones find them on disk. A file notes that they are there, and whether it is says this: to look otherwise is to
    load Numba, for seconds.
    """
    from headrace.pipelines import columns
    from headrace.pipelines.spark.daemon import warm_loops

    sources = sorted(Path(columns.__path__[0]).glob("*.py"))
    facts = [sys.version, *(f"{source} {source.stat().st_mtime_ns}" for source in sources)]
    note = cache_folder() / f"loops-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"
    if note.exists():
        return True

    def compile_loops() -> None:
        warm_loops()
        note.parent.mkdir(parents=True, exist_ok=True)
        note.touch()

    threading.Thread(target=compile_loops, name="headrace-warm", daemon=True).start()
    return False


def _home() -> Path:
    import pyspark

    return Path(pyspark.__path__[0])


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _made(folder: Path) -> Path:
    folder = folder.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PipelineError(
            f"state_dir {folder} cannot be made ({error.strerror}): name a folder you may write"
        ) from None
    return folder


def _add_kafka(chosen: dict[str, str], report: Report) -> None:
    from headrace.pipelines.spark.java import fetch_jars, jars_here

    if jars_here() is None:
        report("fetching the jars of Spark's Kafka connector")
    files = [str(file) for file in fetch_jars(ivy_settings=chosen.get("spark.jars.ivySettings"))]
    chosen["spark.jars"] = ",".join([*filter(None, [chosen.get("spark.jars")]), *files])


def _running(chosen: Mapping[str, str], name: str) -> "SparkSession | None":
    from pyspark.sql import SparkSession

    context = active_context()
    if context is None:
        return None
    if _chosen.get(context.applicationId) == chosen:
        return SparkSession.builder.getOrCreate()
    raise PipelineError(
        f"a Spark session {context.appName!r} with other settings runs in this process, so {name!r} cannot start: "
        "stop that one with spark.stop(), or use it"
    )


def _start(java: "Java", chosen: Mapping[str, str], report: Report) -> Any:
    gateway = find_gateway()
    jars = [jar for jar in chosen.get("spark.jars", "").split(",") if jar]
    if gateway is None:
        report(f"starting the JVM (Java {java.version})")
        gateway = start_gateway(java, chosen)
        _jars_of_jvm[:] = jars
    elif missing := sorted(set(jars) - set(_jars_of_jvm)):
        raise PipelineError(
            f"the JVM of this process was started without {Path(missing[0]).name}, and cannot load it now: ask for it "
            "(jvm_kafka=True, or spark.jars) in the first session of the process"
        )
    report(f"starting Spark on {chosen['spark.master']}")
    with initializing_meanwhile(gateway):
        return start_context(chosen, gateway)


def _start_by_script(chosen: Mapping[str, str]) -> Any:
    from pyspark import SparkConf, SparkContext

    return SparkContext(conf=SparkConf().setAll(list(chosen.items())))


_settling = threading.Lock()


def settle_sources(spark: "SparkSession") -> None:
    """Let queries start at the same time.

    Spark has one map for the environment of all readers of a format, and each query that starts puts its entries there
    from a thread of its own, unguarded. Two at once break the map for good: every batch of every query then fails with
    "Task not serializable". Where the entries are there already, a query only sets their values, which is harmless.
    """
    with _settling:
        fill_source_environment(spark)


def _settle_meanwhile(spark: "SparkSession", *, has_our_files: bool) -> None:
    """For whoever starts queries without us; to look for the format takes a second, and is needed anyway.

    And what files are written by, which nothing waits for: until then they are written as Hadoop does.
    """

    def settle() -> None:
        with suppress(Exception):  # the session may be stopped by now
            settle_sources(spark)
            if has_our_files:
                set_permissions_in_process(spark)

    threading.Thread(target=settle, name="headrace-settle", daemon=True).start()


def _register_sources(spark: "SparkSession") -> None:
    """Make `format("headrace")` known where Spark does not find it by itself.

    Spark looks for modules called `pyspark_…` when a format is asked for that it does not know. To register one that it
    finds anyway would start two Python processes at the session's start, and draw a warning.
    """
    if any(module.name == "pyspark_headrace" for module in pkgutil.iter_modules()):
        return
    from headrace.pipelines.source.datasource import HeadraceDataSource

    spark.dataSource.register(HeadraceDataSource)


# --- the steps of a start


class StepLine:
    """A step in a terminal: a spinner, the words, and for how long it has been at it."""

    def __init__(self, step: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.step = step
        self._clock = clock
        self._since_s = clock()
        self._spinner = Spinner("dots")

    def __rich__(self) -> ConsoleRenderable | RichCast | str:
        self._spinner.update(text=f"{self.step} ({self._clock() - self._since_s:.0f} s)")
        return self._spinner


@contextmanager
def show_steps() -> Iterator[Report]:
    """Show the steps of a session on standard error, as fits what that is."""
    if os.environ.get(SWITCH) == "0" or "ipykernel" in sys.modules:
        yield lambda step: None  # noqa: ARG005 - nobody wants it
    elif sys.stderr.isatty():
        with Status("", console=Console(stderr=True, highlight=False)) as status:
            yield lambda step: status.update(StepLine(f"spark: {step}"))
    else:
        yield lambda step: click.echo(f"spark: {step}", err=True)
