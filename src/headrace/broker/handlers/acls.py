"""DescribeAcls, CreateAcls, DeleteAcls: the answers of a Kafka without an authorizer."""

from headrace.broker.context import Context
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from headrace.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from headrace.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

_REASON = "there is no access control: no authorizer is configured"


def describe(_: Context, __: DescribeAclsRequest) -> DescribeAclsResponse:
    """Describe none."""
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_REASON)


def create(_: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    """Refuse each."""
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_REASON)
    return CreateAclsResponse(results=[refused for _ in request.creations])


def delete(_: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Refuse each."""
    refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_REASON)
    return DeleteAclsResponse(filter_results=[refused for _ in request.filters])
