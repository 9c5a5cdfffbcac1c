"""Reading ranges of partitions, in a task: fetched bytes in, Arrow batches out; and `spark.read`, planned once."""

import time
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.client.cluster import Cluster
from headrace.client.errors import OffsetOutOfRange, TopicReplaced, UnknownTopic
from headrace.client.fetch import Fetched, Fetcher, FetchOptions
from headrace.client.reader import visible_batches
from headrace.dead_letters import topic_for, write_letters
from headrace.delivery.letters import Letter
from headrace.model import TopicPartition
from headrace.pipelines.clusters import cluster_at
from headrace.pipelines.columns.decoding import Decoded
from headrace.pipelines.columns.records import FOR_EVER, RecordColumns, columns_of
from headrace.pipelines.errors import BadRecord, DataLoss
from headrace.pipelines.source.columns import Layout, layout_of, record_column
from headrace.pipelines.source.offsets import EARLIEST, LATEST, find_offsets, select_partitions
from headrace.pipelines.source.options import SourceOptions
from headrace.pipelines.source.planning import SMALL, Offsets, Range, ranges, tasks
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)
_LONGEST_SILENCE_S = 60.0
_LOOK_BYTES = 16 * 1024
REMEDY = (
    "What was not read of it is gone. Start again with a new checkpoint (headrace pipeline reset FILE JOB), or set "
    "failOnDataLoss to false to go on with what is there, from its first record"
)


def read_range(wanted: Range, layout: Layout, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    decoder = layout.decoder(options)
    cluster = cluster_at(options.bootstrap, options.connection)
    for records in _fetched(cluster, wanted, options):
        decoded = decoder.decode(records) if decoder else None
        if decoded and decoded.broken:
            _bad_records(cluster, wanted, records, decoded, options)
        yield _batch(wanted, layout, records, decoded)


def oldest_times(cluster: Cluster, offsets: Offsets, ends: Offsets, *, committed: bool) -> Offsets:
    """The oldest time of the first few records from each offset on; behind every time where none can be had."""
    asked = FetchOptions(max_wait_ms=100, partition_max_bytes=_LOOK_BYTES, committed=committed)
    fetcher = Fetcher(cluster, offsets, asked, until=ends)
    found = dict.fromkeys(offsets, FOR_EVER)
    while fetcher.positions:
        try:
            answers = fetcher.poll()
        except OffsetOutOfRange as error:  # retention was here; `partitions` says what that means
            left = {where: offset for where, offset in fetcher.positions.items() if where != error.partition}
            fetcher = Fetcher(cluster, left, asked, until=ends)
            continue
        for fetched in answers:
            fetcher.drop(fetched.partition)
            batches = visible_batches(fetched, committed=committed)
            times = columns_of(batches, first_offset=fetched.offset, until_offset=ends[fetched.partition]).timestamp
            found[fetched.partition] = int(times.min()) if len(times) else -1  # nothing but markers
        if not answers:
            break
    return found


def _fetched(cluster: Cluster, wanted: Range, options: SourceOptions) -> Iterator[RecordColumns]:
    where = TopicPartition(wanted.topic, wanted.partition)
    asked = FetchOptions(
        max_bytes=max(2 * options.fetch_bytes, 1 << 20),
        partition_max_bytes=options.fetch_bytes,
        committed=options.committed,
        read_ahead=True,
    )
    until, ids = {where: wanted.end}, {wanted.topic: wanted.topic_id}
    fetcher = Fetcher(cluster, {where: wanted.start}, asked, until=until, ids=ids)
    heard = time.monotonic()
    while fetcher.positions[where] < wanted.end:
        try:
            answers = fetcher.poll()
        except OffsetOutOfRange as error:
            if options.fail_on_data_loss:
                raise DataLoss(
                    f"{error}: it was removed while the query ran; set failOnDataLoss to false to go on from what "
                    "is left"
                ) from error
            if error.start >= wanted.end:
                return
            fetcher = Fetcher(cluster, {where: max(error.start, wanted.start)}, asked, until=until, ids=ids)
            continue
        except (TopicReplaced, UnknownTopic) as error:
            if options.fail_on_data_loss:
                raise DataLoss(f"{error}. {REMEDY}") from error
            _log.warning("records lost", partition=str(where), error=str(error))
            return
        for fetched in answers:
            heard = time.monotonic()
            yield from _columns(fetched, wanted, options)
        if not answers and time.monotonic() - heard > _LONGEST_SILENCE_S:
            raise DataLoss(
                f"{where} was to be read up to offset {wanted.end} and gives nothing from "
                f"{fetcher.positions[where]} on: was the topic made anew? Reset the checkpoint to read it from the top"
            )


def _columns(fetched: Fetched, wanted: Range, options: SourceOptions) -> Iterator[RecordColumns]:
    batches = list(visible_batches(fetched, committed=options.committed))
    if batches:
        records = columns_of(batches, first_offset=max(fetched.offset, wanted.start), until_offset=wanted.end)
        if len(records):
            yield records


def _bad_records(
    cluster: Cluster, wanted: Range, records: RecordColumns, decoded: Decoded, options: SourceOptions
) -> None:
    if options.fail_on_bad_record:
        row, reason = next(iter(decoded.broken.items()))
        raise BadRecord(
            f"record {int(records.offset[row])} of {wanted.topic}-{wanted.partition} is not {options.format} "
            f"with the wanted columns: {reason}; mend it at its source, or leave out onBadRecord=fail to set "
            "such records aside"
        )
    letters = [
        Letter(
            wanted.topic,
            wanted.partition,
            int(records.offset[row]),
            int(records.timestamp[row]),
            _bytes(records, "key", row),
            _bytes(records, "value", row),
            reason,
            options.format,
            options.job,
        )
        for row, reason in decoded.broken.items()
    ]
    write_letters(cluster, topic_for(wanted.topic, options.dead_letter_topic), letters)


def _bytes(records: RecordColumns, part: str, row: int) -> bytes | None:
    start, size = int(getattr(records, f"{part}_at")[row]), int(getattr(records, f"{part}_size")[row])
    return None if size < 0 else records.arena[start : start + size].tobytes()


def _batch(wanted: Range, layout: Layout, records: RecordColumns, decoded: Decoded | None) -> pa.RecordBatch:
    fields = iter(decoded.columns if decoded else ())
    columns = [
        next(fields) if name is None else record_column(name, records, wanted.topic, wanted.partition, kind.type)
        for name, kind in zip(layout.about, layout.arrow, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=layout.arrow)
    if decoded and decoded.broken:
        keep = [row for row in range(len(records)) if row not in decoded.broken]
        batch = batch.take(pa.array(keep, pa.int64()))
    return batch


# --- what Spark is given to read


class RangesPartition(InputPartition):
    def __init__(self, wanted: Sequence[Range]) -> None:
        super().__init__(tuple(map(tuple, wanted)))


def partitions_of(
    starts: Offsets, ends: Offsets, ids: Mapping[str, str], options: SourceOptions
) -> list[InputPartition]:
    """The tasks that read what lies between two offsets of each partition, of the topics with these ids."""
    shared = ranges(starts, ends, min_tasks=options.min_tasks, records_per_task=options.records_per_task, ids=ids)
    small = min(SMALL, options.records_per_task)
    return [RangesPartition(wanted) for wanted in tasks(shared, min_tasks=options.min_tasks, small=small)]


def read_partition(partition: InputPartition, schema: StructType, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    if partition.value is None:  # Spark makes such a one where there is nothing to read
        return
    layout = layout_of(schema, options)
    for wanted in partition.value:
        yield from read_range(Range(*wanted), layout, options)


class BoundedReader(DataSourceReader):
    """Decides at planning time where to begin and to end."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema = schema
        self._options = options
        layout_of(schema, options).decoder(options)  # a mistake is raised before anything runs

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        cluster = cluster_at(options.bootstrap, options.connection)
        where = select_partitions(cluster, options)
        starts = find_offsets(cluster, where, options.starting or EARLIEST, committed=options.committed)
        ends = find_offsets(cluster, where, options.ending or LATEST, committed=options.committed)
        return partitions_of(starts, ends, {name: cluster.topic(name).id_text for name, _ in where}, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._schema, self._options)
