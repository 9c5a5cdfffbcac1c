"""ConsumerGroupDescribe: new-style groups with their members and assignments (KIP-848)."""

from headrace.broker.group_requests import ask_group_by_group
from headrace.broker.handler import Handler
from headrace.protocol.api import ApiKey

HANDLER = Handler.of(ApiKey.CONSUMER_GROUP_DESCRIBE, ask_group_by_group("group_ids", "groups"))
