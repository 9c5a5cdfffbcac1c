"""What a user can say about reading a topic."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.pipelines.errors import BadOption
from headrace.pipelines.options import Options

WHERE = 'the source format("headrace")'
FORMATS = ("raw", "json", "avro", "protobuf", "csv", "logfmt", "common", "combined", "syslog")
# Every option with its default and its meaning, as the reference page shows them; empty where there is no default.
DECODER_OPTIONS = {
    "epochUnit": (
        "",
        "What a number in a timestamp column counts: s, ms or us; without it such a number is bad.",
    ),
    "avroSchema": ("", "The reader's schema (defaults, aliases), or with avroFraming=none the writer's."),
    "avroFraming": ("confluent", "confluent (a schema id before each value) or none."),
    "schemaRegistry": ("", "The URL of the registry that knows the ids of Confluent's framing."),
    "descriptorFile": ("", "The file that protoc --descriptor_set_out --include_imports writes."),
    "message": ("", "The full name of the message type."),
    "protobufFraming": ("confluent", "confluent or none."),
    "delimiter": (",", "What stands between fields; \\t is a tab."),
    "quote": ('"', "What stands around a field that holds a delimiter."),
    "nullText": ("", "The unquoted text that means null; by default the empty one."),
    "timeZone": ("UTC", "The zone of times that name none: UTC, +02:00, or a name such as Europe/Berlin."),
}
KNOWN = {
    "bootstrap": ("", "host:port of a broker, several with commas. kafka.bootstrap.servers says the same."),
    "subscribe": ("", "The topic to read, several with commas; load(…) says the same."),
    "subscribePattern": ("", "A regular expression; every topic whose whole name fits is read, new ones too."),
    "assign": ("", 'Topics with their partitions as JSON: {"orders": [0, 1]}.'),
    # Its default depends: latest for a stream (a job sets earliest), earliest for a bounded read.
    "startingOffsets": ("", "Where a query without a checkpoint begins: earliest, latest, or offsets as JSON."),
    "startingTimestamp": ("", "Instead: the first record of that time or later, in milliseconds or as ISO 8601."),
    "startingGroup": ("", "Instead: where a consumer group stands; earliest where it has committed nothing."),
    "endingOffsets": ("", "Where a bounded read ends, by default at latest; written like startingOffsets."),
    "endingTimestamp": ("", "Instead: before the first record of that time or later."),
    "maxRecordsPerTrigger": (
        "",
        "At most about so many records a batch, up to one moment of record time in all partitions.",
    ),
    "maxOffsetsPerTrigger": ("", "The name that Spark's Kafka source has for maxRecordsPerTrigger."),
    "maxBytesPerTrigger": ("", "At most about so many bytes a batch, by what records take on the broker's disk."),
    "minPartitions": ("1", "At least so many tasks a batch, as long as there are records to share."),
    "recordsPerTask": ("1000000", "A task reads at most so many records; a longer range is split."),
    "isolation": ("read_committed", "Or read_uncommitted: also what was aborted, or is not decided yet."),
    "failOnDataLoss": ("true", "Fail if records went away unread (retention, a topic made again); false goes on."),
    "idleTimeout": ("", "After so many seconds without a record, time goes on with the wall clock: windows can end."),
    "eventTimeColumn": ("", "With idleTimeout: the column that time goes on in, a timestamp or ISO 8601 text."),
    "includeHeaders": ("false", "A column headers in the raw format."),
    "format": ("raw", "What the values are: raw, json, avro, protobuf, csv, logfmt, common, combined or syslog."),
    "onBadRecord": ("dead-letter", "What becomes of a value that does not decode: dead-letter or fail."),
    "deadLetterTopic": ("", "The topic for such records; by default TOPIC.dead-letters."),
    "job": ("", "Who reads, for the dead letters: two queries of one topic have theirs apart. A job sets its name."),
    "commitGroup": ("", "A group whose offsets follow the query after every batch, for tools that show lag."),
    "fetchBytes": ("2097152", "At most so many bytes of a partition a fetch."),
    "schemaFile": ("", "JSON without a schema: the file in which the inferred columns are pinned."),
    "sampleRecords": ("1000", "JSON without a schema: from how many of the first records columns are inferred."),
    "path": ("", "What load(…) sets: the same as subscribe."),
    **DECODER_OPTIONS,
}
STEP = "headrace.step"
"""Not for users: what an operator that stands right behind the source has it do (`steps`)."""
_ASSIGN_EXAMPLE = '{"orders": [0, 1]}'


@dataclass(frozen=True, slots=True)
class SourceOptions:
    bootstrap: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    starting: "OffsetSpec | None" = None
    ending: "OffsetSpec | None" = None
    max_records: int | None = None
    max_bytes: int | None = None
    min_tasks: int = 1
    records_per_task: int = 1_000_000
    committed: bool = True
    fail_on_data_loss: bool = True
    include_headers: bool = False
    format: str = "raw"
    fail_on_bad_record: bool = False
    dead_letter_topic: str | None = None
    job: str = ""
    commit_group: str | None = None
    fetch_bytes: int = 2 * 1024 * 1024
    idle_timeout_s: float | None = None
    event_time_column: str | None = None
    schema_file: str | None = None
    sample_records: int = 1000
    decoder: Mapping[str, str] = field(default_factory=dict)
    step: str | None = None  # see `steps`
    connection: Mapping[str, str] = field(default_factory=dict, repr=False)  # it may hold passwords

    @property
    def described(self) -> str:
        return self.pattern or ", ".join(self.topics or self.assigned)


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """How an offset was named: one of the fields is set."""

    word: str | None = None  # earliest or latest
    offsets: Mapping[str, Mapping[int, int]] | None = None
    timestamp_ms: int | None = None
    group: str | None = None


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """The options as Spark hands them over; raises `BadOption` at the first mistake."""
    step = next((value for name, value in given.items() if name.lower() == STEP), None)
    options = Options({name: value for name, value in given.items() if name.lower() != STEP}, KNOWN, WHERE)
    bootstrap = options.required("bootstrap", "kafka.bootstrap.servers", example='"bootstrap", "127.0.0.1:9092"')
    subscribed = options.text("subscribe", "path")
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if options.text(name)]
    if subscribed and not ways:
        ways = ["subscribe"]
    if len(ways) != 1:
        said = f"{' and '.join(ways)} are given" if ways else "none is given"
        raise BadOption(f"{WHERE} reads what exactly one of subscribe, subscribePattern and assign names: {said}")
    isolation = options.text("isolation", "kafka.isolation.level") or "read_committed"
    if isolation not in ("read_committed", "read_uncommitted"):
        raise options.bad("isolation", "choose read_committed or read_uncommitted")
    kind = options.choice("format", FORMATS, "raw")
    return SourceOptions(
        bootstrap=bootstrap,
        topics=_topics(options, subscribed) if ways == ["subscribe"] else (),
        pattern=options.text("subscribePattern"),
        assigned=_assigned(options) if ways == ["assign"] else {},
        starting=_offset_spec(options, "starting"),
        ending=_offset_spec(options, "ending"),
        max_records=options.number("maxRecordsPerTrigger", "maxOffsetsPerTrigger"),
        max_bytes=options.number("maxBytesPerTrigger"),
        min_tasks=options.number("minPartitions", default=1) or 1,
        records_per_task=options.number("recordsPerTask", default=1_000_000) or 1_000_000,
        committed=isolation == "read_committed",
        fail_on_data_loss=options.flag("failOnDataLoss", default=True),
        idle_timeout_s=options.number("idleTimeout"),
        event_time_column=options.text("eventTimeColumn"),
        include_headers=options.flag("includeHeaders", default=False),
        format=kind,
        fail_on_bad_record=options.choice("onBadRecord", ("dead-letter", "fail"), "dead-letter") == "fail",
        dead_letter_topic=options.text("deadLetterTopic"),
        job=options.text("job") or "",
        commit_group=options.text("commitGroup"),
        fetch_bytes=options.number("fetchBytes", default=2 * 1024 * 1024, least=1024) or 0,
        schema_file=options.text("schemaFile"),
        sample_records=options.number("sampleRecords", default=1000) or 1000,
        decoder={name.lower(): text for name in DECODER_OPTIONS if (text := options.text(name)) is not None},
        step=step,
        connection=options.connection(but="isolation.level"),
    )


def _topics(options: Options, subscribed: str | None) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(name.strip() for name in (subscribed or "").split(",") if name.strip()))
    if not topics:
        raise options.bad("subscribe", "name a topic, or several with commas between them")
    return topics


def _assigned(options: Options) -> dict[str, tuple[int, ...]]:
    found = options.parsed("assign", _ASSIGN_EXAMPLE)
    good = isinstance(found, dict) and all(
        isinstance(indexes, list) and all(isinstance(index, int) and index >= 0 for index in indexes)
        for indexes in found.values()
    )
    if not good or not found:
        raise options.bad("assign", f"write topics with their partitions, {_ASSIGN_EXAMPLE}")
    return {topic: tuple(indexes) for topic, indexes in found.items()}


def _offset_spec(options: Options, end: str) -> OffsetSpec | None:
    names = [f"{end}Offsets", f"{end}Timestamp"] + (["startingGroup"] if end == "starting" else [])
    given = [name for name in names if options.text(name) is not None]
    if not given:
        return None
    if len(given) > 1:
        raise BadOption(f"{WHERE} takes one of {' and '.join(given)}, not both: leave one out")
    text = options.text(given[0]) or ""
    if given[0] == "startingGroup":
        return OffsetSpec(group=text)
    if given[0].endswith("Timestamp"):
        return OffsetSpec(timestamp_ms=_milliseconds(options, given[0], text))
    if text.lower() in ("earliest", "latest"):
        return OffsetSpec(word=text.lower())
    return OffsetSpec(offsets=_offsets(options, given[0]))


def _milliseconds(options: Options, name: str, text: str) -> int:
    from datetime import UTC, datetime

    if text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise options.bad(name, "write milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z") from None
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _offsets(options: Options, name: str) -> dict[str, dict[int, int]]:
    example = '{"orders": {"0": 23, "1": -2}} (-2 is earliest, -1 latest), or earliest, or latest'
    found = options.parsed(name, example)
    try:
        offsets = {
            topic: {int(index): int(offset) for index, offset in indexes.items()} for topic, indexes in found.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise options.bad(name, f"write {example}") from None
    if any(offset < -2 for indexes in offsets.values() for offset in indexes.values()):
        raise options.bad(name, f"an offset is 0 or more, -1 or -2; write {example}")
    return offsets
