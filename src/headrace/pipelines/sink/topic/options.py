"""What a user can say about writing to a topic, and which columns a row may have: those of Spark's Kafka sink."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.pipelines.columns.encode import BATCH_BYTES
from headrace.pipelines.errors import BadSchema
from headrace.pipelines.options import Options
from headrace.records import Codec

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

WHERE = 'the sink format("headrace")'
DECISIONS_TOPIC = "__headrace_decisions"
# Every option with its default and its meaning, as the reference page shows them; empty where there is no default.
KNOWN = {
    "bootstrap": ("", "host:port of a broker, several with commas. kafka.bootstrap.servers says the same."),
    "topic": ("", "The topic for rows whose own column topic does not name one; save(…) says the same."),
    "compression": ("lz4", "none, gzip, snappy, lz4 or zstd. kafka.compression.type says the same."),
    "delivery": ("exactly-once", "exactly-once or at-least-once, which writes without transactions."),
    "transactionTimeoutMs": ("900000", "How long a transaction may be open; a batch may use three quarters of it."),
    "decisionsTopic": (DECISIONS_TOPIC, "The compacted topic with each query's last decision; made at first use."),
    "batchBytes": (str(BATCH_BYTES), "How large a record batch may be before compression."),
    "path": ("", "What save(…) and start(…) set: the same as topic."),
    "checkpointLocation": ("", "Spark's own: where a query remembers how far it is. One query each."),
    "queryName": ("", "Spark's own: a name for the query."),
}

COLUMNS = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int", "bigint"),
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    bootstrap: str
    topic: str | None = None  # where the rows' own column does not say
    codec: Codec = Codec.LZ4
    exactly_once: bool = True
    # The longest that a broker allows by default: a decided batch has to be committed within this time of its writing.
    transaction_timeout_ms: int = 900_000
    decisions_topic: str = DECISIONS_TOPIC
    batch_bytes: int = BATCH_BYTES
    connection: Mapping[str, str] = field(default_factory=dict, repr=False)  # it may hold passwords


def read_options(given: Mapping[str, str]) -> SinkOptions:
    """The options as Spark hands them over; raises `BadOption` at the first mistake."""
    options = Options(given, KNOWN, WHERE)
    codecs = tuple(codec.name.lower() for codec in Codec)
    compression = options.text("compression", "kafka.compression.type") or "lz4"
    if compression.lower() not in codecs:
        raise options.bad("compression", f"choose one of {', '.join(codecs)}")
    delivery = options.choice("delivery", ("exactly-once", "at-least-once"), "exactly-once")
    return SinkOptions(
        bootstrap=options.required("bootstrap", "kafka.bootstrap.servers", example='"bootstrap", "127.0.0.1:9092"'),
        topic=options.text("topic", "path"),
        codec=Codec.named(compression),
        exactly_once=delivery == "exactly-once",
        transaction_timeout_ms=options.number("transactionTimeoutMs", default=900_000, least=1000) or 0,
        decisions_topic=options.text("decisionsTopic") or DECISIONS_TOPIC,
        batch_bytes=options.number("batchBytes", default=BATCH_BYTES, least=1024) or BATCH_BYTES,
        connection=options.connection(but="compression.type"),
    )


def check_columns(schema: "StructType", options: SinkOptions) -> None:
    """Refuse columns that cannot be written, before anything is; raises `BadSchema`."""
    for name, kind in ((each.name, each.dataType.simpleString()) for each in schema.fields):
        if name not in COLUMNS:
            raise BadSchema(
                f"column {name!r} is not one that a record has ({', '.join(COLUMNS)}): put the columns in the value, "
                'for example with df.selectExpr("to_json(struct(*)) AS value")'
            )
        if kind not in COLUMNS[name]:
            raise BadSchema(f"column {name!r} is {kind}: it has to be {' or '.join(COLUMNS[name])}")
    if "value" not in schema.names:
        raise BadSchema(
            "there is no column 'value' to write: make one, for example with "
            'df.selectExpr("to_json(struct(*)) AS value")'
        )
    if options.topic is None and "topic" not in schema.names:
        raise BadSchema("no topic is named: write .option(\"topic\", …), or add a column 'topic'")
