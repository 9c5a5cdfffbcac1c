"""The watermark of each input, kept across restarts beside Spark's checkpoint.

A query's watermark is the lowest of its inputs' watermarks. Spark writes down that one number and forgets the others:
after a restart an input counts as not begun until it has a row again. A table that was read before the restart and does
not change then holds back everything that waits for it, without a word. So the watermark of each input is written to
`input-watermarks.json` in the checkpoint after every micro-batch, and handed back to Spark when a query starts.

Spark reports a micro-batch after it is committed. If the process is killed between the two, the last micro-batch is
marked as not committed before the query goes on: Spark runs it again, as it does after a kill a moment earlier, and
sees its rows' times. A value from further back is lower than the true one, which delays results and loses none.

Spark makes its tracker of watermarks when it has read the checkpoint, and plans no micro-batch while we hold the query:
so the values are there before the first one, however slow we are.

Only queries with several watermarks and a checkpoint in a local folder need this.
"""

import atexit
import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from pyspark.sql.streaming.listener import StreamingQueryListener

from headrace.pipelines.spark.checkpoint import last_batch
from headrace.pipelines.spark.internals import Execution, execution_of
from headrace.pipelines.spark.plan import plan_text
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


def keep_input_watermarks(frame: "DataFrame") -> "DataFrame":
    """The frame; if it has several watermarks, queries of its session keep them from now on."""
    spark = frame.sparkSession
    if spark not in _keepers and frame.isStreaming and len(inputs_in(plan_text(frame))) > 1:
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
    execution: Execution
    checkpoint: Path
    inputs: dict[str, str]
    kept: int

    def keep(self, batch: int) -> None:
        if batch <= self.kept:
            return
        if self.execution.has_watermarks:
            values = self.execution.watermarks(self.inputs)
            keep(self.checkpoint, InputWatermarks(batch, tuple(self.inputs.values()), values))
            self.kept = batch

    def restore(self, values_ms: Sequence[int | None], held: threading.Event) -> None:
        try:
            with self.execution.hold():
                held.set()
                while self.execution.is_active and not self.execution.has_watermarks:
                    time.sleep(_LOOK_S)
                if self.execution.is_active:
                    self.execution.set_watermarks(list(self.inputs), values_ms)
        finally:
            held.set()  # also where the query could not be held: it must not wait for us


class _Keeping(StreamingQueryListener):
    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        self._runs: dict[str, _Run] = {}
        # A query may start while the last report of its run before is being written down: it waits for that.
        self._keeping = threading.Lock()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names
        """Spark waits for this one, before it looks at its checkpoint."""
        query: Any = self._spark.streams.get(str(event.id))
        if query is None:
            return
        execution = execution_of(self._spark, query)
        inputs, checkpoint = inputs_in(execution.plan), execution.checkpoint
        if len(inputs) < 2 or checkpoint is None:
            return
        self._keep(lambda run: run.checkpoint == checkpoint)
        kept = read_kept(checkpoint)
        committed = last_batch(checkpoint, "commits")
        upto = kept.batch if kept and committed is not None and kept.batch <= committed else -1
        run = _Run(execution, checkpoint, inputs, upto)
        with self._keeping:
            self._runs[str(event.runId)] = run
        if runs_again(kept, committed) and last_batch(checkpoint, "offsets") == committed:
            (checkpoint / "commits" / str(committed)).unlink()
        values = to_restore(kept, list(inputs.values()), committed)
        if values is not None:
            held = threading.Event()
            threading.Thread(target=run.restore, args=(values, held), name="headrace-watermarks", daemon=True).start()
            held.wait()

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        with self._keeping:
            if run := self._runs.get(str(event.progress.runId)):
                run.keep(int(event.progress.batchId))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        with self._keeping:
            self._runs.pop(str(event.runId), None)

    def keep_all(self) -> None:
        with suppress(Exception):  # the JVM may be gone
            self._keep(lambda run: not run.execution.is_active)

    def _keep(self, is_over: Callable[[_Run], bool]) -> None:
        """For runs of which nothing more is heard."""
        with self._keeping:
            for name, run in [each for each in self._runs.items() if is_over(each[1])]:
                del self._runs[name]
                last = last_batch(run.checkpoint, "commits")
                run.keep(-1 if last is None else last)
