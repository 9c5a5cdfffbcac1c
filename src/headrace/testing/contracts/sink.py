"""What every sink must do, whatever it writes to; see `headrace.stores.derived`.

    class TestMySink(SinkContract):
        @pytest.fixture
        def make(self, tmp_path):
            return lambda: my_sink("name", "topic", tmp_path / "target")

`make` answers a new sink for the same target each time; the target is new for each test.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from headrace.connect.errors import TakenOver
from headrace.connect.sync.decoding import RecordFormat
from headrace.connect.sync.keyless import bag_changes
from headrace.connect.sync.poison import apply_or_bury
from headrace.connect.sync.reduction import BrokenRecord, LogRecord
from headrace.connect.sync.source_rows import SourceRow
from headrace.connect.sync.verification import difference_of
from headrace.records import Record
from headrace.stores.derived import ChangeBatch, Place, ReadableSink, RebuildableSink, RowChange, Sink, Values
from headrace.stores.errors import SinkUnavailable, TargetReplaced

TOPIC = "topic"
MakeSink = Callable[[], Sink]


def change(key: int | str | Values, row: Values | None, offset: int, *, partial: bool = False) -> RowChange:
    """A change of a row by the key `id`, or by several columns."""
    key = key if isinstance(key, Mapping) else {"id": key}
    return RowChange(key, None if row is None else {**key, **row}, 0, offset, 1_700_000_000_000, partial)


def apply_or_list(sink: Sink, changes: Sequence[RowChange]) -> list[int]:
    """Apply changes of different keys from the topic's start; the offsets of those that the target refuses."""
    held = {each.offset: each for each in changes}
    records = [LogRecord(0, Record(offset, 0, b"%d" % offset, b"value")) for offset in held]
    buried: list[BrokenRecord] = []
    place = Place(TOPIC, {0: max(held) + 1})
    apply_or_bury(
        sink,
        records,
        Place(TOPIC, {0: 0}),
        place,
        lambda some: [held[found.record.offset] for found in some],
        buried.extend,
    )
    return [found.record.offset for found in buried]


def batch(*changes: RowChange, up_to: int, clears: bool = False) -> ChangeBatch:
    """Changes of the one partition, and the place behind them."""
    return ChangeBatch(changes, Place(TOPIC, {0: up_to}), clears)


@contextmanager
def opened(sink: Sink) -> Iterator[Place | None]:
    """Open while the block runs; the place that the target held."""
    place = sink.open()
    try:
        yield place
    finally:
        sink.close()


def _told(op: str, before: str | None, after: str | None) -> bytes:
    """A change of a row with a page, or with none, of a table without a key."""
    rows = [{"page": before, "n": 1} if op in "ud" else None, {"page": after, "n": 1} if op in "cu" else None]
    return json.dumps({"op": op, "before": rows[0], "after": rows[1]}).encode()


class SinkContract:
    """The suite."""

    @pytest.fixture
    def make(self) -> MakeSink:
        """A function that makes a sink for the test's target."""
        raise NotImplementedError

    def check(self, make: MakeSink, expected: Mapping[str, Values]) -> None:
        """The target holds these rows, by the text of their key, and no others."""
        sink = make()
        assert isinstance(sink, ReadableSink)
        stored = [row for chunk in sink.scan() for row in chunk]
        assert sorted(row.key for row in stored) == sorted(expected)
        for row in stored:
            values = expected[row.key]
            key = {"id": values["id"]}
            assert difference_of(row.key, SourceRow(key, sink.comparable(key, values).values), row) is None, row

    def test_a_new_target_has_no_place(self, make: MakeSink) -> None:
        """So it is filled from the beginning."""
        with opened(make()) as place:
            assert place is None

    def test_rows_and_place_are_there_after_opening_again(self, make: MakeSink) -> None:
        """Whatever the sink keeps in memory, the target has."""
        sink = make()
        with opened(sink):
            sink.apply(batch(change(1, {"name": "one"}, 0), change(2, {"name": "two"}, 1), up_to=2))
        with opened(make()) as place:
            assert place == Place(TOPIC, {0: 2})
        self.check(make, {"1": {"id": 1, "name": "one"}, "2": {"id": 2, "name": "two"}})

    def test_a_place_keeps_the_id_of_its_topic(self, make: MakeSink) -> None:
        """By which a topic that was made again is noticed; a target that was filled before ids were kept gets one."""
        sink = make()
        with opened(sink):
            sink.apply(batch(change(1, {"n": 1}, 0), up_to=1))
        known = Place(TOPIC, {0: 2}, "jv_8Yn0aTdSYpE_3-Wk0xA")
        sink = make()
        with opened(sink) as place:
            assert place == Place(TOPIC, {0: 1})
            sink.apply(ChangeBatch([change(2, {"n": 2}, 1)], known))
            again = Place(TOPIC, {0: 3}, known.topic_id)
            sink.apply(ChangeBatch([change(3, {"n": 3}, 2)], again))
        with opened(make()) as place:
            assert place == again

    def test_updates_deletes_and_rows_that_come_again(self, make: MakeSink) -> None:
        """The last change of a key counts."""
        sink = make()
        with opened(sink):
            sink.apply(batch(*(change(key, {"n": key}, key) for key in range(20)), up_to=20))
            sink.apply(batch(change(1, {"n": 100}, 20), change(2, None, 21), change(3, None, 22), up_to=23))
            sink.apply(batch(change(3, {"n": 300}, 23), change(99, None, 24), up_to=25))
        rows = {str(key): {"id": key, "n": key} for key in range(20) if key != 2}
        self.check(make, rows | {"1": {"id": 1, "n": 100}, "3": {"id": 3, "n": 300}})

    def test_a_batch_applied_again_changes_nothing(self, make: MakeSink) -> None:
        """As happens when the answer to a commit was lost."""
        again = batch(change(1, {"n": 1}, 0), change(2, None, 1), change(3, {"n": 3}, 2), up_to=3)
        for _ in range(2):
            sink = make()
            with opened(sink):
                sink.apply(again)
        self.check(make, {"1": {"id": 1, "n": 1}, "3": {"id": 3, "n": 3}})

    def test_an_empty_batch_moves_the_place(self, make: MakeSink) -> None:
        """Offsets without records: markers of transactions, or what compaction removed."""
        sink = make()
        with opened(sink):
            sink.apply(batch(change(1, {"n": 1}, 0), up_to=1))
            sink.apply(batch(up_to=7))
        with opened(make()) as place:
            assert place == Place(TOPIC, {0: 7})

    def test_a_partial_row_keeps_what_is_stored(self, make: MakeSink) -> None:
        """The database does not send large values again that did not change."""
        sink = make()
        with opened(sink):
            sink.apply(batch(change(1, {"n": 1, "large": "x" * 5000, "m": 5}, 0), up_to=1))
            sink.apply(batch(change(1, {"n": 2, "m": None}, 1, partial=True), up_to=2))
        self.check(make, {"1": {"id": 1, "n": 2, "large": "x" * 5000, "m": None}})

    def test_clearing_takes_all_rows(self, make: MakeSink) -> None:
        """As a truncate does."""
        sink = make()
        with opened(sink):
            sink.apply(batch(*(change(key, {"n": key}, key) for key in range(50)), up_to=50))
            sink.apply(batch(up_to=51, clears=True))
            sink.apply(batch(change(7, {"n": 70}, 51), up_to=52))
        self.check(make, {"7": {"id": 7, "n": 70}})

    def test_values_of_all_kinds(self, make: MakeSink) -> None:
        """Nothing is lost on the way."""
        row: dict[str, Any] = {
            "text": 'it\'s "quoted", \\ back, % and ? and ü and 漢 and 🌊',
            "lines": "a\nb\tc\r\n",
            "empty": "",
            "large": 2**62,
            "negative": -5,
            "fraction": 0.1,
            "yes": True,
            "no": False,
            "nothing": None,
            "nested": {"list": [1, "two", None], "deep": {"x": 1.5}},
        }
        sink = make()
        with opened(sink):
            sink.apply(batch(change(1, row, 0), change(2, dict.fromkeys(row), 1), up_to=2))
        self.check(make, {"1": {"id": 1, **row}, "2": {"id": 2, **dict.fromkeys(row)}})

    def test_text_keys_are_told_apart_to_the_letter(self, make: MakeSink) -> None:
        """No case folding, no trimming, no pattern."""
        texts = ["a", "A", "a ", "ä", "a*", "a?b", "[a]", "it's", "a:b", "/", "%"]
        sink = make()
        with opened(sink):
            sink.apply(batch(*(change(text, {"n": at}, at) for at, text in enumerate(texts)), up_to=len(texts)))
            sink.apply(batch(change("A", None, 50), up_to=51))
        self.check(make, {text: {"id": text, "n": at} for at, text in enumerate(texts) if text != "A"})

    def test_keys_of_several_columns(self, make: MakeSink) -> None:
        """A row is known by all of them."""
        sink = make()
        with opened(sink):
            rows = [change({"b": b, "a": a}, {"n": 10 * a + b}, 2 * a + b) for a in range(2) for b in range(2)]
            sink.apply(batch(*rows, up_to=4))
            sink.apply(batch(change({"b": 1, "a": 0}, None, 4), change({"b": 0, "a": 1}, {"n": 5}, 5), up_to=6))
        reading = make()
        assert isinstance(reading, ReadableSink)
        found = {row.key for chunk in reading.scan() for row in chunk}
        assert found == {"[0,0]", "[1,0]", "[1,1]"}
        (row,) = reading.look_up([{"b": 0, "a": 1}])
        assert row.values["n"] == reading.comparable({"b": 0, "a": 1}, {"b": 0, "a": 1, "n": 5}).values["n"]

    def test_columns_that_come_later(self, make: MakeSink) -> None:
        """A table of the source may grow."""
        sink = make()
        with opened(sink):
            sink.apply(batch(change(1, {"n": 1}, 0), up_to=1))
            sink.apply(batch(change(2, {"n": 2, "new": "x"}, 1), change(3, {"n": 3, "new": None}, 2), up_to=3))
        self.check(make, {"1": {"id": 1, "n": 1}, "2": {"id": 2, "n": 2, "new": "x"}, "3": {"id": 3, "n": 3}})

    def test_many_rows(self, make: MakeSink) -> None:
        """More than any of the parts in which a sink may write."""
        sink = make()
        with opened(sink):
            sink.apply(batch(*(change(key, {"n": key, "t": f"row {key}"}, key) for key in range(6_000)), up_to=6_000))
            sink.apply(batch(*(change(key, None, 6_000 + key) for key in range(0, 6_000, 2)), up_to=12_000))
        self.check(make, {str(key): {"id": key, "n": key, "t": f"row {key}"} for key in range(1, 6_000, 2)})

    @pytest.mark.parametrize("at_once", [False, True])
    def test_columns_whose_first_values_were_narrow(self, make: MakeSink, at_once: bool) -> None:
        """The first value of a column does not say what the others are; none of them is a row's fault."""
        columns: list[list[Any]] = [
            [1, 1.5], [1, 1.5, "one"], [2**60 + 1, 1.5], [1.5, 2**60 + 1], [1, 2**64], [1, 2**64, 0.5], [1, 10**40],
            [True, 5], [0, True], [1, "NaN"], [1.5, "NaN"], [1, {"a": 1}], [{"a": 1}, 1], [1, None, "text"],
        ]  # fmt: skip
        rows = [
            {f"c{at}": values[number] if number < len(values) else None for at, values in enumerate(columns)}
            for number in range(3)
        ]
        changes = [change(number, row, number) for number, row in enumerate(rows)]
        sink = make()
        with opened(sink):
            if at_once:
                sink.apply(batch(*changes, up_to=3))
            else:
                for each in changes:
                    sink.apply(batch(each, up_to=each.offset + 1))
        self.check(make, {str(number): {"id": number, **row} for number, row in enumerate(rows)})

    def test_a_key_whose_first_values_were_narrow(self, make: MakeSink) -> None:
        """A key's column is widened as any other."""
        sink = make()
        with opened(sink):
            sink.apply(batch(change(1, {"n": 1}, 0), change(2, {"n": 2}, 1), up_to=2))
            sink.apply(batch(change("two", {"n": 3}, 2), up_to=3))
            sink.apply(batch(change(1, None, 3), change(2, {"n": 20}, 4), up_to=5))
        reading = make()
        assert isinstance(reading, ReadableSink)
        stored = {row.key: row.values["n"] for chunk in reading.scan() for row in chunk}
        assert {key: int(n) for key, n in stored.items()} == {"2": 20, "two": 3}

    def test_a_row_of_nulls_alone(self, make: MakeSink) -> None:
        """It is stored, or refused as a row's fault; never taken for a target that is down."""
        sink = make()
        good, odd = change(1, {"n": 1}, 0), change({"id": None}, {"n": None}, 1)
        with opened(sink):
            apply_or_list(sink, [good, odd])
        reading = make()
        assert isinstance(reading, ReadableSink)
        (row,) = reading.look_up([{"id": 1}])
        assert (
            difference_of(row.key, SourceRow({"id": 1}, reading.comparable({"id": 1}, {"id": 1, "n": 1}).values), row)
            is None
        )

    @pytest.mark.parametrize("text", ["\ud800", "a\0b"])
    def test_a_text_that_a_store_may_not_hold(self, make: MakeSink, text: str) -> None:
        """It is stored as it is, or refused as a row's fault; never taken for a target that is down."""
        sink = make()
        good, odd = change(1, {"t": "good"}, 0), change(2, {"t": text}, 1)
        with opened(sink):
            sink.apply(batch(change(3, {"t": "first"}, 0), up_to=0))
            buried = apply_or_list(sink, [good, odd])
        expected = {"1": {"id": 1, "t": "good"}, "3": {"id": 3, "t": "first"}}
        if not buried:
            expected["2"] = {"id": 2, "t": text}
        self.check(make, expected)

    def test_rows_without_a_key_are_counted(self, make: MakeSink) -> None:
        """Equal rows are as many as in the table; how many there are is asked of the target while it is open."""
        sink = make()
        assert isinstance(sink, ReadableSink)
        events = [("c", None, "a")] * 3 + [("c", None, "b"), ("u", "a", "b"), ("d", "b", None), ("c", None, None)]
        log = [LogRecord(0, Record(number, 1, None, _told(*event))) for number, event in enumerate(events)]
        with opened(sink):
            for at in range(len(log)):
                broken: list[BrokenRecord] = []
                changes = bag_changes(log[at : at + 1], RecordFormat(), sink.look_up, broken)
                assert not broken
                sink.apply(batch(*changes, up_to=at + 1))
        rows = [row for chunk in make().scan() for row in chunk]  # type: ignore[attr-defined]
        assert sorted(str(row.values.get("page")) for row in rows) == ["None", "a", "a", "b"]

    def test_a_table_that_gets_a_key_and_loses_it(self, make: MakeSink) -> None:
        """It is emptied each time, and what comes then has another key."""
        sink, reader = make(), make()
        assert isinstance(reader, ReadableSink)
        plain = {"page": "a", "n": 1}
        counted = {"headrace_row": "00-1"}
        with opened(sink):
            sink.apply(batch(change(counted, {**plain, **counted}, 0), up_to=1))
            sink.apply(batch(up_to=2, clears=True))
            sink.apply(batch(change(6, None, 2), up_to=3))  # came and went
            sink.apply(batch(change(7, plain, 3), up_to=4))
            assert [row.key for row in reader.look_up([{"id": 7}])] == ["7"]
            self.check(make, {"7": {"id": 7, **plain}})
            sink.apply(batch(up_to=5, clears=True))
            assert not reader.look_up([counted])
            sink.apply(batch(change(counted, {**plain, **counted}, 5), up_to=6))
        assert [row.key for chunk in reader.scan() for row in chunk] == ["00-1"]
        assert reader.comparable({"id": 7}, {"id": 7, **plain}).key == "7"

    def test_one_owner_at_a_time(self, make: MakeSink) -> None:
        """Two instances cannot both write, whichever of them is told."""
        first, second = make(), make()
        with opened(first):
            first.apply(batch(change(1, {"n": 1}, 0), up_to=1))
            try:
                second.open()
            except SinkUnavailable:
                return  # the first holds the target for as long as it lives
            second.apply(batch(change(1, {"n": 2}, 1), up_to=2))
            with pytest.raises(TakenOver):
                first.apply(batch(change(1, {"n": 1}, 0), up_to=1))
            second.close()
        self.check(make, {"1": {"id": 1, "n": 2}})

    def test_a_rebuilt_target_takes_the_place_of_the_old(self, make: MakeSink) -> None:
        """With its own place; and who kept the old one in step goes on with the new one."""
        running = make()
        assert isinstance(running, RebuildableSink)
        with opened(running):
            running.apply(batch(change(1, {"n": 1}, 0), change(2, {"n": 2}, 1), up_to=2))
        for turn in (2, 3):  # twice, so that what the first left is out of the way
            live = make()
            with suppress(SinkUnavailable), opened(live):
                builder = make()
                assert isinstance(builder, RebuildableSink)
                new = builder.beside()
                with opened(new) as place:
                    assert place is None
                    new.apply(batch(change(2, {"n": 20 * turn}, 5 * turn), up_to=5 * turn + 1))
                builder.switch()
                with pytest.raises(TargetReplaced):
                    live.apply(batch(change(9, {"n": 9}, 6), up_to=7))
            with opened(make()) as place:
                assert place == Place(TOPIC, {0: 5 * turn + 1})
            self.check(make, {"2": {"id": 2, "n": 20 * turn}})
