"""An available-now run of a query that the wall clock wakes ends when all there is has been read and emitted.

Spark runs one more micro-batch as long as an operator asks for the wall clock, and does not look whether it has a timer
set at all: an available-now run would have no end. So it is ended from here, by the progress it reports. A micro-batch
without new data, planned in this run, shows that nothing is left to read, and that what the last watermark has closed
is emitted. Timers of the wall clock that are yet to come wait for the next run.

The run is not stopped, which would cut a micro-batch short with a good deal of noise: its state is set to what Spark
itself sets at the end of an available-now run, and it ends with the micro-batch it is at.
"""

import threading
import time
from collections.abc import Iterable
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from pyspark.sql.streaming.listener import StreamingQueryListener

from headrace.pipelines.spark.internals import Execution, execution_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WALL_CLOCK: Final = "headrace.wall"
"""How the name begins of the count by which a query with such an operator is known."""
_AVAILABLE_NOW: Final = "AvailableNowTrigger"
_LOOK_S: Final = 0.005
_numbers = count(1)
_watched: "WeakSet[SparkSession]" = WeakSet()


def end_when_read(frame: "DataFrame") -> "DataFrame":
    """The frame of an operator that the wall clock wakes, in whose query an available-now run comes to an end."""
    from pyspark.sql import functions as fn

    spark = frame.sparkSession
    if spark not in _watched:
        _watched.add(spark)
        spark.streams.addListener(_Ending(spark))
    return frame.observe(f"{WALL_CLOCK}.{next(_numbers)}", fn.count(fn.lit(1)).alias("cells"))


class Ends:
    """Which runs are at their end, by their progress. Pure."""

    def __init__(self) -> None:
        self._begun: set[str] = set()

    def is_over(self, run: str, offsets: Iterable[tuple[str, str]]) -> bool:
        """Whether nothing is left after a micro-batch; `offsets` are its beginning and end in each source."""
        # The first may have been planned by the run before, when there was less to read.
        is_first = run not in self._begun
        self._begun.add(run)
        return not is_first and all(start == end for start, end in offsets)

    def forget(self, run: str) -> None:
        self._begun.discard(run)


class _Ending(StreamingQueryListener):
    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        self._ends = Ends()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names
        """Nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress
        if not any(name.startswith(WALL_CLOCK) for name in progress.observedMetrics):
            return
        run = str(progress.runId)
        if not self._ends.is_over(run, [(each.startOffset, each.endOffset) for each in progress.sources]):
            return
        query = self._spark.streams.get(str(progress.id))
        execution = None if query is None else execution_of(self._spark, query)
        if execution is not None and execution.trigger == _AVAILABLE_NOW:
            # Not here: Spark's other events would wait for it.
            arguments = (self._spark, execution, run)
            threading.Thread(target=_end, args=arguments, name=f"end of {run}", daemon=True).start()

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self._ends.forget(str(event.runId))


def _end(spark: "SparkSession", execution: Execution, run: str) -> None:
    """Wait until a micro-batch is at work, because one that is still being planned would be given up; then end."""
    tracker = spark.sparkContext.statusTracker()
    while execution.is_active:
        if set(tracker.getActiveJobsIds()) & set(tracker.getJobIdsForGroup(run)):
            execution.end()
            return
        time.sleep(_LOOK_S)
