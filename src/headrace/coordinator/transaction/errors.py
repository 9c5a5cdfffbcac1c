"""What this package raises. A client never causes any of it: what a client does wrong is answered with a code."""

from headrace.errors import HeadraceError


class TransactionError(HeadraceError):
    """Something about the state of a transaction that must not be."""


class IllegalTransition(TransactionError):
    """A transaction was asked to go from one state to another that it cannot reach from there."""

    def __init__(self, transactional_id: str, source: str, target: str) -> None:
        super().__init__(f"transaction {transactional_id!r} cannot go from {source} to {target}")
        self.transactional_id = transactional_id
        self.source = source
        self.target = target


class InvalidTransactionRecord(TransactionError):
    """A record of `__transaction_state` that means nothing: `what` is wrong about it."""

    def __init__(self, transactional_id: str, what: str) -> None:
        super().__init__(f"the record of transaction {transactional_id!r} in __transaction_state {what}")
        self.transactional_id = transactional_id
        self.what = what


class ProducerIdMissing(TransactionError):
    """An event came without the fresh producer id that `needs_producer_id` asks for."""

    def __init__(self, transactional_id: str | None) -> None:
        super().__init__(f"transactional id {transactional_id!r} needs a fresh producer id, and the event has none")
        self.transactional_id = transactional_id
