"""What the broker's log says of a disk that refuses writes: a line when it begins, a line when it is over, no flood."""

import errno
from collections.abc import Callable

import pytest

from headrace.broker.runtime import DiskWatch
from headrace.errors import HeadraceError
from headrace.storage.errors import DiskFull, SyncFailed, WriteFailed
from headrace.testing.clock import FakeClock

Said = Callable[[], list[tuple[str, str]]]
FULL = DiskFull("/data")


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Said:
    caplog.set_level("INFO", "headrace")
    return lambda: [(record.levelname, record.getMessage().partition(":")[0]) for record in caplog.records]


def test_a_line_when_it_begins_and_one_when_it_is_over(said: Said) -> None:
    watch = DiskWatch(FakeClock())
    for _ in range(1000):
        watch.failed(FULL)
    assert watch.is_failing
    watch.wrote()
    assert not watch.is_failing
    assert said() == [("ERROR", "the disk is full"), ("INFO", "the disk takes writes again")]


def test_a_disk_that_is_full_to_the_brim_is_no_flood(said: Said) -> None:
    clock = FakeClock()
    watch = DiskWatch(clock)
    for _ in range(590):  # small batches are taken, large ones refused, for a minute
        watch.failed(FULL)
        watch.wrote()
        clock.advance(100)
    assert len(said()) == 2
    clock.advance(60_000)
    watch.failed(FULL)
    assert len(said()) == 3


@pytest.mark.parametrize("error", [WriteFailed("/data", OSError(errno.EIO, "no")), SyncFailed("/data", OSError())])
def test_other_refusals_of_the_disk_are_reported_too(error: HeadraceError, said: Said) -> None:
    DiskWatch(FakeClock()).failed(error)
    assert said() == [("ERROR", "the disk refuses writes")]


def test_what_is_not_the_disks_is_not_reported(said: Said) -> None:
    watch = DiskWatch(FakeClock())
    watch.failed(HeadraceError("the batch is too large"))
    assert not watch.is_failing
    assert said() == []
