"""The watermark of each input, kept across restarts beside Spark's checkpoint.

A query's watermark is the lowest of its inputs' watermarks. Spark writes down that one number and forgets the others:
after a restart an input counts as not begun until it has a row again. A table that was read before the restart and does
not change then holds back everything that waits for it, without a word. So the watermark of each input is written to
`input-watermarks.json` in the checkpoint after every micro-batch, and handed back to Spark when a query starts.

Spark reports a micro-batch after it is committed. If the process is killed between the two, the last micro-batch is
marked as not committed before the query goes on: Spark runs it again, as it does after a kill a moment earlier, and
sees its rows' times. A value from further back is lower than the true one, which delays results and loses none.

Only queries with several watermarks and a checkpoint in a local folder need this. Seen on Spark 4.2, whose tracker is
`WatermarkTracker` with a map from the watermark's node in the plan to its value.
"""

import atexit
import json
import re
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

from pyspark.sql.streaming.listener import StreamingQueryListener

from headrace.pipelines.checkpoints import logged_batches
from headrace.pipelines.keyed.spark_plan import analyzed_plan
from headrace.telemetry.logs import get_logger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE: Final = "input-watermarks.json"
_LOOK_S: Final = 0.001
_NODE: Final = re.compile(r"EventTimeWatermark ([0-9a-f-]{36}), (.+)$", re.MULTILINE)
_IDS: Final = re.compile(r"#\d+\w*")
_log = get_logger(__name__)
_keepers: "WeakKeyDictionary[SparkSession, _Keeping]" = WeakKeyDictionary()


@dataclass(frozen=True)
class InputWatermarks:
    """What each input's watermark was after a batch, in the order of the plan; None for an input that had no row."""

    batch: int
    inputs: tuple[str, ...]
    values_ms: tuple[int | None, ...]


def read_kept(checkpoint: Path) -> InputWatermarks | None:
    """What was written down; None if nothing was, as by earlier versions."""
    try:
        found = json.loads((checkpoint / FILE).read_text())
        return InputWatermarks(int(found["batch"]), tuple(found["inputs"]), tuple(found["values_ms"]))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        _log.warning("input watermarks unreadable", file=str(checkpoint / FILE), error=str(error))
        return None


def keep(checkpoint: Path, watermarks: InputWatermarks) -> None:
    """Write down, whole or not at all."""
    whole = checkpoint / f".{FILE}.new"
    whole.write_text(json.dumps(asdict(watermarks)))
    whole.rename(checkpoint / FILE)


def to_restore(
    kept: InputWatermarks | None, inputs: Sequence[str], committed: int | None
) -> Sequence[int | None] | None:
    """The values to hand back to a query with these inputs whose last committed batch this is; None for nothing."""
    if kept is None or committed is None or kept.inputs != tuple(inputs) or kept.batch > committed:
        return None
    return kept.values_ms


def runs_again(kept: InputWatermarks | None, committed: int | None) -> bool:
    """Whether the last batch was committed and its watermarks were not written down any more."""
    return kept is not None and committed is not None and kept.batch < committed


def inputs_in(plan: str) -> dict[str, str]:
    """The watermarks in a plan's text, by the id of their node: column and delay, the same in every run."""
    return {node: _IDS.sub("", rest).strip() for node, rest in _NODE.findall(plan)}


def keeps_input_watermarks(frame: "DataFrame") -> "DataFrame":
    """The frame; if it has several watermarks, queries of its session keep them from now on."""
    spark = frame.sparkSession
    if spark not in _keepers and frame.isStreaming and len(inputs_in(analyzed_plan(frame))) > 1:
        _keepers[spark] = _Keeping(spark)
        spark.streams.addListener(_keepers[spark])
    return frame


@atexit.register
def keep_now() -> None:
    """Write down what queries have that have ended or will now: their last reports may still be on the way."""
    for keeper in list(_keepers.values()):
        keeper.keep_all()


@dataclass
class _Run:
    execution: Any
    checkpoint: Path
    inputs: dict[str, str]
    kept: int

    def keep(self, batch: int) -> None:
        if batch <= self.kept:
            return
        tracker = self.execution.watermarkTracker()
        if tracker is not None:  # made a moment after the start
            self.kept = batch
            keep(self.checkpoint, InputWatermarks(batch, tuple(self.inputs.values()), _values(tracker, self.inputs)))


class _Keeping(StreamingQueryListener):
    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        self._runs: dict[str, _Run] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names
        """Spark waits for this one, before it looks at its checkpoint."""
        query: Any = self._spark.streams.get(str(event.id))
        if query is None:
            return
        execution = query._jsq.streamingQuery()  # noqa: SLF001 - Spark shows its watermarks nowhere else
        inputs = inputs_in(str(execution.analyzedPlan().toString()))
        checkpoint = _local(str(execution.resolvedCheckpointRoot()))
        if len(inputs) < 2 or checkpoint is None:
            return
        self._keep([run for run in self._runs.items() if run[1].checkpoint == checkpoint])
        kept = read_kept(checkpoint)
        committed = max(logged_batches(checkpoint / "commits"), default=None)
        upto = kept.batch if kept and committed is not None and kept.batch <= committed else -1
        run = _Run(execution, checkpoint, inputs, upto)
        self._runs[str(event.runId)] = run
        if runs_again(kept, committed) and max(logged_batches(checkpoint / "offsets"), default=None) == committed:
            (checkpoint / "commits" / str(committed)).unlink()
        values = to_restore(kept, list(inputs.values()), committed)
        if values is not None:
            threading.Thread(target=_restore, args=(self._spark, run, values), daemon=True).start()

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        if run := self._runs.get(str(event.progress.runId)):
            run.keep(int(event.progress.batchId))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing has changed."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self._runs.pop(str(event.runId), None)

    def keep_all(self) -> None:
        """For runs that are at their end."""
        with suppress(Exception):  # the JVM may be gone
            self._keep([each for each in self._runs.items() if not each[1].execution.isActive()])

    def _keep(self, runs: Iterable[tuple[str, _Run]]) -> None:
        """Nothing more is heard of these runs."""
        for name, run in runs:
            self._runs.pop(name, None)
            run.keep(max(logged_batches(run.checkpoint / "commits"), default=-1))


def _values(tracker: Any, nodes: Iterable[str]) -> tuple[int | None, ...]:
    pairs = _each(tracker.watermarkMap().iterator())
    found = {str(entry._1()): entry._2() for entry in pairs}  # noqa: SLF001 - a Scala pair
    return tuple(None if found[node].isEmpty() else int(found[node].get()) for node in nodes)


def _restore(spark: "SparkSession", run: _Run, values_ms: Sequence[int | None]) -> None:
    """Wait until Spark has made its tracker, a moment after the start and long before the first batch ends."""
    while (tracker := run.execution.watermarkTracker()) is None:
        if not run.execution.isActive():
            return
        time.sleep(_LOOK_S)
    java: Any = spark._jvm  # noqa: SLF001 - see above
    field = tracker.getClass().getDeclaredField("operatorToWatermarkMap")
    field.setAccessible(True)
    values = field.get(tracker)
    for node, value in zip(run.inputs, values_ms, strict=True):
        key = java.java.util.UUID.fromString(node)
        if value is not None and values.get(key).get().isEmpty():
            values.put(key, _some_long(spark, value))


def _some_long(spark: "SparkSession", value: int) -> Any:
    """A Scala option of a Java long: a number handed over alone would become an int where it fits."""
    array = spark.sparkContext._gateway.new_array(spark._jvm.long, 1)  # type: ignore[union-attr] # noqa: SLF001
    array[0] = value
    return getattr(spark._jvm.scala.Predef, "wrapLongArray")(array).headOption()  # type: ignore[union-attr] # noqa: SLF001, B009


def _each(iterator: Any) -> Any:
    while iterator.hasNext():
        yield iterator.next()


def _local(root: str) -> Path | None:
    parts = urlsplit(root)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else None
