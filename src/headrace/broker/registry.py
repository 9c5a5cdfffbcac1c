"""What the broker can do: one line per API. ApiVersions is derived from this list and from nothing else.

What a coordinator answers as it is has no file of its own in `handlers/`.
"""

from collections.abc import Callable
from typing import Any

from headrace.broker.context import Context
from headrace.broker.coordinator_requests import ask_group_by_group, ask_groups, ask_transactions
from headrace.broker.handler import Handled, Handler
from headrace.broker.handlers import (
    acls,
    add_partitions_to_txn,
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    partition_reassignments,
    produce,
    txn_offset_commit,
    write_txn_markers,
)
from headrace.protocol.api import APIS, ApiKey

_RUN: dict[ApiKey, Callable[[Context, Any], Handled]] = {
    # records
    ApiKey.PRODUCE: produce.handle,
    ApiKey.FETCH: fetch.handle,
    ApiKey.LIST_OFFSETS: list_offsets.handle,
    ApiKey.DELETE_RECORDS: delete_records.handle,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.handle,
    # the cluster and its topics
    ApiKey.API_VERSIONS: api_versions.handle,
    ApiKey.METADATA: metadata.handle,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster.handle,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions.handle,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs.handle,
    ApiKey.CREATE_TOPICS: create_topics.handle,
    ApiKey.DELETE_TOPICS: delete_topics.handle,
    ApiKey.CREATE_PARTITIONS: create_partitions.handle,
    ApiKey.ELECT_LEADERS: elect_leaders.handle,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: partition_reassignments.alter,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: partition_reassignments.list_all,
    # settings and access control
    ApiKey.DESCRIBE_CONFIGS: describe_configs.handle,
    ApiKey.ALTER_CONFIGS: alter_configs.handle,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.handle,
    ApiKey.DESCRIBE_ACLS: acls.describe,
    ApiKey.CREATE_ACLS: acls.create,
    ApiKey.DELETE_ACLS: acls.delete,
    # groups
    ApiKey.FIND_COORDINATOR: find_coordinator.handle,
    ApiKey.LIST_GROUPS: ask_groups,
    ApiKey.DESCRIBE_GROUPS: ask_group_by_group("groups", "groups"),
    ApiKey.DELETE_GROUPS: ask_group_by_group("groups_names", "results"),
    ApiKey.JOIN_GROUP: ask_groups,  # answered when the round of joining is over
    ApiKey.SYNC_GROUP: ask_groups,
    ApiKey.HEARTBEAT: ask_groups,
    ApiKey.LEAVE_GROUP: ask_groups,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ask_groups,
    ApiKey.CONSUMER_GROUP_DESCRIBE: ask_group_by_group("group_ids", "groups"),
    ApiKey.OFFSET_COMMIT: offset_commit.handle,
    ApiKey.OFFSET_FETCH: offset_fetch.handle,
    ApiKey.OFFSET_DELETE: ask_groups,
    # transactions
    ApiKey.INIT_PRODUCER_ID: init_producer_id.handle,
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn.handle,
    ApiKey.ADD_OFFSETS_TO_TXN: ask_transactions,
    ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit.handle,
    ApiKey.END_TXN: ask_transactions,  # answered once the decision is durable, before the markers are written
    ApiKey.WRITE_TXN_MARKERS: write_txn_markers.handle,
    ApiKey.DESCRIBE_TRANSACTIONS: ask_transactions,
    ApiKey.LIST_TRANSACTIONS: ask_transactions,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers.handle,
}

HANDLERS: dict[int, Handler] = {key: Handler(run, APIS[key].versions) for key, run in _RUN.items()}

SERVED: dict[int, range] = {key: handler.versions for key, handler in HANDLERS.items()}
