"""EndTxn: commit or abort a transaction; answered once the decision is durable, before the markers are written."""

from headrace.broker.handler import Handler
from headrace.broker.transaction_requests import ask_transactions
from headrace.protocol.api import ApiKey

HANDLER = Handler.of(ApiKey.END_TXN, ask_transactions)
