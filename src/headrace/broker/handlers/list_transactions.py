"""ListTransactions: every transactional id, filtered by state, producer, duration or pattern."""

from headrace.broker.handler import Handler
from headrace.broker.transaction_requests import ask_transactions
from headrace.protocol.api import ApiKey

HANDLER = Handler.of(ApiKey.LIST_TRANSACTIONS, ask_transactions)
