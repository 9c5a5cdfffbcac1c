"""What bears on groups: the broker's settings for all of them, and those that a group may have of its own.

What a group may have of its own is named as on the broker, without `group.`, and defaults to what is set there; a few
settings of share groups are theirs alone. `limits_of` names the broker's settings that bound it.
"""

from dataclasses import replace

from headrace.broker.settings.setting import BOOLEAN, INT, STRING, Setting
from headrace.delivery.filters import Filter
from headrace.delivery.order import Order

BROKER_SETTINGS_OF_GROUPS: tuple[Setting, ...] = (
    Setting(
        "group.consumer.heartbeat.interval.ms",
        INT,
        "5000",
        "How often new-style members are heard of.",
        at_least=1,
    ),
    Setting(
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        "15000",
        "The longest heartbeat interval that a group may be given.",
        at_least=1,
    ),
    Setting(
        "group.consumer.max.session.timeout.ms",
        INT,
        "60000",
        "The longest session time-out that a group may be given.",
        at_least=1,
    ),
    Setting(
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        "5000",
        "The shortest heartbeat interval that a group may be given.",
        at_least=1,
    ),
    Setting(
        "group.consumer.min.session.timeout.ms",
        INT,
        "45000",
        "The shortest session time-out that a group may be given.",
        at_least=1,
    ),
    Setting(
        "group.consumer.session.timeout.ms",
        INT,
        "45000",
        "How long a new-style member may be silent.",
        at_least=1,
    ),
    Setting(
        "group.initial.rebalance.delay.ms",
        INT,
        "3000",
        "How long a new group waits for more members.",
        at_least=0,
    ),
    Setting("group.max.session.timeout.ms", INT, "1800000", "The longest session a member may ask for.", at_least=1),
    Setting(
        "group.consumer.max.size",
        INT,
        "2147483647",
        "How many new-style members a group may have.",
        at_least=1,
    ),
    Setting("group.max.size", INT, "2147483647", "How many members a group may have.", at_least=1),
    Setting("group.min.session.timeout.ms", INT, "6000", "The shortest session a member may ask for.", at_least=1),
    Setting(
        "group.streams.heartbeat.interval.ms",
        INT,
        "5000",
        "How often members of streams groups are heard of.",
        at_least=1,
    ),
    Setting(
        "group.streams.initial.rebalance.delay.ms",
        INT,
        "3000",
        "How long a streams group that begins waits for more members.",
        at_least=0,
    ),
    Setting(
        "group.streams.max.heartbeat.interval.ms",
        INT,
        "15000",
        "The longest heartbeat interval that a streams group may be given.",
        at_least=1,
    ),
    Setting(
        "group.streams.max.session.timeout.ms",
        INT,
        "60000",
        "The longest session time-out that a streams group may be given.",
        at_least=1,
    ),
    Setting(
        "group.streams.max.size",
        INT,
        "2147483647",
        "How many members a streams group may have.",
        at_least=1,
    ),
    Setting(
        "group.streams.max.standby.replicas",
        INT,
        "2",
        "The most standby copies of a task that a streams group may be given.",
        at_least=0,
    ),
    Setting(
        "group.streams.min.heartbeat.interval.ms",
        INT,
        "5000",
        "The shortest heartbeat interval that a streams group may be given.",
        at_least=1,
    ),
    Setting(
        "group.streams.min.session.timeout.ms",
        INT,
        "45000",
        "The shortest session time-out that a streams group may be given.",
        at_least=1,
    ),
    Setting(
        "group.streams.num.standby.replicas",
        INT,
        "0",
        "How many standby copies a streams group has of a task with state.",
        at_least=0,
    ),
    Setting(
        "group.streams.session.timeout.ms",
        INT,
        "45000",
        "How long a member of a streams group may be silent.",
        at_least=1,
    ),
    Setting(
        "offset.metadata.max.bytes",
        INT,
        "4096",
        "How long the text beside a committed offset may be.",
        at_least=0,
    ),
    Setting("offsets.retention.minutes", INT, "10080", "How long offsets that nobody needs are kept.", at_least=1),
    Setting("offsets.topic.num.partitions", INT, "1", "Partitions of __consumer_offsets.", at_least=1),
)


def limits_of(name: str) -> tuple[str, str]:
    """The names of the limits within which a group may have a setting of its own, by the broker's name for it."""
    group, kind, what = name.split(".", 2)
    if what == "num.standby.replicas":
        return "", f"{group}.{kind}.max.standby.replicas"
    return f"{group}.{kind}.min.{what}", f"{group}.{kind}.max.{what}"


def _limited(name: str, default: int, least: int, most: int, meaning: str) -> tuple[Setting, ...]:
    """A setting of groups, and its limits."""
    names = (name, *limits_of(name))
    meanings = (meaning, f"The least that a group may be given as {name}.", f"The most, of {name}.")
    return tuple(
        Setting(each, INT, str(value), text, at_least=1)
        for each, value, text in zip(names, (default, least, most), meanings, strict=True)
    )


SHARE_SETTINGS: tuple[Setting, ...] = (
    *_limited(
        "group.share.heartbeat.interval.ms", 5_000, 5_000, 15_000, "How often members of share groups are heard of."
    ),
    *_limited(
        "group.share.session.timeout.ms", 45_000, 45_000, 60_000, "How long a share group's member may be silent."
    ),
    *_limited(
        "group.share.record.lock.duration.ms", 30_000, 15_000, 60_000, "How long a member has a record to itself."
    ),
    *_limited(
        "group.share.delivery.count.limit", 5, 2, 10, "How often a record of a share group is delivered at most."
    ),
    *_limited(
        "group.share.partition.max.record.locks",
        2_000,
        100,
        4_000,
        "How far a share group's records under way may reach in a partition.",
    ),
    Setting("group.share.max.share.sessions", INT, "2000", "How many share sessions there may be.", at_least=1),
    Setting("group.share.max.size", INT, "200", "How many members a share group may have.", at_least=1),
    Setting(
        "share.coordinator.state.topic.num.partitions",
        INT,
        "50",
        "How many partitions the topic of share groups' state is made with.",
        at_least=1,
    ),
)

_OF_BROKER = {setting.name: setting for setting in (*BROKER_SETTINGS_OF_GROUPS, *SHARE_SETTINGS)}
GROUP_SETTINGS: dict[str, Setting] = {
    name.removeprefix("group."): replace(_OF_BROKER[name], name=name.removeprefix("group."), broker_name=name)
    for name in (
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.session.timeout.ms",
        "group.streams.heartbeat.interval.ms",
        "group.streams.initial.rebalance.delay.ms",
        "group.streams.num.standby.replicas",
        "group.streams.session.timeout.ms",
        *(each.name for each in SHARE_SETTINGS if limits_of(each.name)[0] in _OF_BROKER),
    )
} | {
    setting.name: setting
    for setting in (
        Setting(
            "errors.deadletterqueue.copy.record.enable",
            BOOLEAN,
            "true",
            "Whether a dead letter has its record's key, value and headers, or only tells where it is (KIP-1191).",
        ),
        Setting(
            "errors.deadletterqueue.topic.name",
            STRING,
            "",
            "The topic for what was rejected, or delivered as often as it may be, by this share group (KIP-1191).",
        ),
        Setting(
            "headrace.deadletterqueue.expired.enable",
            BOOLEAN,
            "true",
            "Whether what expires before this share group has it becomes a dead letter, if the group has a topic for "
            "them.",
        ),
        Setting(
            "headrace.filter",
            STRING,
            "",
            "Which records a share group has, as `header.region = 'eu' AND value.amount > 100`; the others are "
            "finished for it. Fields of a value over 1 MiB are not looked at. Empty: all.",
            reader=Filter,
        ),
        Setting(
            "headrace.order",
            STRING,
            "none",
            "In which order a share group has records: `key`, those of a key one after the other; `single`, one member "
            "at a time has those of a partition.",
            choices=tuple(Order),
        ),
        Setting(
            "headrace.retry.backoff.max.ms",
            INT,
            "3600000",
            "The longest that headrace.retry.backoff.ms grows to.",
            at_least=0,
        ),
        Setting(
            "headrace.retry.backoff.ms",
            INT,
            "0",
            "How long a record of a share group that was released, or whose lock has lapsed, is kept back after its "
            "first delivery; after each further one twice as long. 0: it is available at once.",
            at_least=0,
        ),
        Setting(
            "headrace.retry.jitter",
            INT,
            "0",
            "By how many percent headrace.retry.backoff.ms is longer or shorter by chance; more than 100 are 100.",
            at_least=0,
        ),
        Setting(
            "share.auto.offset.reset",
            STRING,
            "latest",
            "Where a share group begins: `earliest`, `latest`, or `by_duration:` and an ISO 8601 duration ago.",
        ),
        Setting(
            "share.isolation.level",
            STRING,
            "read_uncommitted",
            "Whether a share group has records of transactions before they are committed.",
            choices=("read_committed", "read_uncommitted"),
        ),
        Setting(
            "share.renew.acknowledge.enable", BOOLEAN, "true", "Whether members may renew the locks of their records."
        ),
    )
}
