"""Topics: make them, take them away, look at them, change their settings.

What a broker refuses is raised as `Refused`, with the broker's own words; what it would refuse can be asked beforehand
with `validate_only`.
"""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from headrace.client.cluster import Cluster, Partition, Topic
from headrace.client.errors import ClientError, Refused, UnknownTopic, VersionNotSpoken
from headrace.client.leaders import Question, ask_leaders, by_topic, refused
from headrace.client.offsets import Bounds, bounds
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from headrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from headrace.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.protocol.messages.shared import TopicPartitions

BROKERS_CHOICE = -1  # as many partitions or replicas as the broker gives by default (KIP-464)
TIMEOUT_MS = 30_000
_ANSWER_TIMEOUT_S = TIMEOUT_MS / 1000 + 5

_TOPIC_RESOURCE, _BROKER_RESOURCE, _GROUP_RESOURCE = 2, 4, 32
_SET, _UNSET = 0, 1
_OWN = (1, 8)  # the sources of what was set for a topic, and for a group
_RESOURCES = {_TOPIC_RESOURCE: "topic", _GROUP_RESOURCE: "group"}


@dataclass(frozen=True, slots=True)
class Config:
    """One setting of a topic or a group; the value of a secret one is not told."""

    name: str
    value: str | None
    is_own: bool  # set for this one, and not what the broker would give it anyway


def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = BROKERS_CHOICE,
    replication_factor: int = BROKERS_CHOICE,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replication_factor,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
            )
        ],
        timeout_ms=TIMEOUT_MS,
        validate_only=validate_only,
    )

    def ask() -> None:
        response = cluster.controller().request(request, CreateTopicsResponse, timeout_s=_ANSWER_TIMEOUT_S)
        for result in response.topics:
            if result.error_code:
                _refuse(cluster, f"cannot create topic {name!r}", name, result.error_code, result.error_message)

    cluster.run_with_retries(ask, may_repeat=False)
    cluster.forget(name)


def ensure_topic(cluster: Cluster, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
    """Make a topic if it is not there; another may do the same at the same time."""
    try:
        cluster.topic(name)
    except UnknownTopic:
        try:
            create_topic(cluster, name, partitions=partitions, configs=configs)
        except Refused as refusal:
            if refusal.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


def delete_topics(cluster: Cluster, names: Collection[str]) -> None:
    """Delete topics with all that they hold; if one does not exist none is deleted."""
    cluster.refresh(names)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=TIMEOUT_MS)
    by_name_alone = DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS)

    def ask() -> None:
        connection = cluster.controller()
        is_new = connection.version_of(DeleteTopicsRequest.__schema__.api_key or 0) >= 6
        response = connection.request(
            request if is_new else by_name_alone, DeleteTopicsResponse, timeout_s=_ANSWER_TIMEOUT_S
        )
        for result in response.responses:
            if result.error_code:
                name = result.name or ""
                _refuse(cluster, f"cannot delete topic {name!r}", name, result.error_code, result.error_message)

    cluster.run_with_retries(ask, may_repeat=False)
    for name in names:
        cluster.forget(name)


def delete_records(cluster: Cluster, before: Mapping[TopicPartition, int]) -> None:
    """Delete the records of partitions before an offset each."""

    def ask(group: list[TopicPartition]) -> DeleteRecordsRequest:
        topics = [
            DeleteRecordsTopic(
                name=name,
                partitions=[
                    DeleteRecordsPartition(partition_index=index, offset=before[TopicPartition(name, index)])
                    for index in indexes
                ],
            )
            for name, indexes in by_topic(group).items()
        ]
        return DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS)

    def read(response: DeleteRecordsResponse) -> Iterator[tuple[TopicPartition, int | ClientError]]:
        for topic in response.topics:
            for result in topic.partitions:
                where = TopicPartition(topic.name, result.partition_index)
                code = ErrorCode.of(result.error_code)
                yield where, refused(where, code) if result.error_code else result.low_watermark

    ask_leaders(cluster, before, Question(DeleteRecordsResponse, ask, read))


def add_partitions(cluster: Cluster, name: str, total: int, *, validate_only: bool = False) -> None:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=total, assignments=None)],
        timeout_ms=TIMEOUT_MS,
        validate_only=validate_only,
    )

    def ask() -> None:
        response = cluster.controller().request(request, CreatePartitionsResponse, timeout_s=_ANSWER_TIMEOUT_S)
        for result in response.results:
            if result.error_code:
                doing = f"cannot give topic {name!r} {total} partitions"
                _refuse(cluster, doing, name, result.error_code, result.error_message)

    cluster.run_with_retries(ask, may_repeat=False)
    cluster.forget(name)


def alter_configs(
    cluster: Cluster, name: str, *, changes: Mapping[str, str], unset: Iterable[str] = (), validate_only: bool = False
) -> None:
    """Change some settings of a topic, put others back to their default, and leave the rest alone."""
    _alter_configs(cluster, _TOPIC_RESOURCE, name, changes, unset, validate_only=validate_only)


def alter_group_configs(cluster: Cluster, group: str, *, changes: Mapping[str, str], unset: Iterable[str] = ()) -> None:
    """Change some settings of a group, which need not be there yet (KIP-848), and put others back to their default."""
    _alter_configs(cluster, _GROUP_RESOURCE, group, changes, unset)


def _alter_configs(
    cluster: Cluster,
    resource: int,
    name: str,
    changes: Mapping[str, str],
    unset: Iterable[str],
    *,
    validate_only: bool = False,
) -> None:
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource,
                resource_name=name,
                configs=[
                    *(AlterableConfig(name=key, config_operation=_SET, value=value) for key, value in changes.items()),
                    *(AlterableConfig(name=key, config_operation=_UNSET, value=None) for key in unset),
                ],
            )
        ],
        validate_only=validate_only,
    )

    def ask() -> None:
        response = cluster.controller().request(request, IncrementalAlterConfigsResponse)
        for result in response.responses:
            if result.error_code:
                doing = f"cannot change {_RESOURCES[resource]} {name!r}"
                _refuse(cluster, doing, name, result.error_code, result.error_message)

    cluster.run_with_retries(ask)


def describe_configs(cluster: Cluster, topic: str) -> list[Config]:
    """The settings of a topic, by name."""
    found = configs_of_topics(cluster, [topic])[topic]
    return [found[name] for name in sorted(found)]


def configs_of_topics(
    cluster: Cluster, topics: Iterable[str], keys: Iterable[str] | None = None, *, skip_refused: bool = False
) -> dict[str, dict[str, Config]]:
    """Some settings of many topics at once, or all; topics whose settings the broker does not tell may be left out."""
    return _configs_of(cluster, _TOPIC_RESOURCE, topics, keys, skip_refused=skip_refused)


def configs_of_groups(
    cluster: Cluster, groups: Iterable[str], keys: Iterable[str] | None = None, *, skip_refused: bool = False
) -> dict[str, dict[str, Config]]:
    """The same of groups, which need not be there yet."""
    return _configs_of(cluster, _GROUP_RESOURCE, groups, keys, skip_refused=skip_refused)


def _configs_of(
    cluster: Cluster, resource: int, names: Iterable[str], keys: Iterable[str] | None, *, skip_refused: bool
) -> dict[str, dict[str, Config]]:
    wanted = None if keys is None else list(keys)
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=resource, resource_name=name, configuration_keys=wanted)
            for name in names
        ]
    )

    def ask() -> dict[str, dict[str, Config]]:
        found = {}
        for result in cluster.any_broker().request(request, DescribeConfigsResponse).results:
            name = result.resource_name
            if not result.error_code:
                found[name] = {
                    each.name: Config(each.name, each.value, each.config_source in _OWN) for each in result.configs
                }
            elif not skip_refused:
                doing = f"cannot read the settings of {_RESOURCES[resource]} {name!r}"
                _refuse(cluster, doing, name, result.error_code, result.error_message)
        return found

    return cluster.run_with_retries(ask) if request.resources else {}


def describe_broker_settings(cluster: Cluster) -> dict[str, str | None]:
    """The settings in force on one of the brokers; the value of a secret one is not told."""

    def ask() -> dict[str, str | None]:
        node = min(cluster.brokers().addresses)
        resource = DescribeConfigsResource(
            resource_type=_BROKER_RESOURCE, resource_name=str(node), configuration_keys=None
        )
        asked = DescribeConfigsRequest(resources=[resource])
        response = cluster.broker(node).request(asked, DescribeConfigsResponse)
        for result in response.results:
            if result.error_code:
                raise Refused(
                    "cannot read the settings of the broker", ErrorCode.of(result.error_code), result.error_message
                )
        return {config.name: config.value for result in response.results for config in result.configs}

    return cluster.run_with_retries(ask)


def describe_log_dirs(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    def ask(group: list[TopicPartition]) -> DescribeLogDirsRequest:
        return DescribeLogDirsRequest(
            topics=[TopicPartitions(topic=name, partitions=indexes) for name, indexes in by_topic(group).items()]
        )

    return ask_leaders(cluster, partitions, Question(DescribeLogDirsResponse, ask, _sizes))


def _sizes(response: DescribeLogDirsResponse) -> Iterator[tuple[TopicPartition, int | ClientError]]:
    if response.error_code:
        raise Refused("cannot read the sizes of partitions", ErrorCode.of(response.error_code))
    for directory in response.results:
        for topic in directory.topics:
            for partition in topic.partitions:
                where = TopicPartition(topic.name, partition.partition_index)
                if directory.error_code:
                    yield where, refused(where, directory.error_code)
                elif not partition.is_future_key:  # a copy on its way to another disk
                    yield where, partition.partition_size


def _refuse(cluster: Cluster, doing: str, topic: str, code: int, message: str | None) -> NoReturn:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopic(topic, str(cluster))
    raise Refused(doing, ErrorCode.of(code), message)


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition; `size_bytes` is None where the broker does not tell."""

    partition: Partition
    bounds: Bounds
    size_bytes: int | None

    @property
    def records(self) -> int:
        """How many offsets it holds: more than there are records, where compaction or transactions left gaps."""
        return self.bounds.end - self.bounds.start


@dataclass(frozen=True, slots=True)
class TopicDescription:
    topic: Topic
    partitions: list[PartitionDescription]
    configs: list[Config]


def describe_topic(cluster: Cluster, name: str) -> TopicDescription:
    topic = cluster.topic(name, refresh=True)
    partitions = cluster.partitions(name)
    held = bounds(cluster, partitions)
    sizes: Mapping[TopicPartition, int] = {}
    # A hosted Kafka may keep its disks to itself; the rest is worth showing all the same.
    with contextlib.suppress(Refused, VersionNotSpoken):
        sizes = describe_log_dirs(cluster, partitions)
    return TopicDescription(
        topic,
        [
            PartitionDescription(topic.partitions[where.partition], held[where], sizes.get(where))
            for where in partitions
        ],
        [config for config in describe_configs(cluster, name) if config.is_own],
    )


def alter_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int | None = None,
    changes: Mapping[str, str],
    unset: Collection[str] = (),
) -> None:
    """Give a topic more partitions and other settings: all of it or, if the broker would refuse a part, none."""
    cluster.topic(name, refresh=True)
    for validate_only in (True, False):
        if partitions is not None:
            add_partitions(cluster, name, partitions, validate_only=validate_only)
        if changes or unset:
            alter_configs(cluster, name, changes=changes, unset=unset, validate_only=validate_only)
