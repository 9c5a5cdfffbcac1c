"""AddOffsetsToTxn: name the group whose offsets a transaction is about to commit."""

from headrace.broker.handler import Handler
from headrace.broker.transaction_requests import ask_transactions
from headrace.protocol.api import ApiKey

HANDLER = Handler.of(ApiKey.ADD_OFFSETS_TO_TXN, ask_transactions)
