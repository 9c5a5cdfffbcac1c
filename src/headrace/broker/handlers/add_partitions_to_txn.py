"""AddPartitionsToTxn: name the partitions that a transaction is about to write to."""

from headrace.broker.handler import Handler
from headrace.broker.transaction_requests import ask_transactions
from headrace.protocol.api import ApiKey

HANDLER = Handler.of(ApiKey.ADD_PARTITIONS_TO_TXN, ask_transactions)
