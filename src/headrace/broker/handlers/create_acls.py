"""CreateAcls: access control is not here yet, and the answer is that of a Kafka without an authorizer."""

from headrace.broker.context import Context
from headrace.broker.errors import NO_AUTHORIZER
from headrace.broker.handler import Handler
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handle(_: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    """Refuse each."""
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused for _ in request.creations])


HANDLER = Handler.of(ApiKey.CREATE_ACLS, handle)
