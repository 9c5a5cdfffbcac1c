"""JoinGroup: become or stay a member of a classic group; answered when the round of joining is over."""

from headrace.broker.group_requests import ask_groups
from headrace.broker.handler import Handler
from headrace.protocol.api import ApiKey

HANDLER = Handler.of(ApiKey.JOIN_GROUP, ask_groups)
