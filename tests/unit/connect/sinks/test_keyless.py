"""Rows without a key: whatever is done to a bag in whatever batches, a target holds it, by the same keys."""

import json
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.connect.sync.decoding import RecordFormat
from headrace.connect.sync.keyless import NO_KEY, count_rows, digest_of, key_of, reduce_rows
from headrace.connect.sync.reduction import LogRecord
from headrace.records import Record
from headrace.stores.derived import ROW_COLUMN, RowChange, StoredRow, key_text

Row = dict[str, Any]
FORM = RecordFormat()


def change(op: str, before: Row | None, after: Row | None) -> bytes:
    return json.dumps({"op": op, "before": before, "after": after, "source": {}}).encode()


def record(offset: int, value: bytes | None) -> LogRecord:
    return LogRecord(0, Record(offset=offset, timestamp=offset, key=None, value=value, headers=[]))


class Target:
    """Rows by the text of their key, as every store has them."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.asked = 0

    def look_up(self, keys: Any) -> list[StoredRow]:
        self.asked += len(keys)
        return [StoredRow(key_text(key), {}) for key in keys if key_text(key) in self.rows]

    def apply(self, changes: list[RowChange]) -> None:
        for one in changes:
            if one.row is None:
                del self.rows[one.key_text]
            else:
                assert one.key_text not in self.rows
                self.rows[one.key_text] = dict(one.row)

    def take(self, records: list[LogRecord]) -> list[str]:
        changes, broken = reduce_rows(records, FORM, "sqlite", self.look_up)
        self.apply(changes)
        return [one.reason for one in broken]

    @property
    def bag(self) -> Counter[str]:
        return Counter(
            json.dumps({name: value for name, value in row.items() if name != ROW_COLUMN}, sort_keys=True)
            for row in self.rows.values()
        )


rows = st.fixed_dictionaries({"a": st.sampled_from(["x", "y", None]), "n": st.integers(0, 1)})
steps = st.lists(st.tuples(st.sampled_from("cccud"), rows, st.integers(0, 10**6)), max_size=60)


@given(steps, st.lists(st.integers(1, 9), min_size=1))
def test_a_bag_is_the_same_in_whatever_batches(done: list[tuple[str, Row, int]], sizes: list[int]) -> None:
    table: list[Row] = []
    log: list[LogRecord] = []
    for op, row, dice in done:
        before = table.pop(dice % len(table)) if op != "c" and table else None
        if op != "c" and before is None:
            continue
        after = None if op == "d" else row
        if after is not None:
            table.append(after)
        log.append(record(len(log), change(op, before, after)))
    target, at = Target(), 0
    for number in range(len(log) + 1):
        size = sizes[number % len(sizes)]
        assert target.take(log[at : at + size]) == []
        at += size
    wanted = Counter(json.dumps(row, sort_keys=True) for row in table)
    assert target.bag == wanted
    counts = Counter(map(digest_of, table))
    assert set(target.rows) == {
        key_text(key_of(digest, number)) for digest, count in counts.items() for number in range(1, count + 1)
    }


def test_counting_asks_little() -> None:
    target = Target()
    target.take([record(number, change("c", None, {"a": "x"})) for number in range(1000)])
    assert len(target.rows) == 1000
    target.asked = 0
    assert count_rows([digest_of({"a": "x"})], target.look_up) == {digest_of({"a": "x"}): 1000}
    assert target.asked <= 22


def test_a_column_that_is_added_empty_changes_no_row() -> None:
    target = Target()
    target.take([record(0, change("c", None, {"a": "x"}))])
    assert target.take([record(1, change("d", {"a": "x", "new": None}, None))]) == []
    assert target.rows == {}


def test_what_cannot_be_told_apart_is_set_aside() -> None:
    target = Target()
    (untold,) = target.take([record(0, change("u", None, {"a": "x"}))])
    assert "REPLICA IDENTITY FULL" in untold
    (missing,) = target.take([record(1, change("d", {"a": "never there"}, None))])
    assert "removes a row of which the target has no more" in missing
    assert target.take([record(2, None)]) == ["the record has neither a key nor a value"]
    _, broken = reduce_rows([record(3, change("c", None, {"a": 1}))], FORM, "redis", None)
    assert [one.reason for one in broken] == [NO_KEY.format(sink="redis")]
    assert target.rows == {}
