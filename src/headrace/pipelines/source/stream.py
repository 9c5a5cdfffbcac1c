"""`spark.readStream.format("headrace")`: where a query stands, and how far its next batch goes.

Offsets in the checkpoint have the form of Spark's own Kafka source.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.client.admin import describe_log_dirs
from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.groups import alter_offsets
from headrace.client.offsets import EARLIEST as FIRST
from headrace.client.offsets import YOUNGEST, list_offsets
from headrace.model import TopicPartition
from headrace.pipelines.clusters import cluster_at
from headrace.pipelines.errors import DataLoss
from headrace.pipelines.source.alignment import aligned
from headrace.pipelines.source.bounded import LATEST, partitions_of, read_partition
from headrace.pipelines.source.columns import layout_of
from headrace.pipelines.source.idle import (
    IdlePartition,
    Silence,
    check_idle,
    idle_row,
    stamp_of,
    without_stamp,
)
from headrace.pipelines.source.options import SourceOptions
from headrace.pipelines.source.places import find
from headrace.pipelines.source.planning import Offsets, from_json, limited, to_json
from headrace.pipelines.source.selection import selected
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in the driver's Python worker for as long as the query runs; `read` alone runs in tasks."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema = schema
        self._options = options
        self._target: Offsets | None = None  # with available-now, where the run ends
        self._known: Offsets = {}  # the ends as last heard of
        self._moment_ms = 0  # of record time, up to which the last batch went
        self._silence = Silence(options.idle_timeout_s) if options.idle_timeout_s else None
        layout_of(schema, options).decoder(options)  # a mistake is told before anything runs
        check_idle(schema, options)

    @property
    def _cluster(self) -> Cluster:
        return cluster_at(self._options.bootstrap, self._options.connection)

    # --- offsets

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins."""
        options = self._options
        where = selected(self._cluster, options)
        return to_json(find(self._cluster, where, options.starting or LATEST, committed=options.committed))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, dict[str, int]]:  # noqa: N802
        """How far the next batch goes."""
        starts = from_json(without_stamp(start))
        ends = self._ends() if self._target is None else self._target
        self._known = ends
        self._begin_new(starts, ends)
        if self._target is None:
            # A partition that ended before where we stand was made anew; `partitions` says so when it is read.
            ends = {where: max(end, starts[where]) if end < starts[where] else end for where, end in ends.items()}
        gone = {where: offset for where, offset in starts.items() if where not in ends}
        to = to_json(gone | self._limited(starts, ends, limit))
        if self._silence is None or self._target is not None:
            return to | {name: part for name, part in start.items() if name not in without_stamp(start)}
        return self._silence.stamped(start, to, now_s=time.monotonic(), wall_ms=time.time_ns() // 1_000_000)

    def _ends(self) -> Offsets:
        return find(self._cluster, selected(self._cluster, self._options), LATEST, committed=self._options.committed)

    def _begin_new(self, starts: Offsets, ends: Offsets) -> None:
        """Partitions that came after the query's start are read from their first record."""
        new = [where for where in ends if where not in starts]
        if new:
            found = list_offsets(self._cluster, dict.fromkeys(new, FIRST))
            starts |= {where: found[where].offset for where in new}

    def _limited(self, starts: Offsets, ends: Offsets, limit: ReadLimit) -> Offsets:
        if isinstance(limit, ReadMaxRows):
            budget, cost = limit.max_rows, dict.fromkeys(ends, 1.0)
        elif isinstance(limit, ReadMaxBytes):
            budget, cost = limit.max_bytes, self._record_bytes(ends)
        else:
            return ends
        waiting = {where: end for where, end in ends.items() if end > starts[where]}
        if len(waiting) < 2 or sum((end - starts[where]) * cost[where] for where, end in waiting.items()) <= budget:
            return limited(starts, ends, budget, cost)
        youngest = list_offsets(self._cluster, dict.fromkeys(waiting, YOUNGEST))
        moment = aligned(
            starts,
            waiting,
            budget,
            cost,
            lambda time_ms: self._offsets_at(waiting, time_ms),
            first_ms=self._moment_ms,
            last_ms=max(found.timestamp for found in youngest.values()),
        )
        self._moment_ms = moment.time_ms
        return ends | moment.offsets

    def _offsets_at(self, waiting: Iterable[TopicPartition], time_ms: int) -> Offsets:
        found = list_offsets(self._cluster, dict.fromkeys(waiting, time_ms))
        return {where: each.offset for where, each in found.items()}

    def _record_bytes(self, ends: Offsets) -> dict[TopicPartition, float]:
        """About what a record of each partition takes, by what all of them take on the broker's disk."""
        sizes = describe_log_dirs(self._cluster, ends)
        firsts = list_offsets(self._cluster, dict.fromkeys(ends, FIRST))
        return {where: sizes[where] / max(end - firsts[where].offset, 1) or 1.0 for where, end in ends.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the user set per trigger."""
        if self._options.max_records:
            return ReadMaxRows(self._options.max_records)
        return ReadMaxBytes(self._options.max_bytes) if self._options.max_bytes else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Whatever comes from now on is for the next run."""
        self._target = self._ends()

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802
        """The ends, for the lag that the progress report shows."""
        return to_json(self._known) or None

    # --- batches

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch, after making sure that what they read is there."""
        ends = from_json(without_stamp(end))
        starts = from_json(without_stamp(start))
        self._begin_new(starts, ends)
        present = [where for where in ends if ends[where] > starts[where]]
        starts = self._checked({where: starts[where] for where in present}, ends)
        stamp = stamp_of(end)
        idle = [IdlePartition(stamp)] if stamp is not None and stamp != stamp_of(start) else []
        read = partitions_of(starts, {where: max(ends[where], starts[where]) for where in present}, self._options)
        return [*read, *idle]

    def _checked(self, starts: Offsets, ends: Mapping[TopicPartition, int]) -> Offsets:
        firsts = list_offsets(self._cluster, dict.fromkeys(starts, FIRST)) if starts else {}
        lost = {where: firsts[where].offset for where in starts if firsts[where].offset > starts[where]}
        for where, first in lost.items():
            said = f"{where} was to be read from offset {starts[where]} to {ends[where]} and begins at {first} now"
            if self._options.fail_on_data_loss:
                raise DataLoss(
                    f"{said}: retention removed what was not read yet. Keep records longer (retention.ms), or set "
                    "failOnDataLoss to false to go on from what is left"
                )
            _log.warning("records lost", partition=str(where), said=said, lost=min(first, ends[where]) - starts[where])
        return starts | lost

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One range, in a task."""
        if isinstance(partition, IdlePartition):
            arrow = layout_of(self._schema, self._options).arrow
            return idle_row(partition.value, arrow, self._options.event_time_column or "")
        return read_partition(partition, self._schema, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done for good; a group that the user named is moved, so that its lag can be seen outside."""
        if self._options.commit_group:
            alter_offsets(Coordinators(self._cluster), self._options.commit_group, from_json(without_stamp(end)))

    def stop(self) -> None:
        """Nothing is held that the process does not end with.

        Spark ends a query by closing the socket to this process, and the process would then fail to report that over
        the same socket, with a traceback on the user's terminal.
        """
        if sys.exc_info()[0] is EOFError and _is_spark_runner():
            os._exit(0)


def _is_spark_runner() -> bool:
    """Whether this process was started by Spark for a streaming source alone."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == "pyspark.sql.streaming.python_streaming_source_runner"
