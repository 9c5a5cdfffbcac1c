"""ListGroups: every group, filtered by state and type."""

from headrace.broker.group_requests import ask_groups
from headrace.broker.handler import Handler
from headrace.protocol.api import ApiKey

HANDLER = Handler.of(ApiKey.LIST_GROUPS, ask_groups)
