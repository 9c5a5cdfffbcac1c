"""DescribeGroups: classic groups with their members and assignments."""

from headrace.broker.group_requests import ask_group_by_group
from headrace.broker.handler import Handler
from headrace.protocol.api import ApiKey

HANDLER = Handler.of(ApiKey.DESCRIBE_GROUPS, ask_group_by_group("groups", "groups"))
