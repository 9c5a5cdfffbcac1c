"""LeaveGroup: leave a classic group at once instead of by silence."""

from headrace.broker.group_requests import ask_groups
from headrace.broker.handler import Handler
from headrace.protocol.api import ApiKey

HANDLER = Handler.of(ApiKey.LEAVE_GROUP, ask_groups)
