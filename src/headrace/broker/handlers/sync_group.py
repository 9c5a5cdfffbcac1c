"""SyncGroup: hand in, or be given, the assignment of a classic group's generation."""

from headrace.broker.group_requests import ask_groups
from headrace.broker.handler import Handler
from headrace.protocol.api import ApiKey

HANDLER = Handler.of(ApiKey.SYNC_GROUP, ask_groups)
