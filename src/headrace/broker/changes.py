"""What a request changed, for the audit log: a function for each API that changes something, named in `registry.py`.

A function is given the request and its answer, or None if the client left before there was one: then nobody knows what
was done of it. It names each resource with the code of its error, and the facts that are worth to be kept: never a
password or a key, and of settings only values that are known not to be secret.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from headrace.broker.client_metrics import CLIENT_METRICS_SETTINGS
from headrace.broker.config_resources import ConfigResource
from headrace.broker.settings.broker import BROKER_SETTINGS, THROTTLES
from headrace.broker.settings.groups import GROUP_SETTINGS
from headrace.broker.settings.setting import Setting
from headrace.broker.settings.topics import TOPIC_SETTINGS
from headrace.protocol.errors import ErrorCode
from headrace.security.acl import Operation, PatternType, Permission, ResourceType
from headrace.security.quotas import CLIENT_ID, IP, USER
from headrace.security.scram import NUMBERS

_MOST_FACTS = 100  # of one resource


class Change(NamedTuple):
    resource_type: str
    name: str
    error_code: int | None  # None where nobody knows
    facts: Mapping[str, Any] = {}

    @property
    def is_denied(self) -> bool:
        """Whether it was not allowed: that was recorded when it was denied."""
        return self.error_code in _DENIED


_DENIED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)

Changes = Callable[[Any, Any], Iterable[Change]]
_GROUP, _TOPIC = "group", "topic"


def _some(things: Iterable[Any]) -> list[Any]:
    """As many as are worth a line."""
    return [thing for thing, _ in zip(things, range(_MOST_FACTS), strict=False)]


def _code(codes: Mapping[Any, int], key: Any, response: Any) -> int | None:
    """The error of one entry of the answer; of the whole answer if that has no entries."""
    return None if response is None else codes.get(key, getattr(response, "error_code", 0))


def topics_created(request: Any, response: Any) -> Iterator[Change]:
    codes = {topic.name: topic.error_code for topic in response.topics} if response else {}
    for topic in request.topics:
        facts: dict[str, Any] = {"partitions": len(topic.assignments) or topic.num_partitions}
        if topic.configs:
            facts["settings"] = _shown(TOPIC_SETTINGS, ((config.name, config.value) for config in topic.configs))
        yield Change(_TOPIC, topic.name, _code(codes, topic.name, response), facts)


def topics_deleted(request: Any, response: Any) -> Iterator[Change]:
    if response is not None:
        for result in response.responses:
            yield Change(_TOPIC, result.name or str(result.topic_id), result.error_code)
        return
    for name in [*request.topic_names, *(topic.name or str(topic.topic_id) for topic in request.topics)]:
        yield Change(_TOPIC, name, None)


def partitions_created(request: Any, response: Any) -> Iterator[Change]:
    codes = {topic.name: topic.error_code for topic in response.results} if response else {}
    for topic in request.topics:
        yield Change(_TOPIC, topic.name, _code(codes, topic.name, response), {"partitions": topic.count})


def records_deleted(request: Any, response: Any) -> Iterator[Change]:
    codes = _partition_codes(response.topics) if response else {}
    for topic in request.topics:
        for code, offsets in _by_code(
            codes, topic.name, ((each.partition_index, each.offset) for each in topic.partitions), response
        ):
            yield Change(_TOPIC, topic.name, code, {"before": offsets})


def offsets_committed(request: Any, response: Any) -> Iterator[Change]:
    """Of a group, from outside of it: by whoever resets it, or reads without being a member."""
    if request.generation_id_or_member_epoch >= 0:
        return
    codes = _partition_codes(response.topics) if response else {}
    for topic in request.topics:
        offsets = ((each.partition_index, each.committed_offset) for each in topic.partitions)
        for code, moved in _by_code(codes, topic.name or topic.topic_id, offsets, response):
            yield Change(_GROUP, request.group_id, code, {"topic": topic.name or str(topic.topic_id), "offsets": moved})


def offsets_deleted(request: Any, response: Any) -> Iterator[Change]:
    codes = _partition_codes(response.topics) if response else {}
    for topic in request.topics:
        indexes = ((each.partition_index, None) for each in topic.partitions)
        for code, gone in _by_code(codes, topic.name, indexes, response):
            yield Change(_GROUP, request.group_id, code, {"topic": topic.name, "partitions": list(gone)})


def share_offsets_altered(request: Any, response: Any) -> Iterator[Change]:
    codes = {
        (topic.topic_name, each.partition_index): each.error_code
        for topic in (response.responses if response else ())
        for each in topic.partitions
    }
    for topic in request.topics:
        for each in _some(topic.partitions):
            code = _code(codes, (topic.topic_name, each.partition_index), response)
            facts = {"topic": topic.topic_name, "partition": each.partition_index, "offset": each.start_offset}
            yield Change(_GROUP, request.group_id, code, facts)


def share_offsets_deleted(request: Any, response: Any) -> Iterator[Change]:
    codes = {topic.topic_name: topic.error_code for topic in response.responses} if response else {}
    for topic in request.topics:
        yield Change(_GROUP, request.group_id, _code(codes, topic.topic_name, response), {"topic": topic.topic_name})


def _partition_codes(topics: Iterable[Any]) -> dict[tuple[Any, int], int]:
    return {
        (topic.name or getattr(topic, "topic_id", ""), each.partition_index): each.error_code
        for topic in topics
        for each in topic.partitions
    }


def _by_code(
    codes: Mapping[tuple[Any, int], int], topic: Any, partitions: Iterable[tuple[int, Any]], response: Any
) -> Iterator[tuple[int | None, dict[int, Any]]]:
    """Partitions with what was done to them, by the error of it."""
    grouped: dict[int | None, dict[int, Any]] = {}
    for index, what in partitions:
        found = grouped.setdefault(_code(codes, (topic, index), response), {})
        if len(found) < _MOST_FACTS:
            found[index] = what
    yield from grouped.items()


def groups_deleted(request: Any, response: Any) -> Iterator[Change]:
    codes = {group.group_id: group.error_code for group in response.results} if response else {}
    for name in request.groups_names:
        yield Change(_GROUP, name, _code(codes, name, response))


_SETTINGS: dict[int, Mapping[str, Setting]] = {
    ConfigResource.TOPIC: TOPIC_SETTINGS,
    ConfigResource.BROKER: BROKER_SETTINGS | THROTTLES,
    ConfigResource.GROUP: GROUP_SETTINGS,
    ConfigResource.CLIENT_METRICS: CLIENT_METRICS_SETTINGS,
}
_REMOVED, _HIDDEN = "(removed)", "(hidden)"
_DELETE = 1  # of IncrementalAlterConfigs


def settings_changed(request: Any, response: Any) -> Iterator[Change]:
    codes = (
        {(each.resource_type, each.resource_name): each.error_code for each in response.responses} if response else {}
    )
    for resource in request.resources:
        kind = resource.resource_type
        name = ConfigResource(kind).name.lower() if kind in list(ConfigResource) else str(kind)
        values = (
            (config.name, None if getattr(config, "config_operation", 0) == _DELETE else config.value)
            for config in resource.configs
        )
        facts = {"settings": _shown(_SETTINGS.get(kind), values)}
        code = _code(codes, (kind, resource.resource_name), response)
        yield Change(name.replace("_", "-"), resource.resource_name, code, facts)


def _shown(known: Mapping[str, Setting] | None, values: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Settings with their values, but for those that are secret or not known: a client may take us for another."""
    shown = {}
    for name, value in _some(values):
        setting = known.get(name) if known is not None else None
        is_open = known is None or (setting is not None and not setting.is_secret)
        shown[name] = _REMOVED if value is None else value if is_open else _HIDDEN
    return shown


def acls_created(request: Any, response: Any) -> Iterator[Change]:
    for number, each in enumerate(request.creations):
        code = None if response is None else response.results[number].error_code
        yield _acl_change(each, each.resource_pattern_type, code)


def acls_deleted(request: Any, response: Any) -> Iterator[Change]:
    if response is None:
        for each in request.filters:
            facts = {"principal": each.principal_filter, "host": each.host_filter}
            yield Change("acl", each.resource_name_filter or "*", None, facts)
        return
    for result in response.filter_results:
        if result.error_code:
            yield Change("acl", "", result.error_code)
        for acl in result.matching_acls:
            yield _acl_change(acl, acl.pattern_type, acl.error_code)


def _acl_change(acl: Any, pattern_type: int, code: int | None) -> Change:
    facts = {
        "permission": Permission(acl.permission_type).name.lower(),
        "principal": acl.principal,
        "host": acl.host,
        "operation": word_of(Operation(acl.operation)),
        "on": word_of(ResourceType(acl.resource_type)),
        "pattern": PatternType(pattern_type).name.lower(),
    }
    return Change("acl", acl.resource_name, code, facts)


def word_of(value: Operation | ResourceType) -> str:
    return value.name.lower().replace("_", "-")


_MECHANISMS = {number: name for name, number in NUMBERS.items()}


def users_changed(request: Any, response: Any) -> Iterator[Change]:
    codes = {each.user: each.error_code for each in response.results} if response else {}
    for entries, done in ((request.deletions, "removed"), (request.upsertions, "set")):
        for each in entries:
            facts = {"password": done, "mechanism": _MECHANISMS.get(each.mechanism, str(each.mechanism))}
            yield Change("user", each.name, _code(codes, each.name, response), facts)


def quotas_changed(request: Any, response: Any) -> Iterator[Change]:
    codes = {_entity(each): each.error_code for each in response.entries} if response else {}
    for entry in request.entries:
        values = {op.key: None if op.remove else op.value for op in _some(entry.ops)}
        yield Change("quota", _entity(entry), _code(codes, _entity(entry), response), {"quotas": values})


def _entity(entry: Any) -> str:
    """As `user alice, client-id app`; a part without a name is the default of its type."""
    parts = {part.entity_type: part.entity_name for part in entry.entity}
    order = [kind for kind in (USER, CLIENT_ID, IP) if kind in parts] + [
        each for each in parts if each not in _ENTITIES
    ]
    return ", ".join(f"{kind} {'(default)' if parts[kind] is None else parts[kind]}" for kind in order)


_ENTITIES = (USER, CLIENT_ID, IP)


def features_updated(request: Any, response: Any) -> Iterator[Change]:
    for update in request.feature_updates:
        code = None if response is None else response.error_code
        yield Change("feature", update.feature, code, {"level": update.max_version_level})


def markers_written(request: Any, response: Any) -> Iterator[Change]:
    """Transactions that somebody ended by hand: brokers write markers themselves."""
    answers = response.markers if response else [None] * len(request.markers)
    for marker, answer in zip(request.markers, answers, strict=False):
        codes = _partition_codes(answer.topics) if answer else {}
        facts = {"producer_id": marker.producer_id, "committed": marker.transaction_result}
        for topic in marker.topics:
            indexes = ((index, None) for index in topic.partition_indexes)
            for code, written in _by_code(codes, topic.name, indexes, answer):
                yield Change(_TOPIC, topic.name, code, {**facts, "partitions": list(written)})


# What is done every second by readers that are not members of their group, and now and then by who resets one.
FREQUENT: frozenset[Changes] = frozenset({offsets_committed})
