"""The records of one partition as they were fetched, and which of two records of different partitions is the earlier.

An envelope says where in the database's log its change stands: in PostgreSQL by what had committed before and by the
change's own log sequence number, else by the number of a GTID. Two changes of one log are compared by that. What had
committed comes first: a row that was read while a transaction was open is older than what that commits, though the
change stands before it in the log. What has no such place (rows alone, Avro, whose envelope is not read for
this) is compared by the record's timestamp, which a capture sets to the time of the change.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from headrace.client.fetch import Fetched
from headrace.client.reader import visible_batches
from headrace.records import CorruptBatch, Record, crc_of, records_of

_PLACE: Final = re.compile(
    rb'"sequence":"\[(?:null|\\"(?P<committed>\d+)\\"),\\"(?P<own>\d+)\\"\]"'
    rb'|"lsn":(?P<lsn>\d+)'
    rb'|"gtid":"(?:(?P<domain>\d+)-\d+-(?P<sequence>\d+)|(?P<uuid>[0-9a-fA-F-]{36}):(?:\d+-)?(?P<number>\d+))"'
)


class SourcePlace(NamedTuple):
    """A place in a log of the database; places of different logs say nothing about each other."""

    log: bytes
    number: tuple[int, int]


def place_of(value: bytes | None) -> SourcePlace | None:
    """Where a change stands, without reading the record; the block that says it follows the rows."""
    if value is None:
        return None
    found = _PLACE.search(value, max(value.rfind(b'"source":'), 0))
    if found is None:
        return None
    if found["committed"] is not None:
        return SourcePlace(b"", (int(found["committed"]), int(found["own"])))
    if found["domain"] is not None:
        return SourcePlace(found["domain"], (int(found["sequence"]), 0))
    if found["uuid"] is not None:
        return SourcePlace(found["uuid"], (int(found["number"]), 0))
    return SourcePlace(b"", (int(found["own"] or found["lsn"]), 0))


class Stream:
    """What was fetched of one partition and not taken yet; `head` is the next record."""

    def __init__(self, partition: int, limit: int | None) -> None:
        """No record from `limit` on."""
        self.partition = partition
        self.head: Record | None = None
        self.position = 0  # behind what was taken
        self._limit = limit
        self._chunks: list[Fetched] = []
        self._records: Iterator[Record] = iter(())
        self._before: bytes | None = None  # the value of the record before
        self._place: SourcePlace | bool | None = False  # not looked for yet

    def add(self, fetched: Fetched) -> None:
        self._chunks.append(fetched)
        if self.head is None:
            self.step()

    def step(self) -> None:
        self._place = False
        self._before = None if self.head is None else self.head.value
        while True:
            self.head = next(self._records, None)
            if self.head is not None:
                self.position = self.head.offset
                return
            if not self._chunks:
                return
            fetched = self._chunks.pop(0)
            end = fetched.next_offset
            self._records = self._read(fetched, end if self._limit is None else min(end, self._limit))

    def _read(self, fetched: Fetched, end: int) -> Iterator[Record]:
        for header, batch in visible_batches(fetched, committed=True):
            if header.last_offset < fetched.offset:
                continue
            if crc_of(batch) != header.crc:
                raise CorruptBatch(
                    f"the checksum does not match at offset {header.base_offset} of {fetched.partition}: the batch was "
                    "altered on its way or on the broker's disk"
                )
            for record in records_of(batch):
                if fetched.offset <= record.offset < end:
                    yield record
        self.position = end

    def __lt__(self, other: "Stream") -> bool:
        mine, others = self._place_of_head(), other._place_of_head()
        if mine is not None and others is not None and mine.log == others.log:
            return mine.number < others.number
        assert self.head is not None
        assert other.head is not None
        return self.head.timestamp < other.head.timestamp

    def _place_of_head(self) -> SourcePlace | None:
        if self._place is False:
            value = None if self.head is None else self.head.value
            self._place = place_of(self._before if value is None else value)  # a tombstone follows its delete
        return None if self._place is True else self._place or None
