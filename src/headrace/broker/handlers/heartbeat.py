"""Heartbeat: stay a member of a classic group, and hear of a rebalance."""

from headrace.broker.group_requests import ask_groups
from headrace.broker.handler import Handler
from headrace.protocol.api import ApiKey

HANDLER = Handler.of(ApiKey.HEARTBEAT, ask_groups)
