"""DeleteAcls: access control is not here yet, and the answer is that of a Kafka without an authorizer."""

from headrace.broker.context import Context
from headrace.broker.errors import NO_AUTHORIZER
from headrace.broker.handler import Handler
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def handle(_: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Refuse each."""
    refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refused for _ in request.filters])


HANDLER = Handler.of(ApiKey.DELETE_ACLS, handle)
