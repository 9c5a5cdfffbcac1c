"""`live`: a streaming DataFrame to look at while it runs, in a notebook or in a terminal.

    from headrace.pipelines import live

    shown = live(totals, keys="shop", plot="total", mode="update")   # in a notebook: this cell changes from now on
    shown.stop()

    with live(orders) as shown:                                      # in a script: for a minute, or until Ctrl-C
        shown.wait(60)

It is for eyes: the query has a checkpoint of its own in a temporary folder, which goes when the query ends.
"""

import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headrace.errors import nearest
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.jobs.failures import sentence_of
from headrace.pipelines.live_painting import Cell, Painter, as_html, choose_painter
from headrace.pipelines.live_view import APPEND, COMPLETE, MODES, Batch, Choice, View, end_view, fold_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


_LONGEST_WAIT_S = 30.0  # for a batch that is under way


class BadLive(PipelineError):
    """A DataFrame that cannot be shown so, in one sentence."""


def live(
    df: "DataFrame",
    *,
    keys: str | Sequence[str] = (),
    rows: int = 20,
    plot: str | None = None,
    order_by: str | None = None,
    mode: str = APPEND,
    every: str = "1 second",
    on: Painter | None = None,
) -> "Live":
    """Show a streaming DataFrame, and go on showing it until it is stopped; returns at once.

    With `keys` there is one row of each key, the latest; without them the latest `rows` rows. `order_by` puts the
    greatest values of a column first. `plot` draws a column of numbers, a line for each key; without it, how many rows
    came. `mode` is Spark's output mode: an aggregation without a watermark wants "update". A batch begins `every` so
    often. `on` says where to show it, if it is neither this notebook nor this terminal.
    """
    choice = _checked(df, Choice((keys,) if isinstance(keys, str) else tuple(keys), rows, plot, order_by, mode))
    return Live(df, choice, every, on or choose_painter())


def _checked(df: "DataFrame", choice: Choice) -> Choice:
    if not df.isStreaming:
        raise BadLive("live shows a DataFrame that goes on, and this one is read once: use df.show(), or readStream")
    if choice.rows < 1:
        raise BadLive(f"rows in live is {choice.rows}: write 1 or more")
    if choice.mode not in MODES:
        raise BadLive(f"mode in live is {choice.mode!r}: choose one of {', '.join(MODES)}")
    named = [*((name, "keys") for name in choice.keys), (choice.plot, "plot"), (choice.order_by, "order_by")]
    for name, word in named:
        if name is not None and name not in df.columns:
            hint = nearest(name, df.columns, "there are")
            raise BadLive(f"{word} in live names {name!r}, which is not a column: {hint}")
    if choice.plot is not None:
        kind = df.schema[choice.plot].dataType
        if type(kind).__name__ not in _NUMBERS:
            raise BadLive(f"plot in live names {choice.plot!r}, which is {kind.simpleString()}: only numbers are drawn")
    return choice


_NUMBERS = ("ByteType", "ShortType", "IntegerType", "LongType", "FloatType", "DoubleType", "DecimalType")


class Live:
    """A running query and its view; ends with `stop`, with its `with` block, or when the stream ends."""

    def __init__(self, df: "DataFrame", choice: Choice, every: str, on: Painter) -> None:
        self._choice = choice
        self._on = on
        self._view = View(most=choice.rows)
        self._failure: BaseException | None = None
        self._is_stopping = False
        self._ended = threading.Event()
        self._batch = threading.Lock()  # held while a batch is looked at
        self._folder = tempfile.mkdtemp(prefix="headrace-live-")
        try:
            self._query = self._started(df, every)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._on.paint(self._view)
        self._watcher = threading.Thread(target=self._watch, name="headrace-live", daemon=True)
        self._watcher.start()

    def _started(self, df: "DataFrame", every: str) -> "StreamingQuery":
        from pyspark.errors import AnalysisException

        query = df.writeStream.foreachBatch(self._take).outputMode(self._choice.mode).trigger(processingTime=every)
        try:
            return query.option("checkpointLocation", self._folder).start()
        except AnalysisException as error:
            said = sentence_of(error)
            hint = ' (an aggregation without a watermark is shown with mode="update")' if "utput mode" in said else ""
            raise BadLive(f"Spark cannot run this in mode {self._choice.mode!r}{hint}: {said}") from error

    # --- what Spark calls, in a thread of its own

    def _take(self, df: "DataFrame", number: int) -> None:
        # Whoever stops holds the lock and waits for this call to return: it must not wait for the lock in turn.
        while not self._batch.acquire(timeout=0.05):
            if self._is_stopping:
                return
        try:
            if not self._is_stopping:
                self._show(df, number)
        except BaseException as error:
            self._failure = error  # Spark would raise it wrapped in two others
            raise
        finally:
            self._batch.release()

    def _show(self, df: "DataFrame", number: int) -> None:
        kept = df.persist()  # counted and looked at: two actions would compute, and change, state twice
        try:
            count = kept.count()
            rows = tuple(tuple(row) for row in self._some(kept)) if count else ()
        finally:
            kept.unpersist()
        if not count and self._view.batch >= 0:
            return  # a batch that only moved the watermark is nothing to see
        batch = Batch(number, int(time.time() * 1000), tuple(df.columns), rows, count)
        self._view = fold_batch(self._view, batch, self._choice)
        self._on.paint(self._view)

    def _some(self, df: "DataFrame") -> list[Any]:
        """No more rows than are kept: the greatest, or the last."""
        from pyspark.sql import functions as fn

        if self._choice.order_by is not None:
            return df.orderBy(fn.col(f"`{self._choice.order_by}`").desc_nulls_last()).limit(self._choice.kept).collect()
        return df.take(self._choice.kept) if self._choice.mode == COMPLETE else df.tail(self._choice.kept)

    # --- the end

    def _watch(self) -> None:
        try:
            self._query.awaitTermination()
        except Exception as error:  # noqa: BLE001 - shown in the view, and raised by `wait`
            self._failure = self._failure or error
        if self._is_stopping:  # a batch that was cut short is not a failure
            self._failure = None
        said = "stopped" if self._failure is None else f"failed: {sentence_of(self._failure)}"
        self._view = end_view(self._view, said)
        try:
            self._on.close(self._view)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._ended.set()

    def stop(self) -> None:
        """End the query after the batch that is under way; what was shown last stays. Stopping again does nothing."""
        if self._ended.is_set():
            return
        self._is_stopping = True
        # Between batches nothing is torn: no task is left writing state into a folder that is about to go.
        has_lock = self._batch.acquire(timeout=_LONGEST_WAIT_S)
        try:
            self._query.stop()
        finally:
            if has_lock:
                self._batch.release()
        self._watcher.join()

    def wait(self, timeout_s: float | None = None) -> None:
        """Look on until the stream ends, the time is up or Ctrl-C is pressed, then stop; a failure is raised."""
        try:
            self._ended.wait(timeout_s)
        except KeyboardInterrupt:
            self._is_stopping = True
        self.stop()
        if self._failure is not None:
            raise BadLive(sentence_of(self._failure)) from self._failure

    @property
    def view(self) -> View:
        return self._view

    @property
    def is_running(self) -> bool:
        return not self._ended.is_set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Live({self._view.summary})"

    def _repr_html_(self) -> str:
        return as_html(self._view)

    def _ipython_display_(self) -> None:
        """As the last line of a cell it would be shown a second time: where it changes already, nothing is added."""
        if not isinstance(self._on, Cell):
            raise NotImplementedError  # IPython then takes `_repr_html_`
