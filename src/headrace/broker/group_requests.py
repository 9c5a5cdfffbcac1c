"""Requests for the group coordinator: what their handlers have in common."""

from headrace.broker.context import Context
from headrace.broker.deferred import Deferred
from headrace.protocol.schema import Message


def ask_groups(ctx: Context, request: Message) -> Deferred[Message | None]:
    """Ask the group coordinator; its answer may wait for other members, for a time, or for the disk."""
    return ctx.broker.groups.ask(request, ctx.version, ctx.client_id, ctx.client_host)
