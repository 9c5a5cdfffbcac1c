"""DeleteGroups: remove groups without members, and their offsets."""

from headrace.broker.group_requests import ask_group_by_group
from headrace.broker.handler import Handler
from headrace.protocol.api import ApiKey

HANDLER = Handler.of(ApiKey.DELETE_GROUPS, ask_group_by_group("groups_names", "results"))
