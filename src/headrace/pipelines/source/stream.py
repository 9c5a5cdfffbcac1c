"""`spark.readStream.format("headrace")`: where a query stands, and how far its next batch goes.

Offsets in the checkpoint have the form of Spark's own Kafka source, with the id of each topic beside its partitions: a
topic that is made again is another one, whose records must not be taken for those of the one before.
"""

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
from headrace.client.errors import UnknownPartition, UnknownTopic
from headrace.client.groups import alter_offsets
from headrace.client.offsets import EARLIEST as FIRST
from headrace.client.offsets import LATEST as LAST
from headrace.client.offsets import YOUNGEST, list_offsets
from headrace.model import TopicPartition
from headrace.pipelines.clusters import cluster_at
from headrace.pipelines.errors import DataLoss
from headrace.pipelines.source.alignment import Backlog, Moment, align_batch
from headrace.pipelines.source.columns import layout_of
from headrace.pipelines.source.idle import KEY as IDLE
from headrace.pipelines.source.idle import IdlePartition, Silence, check_idle, idle_row, stamp_of, without_stamp
from headrace.pipelines.source.lives import Position, find_gone, follow, planned_starts
from headrace.pipelines.source.offsets import LATEST, find_offsets, refresh_topics, select_partitions
from headrace.pipelines.source.options import SourceOptions
from headrace.pipelines.source.planning import Offsets, ids_in, limit_offsets, offsets_in, to_json
from headrace.pipelines.source.reading import REMEDY, oldest_times, partitions_of, read_partition
from headrace.pipelines.source.steps import columns_read, in_cells
from headrace.pipelines.spark.daemon import end_with_spark
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in the driver's Python worker for as long as the query runs; `read` alone runs in tasks."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema = schema = columns_read(options.step) if options.step else schema
        self._options = options
        self._target: Position | None = None  # with available-now, where the run ends
        self._known = Position({}, {})  # the ends as last heard of
        self._moment_ms = 0  # of record time, up to which the last batch went
        self._warned: set[str] = set()
        self._silence = Silence(options.idle_timeout_s) if options.idle_timeout_s else None
        layout_of(schema, options).decoder(options)  # a mistake is raised before anything runs
        check_idle(schema, options)

    @property
    def _cluster(self) -> Cluster:
        return cluster_at(self._options.bootstrap, self._options.connection)

    # --- offsets

    def initialOffset(self) -> dict[str, dict[str, Any]]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins."""
        options = self._options
        where = select_partitions(self._cluster, options)
        offsets = find_offsets(self._cluster, where, options.starting or LATEST, committed=options.committed)
        return to_json(offsets, self._ids(where))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, dict[str, Any]]:  # noqa: N802
        stands = _position(start)
        there = self._known = self._ends(stands) if self._target is None else self._target
        starts, losses = follow(stands, self._with_open(stands, there))
        for loss in losses:
            self._lose(loss)
            self._moment_ms = 0  # another topic has other times
        self._begin_new(starts, there.offsets)
        ends = {where: max(end, starts[where]) for where, end in there.offsets.items()}
        gone = {where: offset for where, offset in starts.items() if where not in ends}
        to = to_json(gone | self._limited(starts, ends, limit), {**stands.ids, **there.ids})
        if self._silence is None or self._target is not None:
            return to | {name: part for name, part in start.items() if name not in without_stamp(start)}
        return self._silence.stamped(
            start, to, now_s=time.monotonic(), wall_ms=time.time_ns() // 1_000_000, holds_back=self._holds_back
        )

    def _holds_back(self) -> bool:
        """Whether there is more than may be read yet: the last stable offset is before the end."""
        known = self._known.offsets
        ends = list_offsets(self._cluster, dict.fromkeys(known, LAST))
        return any(found.offset > known[where] for where, found in ends.items())

    def _ends(self, stands: Position) -> Position:
        known = {where.topic for where in stands.offsets}
        where = select_partitions(self._cluster, self._options, known=known)
        offsets = find_offsets(self._cluster, where, LATEST, committed=self._options.committed)
        return Position(offsets, self._ids(where))

    def _ids(self, partitions: Iterable[TopicPartition]) -> dict[str, str]:
        return {topic: self._cluster.topic(topic).id_text for topic in {where.topic for where in partitions}}

    def _with_open(self, stands: Position, there: Position) -> Position:
        """With open transactions, where a query stands behind their start: it was run with another isolation before."""
        before = [where for where, end in there.offsets.items() if end < stands.offsets.get(where, 0)]
        if not before or not self._options.committed:
            return there
        ends = list_offsets(self._cluster, dict.fromkeys(before, LAST))
        held = {where: min(ends[where].offset, stands.offsets[where]) for where in before}
        return Position(there.offsets | held, there.ids)

    def _lose(self, loss: str) -> None:
        """Records are gone that were not read: fail, or say so once."""
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{loss}. {REMEDY}")
        if loss not in self._warned:
            self._warned.add(loss)
            _log.warning("records lost", said=loss)

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
            return limit_offsets(starts, ends, budget, cost)
        try:
            moment = self._aligned(starts, waiting, budget, cost)
        except (UnknownTopic, UnknownPartition):  # `partitions` says what that means
            return limit_offsets(starts, ends, budget, cost)
        self._moment_ms = moment.time_ms
        return ends | moment.offsets

    def _aligned(
        self, starts: Offsets, waiting: Offsets, budget: float, cost: Mapping[TopicPartition, float]
    ) -> Moment:
        def offsets_at(time_ms: int) -> Offsets:
            found = list_offsets(self._cluster, dict.fromkeys(waiting, time_ms))
            return {where: each.offset for where, each in found.items()}

        def oldest_from(offsets: Offsets) -> Offsets:
            return oldest_times(self._cluster, offsets, waiting, committed=self._options.committed)

        youngest = list_offsets(self._cluster, dict.fromkeys(waiting, YOUNGEST))
        last_ms = max(found.timestamp for found in youngest.values())
        backlog = Backlog(starts, waiting, cost, offsets_at, oldest_from)
        return align_batch(backlog, budget, first_ms=self._moment_ms, last_ms=last_ms)

    def _record_bytes(self, ends: Offsets) -> dict[TopicPartition, float]:
        """About what a record of each partition takes, by what all of them take on the broker's disk."""
        sizes = describe_log_dirs(self._cluster, ends)
        firsts = list_offsets(self._cluster, dict.fromkeys(ends, FIRST))
        return {where: sizes[where] / max(end - firsts[where].offset, 1) or 1.0 for where, end in ends.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_records:
            return ReadMaxRows(self._options.max_records)
        return ReadMaxBytes(self._options.max_bytes) if self._options.max_bytes else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Whatever comes from now on is for the next run."""
        self._target = self._ends(self._known)

    def reportLatestOffset(self) -> dict[str, dict[str, Any]] | None:  # noqa: N802
        """The ends, for the lag that the progress report shows."""
        return to_json(self._known.offsets) or None

    # --- batches

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch, after making sure that what they read is there."""
        planned = _position(end)
        ends = planned.offsets
        starts = planned_starts(_position(start), planned)
        wanted = [where for where in ends if ends[where] > starts.get(where, 0)]
        topics = {where.topic for where in wanted}
        there = self._ids(TopicPartition(topic, 0) for topic in refresh_topics(self._cluster, topics, topics))
        lost = find_gone(planned, there, wanted)
        for loss in lost.values():
            self._lose(loss)
        wanted = [where for where in wanted if where.topic not in lost]
        self._begin_new(starts, dict.fromkeys(wanted, 0))
        present = [where for where in wanted if ends[where] > starts[where]]
        starts = self._checked({where: starts[where] for where in present}, ends)
        stamp = stamp_of(end)
        idle = [IdlePartition(stamp)] if stamp is not None and stamp != stamp_of(start) else []
        upto = {where: max(ends[where], starts[where]) for where in present}
        read = partitions_of(starts, upto, planned.ids or there, self._options)
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
        if isinstance(partition, IdlePartition):
            arrow = layout_of(self._schema, self._options).arrow
            return idle_row(partition.value, arrow, self._options.event_time_column or "")
        batches = read_partition(partition, self._schema, self._options)
        return in_cells(batches, self._options.step) if self._options.step else batches

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done for good; a group that the user named is moved, so that its lag can be seen outside."""
        if self._options.commit_group:
            topics = set(end)
            there = set(refresh_topics(self._cluster, topics - {IDLE}, topics))
            offsets = {where: offset for where, offset in _position(end).offsets.items() if where.topic in there}
            alter_offsets(Coordinators(self._cluster), self._options.commit_group, offsets)

    def stop(self) -> None:
        """Nothing is held that the process does not end with."""
        end_with_spark()


def _position(offsets: Mapping[str, Any]) -> Position:
    """From Spark's checkpoint."""
    plain = without_stamp(offsets)
    return Position(offsets_in(plain), ids_in(plain))
