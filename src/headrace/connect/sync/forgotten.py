"""A derived system that opens sealed values follows when somebody is forgotten: their rows are written again.

The key store is asked, at most every second, who was forgotten. The topic is then read up to where the target is, for
the last records of rows that are sealed with a destroyed key; they open as null by now, and are applied once more, at
the very place where the target is. A row that the target does not take so is deleted. What was done is written to the
ledger, so that a system that was down does it when it comes back, and does it once.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.connect.sync.decoding import RecordFormat
from headrace.connect.sync.reduction import LogRecord, reduce_records
from headrace.forgetting.keyring import Keyring
from headrace.forgetting.ledger import Ledger
from headrace.forgetting.sealed import key_ids_in
from headrace.model import TopicPartition
from headrace.stores.derived import ChangeBatch, Place, RowChange, Sink
from headrace.stores.errors import RowRefused
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)
_LOOK_EVERY_S: Final = 1.0
_ROWS_AT_ONCE: Final = 1_000
_OPTIONS: Final = FetchOptions(max_wait_ms=100, committed=True)


class Forgotten:
    """What one derived system has to do about those who were forgotten."""

    def __init__(self, keys: Keyring, part: str, form: RecordFormat) -> None:
        self._keys, self._part, self._form = keys, part, form
        self._seen = -1
        self._looked_s = 0.0

    def follow(self, cluster: Cluster, sink: Sink, place: Place) -> None:
        """Rewrite the rows of all who were forgotten since the last time; `place` is where the target is."""
        if time.monotonic() - self._looked_s < _LOOK_EVERY_S:
            return
        self._looked_s = time.monotonic()
        last = self._keys.store.last_forgotten()
        if last == self._seen:
            return
        self._keys.refresh()  # or a key that is still in memory would open what is to be rewritten
        ledger = Ledger(cluster)
        ledger.read()
        destroyed = {key_id for act in self._keys.store.forgotten() for key_id in act.key_ids}
        waiting = {key_id for key_id in destroyed if (key_id, self._part) not in ledger.done}
        if waiting:
            rows, left = self._rewrite(cluster, sink, place, waiting)
            for key_id in sorted(waiting):
                ledger.add_done(key_id, self._part, rows[key_id], left[key_id])
            _log.info("rows of forgotten subjects rewritten", sink=self._part, rows=sum(rows.values()))
        self._seen = last

    def _rewrite(
        self, cluster: Cluster, sink: Sink, place: Place, key_ids: set[str]
    ) -> tuple[Counter[str], Counter[str]]:
        """How many rows were written again by key, and how many cannot be found because they have no key."""
        rows, left = Counter[str](), Counter[str]()
        found = self._last_records(cluster, place, key_ids, left)
        records = [record for several in found.values() for record in several]
        for several in found.values():
            rows.update(set().union(*(key_ids_in(each.record.value or b"") for each in several)) & key_ids)
        if sink.every_change:
            return Counter(), left + rows
        changes = reduce_records(records, self._form).changes
        for first in range(0, len(changes), _ROWS_AT_ONCE):
            _apply(sink, changes[first : first + _ROWS_AT_ONCE], place)
        return rows, left

    def _last_records(
        self, cluster: Cluster, place: Place, key_ids: set[str], left: Counter[str]
    ) -> Mapping[bytes, list[LogRecord]]:
        """By key, the last record of each row that was sealed with these keys, and those before that it rests on."""
        found: dict[bytes, list[LogRecord]] = {}
        ends = {TopicPartition(place.topic, number): offset for number, offset in place.offsets.items()}
        held = bounds(cluster, list(ends))
        starts = {where: bound.start for where, bound in held.items() if bound.start < ends[where]}
        for read in read_records(cluster, starts, until=ends, options=_OPTIONS) if starts else ():
            for where, record in read:
                value = record.value
                sealed = set() if value is None else key_ids & key_ids_in(value)
                if record.key is None:
                    left.update(sealed)
                    continue
                key = bytes(record.key)
                if value is not None and self._form.leaves_out(value) and (sealed or key in found):
                    found.setdefault(key, []).append(LogRecord(where.partition, record))
                elif sealed:
                    found[key] = [LogRecord(where.partition, record)]
                else:
                    found.pop(key, None)
        return found


def _apply(sink: Sink, changes: Sequence[RowChange], place: Place) -> None:
    try:
        sink.apply(ChangeBatch(changes, place))
    except RowRefused:
        if len(changes) > 1:
            for change in changes:
                _apply(sink, [change], place)
        else:
            sink.apply(ChangeBatch([changes[0]._replace(row=None, partial=False)], place))
