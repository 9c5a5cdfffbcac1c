"""Requests for the transaction coordinator: what their handlers have in common."""

from headrace.broker.context import Context
from headrace.broker.handler import Answer
from headrace.coordinator.transaction.events import TransactionRequest


def ask_transactions(ctx: Context, request: TransactionRequest) -> Answer:
    """Ask the transaction coordinator; its answer waits for the disk."""
    return ctx.broker.transactions.ask(request, ctx.version)
