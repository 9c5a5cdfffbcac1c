"""A row that the target never takes is found, and the rest is written."""

from collections.abc import Collection, Sequence

import pytest

from headrace.connect.sync.poison import apply_in_parts, apply_or_bury
from headrace.connect.sync.reduction import BrokenRecord, LogRecord
from headrace.records import Record
from headrace.stores.derived import ChangeBatch, Place, RowChange
from headrace.stores.errors import RowRefused

BEFORE, BEHIND = Place("t", {0: 0}), Place("t", {0: 100})


class Picky:
    """Takes a batch whole or not at all."""

    every_change = False

    def __init__(self, refused: Collection[int], *, tells: bool) -> None:
        self.refused, self.tells = refused, tells
        self.rows: set[int] = set()
        self.place: Place | None = None
        self.calls = self.handed = 0

    def open(self) -> Place | None:
        return self.place

    def close(self) -> None: ...

    def apply(self, batch: ChangeBatch) -> None:
        self.calls += 1
        self.handed += len(batch.changes)
        for change in batch.changes:
            if change.offset in self.refused:
                told = {"partition": 0, "offset": change.offset} if self.tells else {}
                raise RowRefused("too long", **told)
        self.rows |= {change.offset for change in batch.changes}
        self.place = batch.place


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("refused", [(), (0,), (99,), (50, 51), (3, 17, 60, 98), tuple(range(100))])
def test_all_but_the_refused_rows_are_written(refused: tuple[int, ...], tells: bool) -> None:
    changes = [RowChange({"id": at}, {"id": at}, 0, at, 0) for at in range(100)]
    records = [LogRecord(0, Record(at, 0, b"k%d" % at, b"v%d" % at)) for at in range(100)]
    sink = Picky(refused, tells=tells)
    buried = []

    def bury(found: Sequence[BrokenRecord]) -> None:
        assert sink.place != BEHIND, "the place moved on before the letter was written"
        for broken in found:
            buried.append(broken.record.offset)
            assert broken.record.value == b"v%d" % broken.record.offset

    apply_or_bury(sink, records, BEFORE, BEHIND, lambda some: [changes[found.record.offset] for found in some], bury)
    assert sorted(buried) == sorted(refused)
    assert sink.rows == set(range(100)) - set(refused)
    assert sink.place == BEHIND


def test_one_bad_row_is_found_by_halves() -> None:
    changes = [RowChange({"id": at}, {"id": at}, 0, at, 0) for at in range(1024)]
    records = [LogRecord(0, Record(at, 0, b"%d" % at, b"v")) for at in range(1024)]
    sink = Picky([700], tells=False)
    apply_or_bury(sink, records, BEFORE, BEHIND, lambda _some: changes, lambda _found: None)
    assert sink.calls < 30


@pytest.mark.parametrize("is_counted", [True, False])
def test_the_work_does_not_grow_with_the_square_of_the_rows_that_are_refused(is_counted: bool) -> None:
    def handled(count: int) -> int:
        """How many rows the target looks at when it refuses all of so many."""
        changes = [RowChange({"id": at}, {"id": at}, 0, at, 0) for at in range(count)]
        records = [LogRecord(0, Record(at, 0, None if is_counted else b"%d" % at, b"v")) for at in range(count)]
        sink = Picky(range(count), tells=True)
        buried: list[BrokenRecord] = []
        apply = apply_in_parts if is_counted else apply_or_bury
        apply(
            sink, records, BEFORE, BEHIND, lambda some: [changes[found.record.offset] for found in some], buried.extend
        )
        assert len(buried) == count
        return sink.handed

    assert handled(4000) < 6 * handled(1000)  # it was 16 times as much


@pytest.mark.parametrize("refused", [(1,), (2, 5), (0, 2, 5), (2, 4, 5), (0, 1, 2, 3, 4, 5)])
def test_a_record_that_is_refused_does_not_take_the_one_before_it_along(refused: tuple[int, ...]) -> None:
    """Three records of each of two keys: the last one that is taken counts."""
    records = [LogRecord(0, Record(at, 0, b"%d" % (at // 3), b"v")) for at in range(6)]
    sink, buried = Picky(refused, tells=True), set()

    def reduce(some: Sequence[LogRecord]) -> list[RowChange]:
        last = {found.record.key: found.record.offset for found in some}
        return [RowChange({"id": key}, {}, 0, offset, 0) for key, offset in last.items()]

    def bury(found: Sequence[BrokenRecord]) -> None:
        assert sink.place != BEHIND
        buried.update(broken.record.offset for broken in found)

    apply_or_bury(sink, records, BEFORE, BEHIND, reduce, bury)
    taken = [max((at for at in of_key if at not in refused), default=None) for of_key in (range(3), range(3, 6))]
    assert sink.rows == {at for at in taken if at is not None}
    assert buried == {at for at in refused if at > (taken[at // 3] if taken[at // 3] is not None else -1)}
    assert sink.place == BEHIND


def test_a_batch_that_is_refused_only_once() -> None:
    class Moody(Picky):
        def apply(self, batch: ChangeBatch) -> None:
            try:
                super().apply(batch)
            finally:
                self.refused = ()

    records = [LogRecord(0, Record(at, 0, b"%d" % at, b"v")) for at in range(3)]
    changes = [RowChange({"id": at}, {}, 0, at, 0) for at in range(3)]
    sink, buried = Moody((1,), tells=True), list[Sequence[BrokenRecord]]()
    apply_or_bury(sink, records, BEFORE, BEHIND, lambda _some: changes, buried.append)
    assert (sink.rows, sink.place, buried) == ({0, 1, 2}, BEHIND, [])


class Counting(Picky):
    """Of rows without a key: each batch adds to what is there, and the process dies behind one of them."""

    def __init__(self, refused: Collection[int], *, tells: bool) -> None:
        super().__init__(refused, tells=tells)
        self.added: list[int] = []
        self.dies_behind = -1

    def apply(self, batch: ChangeBatch) -> None:
        super().apply(batch)
        self.added += [change.offset for change in batch.changes]
        if len(self.added) > self.dies_behind >= 0:
            self.dies_behind = -1
            raise KeyboardInterrupt


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("refused", [(), (0,), (99,), (50, 51), (3, 17, 60, 98), tuple(range(100))])
@pytest.mark.parametrize("dies_behind", [-1, 0, 20, 49, 90])
def test_rows_that_are_counted_are_counted_once(refused: tuple[int, ...], tells: bool, dies_behind: int) -> None:
    records = [LogRecord(0, Record(at, 0, None, b"v%d" % at)) for at in range(100)]
    sink = Counting(refused, tells=tells)
    sink.dies_behind, buried = dies_behind, set()

    def reduce(some: Sequence[LogRecord]) -> list[RowChange]:
        return [RowChange({"id": at.record.offset}, {}, 0, at.record.offset, 0) for at in some]

    def bury(found: Sequence[BrokenRecord]) -> None:
        buried.update(broken.record.offset for broken in found)

    for _ in range(2):
        before = sink.place or BEFORE
        left = [found for found in records if found.record.offset >= before.offsets[0]]
        try:
            apply_in_parts(sink, left, before, BEHIND, reduce, bury)
        except KeyboardInterrupt:
            continue
        break
    assert buried == set(refused)
    assert sorted(sink.added) == sorted(set(range(100)) - buried)
    assert sink.place == BEHIND
