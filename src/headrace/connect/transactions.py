"""The transaction metadata: where each began and ended, and each change's number in it. Pure."""

from typing import Any, NamedTuple

from headrace.connect.change import Origin


class Block(NamedTuple):
    """The number of a change in its transaction, and among those of its table."""

    id: str
    total_order: int
    data_collection_order: int


class TransactionLog:
    """Counts the changes of the transaction that is being written."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._total = 0
        self._by_table: dict[str, int] = {}

    @property
    def state(self) -> dict[str, Any] | None:
        """How far the transaction is counted that is not complete; None if there is none."""
        return None if self._id is None else {"id": self._id, "total": self._total, "tables": dict(self._by_table)}

    def resume(self, state: dict[str, Any]) -> None:
        """Go on counting where another was."""
        self._id, self._total, self._by_table = state["id"], state["total"], dict(state["tables"])

    def count(self, origin: Origin, table: str) -> tuple[Block, dict[str, Any] | None]:
        """The block of one more change, and at the first what says that its transaction began."""
        begun = None
        if origin.transaction_id != self._id:
            assert origin.transaction_id is not None
            self._id = origin.transaction_id
            self._total = 0
            self._by_table = {}
            begun = self._told("BEGIN", origin)
        self._total += 1
        order = self._by_table[table] = self._by_table.get(table, 0) + 1
        return Block(str(self._id), self._total, order), begun

    def end(self, origin: Origin) -> dict[str, Any] | None:
        """What says that a transaction ended; None if nothing of it was captured."""
        if origin.transaction_id is None or origin.transaction_id != self._id:
            return None
        self._id = None
        return self._told("END", origin)

    def _told(self, status: str, origin: Origin) -> dict[str, Any]:
        ended = status == "END"
        tables = [{"data_collection": table, "event_count": count} for table, count in self._by_table.items()]
        return {
            "status": status,
            "id": origin.transaction_id,
            "event_count": self._total if ended else None,
            "data_collections": tables if ended else None,
            "ts_ms": origin.ts_ms,
        }
