"""ListPartitionReassignments: on one broker nothing is ever being moved."""

from headrace.broker.context import Context
from headrace.broker.handler import Handler
from headrace.protocol.api import ApiKey
from headrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(_: Context, __: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    """Tell that none is."""
    return ListPartitionReassignmentsResponse()


HANDLER = Handler.of(ApiKey.LIST_PARTITION_REASSIGNMENTS, handle)
