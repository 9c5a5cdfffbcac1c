"""What the broker can do: one line per API. ApiVersions is derived from this list and from nothing else.

What a coordinator answers as it is has no file of its own in `handlers/`.
"""

from collections.abc import Callable
from typing import Any

from headrace.broker.handler import Context, Handled, Handler
from headrace.broker.handlers import (
    api_versions,
    configs,
    fetch,
    fixed,
    groups,
    metadata,
    partitions,
    produce,
    topics,
    transactions,
)
from headrace.protocol.api import APIS, ApiKey

_RUN: dict[ApiKey, Callable[[Context, Any], Handled]] = {
    # records
    ApiKey.PRODUCE: produce.handle,
    ApiKey.FETCH: fetch.handle,
    ApiKey.LIST_OFFSETS: partitions.list_offsets,
    ApiKey.DELETE_RECORDS: partitions.delete_records,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: partitions.find_epoch_end,
    # the cluster and its topics
    ApiKey.API_VERSIONS: api_versions.handle,
    ApiKey.METADATA: metadata.describe_topics,
    ApiKey.DESCRIBE_CLUSTER: metadata.describe_cluster,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: metadata.describe_topic_partitions,
    ApiKey.DESCRIBE_LOG_DIRS: partitions.describe_log_dirs,
    ApiKey.CREATE_TOPICS: topics.create_topics,
    ApiKey.DELETE_TOPICS: topics.delete_topics,
    ApiKey.CREATE_PARTITIONS: topics.create_partitions,
    ApiKey.ELECT_LEADERS: fixed.elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: fixed.reassign_partitions,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: fixed.list_reassignments,
    # settings and access control
    ApiKey.DESCRIBE_CONFIGS: configs.describe_configs,
    ApiKey.ALTER_CONFIGS: configs.alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.change_configs,
    ApiKey.DESCRIBE_ACLS: fixed.describe_acls,
    ApiKey.CREATE_ACLS: fixed.create_acls,
    ApiKey.DELETE_ACLS: fixed.delete_acls,
    # groups
    ApiKey.FIND_COORDINATOR: groups.find_coordinator,
    ApiKey.LIST_GROUPS: groups.ask_groups,
    ApiKey.DESCRIBE_GROUPS: groups.ask_group_by_group("groups", "groups"),
    ApiKey.DELETE_GROUPS: groups.ask_group_by_group("groups_names", "results"),
    ApiKey.JOIN_GROUP: groups.ask_groups,  # answered when the round of joining is over
    ApiKey.SYNC_GROUP: groups.ask_groups,
    ApiKey.HEARTBEAT: groups.ask_groups,
    ApiKey.LEAVE_GROUP: groups.ask_groups,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: groups.ask_groups,
    ApiKey.CONSUMER_GROUP_DESCRIBE: groups.ask_group_by_group("group_ids", "groups"),
    ApiKey.OFFSET_COMMIT: groups.commit_offsets,
    ApiKey.OFFSET_FETCH: groups.fetch_offsets,
    ApiKey.OFFSET_DELETE: groups.ask_groups,
    # transactions
    ApiKey.INIT_PRODUCER_ID: transactions.init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.ask_transactions,
    ApiKey.TXN_OFFSET_COMMIT: transactions.commit_offsets,
    ApiKey.END_TXN: transactions.ask_transactions,  # answered once the decision is durable, before the markers
    ApiKey.WRITE_TXN_MARKERS: transactions.write_markers,
    ApiKey.DESCRIBE_TRANSACTIONS: transactions.ask_transactions,
    ApiKey.LIST_TRANSACTIONS: transactions.ask_transactions,
    ApiKey.DESCRIBE_PRODUCERS: partitions.describe_producers,
}

HANDLERS: dict[int, Handler] = {key: Handler(run, APIS[key].versions) for key, run in _RUN.items()}

SERVED: dict[int, range] = {key: handler.versions for key, handler in HANDLERS.items()}
