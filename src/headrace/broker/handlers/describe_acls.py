"""DescribeAcls: access control is not here yet, and the answer is that of a Kafka without an authorizer."""

from headrace.broker.context import Context
from headrace.broker.errors import NO_AUTHORIZER
from headrace.broker.handler import Handler
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def handle(_: Context, __: DescribeAclsRequest) -> DescribeAclsResponse:
    """Tell that there are none to be told of."""
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)


HANDLER = Handler.of(ApiKey.DESCRIBE_ACLS, handle)
