"""Requests for the group coordinator: what their handlers have in common."""

from headrace.broker.context import Context
from headrace.broker.handler import Answer
from headrace.protocol.schema import Message


def ask_groups(ctx: Context, request: Message) -> Answer:
    """Ask the group coordinator; its answer may wait for other members, for a time, or for the disk."""
    return ctx.broker.groups.ask(request, ctx.version, ctx.client_id, ctx.client_host)
