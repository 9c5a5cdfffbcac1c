"""Kafka's settings for topics and for the broker: names, types, defaults, and what they mean here.

One table each. What is in the table can be set and is described to clients; what a single node has no use for is kept
and shown, so that the tools which set it work, and is marked as without effect.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from headrace.errors import HeadraceError, nearest
from headrace.storage.config import LogConfig
from headrace.telemetry.audit import AUDIT_BYTES, AUDIT_FILES, EVERY_EVENT, USUAL_EVENTS

MAX_LONG = 2**63 - 1
MIB = 1024 * 1024


class InvalidSetting(HeadraceError):
    """A setting that does not exist, or cannot have this value."""


class SettingType(IntEnum):
    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9  # never shown, and not to be given on a command line


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    type: SettingType
    default: str
    meaning: str
    broker_name: str = ""  # what a topic's setting defaults to is set on the broker under this name
    at_least: int | None = None
    choices: tuple[str, ...] = ()
    is_dynamic: bool = False  # of the broker's: whether it can be changed while the broker runs
    stand_in: tuple[str, str] | None = None  # on the broker it is null by default, and this setting counts instead

    @property
    def is_secret(self) -> bool:
        return self.type is SettingType.PASSWORD

    def shown(self, value: str) -> str | None:
        """The value as DescribeConfigs tells it: parsed and written again; None for a secret."""
        if self.is_secret:
            return None
        value = value.strip()
        if self.type is SettingType.BOOLEAN:
            return value.lower()
        if self.type is SettingType.LIST:
            return ",".join(dict.fromkeys(part.strip() for part in value.split(",")))
        return value

    def check(self, value: str) -> None:
        if self.type in (SettingType.INT, SettingType.LONG, SettingType.DOUBLE):
            try:
                number = float(value) if self.type is SettingType.DOUBLE else int(value)
            except ValueError:
                raise InvalidSetting(f"{self.name}={value!r} is not a number") from None
            if self.at_least is not None and number < self.at_least:
                raise InvalidSetting(f"{self.name}={value} is too small: give at least {self.at_least}")
        elif self.type is SettingType.BOOLEAN and value.strip().lower() not in ("true", "false"):
            raise InvalidSetting(f"{self.name}={value!r} is neither true nor false")
        elif self.choices:
            # An empty list is legal: a topic without a clean-up policy keeps everything.
            parts = [value] if self.type is not SettingType.LIST else value.split(",") if value else []
            for part in parts:
                if part.strip() not in self.choices:
                    raise InvalidSetting(f"{self.name}={value!r} is unknown: choose of {', '.join(self.choices)}")


_INT, _LONG, _STRING = SettingType.INT, SettingType.LONG, SettingType.STRING
_BOOLEAN, _DOUBLE, _LIST = SettingType.BOOLEAN, SettingType.DOUBLE, SettingType.LIST
_NO_EFFECT = "Kept and shown; without effect on a single node."
_NO_COMPRESSION = "Kept and shown; without effect: batches stay as their producer compressed them."
_CODECS = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")

TOPIC_SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "cleanup.policy",
            _LIST,
            "delete",
            "Remove old segments (delete), keep the latest value per key (compact), or both.",
            "log.cleanup.policy",
            choices=("delete", "compact"),
        ),
        Setting("compression.gzip.level", _INT, "-1", _NO_COMPRESSION, "compression.gzip.level"),
        Setting("compression.lz4.level", _INT, "9", _NO_COMPRESSION, "compression.lz4.level"),
        Setting("compression.type", _STRING, "producer", _NO_COMPRESSION, "compression.type", choices=_CODECS),
        Setting("compression.zstd.level", _INT, "3", _NO_COMPRESSION, "compression.zstd.level"),
        Setting(
            "delete.retention.ms",
            _LONG,
            "86400000",
            "How long a compacted topic keeps tombstones.",
            "log.cleaner.delete.retention.ms",
            0,
        ),
        Setting("file.delete.delay.ms", _LONG, "60000", _NO_EFFECT, "log.segment.delete.delay.ms", 0),
        Setting(
            "flush.messages", _LONG, str(MAX_LONG), _NO_EFFECT + " See durability.", "log.flush.interval.messages", 1
        ),
        Setting(
            "flush.ms",
            _LONG,
            str(MAX_LONG),
            _NO_EFFECT + " See durability.",
            "log.flush.interval.ms",
            0,
            stand_in=("log.flush.scheduler.interval.ms", str(MAX_LONG)),
        ),
        Setting("follower.replication.throttled.replicas", _LIST, "", _NO_EFFECT),
        Setting(
            "index.interval.bytes",
            _INT,
            "4096",
            "How many bytes lie between two index entries.",
            "log.index.interval.bytes",
            0,
        ),
        Setting("leader.replication.throttled.replicas", _LIST, "", _NO_EFFECT),
        Setting("local.retention.bytes", _LONG, "-2", _NO_EFFECT, "log.local.retention.bytes", -2),
        Setting("local.retention.ms", _LONG, "-2", _NO_EFFECT, "log.local.retention.ms", -2),
        Setting(
            "max.compaction.lag.ms",
            _LONG,
            str(MAX_LONG),
            "After how long a record is compacted at the latest.",
            "log.cleaner.max.compaction.lag.ms",
            1,
        ),
        Setting("max.message.bytes", _INT, "1048588", "The largest batch that is taken.", "message.max.bytes", 0),
        Setting(
            "message.timestamp.after.max.ms",
            _LONG,
            "3600000",
            "How far ahead of the broker's clock a record may be.",
            "log.message.timestamp.after.max.ms",
            0,
        ),
        Setting(
            "message.timestamp.before.max.ms",
            _LONG,
            str(MAX_LONG),
            "How far behind the broker's clock a record may be.",
            "log.message.timestamp.before.max.ms",
            0,
        ),
        Setting(
            "message.timestamp.type",
            _STRING,
            "CreateTime",
            "Whose clock gives a record its time.",
            "log.message.timestamp.type",
            choices=("CreateTime", "LogAppendTime"),
        ),
        Setting(
            "min.cleanable.dirty.ratio",
            _DOUBLE,
            "0.5",
            "How much of a log must be dirty before it is compacted.",
            "log.cleaner.min.cleanable.ratio",
            0,
        ),
        Setting(
            "min.compaction.lag.ms",
            _LONG,
            "0",
            "How long a record stays uncompacted at least.",
            "log.cleaner.min.compaction.lag.ms",
            0,
        ),
        Setting("min.insync.replicas", _INT, "1", _NO_EFFECT, "min.insync.replicas", 1),
        Setting("preallocate", _BOOLEAN, "false", _NO_EFFECT, "log.preallocate"),
        Setting("remote.log.copy.disable", _BOOLEAN, "false", _NO_EFFECT),
        Setting("remote.log.delete.on.disable", _BOOLEAN, "false", _NO_EFFECT),
        Setting("remote.storage.enable", _BOOLEAN, "false", _NO_EFFECT),
        Setting(
            "retention.bytes", _LONG, "-1", "How much of a partition is kept; -1 for all.", "log.retention.bytes", -1
        ),
        Setting(
            "retention.ms",
            _LONG,
            "604800000",
            "How long records are kept; -1 for ever.",
            "log.retention.ms",
            -1,
            stand_in=("log.retention.hours", "168"),
        ),
        Setting("segment.bytes", _INT, "1073741824", "How large a segment grows.", "log.segment.bytes", MIB),
        Setting("segment.index.bytes", _INT, "10485760", "How large an index grows.", "log.index.size.max.bytes", 4),
        Setting(
            "segment.jitter.ms",
            _LONG,
            "0",
            _NO_EFFECT,
            "log.roll.jitter.ms",
            0,
            stand_in=("log.roll.jitter.hours", "0"),
        ),
        Setting(
            "segment.ms",
            _LONG,
            "604800000",
            "How old a segment grows.",
            "log.roll.ms",
            1,
            stand_in=("log.roll.hours", "168"),
        ),
        Setting("unclean.leader.election.enable", _BOOLEAN, "false", _NO_EFFECT, "unclean.leader.election.enable"),
    )
}

# Taken but not shown, as in Kafka: for tests that want small segments.
INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"

# What a listener may have for itself, as `listener.name.NAME.SETTING`; without the prefix it is for all of them.
PREFIX_OF_LISTENERS = "listener.name."
_ONLY_PEM = "Kept and shown; without effect: only PEM is read."
LISTENER_SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "connections.max.reauth.ms",
            _LONG,
            "0",
            "After how long a client has to log in again on its connection (KIP-368); 0 for never.",
            at_least=0,
        ),
        Setting(
            "max.connections",
            _INT,
            "10000",
            "Connections, in all or of one listener; at the limit, a silent one makes room for a new one.",
            at_least=1,
        ),
        Setting(
            "sasl.enabled.mechanisms",
            _LIST,
            "SCRAM-SHA-512,SCRAM-SHA-256",
            "How clients may log in.",
            choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        ),
        Setting(
            "sasl.oauthbearer.clock.skew.seconds", _INT, "30", "By how much a token's clock may differ.", at_least=0
        ),
        Setting("sasl.oauthbearer.expected.audience", _LIST, "", "Whom a token must be for, one of these."),
        Setting("sasl.oauthbearer.expected.issuer", _STRING, "", "Who must have issued a token."),
        Setting(
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            _LONG,
            "3600000",
            "After how long the keys that sign tokens are read again.",
            at_least=1,
        ),
        Setting(
            "sasl.oauthbearer.jwks.endpoint.url",
            _STRING,
            "",
            "The keys that sign tokens (JWKS): an https:// address, or a file:// on this machine.",
        ),
        Setting("sasl.oauthbearer.sub.claim.name", _STRING, "sub", "The claim of a token that names its user."),
        Setting(
            "ssl.client.auth",
            _STRING,
            "none",
            "Whether clients show a certificate.",
            choices=("required", "requested", "none"),
        ),
        Setting("ssl.enabled.protocols", _LIST, "TLSv1.2,TLSv1.3", "Versions of TLS.", choices=("TLSv1.2", "TLSv1.3")),
        Setting("ssl.key.password", SettingType.PASSWORD, "", "Opens the private key, if it is encrypted."),
        Setting("ssl.keystore.location", _STRING, "", "A PEM file of the broker's private key and its certificates."),
        Setting("ssl.keystore.type", _STRING, "PEM", _ONLY_PEM, choices=("PEM",)),
        Setting(
            "ssl.principal.mapping.rules",
            _STRING,
            "DEFAULT",
            "A user's name from the name in its certificate: RULE:pattern/replacement/[LU] or DEFAULT.",
        ),
        Setting("ssl.truststore.location", _STRING, "", "A PEM file of the authorities whose clients are trusted."),
        Setting("ssl.truststore.type", _STRING, "PEM", _ONLY_PEM, choices=("PEM",)),
    )
}


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
        Setting(each, _INT, str(value), text, at_least=1)
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
    Setting("group.share.max.share.sessions", _INT, "2000", "How many share sessions there may be.", at_least=1),
    Setting("group.share.max.size", _INT, "200", "How many members a share group may have.", at_least=1),
    Setting(
        "share.coordinator.state.topic.num.partitions",
        _INT,
        "50",
        "How many partitions the topic of share groups' state is made with.",
        at_least=1,
    ),
)

BROKER_SETTINGS: dict[str, Setting] = (
    {
        setting.name: setting
        for setting in (
            Setting(
                "allow.everyone.if.no.acl.found",
                _BOOLEAN,
                "false",
                "Whether everybody may do everything to a resource that no ACL bears on.",
            ),
            Setting(
                "authorization",
                _STRING,
                "off",
                "Whether ACLs decide who may do what (on); what none of them allows is denied.",
                choices=("off", "on"),
            ),
            Setting(
                "audit.events",
                _LIST,
                ",".join(USUAL_EVENTS),
                "What the audit log records; logins are those that succeed.",
                choices=EVERY_EVENT,
            ),
            Setting(
                "audit.file",
                _STRING,
                "",
                "A file for the audit log: who changed what, and who was denied something; empty for none.",
            ),
            Setting("audit.files", _INT, str(AUDIT_FILES), "How many files of the audit log are kept.", at_least=1),
            Setting(
                "audit.max.bytes",
                _LONG,
                str(AUDIT_BYTES),
                "How large a file of the audit log grows before it is set aside.",
                at_least=4096,
            ),
            Setting(
                "audit.topic",
                _BOOLEAN,
                "false",
                "Whether the audit log is kept in the topic __headrace_audit, too or instead of a file.",
            ),
            Setting(
                "auto.create.topics.enable",
                _BOOLEAN,
                "true",
                "Make a topic when a client asks for one that is not there.",
            ),
            Setting(
                "connection.failed.authentication.delay.ms",
                _INT,
                "100",
                "How long a client waits for the answer to a login that failed.",
                at_least=0,
            ),
            Setting("connections.max.idle.ms", _LONG, "600000", "After how long a silent connection is closed."),
            Setting("delete.topic.enable", _BOOLEAN, "true", "Whether topics may be deleted."),
            Setting(
                "durability",
                _STRING,
                "fsync",
                "When acks=all is answered: after fsync, or after the write (os).",
                choices=("fsync", "os"),
            ),
            Setting("fetch.max.bytes", _INT, "57671680", "The most that one fetch answers.", at_least=1024),
            Setting(
                "group.consumer.heartbeat.interval.ms",
                _INT,
                "5000",
                "How often new-style members are heard of.",
                at_least=1,
            ),
            Setting(
                "group.consumer.max.heartbeat.interval.ms",
                _INT,
                "15000",
                "The longest heartbeat interval that a group may be given.",
                at_least=1,
            ),
            Setting(
                "group.consumer.max.session.timeout.ms",
                _INT,
                "60000",
                "The longest session time-out that a group may be given.",
                at_least=1,
            ),
            Setting(
                "group.consumer.min.heartbeat.interval.ms",
                _INT,
                "5000",
                "The shortest heartbeat interval that a group may be given.",
                at_least=1,
            ),
            Setting(
                "group.consumer.min.session.timeout.ms",
                _INT,
                "45000",
                "The shortest session time-out that a group may be given.",
                at_least=1,
            ),
            Setting(
                "group.consumer.session.timeout.ms",
                _INT,
                "45000",
                "How long a new-style member may be silent.",
                at_least=1,
            ),
            Setting(
                "group.initial.rebalance.delay.ms",
                _INT,
                "3000",
                "How long a new group waits for more members.",
                at_least=0,
            ),
            Setting(
                "group.max.session.timeout.ms", _INT, "1800000", "The longest session a member may ask for.", at_least=1
            ),
            Setting(
                "group.consumer.max.size",
                _INT,
                "2147483647",
                "How many new-style members a group may have.",
                at_least=1,
            ),
            Setting("group.max.size", _INT, "2147483647", "How many members a group may have.", at_least=1),
            Setting(
                "group.min.session.timeout.ms", _INT, "6000", "The shortest session a member may ask for.", at_least=1
            ),
            Setting(
                "group.streams.heartbeat.interval.ms",
                _INT,
                "5000",
                "How often members of streams groups are heard of.",
                at_least=1,
            ),
            Setting(
                "group.streams.initial.rebalance.delay.ms",
                _INT,
                "3000",
                "How long a streams group that begins waits for more members.",
                at_least=0,
            ),
            Setting(
                "group.streams.max.heartbeat.interval.ms",
                _INT,
                "15000",
                "The longest heartbeat interval that a streams group may be given.",
                at_least=1,
            ),
            Setting(
                "group.streams.max.session.timeout.ms",
                _INT,
                "60000",
                "The longest session time-out that a streams group may be given.",
                at_least=1,
            ),
            Setting(
                "group.streams.max.size",
                _INT,
                "2147483647",
                "How many members a streams group may have.",
                at_least=1,
            ),
            Setting(
                "group.streams.max.standby.replicas",
                _INT,
                "2",
                "The most standby copies of a task that a streams group may be given.",
                at_least=0,
            ),
            Setting(
                "group.streams.min.heartbeat.interval.ms",
                _INT,
                "5000",
                "The shortest heartbeat interval that a streams group may be given.",
                at_least=1,
            ),
            Setting(
                "group.streams.min.session.timeout.ms",
                _INT,
                "45000",
                "The shortest session time-out that a streams group may be given.",
                at_least=1,
            ),
            Setting(
                "group.streams.num.standby.replicas",
                _INT,
                "0",
                "How many standby copies a streams group has of a task with state.",
                at_least=0,
            ),
            Setting(
                "group.streams.session.timeout.ms",
                _INT,
                "45000",
                "How long a member of a streams group may be silent.",
                at_least=1,
            ),
            Setting(
                "offset.metadata.max.bytes",
                _INT,
                "4096",
                "How long the text beside a committed offset may be.",
                at_least=0,
            ),
            Setting(
                "offsets.retention.minutes", _INT, "10080", "How long offsets that nobody needs are kept.", at_least=1
            ),
            Setting("offsets.topic.num.partitions", _INT, "1", "Partitions of __consumer_offsets.", at_least=1),
            Setting("transaction.max.timeout.ms", _INT, "900000", "How long a transaction may stay open.", at_least=1),
            Setting(
                "transaction.state.log.num.partitions", _INT, "1", "Partitions of __transaction_state.", at_least=1
            ),
            Setting(
                "transactional.id.expiration.ms",
                _INT,
                "604800000",
                "How long a silent transactional id is kept.",
                at_least=1,
            ),
            Setting(
                "listener.security.protocol.map",
                _LIST,
                "",
                "Protocols of listeners with names of their own, as INTERNAL:SASL_PLAINTEXT,PUBLIC:SASL_SSL.",
            ),
            Setting(
                "log.cleaner.backoff.ms",
                _LONG,
                "15000",
                "How often compaction looks for work.",
                at_least=0,
                is_dynamic=True,
            ),
            Setting(
                "log.retention.check.interval.ms", _LONG, "300000", "How often retention looks for work.", at_least=1
            ),
            Setting(
                "max.incremental.fetch.session.cache.slots",
                _INT,
                "1000",
                "How many fetch sessions are kept.",
                at_least=0,
            ),
            Setting("max.connections.per.ip", _INT, "2147483647", "Connections from one address.", at_least=0),
            Setting(
                "max.connections.per.ip.overrides",
                _STRING,
                "",
                "Other numbers for some addresses, as 10.0.0.7:200,10.0.0.8:50.",
            ),
            Setting("max.group.members", _INT, "20000", "Members of all groups together.", at_least=1),
            Setting("max.groups", _INT, "50000", "Groups, with members or only with offsets.", at_least=1),
            Setting(
                "max.in.flight.requests",
                _INT,
                "20000",
                "Requests of all connections that are not answered yet; beyond that, each has one at a time.",
                at_least=1,
            ),
            Setting(
                "max.in.flight.requests.per.connection",
                _INT,
                "128",
                "Requests of one connection that are not answered yet; beyond that, it is not read from.",
                at_least=1,
            ),
            Setting("max.partitions", _INT, "50000", "Partitions of all topics together.", at_least=1),
            Setting("max.partitions.per.topic", _INT, "10000", "Partitions of one topic.", at_least=1),
            Setting("max.transactional.ids", _INT, "50000", "Transactional ids that are kept.", at_least=1),
            Setting(
                "metrics.certificate",
                _STRING,
                "",
                "A PEM file of a private key and its certificates: metrics.listener speaks TLS with it.",
            ),
            Setting(
                "metrics.listener",
                _STRING,
                "",
                "Where /metrics, /healthz and /readyz are answered over HTTP, as 127.0.0.1:9404; nowhere if empty.",
            ),
            Setting(
                "metrics.series.max",
                _INT,
                "500",
                "How many topics, groups or series of clients /metrics names; the largest ones.",
                at_least=0,
            ),
            Setting(
                "metrics.tokens.file",
                _STRING,
                "",
                "Whoever reads /metrics shows a token of this file, which headrace user token writes.",
            ),
            Setting("node.id", _INT, "1", "The broker's number.", at_least=0),
            Setting("num.partitions", _INT, "1", "Partitions of a topic that does not say.", at_least=1),
            Setting(
                "otel.sample.ratio",
                _DOUBLE,
                "0",
                "The share of requests that are traced although they are not slow, of those that take over 0.1 ms.",
                at_least=0,
            ),
            Setting(
                "otel.slow.ms",
                _LONG,
                "100",
                "A request that takes longer is traced; waiting to fetch is not counted.",
                at_least=0,
            ),
            Setting(
                "otel.traces.endpoint",
                _STRING,
                "",
                "The OTLP collector that gets traces over HTTP, as http://127.0.0.1:4318/v1/traces; none if empty.",
            ),
            Setting(
                "producer.id.expiration.ms",
                _INT,
                "86400000",
                "After how long a silent producer is forgotten.",
                at_least=1,
                is_dynamic=True,
            ),
            Setting(
                "queued.max.request.bytes",
                _LONG,
                "268435456",
                "Bytes of requests that are not whole yet, and of answers that nobody takes, in all; -1 for no limit.",
                at_least=-1,
            ),
            Setting(
                "super.users", _STRING, "", "Who may do everything: principals with ; between them, as User:admin."
            ),
            Setting(
                "sasl.server.max.receive.size",
                _INT,
                "524288",
                "The largest request that is read of a client that has not logged in.",
                at_least=1,
            ),
            Setting(
                "socket.connection.setup.timeout.ms",
                _LONG,
                "10000",
                "How long a client may take for TLS and its login; without them its first request may take 30 s.",
                at_least=1,
            ),
            Setting(
                "shutdown.drain.timeout.ms",
                _LONG,
                "5000",
                "How long a broker that ends answers what is under way, before it closes its connections.",
                at_least=0,
            ),
            Setting("socket.request.max.bytes", _INT, "104857600", "The largest request that is read.", at_least=1),
            Setting(
                "telemetry.max.bytes", _INT, "1048576", "The most that a client pushes of its metrics.", at_least=1
            ),
            Setting("users.file", _STRING, "", "A file of NAME=PASSWORD lines: users who may log in from the start."),
        )
    }
    | LISTENER_SETTINGS
    | {setting.name: setting for setting in SHARE_SETTINGS}
    | {
        topic.broker_name: replace(topic, name=topic.broker_name, broker_name="", is_dynamic=True)
        for topic in TOPIC_SETTINGS.values()
        if topic.broker_name
    }
)


def _find_of_listener(name: str) -> Setting | None:
    if not name.startswith(PREFIX_OF_LISTENERS):
        return None
    return LISTENER_SETTINGS.get(name.removeprefix(PREFIX_OF_LISTENERS).partition(".")[2])


def is_secret(name: str) -> bool:
    setting = BROKER_SETTINGS.get(name) or _find_of_listener(name)
    return setting is not None and setting.is_secret


# What `kafka-reassign-partitions --throttle` sets and removes again; described only if it is set, as in Kafka.
THROTTLES: dict[str, Setting] = {
    name: Setting(name, _LONG, "", _NO_EFFECT, at_least=0, is_dynamic=True)
    for name in (
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
}

GROUP_SETTINGS: dict[str, Setting] = {
    name.removeprefix("group."): replace(BROKER_SETTINGS[name], name=name.removeprefix("group."), broker_name=name)
    for name in (
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.session.timeout.ms",
        "group.streams.heartbeat.interval.ms",
        "group.streams.initial.rebalance.delay.ms",
        "group.streams.num.standby.replicas",
        "group.streams.session.timeout.ms",
        *(each.name for each in SHARE_SETTINGS if limits_of(each.name)[0] in BROKER_SETTINGS),
    )
} | {
    setting.name: setting
    for setting in (
        Setting(
            "share.auto.offset.reset",
            _STRING,
            "latest",
            "Where a share group begins: `earliest`, `latest`, or `by_duration:` and an ISO 8601 duration ago.",
        ),
        Setting(
            "share.isolation.level",
            _STRING,
            "read_uncommitted",
            "Whether a share group has records of transactions before they are committed.",
            choices=("read_committed", "read_uncommitted"),
        ),
        Setting(
            "share.renew.acknowledge.enable", _BOOLEAN, "true", "Whether members may renew the locks of their records."
        ),
    )
}

CLIENT_METRICS_SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("interval.ms", _INT, "300000", "How often a client pushes, from 100 ms to an hour."),
        Setting("match", _LIST, "", "Which clients push: `client_id=…` and so on, regular expressions; empty for all."),
        Setting("metrics", _LIST, "", "What they push: beginnings of names, or * for everything; empty for nothing."),
    )
}


def check_settings(known: Mapping[str, Setting], values: Mapping[str, str]) -> None:
    """Refuse what is not in the table, with the nearest name that is, and what cannot have its value."""
    for name, value in values.items():
        setting = known.get(name) or (_find_of_listener(name) if known is BROKER_SETTINGS else None)
        if setting is not None:
            setting.check(value)
        elif name != INTERNAL_SEGMENT_BYTES:
            raise InvalidSetting(f"unknown setting {name!r}: {nearest(name, known, otherwise='check its name')}")


def check_topic_settings(values: Mapping[str, str]) -> None:
    """Refuse what a topic cannot be set to, by itself or together with the rest."""
    check_settings(TOPIC_SETTINGS, values)
    least, most = (
        int(values.get(name, TOPIC_SETTINGS[name].default))
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if least > most:
        raise InvalidSetting(f"min.compaction.lag.ms={least} is above max.compaction.lag.ms={most}")


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
