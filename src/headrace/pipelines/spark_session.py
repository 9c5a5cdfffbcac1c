"""`session`: the one place where a Spark session is made, on this machine or on a cluster.

On this machine it is set for short micro-batches and a short start; on a cluster only for what holds everywhere: the
rest is the cluster's business. What is set stands in `settings`, and `conf` overrides any of it.
"""

import os
import pkgutil
import sys
import threading
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headrace import extras
from headrace.pipelines.checkpoints import FILE_WRITER, LOCAL_CHECKPOINTS, leave_out_checksum_files
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.java import find_java
from headrace.pipelines.launch import is_plain, start_gateway
from headrace.pipelines.quiet_logs import hush_python, log_settings_file
from headrace.pipelines.settings import JAVA_OPTIONS, is_local, merged, settings_for
from headrace.pipelines.steps import Report, shown_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipelines.java import Java

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
    with nullcontext(report) if report else shown_steps() as report_step:
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
    chosen = merged(defaults, {"spark.app.name": name, "spark.master": master, **conf})
    if jvm_kafka:
        _add_kafka(chosen, report)
    if running := _running(chosen, name):
        return running
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        _compile_meanwhile()
    if local and is_plain(os.environ, _home()):
        context = _start(java, chosen, report)
    else:
        report(f"starting Spark on {master}")
        context = _start_by_script(chosen)
    from pyspark.sql import SparkSession

    hush_python()
    spark = SparkSession.builder.config(conf=context.getConf()).getOrCreate()
    _chosen[spark.sparkContext.applicationId] = chosen
    if (
        local
        and chosen.get(FILE_WRITER) == LOCAL_CHECKPOINTS[FILE_WRITER]
        and "spark.hadoop.fs.file.impl" not in chosen
    ):
        leave_out_checksum_files(spark)
    _register_sources(spark)
    _settle_meanwhile(spark)
    return spark


# What each session of this process was asked for, to know it again.
_chosen: dict[str, dict[str, str]] = {}
_jars_of_jvm: list[str] = []


def _compile_meanwhile() -> None:
    """The first start on a machine compiles the loops that read records; done while the JVM starts, nobody waits."""
    from headrace.pipelines.daemon import warm_loops

    threading.Thread(target=warm_loops, name="headrace-warm", daemon=True).start()


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
    from headrace.pipelines.jars import fetch_jars, jars_here

    if jars_here() is None:
        report("fetching the jars of Spark's Kafka connector")
    files = [str(file) for file in fetch_jars(ivy_settings=chosen.get("spark.jars.ivySettings"))]
    chosen["spark.jars"] = ",".join([*filter(None, [chosen.get("spark.jars")]), *files])


def _running(chosen: Mapping[str, str], name: str) -> "SparkSession | None":
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context  # noqa: SLF001 - pyspark has no public way to ask without making one
    if context is None:
        return None
    if _chosen.get(context.applicationId) == chosen:
        return SparkSession.builder.getOrCreate()
    raise PipelineError(
        f"a Spark session {context.appName!r} with other settings runs in this process, so {name!r} cannot start: "
        "stop that one with spark.stop(), or use it"
    )


def _start(java: "Java", chosen: Mapping[str, str], report: Report) -> Any:
    from pyspark import SparkConf, SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001 - a JVM stays when its session is stopped, and is used again
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
    # The JVM's own properties hold the settings of the session it was started for; this one has only its own.
    settings = SparkConf(loadDefaults=False, _jvm=gateway.jvm).setAll(list(chosen.items()))
    return SparkContext(conf=settings, gateway=gateway)


def _start_by_script(chosen: Mapping[str, str]) -> Any:
    from pyspark import SparkConf, SparkContext

    return SparkContext(conf=SparkConf().setAll(list(chosen.items())))


# What Spark 4.2's `PythonStreamingSourceRunner` puts into a source's environment when a query starts.
_ENVIRONMENT_OF_SOURCES = (
    "SPARK_LOCAL_DIRS",
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_PYTHON_RUNTIME",
)
_settling = threading.Lock()


def settle_sources(spark: "SparkSession") -> None:
    """Let queries start at the same time.

    Spark has one map for the environment of all readers of a format, and each query that starts puts its entries there
    from a thread of its own, unguarded. Two at once break the map for good: every batch of every query then fails with
    "Task not serializable". Where the entries are there already, a query only sets their values, which is harmless.
    """
    with _settling:
        manager: Any = spark._jsparkSession.sessionState().dataSourceManager()  # noqa: SLF001
        environment = manager.lookupDataSource("headrace").dataSourceCls().envVars()
        for name in _ENVIRONMENT_OF_SOURCES:
            environment.putIfAbsent(name, "")


def _settle_meanwhile(spark: "SparkSession") -> None:
    """For whoever starts queries without us; to look for the format takes a second, and is needed anyway."""

    def settle() -> None:
        with suppress(Exception):  # the session may be stopped by now
            settle_sources(spark)

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
