"""Which columns a row may have on its way to a topic, the same as for Spark's own Kafka sink."""

from pyspark.sql.types import StructType

from headrace.pipelines.errors import BadSchema
from headrace.pipelines.sink.topic.options import SinkOptions

TYPES = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int", "bigint"),
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


def check(schema: StructType, options: SinkOptions) -> None:
    """Refuse columns that cannot be written, before anything is; raises `BadSchema`."""
    for field in schema.fields:
        if field.name not in TYPES:
            raise BadSchema(
                f"column {field.name!r} is none that a record has ({', '.join(TYPES)}): put the columns in the value, "
                'for example with df.selectExpr("to_json(struct(*)) AS value")'
            )
        kind = field.dataType.simpleString()
        if kind not in TYPES[field.name]:
            raise BadSchema(f"column {field.name!r} is {kind}: it has to be {' or '.join(TYPES[field.name])}")
    if "value" not in schema.names:
        raise BadSchema(
            "there is no column 'value' to write: make one, for example with "
            'df.selectExpr("to_json(struct(*)) AS value")'
        )
    if options.topic is None and "topic" not in schema.names:
        raise BadSchema("no topic is named: write .option(\"topic\", …), or add a column 'topic'")
