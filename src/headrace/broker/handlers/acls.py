"""DescribeAcls, CreateAcls, DeleteAcls: the ACLs by which requests are authorised, kept in the broker's metadata.

Without authorisation they are answered as a Kafka without an authorizer does. An ACL that is invalid does not touch the
others of its request; what is created or removed together is on the disk together.
"""

from headrace.broker.errors import BrokerError, code_of
from headrace.broker.handler import Answer, Context
from headrace.coordinator.metadata import MetadataChange, MetadataImage, record_of
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from headrace.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from headrace.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from headrace.security.acl import Acl, AclFilter, InvalidAcl, Operation, PatternType, Permission, ResourceType
from headrace.security.principal import Principal

_OFF = BrokerError(
    ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker: start it with authorization=on"
)


def describe_acls(ctx: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    if ctx.broker.authorizer is None:
        return DescribeAclsResponse(error_code=_OFF.code, error_message=str(_OFF))
    by_resource: dict[tuple[ResourceType, str, PatternType], DescribeAclsResource] = {}
    for acl in ctx.broker.metadata.image.acls.matching(_read_filter(request)):
        resource = by_resource.setdefault(
            acl[:3],
            DescribeAclsResource(
                resource_type=acl.resource_type, resource_name=acl.resource_name, pattern_type=acl.pattern_type
            ),
        )
        resource.acls.append(
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    return DescribeAclsResponse(error_message=None, resources=list(by_resource.values()))


def create_acls(ctx: Context, request: CreateAclsRequest) -> Answer:
    refused = _refuse(ctx)
    if refused:
        result = AclCreationResult(error_code=refused.code, error_message=str(refused))
        return CreateAclsResponse(results=[result for _ in request.creations])

    def decide(image: MetadataImage) -> MetadataChange:
        results, created = [], {}
        for creation in request.creations:
            result = AclCreationResult(error_message=None)
            results.append(result)
            try:
                acl = _read_acl(creation)
            except HeadraceError as error:
                result.error_code, result.error_message = code_of(error), str(error)
                continue
            if acl not in image.acls:
                created[acl] = record_of(acl)
        return MetadataChange(CreateAclsResponse(results=results), list(created.values()))

    return ctx.broker.metadata.change(decide)


def delete_acls(ctx: Context, request: DeleteAclsRequest) -> Answer:
    refused = _refuse(ctx)
    if refused:
        result = DeleteAclsFilterResult(error_code=refused.code, error_message=str(refused))
        return DeleteAclsResponse(filter_results=[result for _ in request.filters])

    def decide(image: MetadataImage) -> MetadataChange:
        results, removed = [], {}
        for each in request.filters:
            result = DeleteAclsFilterResult(error_message=None)
            results.append(result)
            try:
                matching = image.acls.matching(_check_filter(_read_filter(each)))
            except HeadraceError as error:
                result.error_code, result.error_message = code_of(error), str(error)
                continue
            result.matching_acls = [_describe_removed(acl) for acl in matching]
            removed.update({acl: record_of(acl, is_removed=True) for acl in matching})
        return MetadataChange(DeleteAclsResponse(filter_results=results), list(removed.values()))

    return ctx.broker.metadata.change(decide)


def _refuse(ctx: Context) -> BrokerError | None:
    """Why no ACL can be changed by this client."""
    return _OFF if ctx.broker.authorizer is None else ctx.refused


def _read_acl(creation: AclCreation) -> Acl:
    acl = Acl(
        ResourceType(creation.resource_type),
        creation.resource_name,
        PatternType(creation.resource_pattern_type),
        creation.principal,
        creation.host,
        Operation(creation.operation),
        Permission(creation.permission_type),
    )
    acl.check()
    Principal.parse(acl.principal)
    return acl


def _read_filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        ResourceType(asked.resource_type_filter),
        asked.resource_name_filter,
        PatternType(asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        Operation(asked.operation),
        Permission(asked.permission_type),
    )


def _check_filter(filter_: AclFilter) -> AclFilter:
    if ResourceType.UNKNOWN is filter_.resource_type or PatternType.UNKNOWN is filter_.pattern_type:
        raise InvalidAcl("Unknown patternFilter.")
    if Operation.UNKNOWN is filter_.operation or Permission.UNKNOWN is filter_.permission:
        raise InvalidAcl("Unknown entryFilter.")
    return filter_


def _describe_removed(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
