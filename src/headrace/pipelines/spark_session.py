"""`session`: the one place where a Spark session is made, on this machine or on a cluster.

On this machine it is set for short micro-batches and a short start; on a cluster only for what holds everywhere: the
rest is the cluster's business. What is set stands in `settings`, and `conf` overrides any of it.
"""

import os
import pkgutil
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headrace.pipelines.checkpoints import FILE_WRITER, LOCAL_CHECKPOINTS, leave_out_checksum_files
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.java import find_java
from headrace.pipelines.launch import is_plain, start_gateway
from headrace.pipelines.quiet_logs import hush_python, log_settings_file
from headrace.pipelines.settings import JAVA_OPTIONS, is_local, merged, settings_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS_VARIABLE = "HEADRACE_JAVA_OPTIONS"
"""Further options for the JVM of a session on this machine; `conf` goes before them."""


def session(
    name: str,
    *,
    master: str = "local[*]",
    conf: Mapping[str, object] = MappingProxyType({}),
    state_dir: str | Path | None = None,
    jvm_kafka: bool = False,
) -> "SparkSession":
    """A Spark session called `name`, with `format("headrace")` in it.

    `state_dir` is where checkpoints go when a query names no place of its own, and Spark's scratch files; `jvm_kafka`
    adds Spark's own `format("kafka")`, whose jars are fetched at first use. Asked again for the same, it answers with
    the session that runs; while one runs that is different, it refuses.
    """
    local = is_local(master)
    _require_pyspark()
    java = find_java()
    folder = None if state_dir is None else _made(Path(state_dir))
    defaults = settings_for(
        master, cores=_cores(), python=sys.executable, log_file=log_settings_file(), state_dir=folder
    )
    if local and (options := os.environ.get(OPTIONS_VARIABLE)):
        defaults[JAVA_OPTIONS] += f" {options}"
    chosen = merged(defaults, {"spark.app.name": name, "spark.master": master, **conf})
    if jvm_kafka:
        _add_kafka(chosen)
    if running := _running(chosen, name):
        return running
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        _compile_meanwhile()
    context = _start(java, chosen) if local and is_plain(os.environ, _home()) else _start_by_script(chosen)
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
    return spark


# What each session of this process was asked for, to know it again.
_chosen: dict[str, dict[str, str]] = {}
_jars_of_jvm: list[str] = []


def _compile_meanwhile() -> None:
    """The first start on a machine compiles the loops that read records; done while the JVM starts, nobody waits."""
    from headrace.pipelines.daemon import warm_loops

    threading.Thread(target=warm_loops, name="headrace-warm", daemon=True).start()


def _require_pyspark() -> None:
    try:
        import pyspark  # noqa: F401
    except ModuleNotFoundError:
        raise PipelineError(
            "pipelines run on Spark, and pyspark is not installed: pip install 'headrace[spark]'"
        ) from None


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


def _add_kafka(chosen: dict[str, str]) -> None:
    from headrace.pipelines.jars import fetch_jars

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


def _start(java: Any, chosen: Mapping[str, str]) -> Any:
    from pyspark import SparkConf, SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001 - a JVM stays when its session is stopped, and is used again
    jars = [jar for jar in chosen.get("spark.jars", "").split(",") if jar]
    if gateway is None:
        gateway = start_gateway(java, chosen)
        _jars_of_jvm[:] = jars
    elif missing := sorted(set(jars) - set(_jars_of_jvm)):
        raise PipelineError(
            f"the JVM of this process was started without {Path(missing[0]).name}, and cannot load it now: ask for it "
            "(jvm_kafka=True, or spark.jars) in the first session of the process"
        )
    # The JVM's own properties hold the settings of the session it was started for; this one has only its own.
    settings = SparkConf(loadDefaults=False, _jvm=gateway.jvm).setAll(list(chosen.items()))
    return SparkContext(conf=settings, gateway=gateway)


def _start_by_script(chosen: Mapping[str, str]) -> Any:
    from pyspark import SparkConf, SparkContext

    return SparkContext(conf=SparkConf().setAll(list(chosen.items())))


def _register_sources(spark: "SparkSession") -> None:
    """Make `format("headrace")` known where Spark does not find it by itself.

    Spark looks for modules called `pyspark_…` when a format is asked for that it does not know. To register one that it
    finds anyway would start two Python processes at the session's start, and draw a warning.
    """
    if any(module.name == "pyspark_headrace" for module in pkgutil.iter_modules()):
        return
    from headrace.pipelines.source.datasource import HeadraceDataSource

    spark.dataSource.register(HeadraceDataSource)
