"""What a topic may be set to, and how its log behaves then."""

from collections.abc import Mapping

from headrace.broker.settings.setting import (
    BOOLEAN,
    DOUBLE,
    INT,
    INTERNAL_SEGMENT_BYTES,
    LIST,
    LONG,
    NO_EFFECT,
    STRING,
    InvalidSetting,
    Setting,
    check_settings,
)
from headrace.delivery.bindings import parse_bindings
from headrace.delivery.overflow import Policy
from headrace.storage.config import DISK, MEMORY, LogConfig

STORAGE = "headrace.storage"
EVENTS = "headrace.events"
OVERFLOW_RECORDS, OVERFLOW_BYTES = "headrace.overflow.records", "headrace.overflow.bytes"
MEMORY_PARTITION_BYTES = 16 * 1024 * 1024  # where nothing else is set
MAX_LONG = 2**63 - 1
MIB = 1024 * 1024
_NO_COMPRESSION = "Kept and shown; without effect: batches stay as their producer compressed them."
_CODECS = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")

TOPIC_SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "cleanup.policy",
            LIST,
            "delete",
            "Remove old segments (delete), keep the latest value per key (compact), or both.",
            "log.cleanup.policy",
            choices=("delete", "compact"),
        ),
        Setting("compression.gzip.level", INT, "-1", _NO_COMPRESSION, "compression.gzip.level"),
        Setting("compression.lz4.level", INT, "9", _NO_COMPRESSION, "compression.lz4.level"),
        Setting("compression.type", STRING, "producer", _NO_COMPRESSION, "compression.type", choices=_CODECS),
        Setting("compression.zstd.level", INT, "3", _NO_COMPRESSION, "compression.zstd.level"),
        Setting(
            "delete.retention.ms",
            LONG,
            "86400000",
            "How long a compacted topic keeps tombstones.",
            "log.cleaner.delete.retention.ms",
            0,
        ),
        Setting(
            "errors.deadletterqueue.group.enable",
            BOOLEAN,
            "false",
            "Whether the dead letters of share groups may be written to this topic (KIP-1191).",
        ),
        Setting("file.delete.delay.ms", LONG, "60000", NO_EFFECT, "log.segment.delete.delay.ms", 0),
        Setting(
            "flush.messages", LONG, str(MAX_LONG), NO_EFFECT + " See durability.", "log.flush.interval.messages", 1
        ),
        Setting(
            "flush.ms",
            LONG,
            str(MAX_LONG),
            NO_EFFECT + " See durability.",
            "log.flush.interval.ms",
            0,
            stand_in=("log.flush.scheduler.interval.ms", str(MAX_LONG)),
        ),
        Setting("follower.replication.throttled.replicas", LIST, "", NO_EFFECT),
        Setting(
            "headrace.bindings",
            STRING,
            "",
            "Which other topics get copies of the records: a JSON list of `to` with `key` or `header` and `where`.",
            reader=parse_bindings,
        ),
        Setting(
            EVENTS,
            BOOLEAN,
            "false",
            "Whether the records are events of streams, as their keys and headers say: an append is checked against "
            "the versions of its streams, and an index finds the events of a stream. Such a topic keeps what it has "
            "(retention.ms=-1) unless it is set otherwise.",
        ),
        Setting(
            "headrace.queue",
            BOOLEAN,
            "false",
            "Whether records may ask to be delivered later, again and again, not any more, or once, by their headers.",
        ),
        Setting(
            "headrace.queue.dedup.window.ms",
            LONG,
            "300000",
            "For how long a second record with the same `headrace-dedup-id` is not delivered.",
            at_least=0,
        ),
        Setting(
            "headrace.queue.priorities",
            INT,
            "1",
            "How many levels of priority there are: partition p has level p modulo this, and share groups have what is "
            "on level 0 before all else. More than one: every member of a share group has all partitions.",
            at_least=1,
        ),
        Setting(
            "headrace.queue.ttl.ms",
            LONG,
            "-1",
            "How old a record may be when it is delivered, if it asks for nothing else; -1 for any age.",
            at_least=-1,
        ),
        Setting(
            "headrace.overflow",
            STRING,
            Policy.BUFFER,
            "What becomes of records for a partition that is full: buffer (there is no limit but retention), block "
            "(the producer waits), reject (it is to send them again), drop-oldest, drop-newest (which are "
            "acknowledged).",
            choices=tuple(Policy),
        ),
        Setting(
            OVERFLOW_BYTES,
            LONG,
            "-1",
            "How many bytes a partition holds when it is full; -1 for any number. A memory topic has a limit always.",
            at_least=-1,
        ),
        Setting(
            OVERFLOW_RECORDS,
            LONG,
            "-1",
            "How many records a partition holds when it is full: those that a share group has yet to finish, or all if "
            "there is none; -1 for any number.",
            at_least=-1,
        ),
        Setting(
            "headrace.queue.delete.acknowledged",
            BOOLEAN,
            "false",
            "Free the space of records once every share group of the topic has finished them.",
        ),
        Setting(
            STORAGE,
            STRING,
            DISK,
            "Where records are kept: on the disk, or in memory, where they are gone with the broker's process. It "
            "stays as the topic was created.",
            choices=(DISK, MEMORY),
        ),
        Setting(
            "index.interval.bytes",
            INT,
            "4096",
            "How many bytes lie between two index entries.",
            "log.index.interval.bytes",
            0,
        ),
        Setting("leader.replication.throttled.replicas", LIST, "", NO_EFFECT),
        Setting("local.retention.bytes", LONG, "-2", NO_EFFECT, "log.local.retention.bytes", -2),
        Setting("local.retention.ms", LONG, "-2", NO_EFFECT, "log.local.retention.ms", -2),
        Setting(
            "max.compaction.lag.ms",
            LONG,
            str(MAX_LONG),
            "After how long a record is compacted at the latest.",
            "log.cleaner.max.compaction.lag.ms",
            1,
        ),
        Setting("max.message.bytes", INT, "1048588", "The largest batch that is taken.", "message.max.bytes", 0),
        Setting(
            "message.timestamp.after.max.ms",
            LONG,
            "3600000",
            "How far ahead of the broker's clock a record may be.",
            "log.message.timestamp.after.max.ms",
            0,
        ),
        Setting(
            "message.timestamp.before.max.ms",
            LONG,
            str(MAX_LONG),
            "How far behind the broker's clock a record may be.",
            "log.message.timestamp.before.max.ms",
            0,
        ),
        Setting(
            "message.timestamp.type",
            STRING,
            "CreateTime",
            "Whose clock gives a record its time.",
            "log.message.timestamp.type",
            choices=("CreateTime", "LogAppendTime"),
        ),
        Setting(
            "min.cleanable.dirty.ratio",
            DOUBLE,
            "0.5",
            "How much of a log must be dirty before it is compacted.",
            "log.cleaner.min.cleanable.ratio",
            0,
        ),
        Setting(
            "min.compaction.lag.ms",
            LONG,
            "0",
            "How long a record stays uncompacted at least.",
            "log.cleaner.min.compaction.lag.ms",
            0,
        ),
        Setting("min.insync.replicas", INT, "1", NO_EFFECT, "min.insync.replicas", 1),
        Setting("preallocate", BOOLEAN, "false", NO_EFFECT, "log.preallocate"),
        Setting("remote.log.copy.disable", BOOLEAN, "false", NO_EFFECT),
        Setting("remote.log.delete.on.disable", BOOLEAN, "false", NO_EFFECT),
        Setting("remote.storage.enable", BOOLEAN, "false", NO_EFFECT),
        Setting(
            "retention.bytes", LONG, "-1", "How much of a partition is kept; -1 for all.", "log.retention.bytes", -1
        ),
        Setting(
            "retention.ms",
            LONG,
            "604800000",
            "How long records are kept; -1 for ever.",
            "log.retention.ms",
            -1,
            stand_in=("log.retention.hours", "168"),
        ),
        Setting("segment.bytes", INT, "1073741824", "How large a segment grows.", "log.segment.bytes", MIB),
        Setting("segment.index.bytes", INT, "10485760", "How large an index grows.", "log.index.size.max.bytes", 4),
        Setting(
            "segment.jitter.ms",
            LONG,
            "0",
            NO_EFFECT,
            "log.roll.jitter.ms",
            0,
            stand_in=("log.roll.jitter.hours", "0"),
        ),
        Setting(
            "segment.ms",
            LONG,
            "604800000",
            "How old a segment grows.",
            "log.roll.ms",
            1,
            stand_in=("log.roll.hours", "168"),
        ),
        Setting("unclean.leader.election.enable", BOOLEAN, "false", NO_EFFECT, "unclean.leader.election.enable"),
    )
}


def check_topic_settings(values: Mapping[str, str]) -> None:
    """Refuse what a topic cannot be set to, by itself or together with the rest."""
    check_settings(TOPIC_SETTINGS, values)
    least, most = (
        int(values.get(name, TOPIC_SETTINGS[name].default))
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if least > most:
        raise InvalidSetting(f"min.compaction.lag.ms={least} is above max.compaction.lag.ms={most}")
    _check_queue_settings(values)
    if _is_set(values, EVENTS) and (
        values.get(STORAGE) == MEMORY
        or values.get("headrace.overflow", Policy.BUFFER) != Policy.BUFFER
        or _is_set(values, "headrace.queue")
        or _is_set(values, "headrace.queue.delete.acknowledged")
        or "compact" in values.get("cleanup.policy", "")
    ):
        raise InvalidSetting(
            f"a topic with {EVENTS} keeps every event: unset headrace.queue, headrace.queue.delete.acknowledged, "
            "headrace.overflow and headrace.storage=memory, and set cleanup.policy=delete"
        )


def _is_set(values: Mapping[str, str], name: str) -> bool:
    return values.get(name, "false").strip().lower() == "true"


def _check_queue_settings(values: Mapping[str, str]) -> None:
    policy = values.get("headrace.overflow", Policy.BUFFER)
    limits = [int(values.get(name, -1)) for name in (OVERFLOW_RECORDS, OVERFLOW_BYTES)]
    in_memory = values.get(STORAGE) == MEMORY
    frees = _is_set(values, "headrace.queue.delete.acknowledged")
    if 0 in limits:
        raise InvalidSetting(f"{OVERFLOW_RECORDS} and {OVERFLOW_BYTES} are at least 1, or -1 for no limit")
    if in_memory and (policy == Policy.BUFFER or limits[1] < 0):
        raise InvalidSetting(f"a memory topic needs a limit: set {OVERFLOW_BYTES}, and headrace.overflow but to buffer")
    if policy == Policy.BUFFER and max(limits) >= 0:
        raise InvalidSetting(f"headrace.overflow=buffer knows no limit: choose another, or unset {OVERFLOW_BYTES}")
    if policy != Policy.BUFFER and max(limits) < 0:
        raise InvalidSetting(f"headrace.overflow={policy} needs a limit: set {OVERFLOW_RECORDS} or {OVERFLOW_BYTES}")
    if in_memory and _is_set(values, "headrace.queue"):
        raise InvalidSetting(
            "headrace.queue=true keeps messages that wait on the disk, and headrace.storage=memory nothing: unset one"
        )
    if in_memory and _is_set(values, "errors.deadletterqueue.group.enable"):
        raise InvalidSetting(
            "dead letters are kept on the disk: unset errors.deadletterqueue.group.enable or headrace.storage=memory"
        )
    if (in_memory or frees or policy != Policy.BUFFER) and "compact" in values.get("cleanup.policy", ""):
        raise InvalidSetting("a topic in memory, with a limit, or freed by acknowledgement cannot be compacted as well")


def complete_settings(values: Mapping[str, str]) -> dict[str, str]:
    """The settings of a topic with those that it cannot be without.

    What a memory topic does when it is full; and that events are kept, whatever the broker's defaults are.
    """
    if _is_set(values, EVENTS):
        return {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", **values}
    if values.get(STORAGE) != MEMORY:
        return dict(values)
    return {"headrace.overflow": Policy.BLOCK, OVERFLOW_BYTES: str(MEMORY_PARTITION_BYTES), **values}


def memory_bytes_of(values: Mapping[str, str]) -> int:
    """How much memory a partition of the topic may take for its records."""
    return int(values[OVERFLOW_BYTES]) if values.get(STORAGE) == MEMORY else 0


def log_config(topic: Mapping[str, str], broker: Mapping[str, str]) -> LogConfig:
    """How a log behaves whose topic sets these values, on a broker that sets those."""
    log_names = LogConfig().to_properties()
    values = {}
    for setting in TOPIC_SETTINGS.values():
        if setting.name in log_names:
            inherited = broker.get(setting.broker_name, setting.default)
            values[setting.name] = topic.get(setting.name, inherited).strip()
    if INTERNAL_SEGMENT_BYTES in topic:
        values["segment.bytes"] = topic[INTERNAL_SEGMENT_BYTES]
    return LogConfig.from_properties(values)
