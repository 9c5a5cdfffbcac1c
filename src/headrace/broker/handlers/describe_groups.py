"""DescribeGroups: classic groups with their members and assignments."""

from headrace.broker.group_requests import ask_groups
from headrace.broker.handler import Handler
from headrace.protocol.api import ApiKey

HANDLER = Handler.of(ApiKey.DESCRIBE_GROUPS, ask_groups)
