"""DescribeTransactions: what is known of transactional ids."""

from headrace.broker.handler import Handler
from headrace.broker.transaction_requests import ask_transactions
from headrace.protocol.api import ApiKey

HANDLER = Handler.of(ApiKey.DESCRIBE_TRANSACTIONS, ask_transactions)
