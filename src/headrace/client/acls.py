"""ACLs of a cluster, ours or any Kafka: listed, added, removed.

What a broker refuses is raised as `Refused`, with the broker's own words. A Kafka lists what was added a moment after
it has acknowledged it.
"""

from collections.abc import Sequence

from headrace.client.admin import describe_broker_settings
from headrace.client.cluster import Cluster
from headrace.client.errors import Refused
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from headrace.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from headrace.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from headrace.security.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from headrace.security.explanation import Rules
from headrace.security.principal import Principal


def list_acls(cluster: Cluster, wanted: AclFilter) -> list[Acl]:
    """The ACLs that match, in the order of their resources."""
    request = DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )

    def ask() -> list[Acl]:
        response = cluster.controller().request(request, DescribeAclsResponse)
        _check("cannot list the ACLs", response.error_code, response.error_message)
        return sorted(
            Acl(
                ResourceType(resource.resource_type),
                resource.resource_name,
                PatternType(resource.pattern_type),
                acl.principal,
                acl.host,
                Operation(acl.operation),
                Permission(acl.permission_type),
            )
            for resource in response.resources
            for acl in resource.acls
        )

    return cluster.run_with_retries(ask)


def read_rules(cluster: Cluster) -> Rules | None:
    """What a broker decides by; None if it authorises nobody. Super users are among it if we may see settings."""
    try:
        acls = list_acls(cluster, AclFilter())
    except Refused as refused:
        if refused.code is ErrorCode.SECURITY_DISABLED:
            return None
        raise
    try:
        settings = describe_broker_settings(cluster)
    except Refused:
        return Rules(acls, None)
    named = settings.get("super.users")
    super_users = None if named is None else frozenset(Principal.parse(each) for each in split_list(named))
    return Rules(acls, super_users, (settings.get("allow.everyone.if.no.acl.found") or "").lower() == "true")


def split_list(text: str) -> list[str]:
    """The principals in a text with `;` between them."""
    return [each.strip() for each in text.split(";") if each.strip()]


def add_acls(cluster: Cluster, acls: Sequence[Acl]) -> None:
    """Add ACLs; one that is there already stays as it is."""
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )

    def ask() -> None:
        response = cluster.controller().request(request, CreateAclsResponse)
        for result in response.results:
            _check("cannot add an ACL", result.error_code, result.error_message)

    cluster.run_with_retries(ask)


def remove_acls(cluster: Cluster, filters: Sequence[AclFilter]) -> list[Acl]:
    """Remove what matches one of the filters; what that was."""
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=each.resource_type,
                resource_name_filter=each.resource_name,
                pattern_type_filter=each.pattern_type,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in filters
        ]
    )

    def ask() -> list[Acl]:
        response = cluster.controller().request(request, DeleteAclsResponse)
        removed: dict[Acl, None] = {}
        for result in response.filter_results:
            _check("cannot remove ACLs", result.error_code, result.error_message)
            for match in result.matching_acls:
                _check("cannot remove an ACL", match.error_code, match.error_message)
                acl = Acl(
                    ResourceType(match.resource_type),
                    match.resource_name,
                    PatternType(match.pattern_type),
                    match.principal,
                    match.host,
                    Operation(match.operation),
                    Permission(match.permission_type),
                )
                removed[acl] = None
        return sorted(removed)

    return cluster.run_with_retries(ask, may_repeat=False)


def _check(doing: str, code: int, message: str | None) -> None:
    if code == ErrorCode.SECURITY_DISABLED:
        raise Refused(doing, ErrorCode.of(code), "it authorises nobody: start it with authorization=on")
    if code:
        raise Refused(doing, ErrorCode.of(code), message)
