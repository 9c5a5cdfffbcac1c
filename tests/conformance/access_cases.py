"""Every API that needs a permission: a request, and which permissions make it succeed.

A request names what the client may have permissions for (`w.topic`, which exists, and `w.missing`, which does not),
and what it never has any for (`w.other`). Each case is asked with no permission, with all of them, with all but one,
and with what `variants` says; by a client that has exactly those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.protocol.api import APIS, ApiKey
from headrace.protocol.schema import Struct, Uuid
from headrace.security.acl import Operation, ResourceType
from tests.conformance.clients.wire import Wire, batch_of
from tests.conformance.comparison import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.protocol.schema import Message

CLUSTER, TOPIC, GROUP = ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.GROUP
TXN = ResourceType.TRANSACTIONAL_ID
READ, WRITE, CREATE, DELETE, ALTER = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
)
DESCRIBE, CLUSTER_ACTION, IDEMPOTENT_WRITE = Operation.DESCRIBE, Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE
DESCRIBE_CONFIGS, ALTER_CONFIGS, ALL = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL

Grant = tuple[Operation, ResourceType]


@dataclass
class World:
    """The names that one client of one case uses, alike on both brokers; `tag` is its own, `topics_tag` may not be."""

    tag: str
    topics_tag: str = "access"
    topic_id: Uuid | None = None
    other_id: Uuid | None = None

    @property
    def topic(self) -> str:
        return f"{self.topics_tag}.there"

    @property
    def missing(self) -> str:
        return f"{self.topics_tag}.missing"

    @property
    def other(self) -> str:
        return f"other-{self.topics_tag}"

    @property
    def group(self) -> str:
        return f"{self.tag}.group"

    @property
    def txn(self) -> str:
        return f"{self.tag}.txn"

    @property
    def topics(self) -> tuple[str, str, str]:
        return self.topic, self.missing, self.other

    @property
    def ids(self) -> tuple[Uuid | None, Uuid, Uuid | None]:
        return self.topic_id, Uuid(b"\x07" * 16), self.other_id


class Case(NamedTuple):
    api: ApiKey
    fields: Callable[[World], dict[str, Any]]
    grants: tuple[Grant, ...]
    version: int | None = None  # the newest
    name: str = ""
    variants: dict[str, tuple[Grant, ...]] = {}  # noqa: RUF012 - read only
    setup: Callable[[Wire, World], None] | None = None
    has_own_topics: bool = False  # since it changes them
    only: Callable[[Any], Any] = lambda answer: answer  # what of the answer is not by chance

    @property
    def title(self) -> str:
        return self.name or self.api.name.lower()

    def all_variants(self) -> Iterator[tuple[str, tuple[Grant, ...]]]:
        yield "nothing", ()
        yield "everything", self.grants
        if len(self.grants) > 1:
            for grant in self.grants:
                name = f"not {grant[0].name.lower()} {grant[1].name.lower()}"
                yield name, tuple(each for each in self.grants if each != grant)
        yield from self.variants.items()

    def world(self, variant: str) -> World:
        tag = f"{self.title}.{variant.replace(' ', '_')}"
        return World(tag, tag) if self.has_own_topics else World(tag)

    def request(self, world: World) -> Message:
        return make(APIS[self.api].request, self.fields(world))


def make(kind: type[Any], fields: dict[str, Any]) -> Any:
    """A message of plain data: structs as dictionaries."""
    types = {field.name: field.type for field in kind.__schema__.fields}
    return kind(**{name: _value(types[name], value) for name, value in fields.items()})


def _value(kind: Any, value: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, Struct):
        if isinstance(value, dict):
            return make(kind, value)
        if isinstance(value, list):
            return [make(kind, each) for each in value]
    return value


def commit_offset(admin: Wire, w: World) -> None:
    admin.commit(w.group, w.topic, 1)
    admin.commit(w.group, w.other, 1)


def begin(admin: Wire, w: World) -> None:
    """A transactional id that exists."""
    init = make(APIS[ApiKey.INIT_PRODUCER_ID].request, {"transactional_id": w.txn, "transaction_timeout_ms": 60000})
    find = make(APIS[ApiKey.FIND_COORDINATOR].request, {"key_type": 1, "coordinator_keys": [w.txn]})
    assert wait_until(lambda: admin.ask(find).coordinators[0].error_code, 0) == 0  # Kafka makes its topic
    assert wait_until(lambda: admin.ask(init).error_code, 0) == 0  # and loads it


def streams_member(group: str, *sources: str, changelog: str = "") -> dict[str, Any]:
    """The first heartbeat of a member of a streams group."""
    changelogs = each([changelog]) if changelog else []
    subtopology = {"subtopology_id": "0", "source_topics": list(sources), "state_changelog_topics": changelogs}
    tasks: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    topology = {"epoch": 0, "subtopologies": [subtopology]}
    ids = {"group_id": group, "member_id": "m", "member_epoch": 0, "process_id": "p", "client_tags": []}
    return {**ids, **tasks, "rebalance_timeout_ms": 10000, "topology": topology}


def run_application(admin: Wire, w: World) -> None:
    """A streams group with a member."""
    joined = admin.ask(make(APIS[ApiKey.STREAMS_GROUP_HEARTBEAT].request, streams_member(w.group, w.topic)))
    assert joined.error_code == 0, joined


def whether_it_was_denied(answer: Any) -> Any:
    """Of a streams group's heartbeat the error, and whether a status says that something was not allowed."""
    details = [status["status_detail"] for status in answer["status"]]
    return answer["error_code"], [("Unauthorized to CREATE" in detail) for detail in details]


def share_state(admin: Wire, w: World) -> None:
    """The topic of share groups' state, which Kafka makes when it is first asked for a coordinator."""
    keys = [f"{w.group}:AAAAAAAAAAAAAAAAAAAAAQ:0"]
    find = make(APIS[ApiKey.FIND_COORDINATOR].request, {"key_type": 2, "coordinator_keys": keys})
    assert wait_until(lambda: admin.ask(find).coordinators[0].error_code, 0) == 0


def each(names: Any, **rest: Any) -> list[dict[str, Any]]:
    return [{"name": name, **rest} for name in names]


def errors_alone(answer: Any) -> Any:
    """The error codes of an answer, wherever they are."""
    if isinstance(answer, dict):
        found = {key: errors_alone(value) for key, value in answer.items()}
        return {key: value for key, value in found.items() if value is not None}
    if isinstance(answer, list):
        return [errors_alone(value) for value in answer]
    return answer if isinstance(answer, str) and answer.isupper() else None


def without(*names: str) -> Callable[[Any], Any]:
    def strip(answer: Any) -> Any:
        if isinstance(answer, dict):
            return {key: strip(value) for key, value in answer.items() if key not in names}
        return [strip(value) for value in answer] if isinstance(answer, list) else answer

    return strip


def is_denied(answer: Any) -> bool:
    """Of an answer that only says whether, whether it does."""
    return answer["error_code"] == "CLUSTER_AUTHORIZATION_FAILED"


def of_topics(answer: Any) -> Any:
    """Of an answer about all topics, those of the table alone."""
    topics = answer["topics"] if isinstance(answer["topics"], dict) else {}
    return sorted(name for name in topics if name in ("access.there", "other-access"))


def listed(field: str, key: str) -> Callable[[Any], Any]:
    def names(answer: Any) -> Any:
        return sorted(each[key] for each in answer[field] if each[key].startswith(("list_groups", "list_trans")))

    return names


ACL = {"resource_type": 2, "resource_name": "acl.by.guest", "resource_pattern_type": 3, "principal": "User:nobody"}
ACL_ENTRY = {"host": "*", "operation": 3, "permission_type": 3}
FILTER = {
    "resource_type_filter": 2,
    "resource_name_filter": "acl.by.nobody",
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
CONFIGS = [{"name": "retention.ms", "value": "7777"}]
CHANGES = [{"name": "retention.ms", "value": "7777", "config_operation": 0}]


def resources(w: World, **rest: Any) -> list[dict[str, Any]]:
    named = [(2, w.topic), (2, w.missing), (2, w.other)]
    return [{"resource_type": kind, "resource_name": name, **rest} for kind, name in named]


def batch(*, txn: bool = False) -> bytes:
    return batch_of(
        b"v", **({"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True} if txn else {})
    )


def produced(topics: Any, key: str, records: bytes) -> list[dict[str, Any]]:
    return [{key: topic, "partition_data": [{"index": 0, "records": records}]} for topic in topics]


def fetched(topics: Any, key: str) -> list[dict[str, Any]]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    return [{key: topic, "partitions": [partition]} for topic in topics]


K = ApiKey
OFFSETS = {"partitions": [{"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}]}
MEMBER = {"generation_id": 1, "member_id": "nobody"}
PRODUCER = {"producer_id": 7, "producer_epoch": 0}
FETCH = {"max_wait_ms": 0, "min_bytes": 0}

CASES: tuple[Case, ...] = (
    Case(
        K.API_VERSIONS,
        lambda w: {"client_software_name": "wire", "client_software_version": "1"},
        (),
        only=lambda answer: answer["error_code"],
    ),
    # records
    Case(
        K.PRODUCE,
        lambda w: {"acks": -1, "timeout_ms": 9000, "topic_data": produced(w.topics, "name", batch())},
        ((WRITE, TOPIC),),
        12,
        variants={"described": ((DESCRIBE, TOPIC),)},
        only=without("base_offset"),
    ),
    Case(
        K.PRODUCE,
        lambda w: {"acks": -1, "timeout_ms": 9000, "topic_data": produced(w.ids, "topic_id", batch())},
        ((WRITE, TOPIC),),
        name="produce_by_id",
        only=errors_alone,
    ),
    Case(
        K.PRODUCE,
        lambda w: {
            "acks": -1,
            "timeout_ms": 9000,
            "transactional_id": w.txn,
            "topic_data": produced((w.topic,), "name", batch(txn=True)),
        },
        ((WRITE, TXN), (WRITE, TOPIC)),
        12,
        name="produce_in_transaction",
        variants={"described": ((DESCRIBE, TXN),)},
    ),
    Case(
        K.FETCH,
        lambda w: {**FETCH, "topics": fetched(w.topics, "topic")},
        ((READ, TOPIC),),
        12,
        only=without("records", "high_watermark", "last_stable_offset"),
    ),
    Case(
        K.FETCH,
        lambda w: {**FETCH, "topics": fetched(w.ids, "topic_id")},
        ((READ, TOPIC),),
        name="fetch_by_id",
        variants={"described": ((DESCRIBE, TOPIC),)},
        only=errors_alone,
    ),
    Case(
        K.LIST_OFFSETS,
        lambda w: {
            "replica_id": -1,
            "topics": each(w.topics, partitions=[{"partition_index": 0, "timestamp": -1}]),
        },
        ((DESCRIBE, TOPIC),),
        variants={"read": ((READ, TOPIC),), "created": ((CREATE, TOPIC),)},
    ),
    Case(
        K.DELETE_RECORDS,
        lambda w: {"timeout_ms": 9000, "topics": each(w.topics, partitions=[{"partition_index": 0, "offset": -1}])},
        ((DELETE, TOPIC),),
    ),
    Case(
        K.OFFSET_FOR_LEADER_EPOCH,
        lambda w: {
            "topics": [{"topic": name, "partitions": [{"partition": 0, "leader_epoch": 0}]} for name in w.topics],
        },
        ((DESCRIBE, TOPIC),),
        variants={"cluster": ((CLUSTER_ACTION, CLUSTER),)},
        only=errors_alone,
    ),
    Case(
        K.DESCRIBE_PRODUCERS,
        lambda w: {"topics": each(w.topics, partition_indexes=[0])},
        ((READ, TOPIC),),
    ),
    # the cluster and its topics
    Case(
        K.METADATA,
        lambda w: {
            "topics": each(w.topics),
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": True,
        },
        ((DESCRIBE, TOPIC), (DESCRIBE, CLUSTER)),
        10,
        variants={"all": ((ALL, TOPIC), (ALL, CLUSTER)), "written": ((WRITE, TOPIC), (ALTER_CONFIGS, TOPIC))},
        only=without("leader_epoch", "brokers", "controller_id"),
    ),
    Case(
        K.METADATA,
        lambda w: {"topics": None},
        ((DESCRIBE, TOPIC),),
        name="describe_all_metadata",
        only=of_topics,
    ),
    Case(
        K.METADATA,
        lambda w: {"topics": [{"name": None, "topic_id": topic} for topic in w.ids]},
        ((DESCRIBE, TOPIC),),
        name="metadata_by_id",
        only=lambda answer: sorted(
            (str(topic["name"]), topic["error_code"], topic["topic_id"])
            for topic in (answer["topics"].values() if isinstance(answer["topics"], dict) else answer["topics"])
        ),
    ),
    Case(
        K.METADATA,
        lambda w: {"topics": each((w.missing, w.other)), "allow_auto_topic_creation": True},
        ((DESCRIBE, TOPIC), (CREATE, TOPIC)),
        name="auto_creation_denied",
        has_own_topics=True,
        variants={"cluster": ((DESCRIBE, TOPIC), (CREATE, CLUSTER))},
        only=lambda answer: {
            name: topic["error_code"] == "TOPIC_AUTHORIZATION_FAILED" for name, topic in answer["topics"].items()
        },
    ),
    Case(
        K.DESCRIBE_CLUSTER,
        lambda w: {"include_cluster_authorized_operations": True, "endpoint_type": 1},
        ((DESCRIBE, CLUSTER),),
        variants={"altered": ((ALTER, CLUSTER),), "all": ((ALL, CLUSTER),), "created": ((CREATE, CLUSTER),)},
        only=without("brokers", "controller_id"),
    ),
    Case(
        K.DESCRIBE_TOPIC_PARTITIONS,
        lambda w: {"topics": each(w.topics), "cursor": None},
        ((DESCRIBE, TOPIC),),
        variants={"read": ((READ, TOPIC), (DESCRIBE_CONFIGS, TOPIC))},
        only=without("leader_epoch"),
    ),
    Case(
        K.DESCRIBE_TOPIC_PARTITIONS,
        lambda w: {"topics": [], "cursor": None},
        ((DESCRIBE, TOPIC),),
        name="describe_all_partitions",
        only=of_topics,
    ),
    Case(
        K.DESCRIBE_LOG_DIRS,
        lambda w: {"topics": [{"topic": w.topic, "partitions": [0]}]},
        ((DESCRIBE, CLUSTER),),
        only=errors_alone,
    ),
    Case(
        K.ALTER_REPLICA_LOG_DIRS,
        lambda w: {"dirs": [{"path": "/elsewhere", "topics": each((w.topic, w.missing), partitions=[0])}]},
        ((ALTER, CLUSTER),),
    ),
    Case(
        K.DESCRIBE_QUORUM,
        lambda w: {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
        ((DESCRIBE, CLUSTER),),
        only=lambda answer: answer["error_code"],
    ),
    Case(
        K.ADD_RAFT_VOTER,
        lambda w: {"cluster_id": "another", "voter_id": 9, "timeout_ms": 1000},
        ((ALTER, CLUSTER),),
        only=is_denied,
    ),
    Case(
        K.REMOVE_RAFT_VOTER,
        lambda w: {"cluster_id": "another", "voter_id": 9},
        ((ALTER, CLUSTER),),
        only=is_denied,
    ),
    Case(K.UNREGISTER_BROKER, lambda w: {"broker_id": 99}, ((ALTER, CLUSTER),), only=is_denied),
    Case(
        K.UPDATE_FEATURES,
        lambda w: {"feature_updates": [{"feature": "unknown", "max_version_level": 1}], "validate_only": True},
        ((ALTER, CLUSTER),),
        only=is_denied,
    ),
    Case(
        K.CREATE_TOPICS,
        lambda w: {"topics": each(w.topics, num_partitions=1, replication_factor=1)},
        ((CREATE, TOPIC), (DESCRIBE_CONFIGS, TOPIC)),
        variants={"cluster": ((CREATE, CLUSTER),)},
        only=without("configs"),
        has_own_topics=True,
    ),
    Case(
        K.DELETE_TOPICS,
        lambda w: {"timeout_ms": 9000, "topics": each(w.topics)},
        ((DELETE, TOPIC),),
        variants={"described": ((DESCRIBE, TOPIC),), "cluster": ((DELETE, CLUSTER),), "denied": ((CREATE, TOPIC),)},
        has_own_topics=True,
    ),
    Case(
        K.DELETE_TOPICS,
        lambda w: {"timeout_ms": 9000, "topics": [{"name": None, "topic_id": topic} for topic in w.ids]},
        ((DELETE, TOPIC),),
        name="delete_topics_by_id",
        variants={"described": ((DESCRIBE, TOPIC),)},
        only=lambda answer: sorted(
            (str(topic["name"]), topic["error_code"])
            for topic in (
                answer["responses"].values() if isinstance(answer["responses"], dict) else answer["responses"]
            )
        ),
        has_own_topics=True,
    ),
    Case(
        K.CREATE_PARTITIONS,
        lambda w: {"timeout_ms": 9000, "topics": each(w.topics, count=2, assignments=None)},
        ((ALTER, TOPIC),),
        variants={"described": ((DESCRIBE, TOPIC),)},
        has_own_topics=True,
    ),
    Case(
        K.ELECT_LEADERS,
        lambda w: {"timeout_ms": 9000, "topic_partitions": [{"topic": w.topic, "partitions": [0]}]},
        ((ALTER, CLUSTER),),
    ),
    Case(
        K.ALTER_PARTITION_REASSIGNMENTS,
        lambda w: {
            "timeout_ms": 9000,
            "topics": each((w.topic,), partitions=[{"partition_index": 0, "replicas": None}]),
        },
        ((ALTER, CLUSTER),),
    ),
    Case(
        K.LIST_PARTITION_REASSIGNMENTS,
        lambda w: {"timeout_ms": 9000, "topics": None},
        ((DESCRIBE, CLUSTER),),
        variants={"altered": ((ALTER, CLUSTER),)},
    ),
    # settings and access control
    Case(
        K.LIST_CONFIG_RESOURCES,
        lambda w: {"resource_types": [4]},
        ((DESCRIBE_CONFIGS, CLUSTER),),
    ),
    Case(
        K.DESCRIBE_CONFIGS,
        lambda w: {
            "resources": [
                *resources(w, configuration_keys=["retention.ms"]),
                {"resource_type": 4, "resource_name": "1", "configuration_keys": ["num.partitions"]},
            ]
        },
        ((DESCRIBE_CONFIGS, TOPIC), (DESCRIBE_CONFIGS, CLUSTER)),
        variants={"altered": ((ALTER_CONFIGS, TOPIC), (ALTER_CONFIGS, CLUSTER)), "described": ((DESCRIBE, TOPIC),)},
        only=lambda answer: sorted(
            (each["resource_name"], each["error_code"], len(each["configs"])) for each in answer["results"]
        ),
    ),
    Case(
        K.ALTER_CONFIGS,
        lambda w: {"resources": resources(w, configs=CONFIGS)},
        ((ALTER_CONFIGS, TOPIC),),
        variants={"described": ((DESCRIBE_CONFIGS, TOPIC),)},
        only=lambda answer: sorted((each["resource_name"], each["error_code"]) for each in answer["responses"]),
    ),
    Case(
        K.INCREMENTAL_ALTER_CONFIGS,
        lambda w: {"resources": resources(w, configs=CHANGES)},
        ((ALTER_CONFIGS, TOPIC),),
        variants={"cluster": ((ALTER_CONFIGS, CLUSTER),)},
        only=lambda answer: sorted((each["resource_name"], each["error_code"]) for each in answer["responses"]),
    ),
    Case(
        K.INCREMENTAL_ALTER_CONFIGS,
        lambda w: {
            "resources": [{"resource_type": 4, "resource_name": "1", "configs": CHANGES}],
            "validate_only": True,
        },
        (),
        name="alter_broker",
        variants={"topic": ((ALTER_CONFIGS, TOPIC),)},
        only=errors_alone,
    ),
    Case(K.DESCRIBE_ACLS, lambda w: FILTER, ((DESCRIBE, CLUSTER),), variants={"altered": ((ALTER, CLUSTER),)}),
    Case(
        K.CREATE_ACLS,
        lambda w: {
            "creations": [
                ACL | ACL_ENTRY,
                ACL | ACL_ENTRY | {"resource_name": ""},
                ACL | ACL_ENTRY | {"resource_type": 4},
            ]
        },
        ((ALTER, CLUSTER),),
        variants={"described": ((DESCRIBE, CLUSTER),)},
    ),
    Case(K.DELETE_ACLS, lambda w: {"filters": [FILTER, FILTER | {"operation": 99}]}, ((ALTER, CLUSTER),)),
    Case(
        K.DESCRIBE_USER_SCRAM_CREDENTIALS,
        lambda w: {"users": [{"name": "nobody"}]},
        ((DESCRIBE, CLUSTER),),
        variants={"altered": ((ALTER, CLUSTER),)},
        only=lambda answer: answer["error_code"],  # Kafka adds as many results without a name
    ),
    Case(
        K.ALTER_USER_SCRAM_CREDENTIALS,
        lambda w: {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []},
        ((ALTER, CLUSTER),),
        variants={"described": ((DESCRIBE, CLUSTER),)},
    ),
    Case(
        K.DESCRIBE_CLIENT_QUOTAS,
        lambda w: {"components": [{"entity_type": "user", "match_type": 0, "match": w.other}], "strict": True},
        ((DESCRIBE_CONFIGS, CLUSTER),),
        variants={"described": ((DESCRIBE, CLUSTER),)},
    ),
    Case(
        K.ALTER_CLIENT_QUOTAS,
        lambda w: {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": w.other}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
                }
            ],
            "validate_only": True,
        },
        ((ALTER_CONFIGS, CLUSTER),),
        variants={"altered": ((ALTER, CLUSTER),)},
    ),
    Case(K.SASL_HANDSHAKE, lambda w: {"mechanism": "PLAIN"}, (), only=lambda answer: answer["error_code"]),
    Case(K.SASL_AUTHENTICATE, lambda w: {"auth_bytes": b""}, (), only=lambda answer: answer["error_code"]),
    # groups
    Case(
        K.FIND_COORDINATOR,
        lambda w: {"key_type": 0, "coordinator_keys": [w.group, w.other]},
        ((DESCRIBE, GROUP),),
        variants={"read": ((READ, GROUP),)},
    ),
    Case(
        K.FIND_COORDINATOR,
        lambda w: {"key_type": 1, "coordinator_keys": [w.txn, w.other]},
        ((DESCRIBE, TXN),),
        name="find_transaction_coordinator",
        variants={"written": ((WRITE, TXN),)},
    ),
    Case(
        K.FIND_COORDINATOR,
        lambda w: {"key_type": 0, "key": w.group},
        ((DESCRIBE, GROUP),),
        3,
        name="find_one_coordinator",
    ),
    Case(
        K.LIST_GROUPS,
        lambda w: {},
        ((DESCRIBE, GROUP),),
        setup=commit_offset,
        variants={"read": ((READ, GROUP),)},
        only=listed("groups", "group_id"),
    ),
    Case(
        K.DESCRIBE_GROUPS,
        lambda w: {"groups": [w.group, w.other], "include_authorized_operations": True},
        ((DESCRIBE, GROUP),),
        setup=commit_offset,
        variants={"read": ((READ, GROUP), (DELETE, GROUP)), "all": ((ALL, GROUP),)},
    ),
    Case(
        K.DELETE_GROUPS,
        lambda w: {"groups_names": [w.group, w.other]},
        ((DELETE, GROUP),),
        setup=commit_offset,
        variants={"described": ((DESCRIBE, GROUP),)},
    ),
    Case(
        K.JOIN_GROUP,
        lambda w: {
            "group_id": w.group,
            "session_timeout_ms": 10000,
            "rebalance_timeout_ms": 10000,
            "member_id": "nobody",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        ((READ, GROUP),),
        only=errors_alone,
        variants={"described": ((DESCRIBE, GROUP),)},
    ),
    Case(
        K.SYNC_GROUP,
        lambda w: {"group_id": w.group, **MEMBER, "protocol_type": "consumer", "protocol_name": "range"},
        ((READ, GROUP),),
    ),
    Case(K.HEARTBEAT, lambda w: {"group_id": w.group, **MEMBER}, ((READ, GROUP),)),
    Case(K.LEAVE_GROUP, lambda w: {"group_id": w.group, "members": [{"member_id": "nobody"}]}, ((READ, GROUP),)),
    Case(
        K.CONSUMER_GROUP_HEARTBEAT,
        lambda w: {
            "group_id": w.group,
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout_ms": 10000,
            "subscribed_topic_names": [w.topic, w.missing],
            "topic_partitions": [],
        },
        ((READ, GROUP), (DESCRIBE, TOPIC)),
        only=errors_alone,
    ),
    Case(
        K.CONSUMER_GROUP_HEARTBEAT,
        lambda w: {
            "group_id": w.group,
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout_ms": 10000,
            "subscribed_topic_names": [w.topic, w.other],
            "topic_partitions": [],
        },
        ((READ, GROUP), (DESCRIBE, TOPIC)),
        name="heartbeat_for_another",
        only=errors_alone,
    ),
    Case(
        K.CONSUMER_GROUP_DESCRIBE,
        lambda w: {"group_ids": [w.group, w.other], "include_authorized_operations": True},
        ((DESCRIBE, GROUP),),
    ),
    # share groups
    Case(
        K.FIND_COORDINATOR,
        lambda w: {"key_type": 2, "coordinator_keys": [f"{w.group}:AAAAAAAAAAAAAAAAAAAAAQ:0"]},
        ((CLUSTER_ACTION, CLUSTER),),
        name="find_share_coordinator",
        setup=share_state,
    ),
    Case(
        K.SHARE_GROUP_HEARTBEAT,
        lambda w: {
            "group_id": w.group,
            "member_id": "m",
            "member_epoch": 0,
            "subscribed_topic_names": [w.topic, w.other],
        },
        ((READ, GROUP), (DESCRIBE, TOPIC)),
        only=errors_alone,
    ),
    Case(
        K.SHARE_GROUP_DESCRIBE,
        lambda w: {"group_ids": [w.group, w.other], "include_authorized_operations": True},
        ((DESCRIBE, GROUP),),
    ),
    Case(
        K.SHARE_FETCH,
        lambda w: {"group_id": w.group, "member_id": "m", "share_session_epoch": 7, "topics": []},
        ((READ, GROUP),),
        only=errors_alone,
    ),
    Case(
        K.SHARE_ACKNOWLEDGE,
        lambda w: {"group_id": w.group, "member_id": "m", "share_session_epoch": 7, "topics": []},
        ((READ, GROUP),),
        only=errors_alone,
    ),
    Case(
        K.DESCRIBE_SHARE_GROUP_OFFSETS,
        lambda w: {
            "groups": [
                {"group_id": group, "topics": [{"topic_name": topic, "partitions": [0]} for topic in w.topics]}
                for group in (w.group, w.other)
            ]
        },
        ((DESCRIBE, GROUP), (DESCRIBE, TOPIC)),
        only=errors_alone,
    ),
    Case(
        K.ALTER_SHARE_GROUP_OFFSETS,
        lambda w: {
            "group_id": w.group,
            "topics": [
                {"topic_name": topic, "partitions": [{"partition_index": 0, "start_offset": 0}]} for topic in w.topics
            ],
        },
        ((READ, GROUP), (READ, TOPIC)),
        only=errors_alone,
    ),
    Case(
        K.DELETE_SHARE_GROUP_OFFSETS,
        lambda w: {"group_id": w.group, "topics": [{"topic_name": topic} for topic in w.topics]},
        ((DELETE, GROUP), (READ, TOPIC)),
        only=errors_alone,
    ),
    Case(
        K.STREAMS_GROUP_HEARTBEAT,
        lambda w: streams_member(w.group, w.topic, w.missing),
        ((READ, GROUP), (DESCRIBE, TOPIC)),
        only=errors_alone,
    ),
    Case(
        K.STREAMS_GROUP_HEARTBEAT,
        lambda w: streams_member(w.group, w.topic, changelog=f"{w.topics_tag}.changelog"),
        ((READ, GROUP), (DESCRIBE, TOPIC)),
        name="heartbeat_makes_topics",
        has_own_topics=True,
        variants={"create": ((READ, GROUP), (DESCRIBE, TOPIC), (CREATE, TOPIC))},
        only=whether_it_was_denied,
    ),
    Case(
        K.STREAMS_GROUP_DESCRIBE,
        lambda w: {"group_ids": [w.group, w.other], "include_authorized_operations": True},
        ((DESCRIBE, GROUP), (DESCRIBE, TOPIC)),
        setup=run_application,
    ),
    Case(
        K.OFFSET_COMMIT,
        lambda w: {"group_id": w.group, "member_id": "", "topics": each(w.topics, **OFFSETS)},
        ((READ, GROUP), (READ, TOPIC)),
        9,
    ),
    Case(
        K.OFFSET_COMMIT,
        lambda w: {"group_id": w.group, "member_id": "", "topics": [{"topic_id": topic, **OFFSETS} for topic in w.ids]},
        ((READ, GROUP), (READ, TOPIC)),
        name="offset_commit_by_id",
        only=errors_alone,
    ),
    Case(
        K.OFFSET_FETCH,
        lambda w: {
            "groups": [
                {"group_id": w.group, "topics": each(w.topics, partition_indexes=[0])},
                {"group_id": w.other, "topics": each(w.topics, partition_indexes=[0])},
            ]
        },
        ((DESCRIBE, GROUP), (DESCRIBE, TOPIC)),
        9,
        setup=commit_offset,
    ),
    Case(
        K.OFFSET_FETCH,
        lambda w: {"groups": [{"group_id": w.group, "topics": None}, {"group_id": w.other, "topics": None}]},
        ((DESCRIBE, GROUP), (DESCRIBE, TOPIC)),
        9,
        name="offset_fetch_all",
        setup=commit_offset,
    ),
    Case(
        K.OFFSET_FETCH,
        lambda w: {
            "groups": [
                {"group_id": w.group, "topics": [{"topic_id": topic, "partition_indexes": [0]} for topic in w.ids]}
            ]
        },
        ((DESCRIBE, GROUP), (DESCRIBE, TOPIC)),
        name="offset_fetch_by_id",
        setup=commit_offset,
        only=errors_alone,
    ),
    Case(
        K.OFFSET_FETCH,
        lambda w: {"group_id": w.group, "topics": each(w.topics, partition_indexes=[0])},
        ((DESCRIBE, GROUP), (DESCRIBE, TOPIC)),
        7,
        name="offset_fetch_of_one",
        setup=commit_offset,
    ),
    Case(
        K.OFFSET_FETCH,
        lambda w: {"group_id": w.group, "topics": each(w.topics, partition_indexes=[0])},
        ((DESCRIBE, GROUP), (DESCRIBE, TOPIC)),
        1,
        name="offset_fetch_long_ago",
        setup=commit_offset,
    ),
    Case(
        K.OFFSET_DELETE,
        lambda w: {"group_id": w.group, "topics": each(w.topics, partitions=[{"partition_index": 0}])},
        ((DELETE, GROUP), (READ, TOPIC)),
        setup=commit_offset,
    ),
    # transactions
    Case(
        K.INIT_PRODUCER_ID,
        lambda w: {"transactional_id": w.txn, "transaction_timeout_ms": 60000},
        ((WRITE, TXN),),
        variants={"described": ((DESCRIBE, TXN),)},
        only=errors_alone,
    ),
    Case(
        K.INIT_PRODUCER_ID,
        lambda w: {"transactional_id": None, "transaction_timeout_ms": 60000},
        ((IDEMPOTENT_WRITE, CLUSTER),),
        name="init_idempotent",
        variants={"some topic": ((WRITE, TOPIC),), "read": ((READ, TOPIC),)},
        only=errors_alone,
    ),
    Case(
        K.ADD_PARTITIONS_TO_TXN,
        lambda w: {
            "v3_and_below_transactional_id": w.txn,
            "v3_and_below_producer_id": 7,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": each(w.topics, partitions=[0]),
        },
        ((WRITE, TXN), (WRITE, TOPIC)),
        3,
    ),
    Case(
        K.ADD_PARTITIONS_TO_TXN,
        lambda w: {
            "transactions": [
                {
                    "transactional_id": w.txn,
                    **PRODUCER,
                    "verify_only": False,
                    "topics": each((w.topic, w.missing), partitions=[0]),
                }
            ]
        },
        ((CLUSTER_ACTION, CLUSTER),),
        5,
        name="add_partitions_by_broker",
    ),
    Case(
        K.ADD_OFFSETS_TO_TXN,
        lambda w: {"transactional_id": w.txn, **PRODUCER, "group_id": w.group},
        ((WRITE, TXN), (READ, GROUP)),
    ),
    Case(
        K.TXN_OFFSET_COMMIT,
        lambda w: {"transactional_id": w.txn, "group_id": w.group, **PRODUCER, "topics": each(w.topics, **OFFSETS)},
        ((WRITE, TXN), (READ, GROUP), (READ, TOPIC)),
        4,
    ),
    Case(
        K.END_TXN,
        lambda w: {"transactional_id": w.txn, **PRODUCER, "committed": True},
        ((WRITE, TXN),),
        variants={"described": ((DESCRIBE, TXN),)},
    ),
    Case(
        K.WRITE_TXN_MARKERS,
        lambda w: {
            "markers": [
                {
                    **PRODUCER,
                    "transaction_result": False,
                    "topics": each((w.topic, w.missing), partition_indexes=[0]),
                    "coordinator_epoch": 0,
                }
            ]
        },
        ((ALTER, CLUSTER),),
        variants={"broker": ((CLUSTER_ACTION, CLUSTER),), "topic": ((ALTER, TOPIC), (WRITE, TOPIC))},
    ),
    Case(
        K.DESCRIBE_TRANSACTIONS,
        lambda w: {"transactional_ids": [w.txn, w.other]},
        ((DESCRIBE, TXN),),
        setup=begin,
        variants={"written": ((WRITE, TXN),)},
        only=without("producer_id"),
    ),
    Case(
        K.LIST_TRANSACTIONS,
        lambda w: {},
        ((DESCRIBE, TXN),),
        setup=begin,
        only=listed("transaction_states", "transactional_id"),
    ),
)
