"""Every reach into Spark that is not public: through py4j into its JVM, and into PySpark's own modules.

A new version of Spark may change any of it without a word. So each is one function here, seen on `SEEN_ON`, with a test
in `tests/integration/test_spark_internals.py` that says what has gone.
"""

import logging
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SEEN_ON: Final = "4.2.0"
# Local properties of the thread that runs a micro-batch, and of its tasks.
QUERY_ID, BATCH_ID, RUN_ID = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
# What `PythonStreamingSourceRunner` puts into a source's environment when a query starts.
_ENVIRONMENT_OF_SOURCES: Final = (
    "SPARK_LOCAL_DIRS",
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_PYTHON_RUNTIME",
)
PERMITTING_CLASS: Final = "PermittingLocalFileSystem"
_PERMITTING: Final = f"""
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class {PERMITTING_CLASS} extends RawLocalFileSystem {{
    public void setPermission(Path path, FsPermission to) throws java.io.IOException {{
        String symbols = to.getUserAction().SYMBOL + to.getGroupAction().SYMBOL + to.getOtherAction().SYMBOL;
        Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(symbols));
    }}
}}
"""
# What MLlib has every session register: it takes as long as the context itself, for Scala's reflection.
REGISTERED_ALWAYS: Final = "org.apache.spark.sql.ml.InternalFunctionRegistration"
# Loggers of PySpark's own, which write a query's mistake with a stack of both languages before it is raised.
_TWICE_SAID: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


# --- the JVM and the session


def active_context() -> "SparkContext | None":
    """The context of this process; None where there is none, which PySpark's own question would make."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def find_gateway() -> Any:
    """The gateway to the JVM of this process, which stays when its session is stopped; None before the first."""
    from pyspark import SparkContext

    return SparkContext._gateway


def start_context(chosen: Mapping[str, str], gateway: Any) -> "SparkContext":
    """A context in a JVM that is there.

    The JVM's own properties hold the settings of the session it was started for; this one gets only its own.
    """
    from pyspark import SparkConf, SparkContext

    settings = SparkConf(loadDefaults=False, _jvm=gateway.jvm).setAll(list(chosen.items()))
    return SparkContext(conf=settings, gateway=gateway)


@contextmanager
def initializing_meanwhile(gateway: Any) -> Iterator[None]:
    """Have what the session of a context is going to need initialized by a thread of its own, while that starts.

    Only classes of SQL's, of which a context knows nothing: two threads that initialize classes which need each other
    would wait for each other for good. The slowest is what MLlib registers with every session; where it is not
    installed, there is nothing to wait for.
    """

    def initialize() -> None:
        with suppress(Exception):
            gateway.jvm.org.apache.spark.sql.types.StructType.fromDDL("word string")
            gateway.jvm.java.lang.Class.forName(f"{REGISTERED_ALWAYS}$")

    thread = threading.Thread(target=initialize, name="headrace-initialize", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def leave_out_checksum_files(spark: "SparkSession") -> None:
    """Write no `.crc` file beside each file on the local disk, in this JVM from now on.

    They cost a file and a process each, and a crash between a file and its checksum leaves two that do not fit.
    """
    context: Any = spark.sparkContext
    file_systems = context._jvm.org.apache.hadoop.fs.FileSystem
    file_systems.getLocal(context._jsc.hadoopConfiguration()).setWriteChecksum(False)


def set_permissions_in_process(spark: "SparkSession") -> None:
    """Give files on the local disk their permissions without starting a process for each, in this JVM from now on.

    Hadoop has `chmod` do it where its native library is missing: two processes for each file of a checkpoint or a
    state. Its local file system does it itself here; all else it does as before.
    """
    context: Any = spark.sparkContext
    jvm = context._jvm
    local = jvm.org.apache.hadoop.fs.FileSystem.getLocal(context._jsc.hadoopConfiguration())
    if local.getRaw().getClass().getName() == PERMITTING_CLASS:
        return
    compiler = jvm.org.codehaus.janino.SimpleCompiler()  # with which Spark compiles its own
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_PERMITTING)
    raw = compiler.getClassLoader().loadClass(PERMITTING_CLASS).newInstance()
    raw.initialize(local.getUri(), context._jsc.hadoopConfiguration())
    field = jvm.java.lang.Class.forName("org.apache.hadoop.fs.FilterFileSystem").getDeclaredField("fs")
    field.setAccessible(True)
    field.set(local, raw)


def fill_source_environment(spark: "SparkSession") -> None:
    """Put into the environment of our source's readers, which all queries share, what each query would add.

    And what functions in Python have in theirs: Spark starts a daemon for each environment, which takes seconds and a
    quarter of a gigabyte, and has workers of its own. The path is left out because every daemon is given it anyway.
    """
    manager: Any = spark._jsparkSession.sessionState().dataSourceManager()
    environment = manager.lookupDataSource("headrace").dataSourceCls().envVars()
    for name in _ENVIRONMENT_OF_SOURCES:
        environment.putIfAbsent(name, "")
    for name, value in spark.sparkContext.environment.items():
        environment.put(name, value)
    if str(spark.sparkContext.master).startswith("local"):
        environment.remove("PYTHONPATH")


# --- plans


def analyzed(frame: "DataFrame") -> Any:
    """The analyzed plan; its `toString` has a line a node, its `toJSON` all that Spark can write of it."""
    return frame._jdf.queryExecution().analyzed()


def each(sequence: Any) -> Iterator[Any]:
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def class_of(thing: Any) -> str:
    return str(thing.getClass().getSimpleName())


def bare_source(frame: "DataFrame") -> dict[str, str] | None:
    """The options of a stream of our source that nothing is done with yet; None for any other DataFrame."""
    plan = analyzed(frame)
    if class_of(plan) != "StreamingRelationV2" or plan.sourceName() != "headrace":
        return None
    return {str(name): str(value) for name, value in dict(plan.extraOptions().asCaseSensitiveMap()).items()}


# --- DataFrames that say more


def add_note(frame: "DataFrame", note: object) -> "DataFrame":
    """The same rows, with something for whoever gets this DataFrame; what is made of it does not carry the note on."""
    return _noted_frame()(frame, note)  # type: ignore[no-any-return]


def read_note(frame: "DataFrame") -> object | None:
    return frame.note if isinstance(frame, _noted_frame()) else None


@cache
def _noted_frame() -> Any:
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    class NotedFrame(ClassicFrame):
        def __init__(self, frame: "DataFrame", note: object) -> None:
            super().__init__(frame._jdf, frame.sparkSession)
            self.note = note

    return NotedFrame


# --- queries


class Execution:
    """A run of a query, with what `StreamingQuery` does not show."""

    def __init__(self, spark: "SparkSession", execution: Any) -> None:
        self._spark, self._execution = spark, execution

    @property
    def is_active(self) -> bool:
        try:
            return bool(self._execution.isActive())
        except Exception:  # noqa: BLE001 - whatever py4j raises when the JVM is gone
            return False

    @property
    def trigger(self) -> str:
        return str(self._execution.trigger().toString())

    @property
    def plan(self) -> str:
        return str(self._execution.analyzedPlan().toString())

    @property
    def checkpoint(self) -> Path | None:
        """The folder; None if it is not on a local disk."""
        parts = urlsplit(str(self._execution.resolvedCheckpointRoot()))
        return Path(unquote(parts.path)) if parts.scheme in ("", "file") else None

    def source_options(self) -> Iterator[dict[str, str]]:
        """The options of each streaming source, their names in lower case."""
        for leaf in each(self._execution.analyzedPlan().collectLeaves()):
            if class_of(leaf).startswith("StreamingRelationV2"):
                options = dict(leaf.extraOptions().asCaseSensitiveMap())
                yield {name.lower(): str(value) for name, value in options.items()}

    def end(self) -> None:
        """End with the micro-batch that is under way, as Spark itself ends an available-now run."""
        over = getattr(_jvm(self._spark).org.apache.spark.sql.execution.streaming.runtime, "TERMINATED$")
        self._execution.state().set(getattr(over, "MODULE$"))

    @property
    def has_watermarks(self) -> bool:
        """Whether Spark has made its watermark tracker, which it does when it has read the checkpoint."""
        return self._execution.watermarkTracker() is not None

    def watermarks(self, nodes: Iterable[str]) -> tuple[int | None, ...]:
        """The watermark of each input, named by its node in the plan; None for one that had no row yet."""
        pairs = each(self._execution.watermarkTracker().watermarkMap())
        values = {str(entry._1()): entry._2() for entry in pairs}
        return tuple(None if values[node].isEmpty() else int(values[node].get()) for node in nodes)

    def set_watermarks(self, nodes: Sequence[str], values_ms: Sequence[int | None]) -> None:
        """Give inputs that have no watermark yet the ones they had."""
        tracker = self._execution.watermarkTracker()
        field = tracker.getClass().getDeclaredField("operatorToWatermarkMap")
        field.setAccessible(True)
        known = field.get(tracker)
        for node, value in zip(nodes, values_ms, strict=True):
            key = _jvm(self._spark).java.util.UUID.fromString(node)
            if value is not None and known.get(key).get().isEmpty():
                known.put(key, self._some_long(value))

    def _some_long(self, value: int) -> Any:
        """A Scala option of a Java long: a number handed over alone would become an int where it fits."""
        array = self._spark.sparkContext._gateway.new_array(_jvm(self._spark).long, 1)  # type: ignore[union-attr]
        array[0] = value
        return getattr(_jvm(self._spark).scala.Predef, "wrapLongArray")(array).headOption()  # noqa: B009

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Let no micro-batch be planned or committed meanwhile; Spark takes the same lock for both.

        A Java thread belongs to each thread of Python, so the lock is this thread's.
        """
        lock = self._execution.awaitProgressLock()
        lock.lock()
        try:
            yield
        finally:
            lock.unlock()


def execution_of(spark: "SparkSession", query: "StreamingQuery") -> Execution:
    return Execution(spark, query._jsq.streamingQuery())


def running_execution(frame: "DataFrame") -> Execution | None:
    """The run whose micro-batch the calling thread runs, in `foreachBatch`; None outside of one."""
    spark = frame.sparkSession
    query = spark.sparkContext.getLocalProperty(QUERY_ID)
    if query is None:
        return None
    running = spark._jsparkSession.sharedState().activeStreamingQueries()
    execution = running.get(_jvm(spark).java.util.UUID.fromString(query))
    return None if execution is None else Execution(spark, execution)


def _jvm(spark: "SparkSession") -> Any:
    return spark._jvm


# --- PySpark's Python


def hush_python() -> None:
    """Let PySpark say a mistake once, in the error that it raises, and nothing about type hints that are not for it."""
    from pyspark import util
    from pyspark.logger import PySparkLogger

    util.print_exec = lambda stream: None  # noqa: ARG005 - what could not be pickled, before it raises the same
    warnings.filterwarnings("ignore", "Cannot infer the eval type from type hints", UserWarning)
    for name in _TWICE_SAID:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def allow_types_by_name() -> None:
    """Let `@F.udf("long")` stand in a file that is loaded before Spark starts.

    Spark asks the JVM for the type as soon as the function is declared, only to show it; asked again when the function
    is used, it gets it. Without a JVM the name stands there meanwhile.
    """
    from pyspark.sql.udf import UserDefinedFunction

    asked: Callable[[Any], Any] = vars(UserDefinedFunction)["returnType"].fget
    if asked.__module__ == __name__:
        return

    def return_type(function: Any) -> Any:
        return asked(function) if active_context() is not None else function._returnType

    UserDefinedFunction.returnType = property(return_type)  # type: ignore[assignment,method-assign]
