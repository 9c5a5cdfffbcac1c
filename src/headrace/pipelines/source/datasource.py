"""`format("headrace")`, as Spark finds it."""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from headrace.pipelines.errors import BadOption
from headrace.pipelines.source.options import read_options
from headrace.pipelines.spark.daemon import quiet_planning

if TYPE_CHECKING:
    from headrace.pipelines.sink.topic.options import SinkOptions

# Spark starts a Python process for each step of planning a query, and each imports this module: what a step does not
# use is imported where it is used.
quiet_planning()


class HeadraceDataSource(DataSource):
    """Topics of our broker or of any Kafka, read and written columnar."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> StructType:
        """The columns where the user gave none: the record's own, or what its values look like."""
        options = read_options(self.options)
        if options.format == "raw":
            from headrace.pipelines.source.columns import raw_schema

            return raw_schema(include_headers=options.include_headers)
        from headrace.pipelines.source.inference import infer_schema

        return infer_schema(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from headrace.pipelines.source.reading import BoundedReader

        return BoundedReader(schema, read_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from headrace.pipelines.source.stream import StreamReader

        return StreamReader(schema, read_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headrace.pipelines.sink.topic.writers import BoundedWriter

        if overwrite:
            raise BadOption('a topic is only ever added to: write .mode("append")')
        return BoundedWriter(self._sink(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        from headrace.pipelines.sink.topic.writers import StreamWriter

        return StreamWriter(self._sink(schema))

    def _sink(self, schema: StructType) -> "SinkOptions":
        from headrace.pipelines.sink.topic.options import check_columns
        from headrace.pipelines.sink.topic.options import read_options as read_sink_options

        options = read_sink_options(self.options)
        check_columns(schema, options)
        return options
