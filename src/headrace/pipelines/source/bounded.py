"""`spark.read.format("headrace")`: a topic from one place to another, once."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.pipelines.clusters import cluster_at
from headrace.pipelines.source.columns import layout_of
from headrace.pipelines.source.options import Place, SourceOptions
from headrace.pipelines.source.places import find
from headrace.pipelines.source.planning import SMALL, Offsets, Range, ranges, tasks
from headrace.pipelines.source.reading import read_range
from headrace.pipelines.source.selection import selected

EARLIEST, LATEST = Place(word="earliest"), Place(word="latest")


class RangesPartition(InputPartition):
    """What one task reads, as Spark wants it."""

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
    """What a task does with its partition."""
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
        layout_of(schema, options).decoder(options)  # a mistake is told before anything runs

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges to read."""
        options = self._options
        cluster = cluster_at(options.bootstrap, options.connection)
        where = selected(cluster, options)
        starts = find(cluster, where, options.starting or EARLIEST, committed=options.committed)
        ends = find(cluster, where, options.ending or LATEST, committed=options.committed)
        return partitions_of(starts, ends, {name: cluster.topic(name).id_text for name, _ in where}, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One range."""
        return read_partition(partition, self._schema, self._options)
