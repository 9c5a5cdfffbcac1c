"""OffsetDelete: forget offsets that a group has committed."""

from headrace.broker.group_requests import ask_groups
from headrace.broker.handler import Handler
from headrace.protocol.api import ApiKey

HANDLER = Handler.of(ApiKey.OFFSET_DELETE, ask_groups)
