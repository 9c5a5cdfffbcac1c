"""What the broker can do: one line per API. ApiVersions is derived from this list and from nothing else."""

from headrace.broker.handler import Handler
from headrace.broker.handlers import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)

HANDLERS: dict[int, Handler] = {
    handler.key: handler
    for handler in (
        produce.HANDLER,
        fetch.HANDLER,
        list_offsets.HANDLER,
        metadata.HANDLER,
        find_coordinator.HANDLER,
        api_versions.HANDLER,
        create_topics.HANDLER,
        delete_topics.HANDLER,
        delete_records.HANDLER,
        init_producer_id.HANDLER,
        offset_for_leader_epoch.HANDLER,
        describe_configs.HANDLER,
        alter_configs.HANDLER,
        describe_log_dirs.HANDLER,
        create_partitions.HANDLER,
        incremental_alter_configs.HANDLER,
        describe_cluster.HANDLER,
        describe_topic_partitions.HANDLER,
    )
}

SERVED: dict[int, range] = {key: handler.versions for key, handler in HANDLERS.items()}
