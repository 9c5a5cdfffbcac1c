"""What the broker can do: one line per API, with what its caller has to be allowed (`handler.Needs`); and of those that
change something, what tells the audit log what they changed (`changes.py`).

ApiVersions is derived from this list and from nothing else. What a coordinator answers as it is has no file of its own
in `handlers/`. The operations are those that Kafka's brokers ask for.
"""

from headrace.broker import changes
from headrace.broker.changes import Changes
from headrace.broker.handler import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID, Handler, Needs, Run, audited, authorized
from headrace.broker.handlers import (
    acls,
    api_versions,
    client_metrics,
    cluster,
    configs,
    fetch,
    fixed,
    groups,
    metadata,
    offsets,
    partitions,
    produce,
    quotas,
    sasl,
    share_acknowledge,
    share_fetch,
    share_groups,
    streams_groups,
    topics,
    transactions,
    users,
)
from headrace.protocol.api import APIS, ApiKey
from headrace.protocol.messages.describe_groups import DescribedGroup
from headrace.security.acl import Operation

ALTER, ALTER_CONFIGS, CLUSTER_ACTION = Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CLUSTER_ACTION
CREATE, DELETE, DESCRIBE = Operation.CREATE, Operation.DELETE, Operation.DESCRIBE
DESCRIBE_CONFIGS, READ, WRITE = Operation.DESCRIBE_CONFIGS, Operation.READ, Operation.WRITE

_ALTER_CLUSTER, _DESCRIBE_CLUSTER = Needs(cluster=(ALTER,)), Needs(cluster=(DESCRIBE,))
_ALTER_EACH = Needs(cluster=(ALTER,), each={TOPIC: ALTER}, or_cluster=(ALTER,), refuses_each=True)
_READ_GROUP = Needs(group=READ)
_BIND = frozenset({(READ, TOPIC), (WRITE, TOPIC)})  # what bindings copy, and to where
_ALTER_ANY_CONFIGS = Needs(each={TOPIC: ALTER_CONFIGS, CLUSTER: ALTER_CONFIGS, GROUP: ALTER_CONFIGS}, also=_BIND)
_SEE_CLUSTER = (DESCRIBE, CLUSTER)  # or the operations that are allowed on it are not told

_APIS: dict[ApiKey, tuple[Run, Needs]] = {
    # records
    ApiKey.PRODUCE: (
        produce.handle,
        Needs(transactional_id=WRITE, each={TOPIC: WRITE}, also=frozenset({(DELETE, TOPIC)})),  # to redact events
    ),
    ApiKey.FETCH: (fetch.handle, Needs(each={TOPIC: READ})),
    ApiKey.LIST_OFFSETS: (partitions.list_offsets, Needs(each={TOPIC: DESCRIBE})),
    ApiKey.DELETE_RECORDS: (partitions.delete_records, Needs(each={TOPIC: DELETE})),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        partitions.find_epoch_end,
        Needs(each={TOPIC: DESCRIBE}, or_cluster=(CLUSTER_ACTION,)),
    ),
    # users, and logins where there is nothing to log in to
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (users.describe_users, _DESCRIBE_CLUSTER),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (users.alter_users, _ALTER_CLUSTER),
    ApiKey.SASL_HANDSHAKE: (sasl.refuse_handshake, Needs()),
    ApiKey.SASL_AUTHENTICATE: (sasl.refuse_token, Needs()),
    # the cluster and its topics
    ApiKey.API_VERSIONS: (api_versions.handle, Needs()),
    ApiKey.METADATA: (
        metadata.describe_topics,
        Needs(each={TOPIC: DESCRIBE}, also=frozenset({(CREATE, CLUSTER), (CREATE, TOPIC), _SEE_CLUSTER})),
    ),
    ApiKey.DESCRIBE_CLUSTER: (metadata.describe_cluster, Needs(also=frozenset({_SEE_CLUSTER}))),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (metadata.describe_topic_partitions, Needs(each={TOPIC: DESCRIBE})),
    ApiKey.DESCRIBE_LOG_DIRS: (partitions.describe_log_dirs, _DESCRIBE_CLUSTER),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (partitions.move_logs, _ALTER_CLUSTER),
    ApiKey.DESCRIBE_QUORUM: (cluster.describe_quorum, _DESCRIBE_CLUSTER),
    ApiKey.ADD_RAFT_VOTER: (cluster.add_voter, _ALTER_CLUSTER),
    ApiKey.REMOVE_RAFT_VOTER: (cluster.remove_voter, _ALTER_CLUSTER),
    ApiKey.UNREGISTER_BROKER: (cluster.unregister_broker, _ALTER_CLUSTER),
    ApiKey.UPDATE_FEATURES: (cluster.update_features, _ALTER_CLUSTER),
    ApiKey.CREATE_TOPICS: (
        topics.create_topics,
        Needs(each={TOPIC: CREATE}, or_cluster=(CREATE,), also=_BIND | {(DESCRIBE_CONFIGS, TOPIC)}),
    ),
    ApiKey.DELETE_TOPICS: (
        topics.delete_topics,
        Needs(each={TOPIC: DELETE}, or_cluster=(DELETE,), also=frozenset({(DESCRIBE, TOPIC)})),
    ),
    ApiKey.CREATE_PARTITIONS: (topics.create_partitions, Needs(each={TOPIC: ALTER})),
    ApiKey.ELECT_LEADERS: (fixed.elect_leaders, _ALTER_EACH),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (fixed.reassign_partitions, _ALTER_EACH),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (fixed.list_reassignments, _DESCRIBE_CLUSTER),
    # settings, quotas and access control
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (client_metrics.get_subscriptions, Needs()),
    ApiKey.PUSH_TELEMETRY: (client_metrics.push, Needs()),
    ApiKey.LIST_CONFIG_RESOURCES: (configs.list_resources, Needs(cluster=(DESCRIBE_CONFIGS,))),
    ApiKey.DESCRIBE_CONFIGS: (
        configs.describe_configs,
        Needs(each={TOPIC: DESCRIBE_CONFIGS, CLUSTER: DESCRIBE_CONFIGS, GROUP: DESCRIBE_CONFIGS}),
    ),
    ApiKey.ALTER_CONFIGS: (configs.alter_configs, _ALTER_ANY_CONFIGS),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (configs.change_configs, _ALTER_ANY_CONFIGS),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (quotas.describe_quotas, Needs(cluster=(DESCRIBE_CONFIGS,), refuses_each=True)),
    ApiKey.ALTER_CLIENT_QUOTAS: (quotas.alter_quotas, Needs(cluster=(ALTER_CONFIGS,))),
    ApiKey.DESCRIBE_ACLS: (acls.describe_acls, _DESCRIBE_CLUSTER),
    ApiKey.CREATE_ACLS: (acls.create_acls, _ALTER_CLUSTER),
    ApiKey.DELETE_ACLS: (acls.delete_acls, _ALTER_CLUSTER),
    # groups
    ApiKey.FIND_COORDINATOR: (
        groups.find_coordinator,
        Needs(each={GROUP: DESCRIBE, TRANSACTIONAL_ID: DESCRIBE, CLUSTER: CLUSTER_ACTION}),
    ),
    ApiKey.LIST_GROUPS: (groups.list_groups, Needs(each={GROUP: DESCRIBE}, or_cluster=(DESCRIBE,))),
    ApiKey.DESCRIBE_GROUPS: (
        groups.ask_group_by_group("groups", "groups", DescribedGroup),
        Needs(each={GROUP: DESCRIBE}),
    ),
    ApiKey.DELETE_GROUPS: (share_groups.delete_groups, Needs(each={GROUP: DELETE})),
    ApiKey.JOIN_GROUP: (groups.ask_groups, _READ_GROUP),  # answered when the round of joining is over
    ApiKey.SYNC_GROUP: (groups.ask_groups, _READ_GROUP),
    ApiKey.HEARTBEAT: (groups.ask_groups, _READ_GROUP),
    ApiKey.LEAVE_GROUP: (groups.ask_groups, _READ_GROUP),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (groups.heartbeat, Needs(group=READ, each={TOPIC: DESCRIBE})),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        groups.describe_consumer_groups,
        Needs(each={GROUP: DESCRIBE, TOPIC: DESCRIBE}),
    ),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (
        streams_groups.heartbeat,
        Needs(group=READ, each={TOPIC: DESCRIBE}, also=_BIND | {(CREATE, CLUSTER), (CREATE, TOPIC)}),
    ),
    ApiKey.STREAMS_GROUP_DESCRIBE: (streams_groups.describe, Needs(each={GROUP: DESCRIBE, TOPIC: DESCRIBE})),
    ApiKey.OFFSET_COMMIT: (offsets.commit_offsets, Needs(group=READ, each={TOPIC: READ})),
    ApiKey.OFFSET_FETCH: (offsets.fetch_offsets, Needs(each={GROUP: DESCRIBE, TOPIC: DESCRIBE})),
    ApiKey.OFFSET_DELETE: (offsets.delete_offsets, Needs(group=DELETE, each={TOPIC: READ})),
    # share groups
    ApiKey.SHARE_GROUP_HEARTBEAT: (share_groups.heartbeat, Needs(group=READ, each={TOPIC: DESCRIBE})),
    ApiKey.SHARE_GROUP_DESCRIBE: (share_groups.describe, Needs(each={GROUP: DESCRIBE, TOPIC: DESCRIBE})),
    ApiKey.SHARE_FETCH: (share_fetch.fetch, Needs(group=READ, each={TOPIC: READ})),
    ApiKey.SHARE_ACKNOWLEDGE: (
        share_acknowledge.acknowledge,
        Needs(transactional_id=WRITE, group=READ, each={TOPIC: READ}),
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
        share_groups.describe_offsets,
        Needs(each={GROUP: DESCRIBE, TOPIC: DESCRIBE}),
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (share_groups.alter_offsets, Needs(group=READ, each={TOPIC: READ})),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (share_groups.delete_offsets, Needs(group=DELETE, each={TOPIC: READ})),
    # transactions
    ApiKey.INIT_PRODUCER_ID: (
        transactions.init_producer_id,
        Needs(transactional_id=WRITE, also=frozenset({(Operation.IDEMPOTENT_WRITE, CLUSTER), (WRITE, TOPIC)})),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        transactions.add_partitions,
        Needs(each={TRANSACTIONAL_ID: WRITE, TOPIC: WRITE, CLUSTER: CLUSTER_ACTION}),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (transactions.ask_transactions, Needs(transactional_id=WRITE, group=READ)),
    ApiKey.TXN_OFFSET_COMMIT: (
        transactions.commit_offsets,
        Needs(transactional_id=WRITE, group=READ, each={TOPIC: READ}),
    ),
    # answered once the decision is durable, before the markers
    ApiKey.END_TXN: (transactions.ask_transactions, Needs(transactional_id=WRITE)),
    ApiKey.WRITE_TXN_MARKERS: (
        transactions.write_markers,
        Needs(cluster=(ALTER, CLUSTER_ACTION), each={TOPIC: ALTER}, or_cluster=(ALTER, CLUSTER_ACTION)),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        transactions.describe_transactions,
        Needs(each={TRANSACTIONAL_ID: DESCRIBE, TOPIC: DESCRIBE}),
    ),
    ApiKey.LIST_TRANSACTIONS: (transactions.list_transactions, Needs(each={TRANSACTIONAL_ID: DESCRIBE})),
    ApiKey.DESCRIBE_PRODUCERS: (partitions.describe_producers, Needs(each={TOPIC: READ})),
}

# Topics that Metadata makes, and events that Produce redacts, are recorded where it is done: answers do not tell.
CHANGES: dict[ApiKey, Changes] = {
    ApiKey.CREATE_TOPICS: changes.topics_created,
    ApiKey.DELETE_TOPICS: changes.topics_deleted,
    ApiKey.CREATE_PARTITIONS: changes.partitions_created,
    ApiKey.DELETE_RECORDS: changes.records_deleted,
    ApiKey.ALTER_CONFIGS: changes.settings_changed,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: changes.settings_changed,
    ApiKey.ALTER_CLIENT_QUOTAS: changes.quotas_changed,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: changes.users_changed,
    ApiKey.CREATE_ACLS: changes.acls_created,
    ApiKey.DELETE_ACLS: changes.acls_deleted,
    ApiKey.DELETE_GROUPS: changes.groups_deleted,
    ApiKey.OFFSET_COMMIT: changes.offsets_committed,
    ApiKey.OFFSET_DELETE: changes.offsets_deleted,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: changes.share_offsets_altered,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: changes.share_offsets_deleted,
    ApiKey.UPDATE_FEATURES: changes.features_updated,
    ApiKey.WRITE_TXN_MARKERS: changes.markers_written,
}


def _handler_of(key: ApiKey, run: Run, needs: Needs) -> Handler:
    run = authorized(run, needs._replace(api=key.name), APIS[key].response)
    if key in CHANGES:
        run = audited(run, key.name, CHANGES[key])
    return Handler(run, APIS[key].versions, needs)


HANDLERS: dict[int, Handler] = {key: _handler_of(key, run, needs) for key, (run, needs) in _APIS.items()}

SERVED: dict[int, range] = {key: handler.versions for key, handler in HANDLERS.items()}
