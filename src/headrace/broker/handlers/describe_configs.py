"""DescribeConfigs: the settings of topics and of the broker, with where each value comes from."""

from headrace.broker.context import Context
from headrace.broker.errors import BrokerError, code_of
from headrace.broker.handler import Answer
from headrace.broker.resource_configs import (
    BROKER,
    TOPIC,
    DescribedConfig,
    describe_broker,
    describe_topic,
    named_twice,
    no_settings,
)
from headrace.broker.turns import Steps
from headrace.errors import HeadraceError
from headrace.model import check_topic_name
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(ctx: Context, request: DescribeConfigsRequest) -> Steps[Answer]:
    """Describe each resource, once: an answer is in proportion to what there is, not to how often it is asked for."""
    response = DescribeConfigsResponse()
    doubled = named_twice((resource.resource_type, resource.resource_name) for resource in request.resources)
    for resource in request.resources:
        yield
        result = DescribeConfigsResult(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.results.append(result)
        try:
            if (resource.resource_type, resource.resource_name) in doubled:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            wanted = frozenset(resource.configuration_keys or ())
            for config in _settings(ctx, resource):
                if not wanted or config.name in wanted:
                    result.configs.append(_describe(request, resource, config))
        except HeadraceError as error:
            result.error_code, result.error_message = code_of(error), str(error)
    return response


def _settings(ctx: Context, resource: DescribeConfigsResource) -> list[DescribedConfig]:
    if resource.resource_type == TOPIC:
        check_topic_name(resource.resource_name)
        topic = ctx.broker.topic(resource.resource_name, b"", by_id=False)
        return describe_topic(topic.settings, ctx.broker.config.settings)
    if resource.resource_type == BROKER:
        if resource.resource_name not in ("", str(ctx.broker.node_id)):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {ctx.broker.node_id} or empty string, "
                f"but received {resource.resource_name}",
            )
        return describe_broker(ctx.broker.config.settings)
    raise no_settings(resource.resource_type)


def _describe(
    request: DescribeConfigsRequest, resource: DescribeConfigsResource, config: DescribedConfig
) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=config.name,
        value=None if config.value is None else config.setting.shown(config.value),
        read_only=resource.resource_type == BROKER,
        config_source=config.source,
        config_type=config.setting.type,
        documentation=config.setting.meaning if request.include_documentation else None,
    )
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(name=synonym.name, value=config.setting.shown(synonym.value), source=synonym.source)
            for synonym in config.synonyms
        ]
    return result
