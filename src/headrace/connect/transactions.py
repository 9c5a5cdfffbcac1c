"""The transaction metadata: where each began and ended, and each change's number in it. Pure."""

from headrace.connect.change import Origin
from headrace.connect.table import json_wire


class TransactionLog:
    """Counts the changes of the transaction that is being written."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._id: str | None = None
        self._total = 0
        self._by_table: dict[str, int] = {}

    def count(self, origin: Origin, table: str) -> tuple[str, tuple[str, bytes, bytes] | None]:
        """The block of one more change, and at the first the record that says that its transaction began."""
        begun = None
        if origin.transaction_id != self._id:
            assert origin.transaction_id is not None
            self._id = origin.transaction_id
            self._total = 0
            self._by_table = {}
            begun = self._record("BEGIN", origin)
        self._total += 1
        order = self._by_table[table] = self._by_table.get(table, 0) + 1
        return f'{{"id":"{self._id}","total_order":{self._total},"data_collection_order":{order}}}', begun

    def end(self, origin: Origin) -> tuple[str, bytes, bytes] | None:
        """The record that says that a transaction ended; None if nothing of it was captured."""
        if origin.transaction_id is None or origin.transaction_id != self._id:
            return None
        self._id = None
        return self._record("END", origin)

    def _record(self, status: str, origin: Origin) -> tuple[str, bytes, bytes]:
        ended = status == "END"
        value = {
            "status": status,
            "id": origin.transaction_id,
            "event_count": self._total if ended else None,
            "data_collections": [
                {"data_collection": table, "event_count": count} for table, count in self._by_table.items()
            ]
            if ended
            else None,
            "ts_ms": origin.ts_ms,
        }
        return self._topic, f'{{"id":"{origin.transaction_id}"}}'.encode(), json_wire(value).encode("latin-1")
