"""A stream over a source that is made up: order, ends, errors, heartbeats, acknowledgements."""

import asyncio
import datetime as dt
import json
import queue
import threading
import time
from decimal import Decimal
from typing import Any

import pytest

from headrace.connect.change import Position
from headrace.connect.changes import Changes, Choice, Mark, Marks, Portion, RowChange
from headrace.connect.changes.token import Base, Token
from headrace.connect.errors import InvalidConnectSetting, SourceRefused, SourceUnavailable
from headrace.connect.table import UNCHANGED


class MadeUp:
    """Hands out what it is given; each portion ends at its number."""

    can_reopen = True

    def __init__(self) -> None:
        self.marks = Marks()
        self.waiting: queue.Queue[Any] = queue.Queue()
        self.acknowledged: list[int] = []
        self.reopened = self.number = 0
        self.is_closed = False
        self.opening: Exception | None = None
        self.lively = 0

    def give(self, *ids: int, is_last: bool = False) -> None:
        self.waiting.put((ids, is_last))

    def _mark(self) -> Mark:
        return Mark(self.marks, Base({}, {"n": self.number}), [])

    def check(self, token: Token) -> None: ...

    def open(self, _token: Token | None) -> Mark:
        if self.opening is not None:
            raise self.opening
        return self._mark()

    def reopen(self) -> None:
        self.reopened += 1

    def next(self, timeout_s: float) -> Portion | None:
        try:
            found = self.waiting.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            raise found
        ids, is_last = found
        before = self._mark()
        self.number += 1
        return Portion([change(id_, before) for id_ in ids], self._mark(), is_last)

    def acknowledge(self, position: Position) -> None:
        self.acknowledged.append(position["n"])

    def keep_alive(self) -> None:
        self.lively += 1

    def close(self) -> None:
        self.is_closed = True


def change(id_: int, mark: Mark | None = None) -> RowChange:
    return RowChange("c", "t", {"id": id_}, None, {"id": id_, "v": "x"}, None, 5, mark)


def ids(found: list[RowChange]) -> list[int]:
    return [(one.key or {})["id"] for one in found]


def wait_for(holds: Any) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


def test_a_source_that_ends_is_read_to_its_end_and_acknowledged() -> None:
    reader = MadeUp()
    reader.give(1, 2)
    reader.give()
    reader.give(3, is_last=True)
    stream = Changes(reader)
    assert ids(list(stream)) == [1, 2, 3]
    assert reader.acknowledged == [1, 2, 3]
    assert reader.is_closed
    assert stream.is_over


def test_a_source_that_goes_away_while_nobody_takes_anything_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.connect.changes.stream._KEEP_ALIVE_S", 0.01)
    reader = MadeUp()

    def away() -> None:
        if not reader.reopened:
            raise SourceUnavailable("it restarts")

    reader.keep_alive = away  # type: ignore[method-assign]
    reader.give(1)
    with Changes(reader) as stream:
        wait_for(lambda: reader.reopened)
        reader.give(2, is_last=True)
        assert ids(list(stream)) == [1, 2]


def test_an_error_comes_behind_what_stands_before_it_and_again_when_asked_again() -> None:
    reader = MadeUp()
    reader.give(1)
    reader.waiting.put(SourceRefused("no more"))
    stream = Changes(reader)
    assert ids([stream.next(10)]) == [1]  # type: ignore[list-item]
    for _ in range(2):
        with pytest.raises(SourceRefused, match="no more"):
            stream.next(10)
    assert reader.is_closed


def test_an_error_at_the_beginning_is_raised_by_open() -> None:
    reader = MadeUp()
    reader.opening = SourceRefused("no such table")
    with pytest.raises(SourceRefused), Changes(reader):
        pytest.fail("it was opened")
    assert reader.is_closed


def test_a_source_that_is_away_is_opened_again() -> None:
    reader = MadeUp()
    reader.waiting.put(SourceUnavailable("restarting"))
    reader.give(1, is_last=True)
    assert ids(list(Changes(reader))) == [1]
    assert reader.reopened == 1
    other = MadeUp()
    other.can_reopen = False
    other.waiting.put(SourceUnavailable("restarting"))
    with pytest.raises(SourceUnavailable):
        list(Changes(other))


def test_who_asks_for_positions_has_acknowledged_what_he_asked_for() -> None:
    reader = MadeUp()
    for id_ in range(4):
        reader.give(id_)
    with Changes(reader) as stream:
        first = stream.next(10)
        assert first is not None
        assert Token.parsed(first.position).base.position == {"n": 1}
        for _ in range(3):
            stream.next(10)
        wait_for(lambda: len(reader.acknowledged) == 3)
    assert reader.acknowledged == [1, 1, 1]


def test_what_is_not_wanted_moves_the_position_all_the_same() -> None:
    reader = MadeUp()
    reader.give(1, 2, 3)
    reader.give(4)
    choice = Choice.of((), ("v",), lambda one: (one.key or {})["id"] in (2, 4))
    with Changes(reader, choice=choice) as stream:
        found = stream.next(10)
        assert found is not None
        assert (found.key, found.after) == ({"id": 2}, {"v": "x"})
        assert Token.parsed(found.position).base.position == {"n": 1}  # behind 3, which nobody wants
        stream.next(10)
        assert stream.next(0.05) is None
        assert Token.parsed(stream.position).base.position == {"n": 2}


def test_a_choice_that_fails_loses_nothing() -> None:
    reader = MadeUp()
    reader.give(1, 2)
    failures = [ValueError("not now")]

    def where(_: RowChange) -> bool:
        if failures:
            raise failures.pop()
        return True

    with Changes(reader, choice=Choice.of((), (), where)) as stream:
        with pytest.raises(ValueError, match="not now"):
            stream.next(10)
        assert ids([stream.next(10), stream.next(10)]) == [1, 2]  # type: ignore[list-item]
    assert reader.acknowledged == []


def test_a_slow_reader_is_not_read_ahead_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.connect.changes.stream._KEEP_ALIVE_S", 0.01)
    reader = MadeUp()
    for id_ in range(50):
        reader.give(id_)
    with Changes(reader) as stream:
        stream.next(10)
        wait_for(lambda: reader.lively > 5)
        assert reader.number <= 3
        assert stream.read_ahead <= 1


def test_heartbeats_come_between_and_never_instead() -> None:
    reader = MadeUp()
    with Changes(reader, heartbeat_s=0.02) as stream:
        assert [one.op for one in (stream.next(10), stream.next(10)) if one] == ["h", "h"]
        reader.give(1)
        while (found := stream.next(10)) is not None and found.op == "h":
            pass
        assert found is not None
        assert found.key == {"id": 1}
    with pytest.raises(InvalidConnectSetting):
        Changes(reader, heartbeat_s=0)


def test_asyncio_has_many_streams_and_no_thread_for_each_wait() -> None:
    async def run() -> None:
        readers = [MadeUp() for _ in range(60)]  # more than the loop has threads
        streams = [Changes(reader) for reader in readers]

        async def first(stream: Changes) -> int:
            async for one in stream:
                return int((one.key or {})["id"])
            return -1

        tasks = [asyncio.create_task(first(stream)) for stream in streams]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in tasks)
        for number, reader in enumerate(readers):
            reader.give(number)
        async with asyncio.timeout(30):
            assert await asyncio.gather(*tasks) == list(range(60))
        quiet = Changes(MadeUp())
        assert await quiet.next_async(0.05) is None
        quiet.close()

    asyncio.run(run())


def test_values_of_every_type_are_json() -> None:
    row = {
        "decimal": Decimal("1E+2"), "nan": Decimal("NaN"), "float": float("inf"), "bytes": b"\xff", "none": None,
        "at": dt.datetime(2026, 1, 2, 3, 4, 5, 600, dt.UTC), "day": dt.date(2026, 1, 2), "time": dt.time(1, 2),
        "long": dt.timedelta(hours=-30, minutes=-1), "list": [1, {"a": Decimal("0.10")}], "large": UNCHANGED,
        "text": "a\udcff",
    }  # fmt: skip
    shown = json.loads(json.dumps(RowChange("c", "t", {"id": 1}, None, row, None, 5).as_json()))["after"]
    assert shown == {
        "decimal": "100", "nan": "NaN", "float": "inf", "bytes": {"base64": "/w=="}, "none": None,
        "at": "2026-01-02T03:04:05.000600+00:00", "day": "2026-01-02", "time": "01:02:00", "long": "-30:01:00",
        "list": [1, {"a": "0.10"}], "large": "__debezium_unavailable_value", "text": "a\ufffd",
    }  # fmt: skip


def test_a_wrong_choice_is_refused() -> None:
    for wrong in ({"operations": ("x",)}, {"operations": "cu"}, {"columns": "v"}, {"where": "v > 1"}):
        with pytest.raises(InvalidConnectSetting):
            Choice.of(**{"operations": (), "columns": (), "where": None, **wrong})


def test_who_is_cancelled_at_any_step_loses_no_change() -> None:
    async def run() -> list[int]:
        reader, found = MadeUp(), []
        with Changes(reader) as stream:
            for id_ in range(8):
                reader.give(id_)
                await asyncio.to_thread(wait_for, lambda: stream.read_ahead > 0)
                for steps in range(1, 4):
                    task = asyncio.create_task(stream.next_async())
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    task.cancel()
                    try:
                        taken = await task
                    except asyncio.CancelledError:
                        continue
                    found.append(taken)
                    break
                else:
                    found.append(await stream.next_async(5))
        return ids([one for one in found if one is not None])

    assert asyncio.run(run()) == list(range(8))
