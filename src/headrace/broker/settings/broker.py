"""What the broker may be set to: its own settings, and those that listeners, groups and topics have from it."""

from collections.abc import Mapping
from dataclasses import replace

from headrace.broker.settings.groups import BROKER_SETTINGS_OF_GROUPS, SHARE_SETTINGS
from headrace.broker.settings.listeners import LISTENER_SETTINGS, find_of_listener
from headrace.broker.settings.setting import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    NO_EFFECT,
    STRING,
    Setting,
    check_settings,
)
from headrace.broker.settings.topics import TOPIC_SETTINGS
from headrace.telemetry.audit import AUDIT_BYTES, AUDIT_FILES, EVERY_EVENT, USUAL_EVENTS

BROKER_SETTINGS: dict[str, Setting] = (
    {
        setting.name: setting
        for setting in (
            Setting(
                "allow.everyone.if.no.acl.found",
                BOOLEAN,
                "false",
                "Whether everybody may do everything to a resource that no ACL bears on.",
            ),
            Setting(
                "authorization",
                STRING,
                "off",
                "Whether ACLs decide who may do what (on); what none of them allows is denied.",
                choices=("off", "on"),
            ),
            Setting(
                "audit.events",
                LIST,
                ",".join(USUAL_EVENTS),
                "What the audit log records; logins are those that succeed.",
                choices=EVERY_EVENT,
            ),
            Setting(
                "audit.file",
                STRING,
                "",
                "A file for the audit log: who changed what, and who was denied something; empty for none.",
            ),
            Setting("audit.files", INT, str(AUDIT_FILES), "How many files of the audit log are kept.", at_least=1),
            Setting(
                "audit.max.bytes",
                LONG,
                str(AUDIT_BYTES),
                "How large a file of the audit log grows before it is set aside.",
                at_least=4096,
            ),
            Setting(
                "audit.topic",
                BOOLEAN,
                "false",
                "Whether the audit log is kept in the topic __headrace_audit, too or instead of a file.",
            ),
            Setting(
                "auto.create.topics.enable",
                BOOLEAN,
                "true",
                "Make a topic when a client asks for one that is not there.",
            ),
            Setting(
                "errors.deadletterqueue.auto.create.topics.enable",
                BOOLEAN,
                "true",
                "Make the topic for a share group's dead letters when there is the first (KIP-1191).",
                is_dynamic=True,
            ),
            Setting(
                "errors.deadletterqueue.topic.name.prefix",
                STRING,
                "dlq.",
                "What the name of every topic for share groups' dead letters begins with (KIP-1191).",
                is_dynamic=True,
            ),
            Setting(
                "connection.failed.authentication.delay.ms",
                INT,
                "100",
                "How long a client waits for the answer to a login that failed.",
                at_least=0,
            ),
            Setting("connections.max.idle.ms", LONG, "600000", "After how long a silent connection is closed."),
            Setting("delete.topic.enable", BOOLEAN, "true", "Whether topics may be deleted."),
            Setting(
                "durability",
                STRING,
                "fsync",
                "When acks=all is answered: after fsync, or after the write (os).",
                choices=("fsync", "os"),
            ),
            Setting("fetch.max.bytes", INT, "57671680", "The most that one fetch answers.", at_least=1024),
            *BROKER_SETTINGS_OF_GROUPS,
            Setting("transaction.max.timeout.ms", INT, "900000", "How long a transaction may stay open.", at_least=1),
            Setting("transaction.state.log.num.partitions", INT, "1", "Partitions of __transaction_state.", at_least=1),
            Setting(
                "transactional.id.expiration.ms",
                INT,
                "604800000",
                "How long a silent transactional id is kept.",
                at_least=1,
            ),
            Setting(
                "listener.security.protocol.map",
                LIST,
                "",
                "Protocols of listeners with names of their own, as INTERNAL:SASL_PLAINTEXT,PUBLIC:SASL_SSL.",
            ),
            Setting(
                "log.cleaner.backoff.ms",
                LONG,
                "15000",
                "How often compaction looks for work.",
                at_least=0,
                is_dynamic=True,
            ),
            Setting(
                "log.retention.check.interval.ms", LONG, "300000", "How often retention looks for work.", at_least=1
            ),
            Setting(
                "max.incremental.fetch.session.cache.slots",
                INT,
                "1000",
                "How many fetch sessions are kept.",
                at_least=0,
            ),
            Setting("max.connections.per.ip", INT, "2147483647", "Connections from one address.", at_least=0),
            Setting(
                "max.connections.per.ip.overrides",
                STRING,
                "",
                "Other numbers for some addresses, as 10.0.0.7:200,10.0.0.8:50.",
            ),
            Setting("max.group.members", INT, "20000", "Members of all groups together.", at_least=1),
            Setting("max.groups", INT, "50000", "Groups, with members or only with offsets.", at_least=1),
            Setting(
                "max.in.flight.requests",
                INT,
                "20000",
                "Requests of all connections that are not answered yet; beyond that, each has one at a time.",
                at_least=1,
            ),
            Setting(
                "max.in.flight.requests.per.connection",
                INT,
                "128",
                "Requests of one connection that are not answered yet; beyond that, it is not read from.",
                at_least=1,
            ),
            Setting(
                "max.memory.topic.bytes",
                LONG,
                str(512 * 1024 * 1024),
                "Bytes of all memory topics together: headrace.overflow.bytes of each, for each of its partitions.",
                at_least=0,
            ),
            Setting("max.partitions", INT, "50000", "Partitions of all topics together.", at_least=1),
            Setting("max.partitions.per.topic", INT, "10000", "Partitions of one topic.", at_least=1),
            Setting(
                "max.share.partitions",
                INT,
                "50000",
                "Partitions that share groups have begun with, each counted once for every group.",
                at_least=1,
            ),
            Setting(
                "max.share.record.locks",
                INT,
                "250000",
                "Records of all share groups together that are under way, as group.share.partition.max.record.locks "
                "counts them; beyond that, a partition has a few at a time.",
                at_least=1,
            ),
            Setting("max.transactional.ids", INT, "50000", "Transactional ids that are kept.", at_least=1),
            Setting(
                "metrics.certificate",
                STRING,
                "",
                "A PEM file of a private key and its certificates: metrics.listener speaks TLS with it.",
            ),
            Setting(
                "metrics.listener",
                STRING,
                "",
                "Where /metrics, /healthz and /readyz are answered over HTTP, as 127.0.0.1:9404; nowhere if empty.",
            ),
            Setting(
                "metrics.series.max",
                INT,
                "500",
                "How many topics, groups or series of clients /metrics names; the largest ones.",
                at_least=0,
            ),
            Setting(
                "metrics.tokens.file",
                STRING,
                "",
                "Whoever reads /metrics shows a token of this file, which headrace user token writes.",
            ),
            Setting("node.id", INT, "1", "The broker's number.", at_least=0),
            Setting("num.partitions", INT, "1", "Partitions of a topic that does not say.", at_least=1),
            Setting(
                "otel.sample.ratio",
                DOUBLE,
                "0",
                "The share of requests that are traced although they are not slow, of those that take over 0.1 ms.",
                at_least=0,
            ),
            Setting(
                "otel.slow.ms",
                LONG,
                "100",
                "A request that takes longer is traced; waiting to fetch is not counted.",
                at_least=0,
            ),
            Setting(
                "otel.traces.endpoint",
                STRING,
                "",
                "The OTLP collector that gets traces over HTTP, as http://127.0.0.1:4318/v1/traces; none if empty.",
            ),
            Setting(
                "producer.id.expiration.ms",
                INT,
                "86400000",
                "After how long a silent producer is forgotten.",
                at_least=1,
                is_dynamic=True,
            ),
            Setting(
                "queued.max.request.bytes",
                LONG,
                "268435456",
                "Bytes of requests that are not whole yet, and of answers that nobody takes, in all; -1 for no limit.",
                at_least=-1,
            ),
            Setting("super.users", STRING, "", "Who may do everything: principals with ; between them, as User:admin."),
            Setting(
                "sasl.server.max.receive.size",
                INT,
                "524288",
                "The largest request that is read of a client that has not logged in.",
                at_least=1,
            ),
            Setting(
                "socket.connection.setup.timeout.ms",
                LONG,
                "10000",
                "How long a client may take for TLS and its login; without them its first request may take 30 s.",
                at_least=1,
            ),
            Setting(
                "shutdown.drain.timeout.ms",
                LONG,
                "5000",
                "How long a broker that ends answers what is under way, before it closes its connections.",
                at_least=0,
            ),
            Setting("socket.request.max.bytes", INT, "104857600", "The largest request that is read.", at_least=1),
            Setting("telemetry.max.bytes", INT, "1048576", "The most that a client pushes of its metrics.", at_least=1),
            Setting("users.file", STRING, "", "A file of NAME=PASSWORD lines: users who may log in from the start."),
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

# What `kafka-reassign-partitions --throttle` sets and removes again; described only if it is set, as in Kafka.
THROTTLES: dict[str, Setting] = {
    name: Setting(name, LONG, "", NO_EFFECT, at_least=0, is_dynamic=True)
    for name in (
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
}


def is_secret(name: str) -> bool:
    setting = BROKER_SETTINGS.get(name) or find_of_listener(name)
    return setting is not None and setting.is_secret


def check_broker_settings(values: Mapping[str, str]) -> None:
    """Refuse what the broker cannot be set to, for itself or for one of its listeners."""
    for name, value in values.items():
        if setting := find_of_listener(name):
            setting.check(value)
        else:
            check_settings(BROKER_SETTINGS, {name: value})
