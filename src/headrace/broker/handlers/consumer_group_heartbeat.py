"""ConsumerGroupHeartbeat: everything that a member of a new-style group says and hears (KIP-848)."""

from headrace.broker.group_requests import ask_groups
from headrace.broker.handler import Handler
from headrace.protocol.api import ApiKey

HANDLER = Handler.of(ApiKey.CONSUMER_GROUP_HEARTBEAT, ask_groups)
