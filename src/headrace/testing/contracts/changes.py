"""What every source of `headrace.changes` must do; see `headrace.connect.changes.stream`.

    class TestMyDatabase(ChangesContract):
        @pytest.fixture
        def stand(self):
            return MyStand(…)

A stand is one table with the columns `id` (a number, its key) and `v` (a text), empty for each test, and what writes to
it. `python -m headrace.testing.contracts.changes URL FILE …` is a reader that can be killed.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pytest

from headrace.connect.changes import BadToken, Changes, PositionLost, RowChange, changes
from headrace.errors import HeadraceError

_PATIENCE_S = 60.0


class Stand(Protocol):
    """One table of one source, and who writes to it."""

    url: str
    tables: Sequence[str]
    settings: dict[str, Any]  # of a stream that can be resumed, such as a slot

    def put(self, rows: dict[int, str]) -> None:
        """Insert these rows, or replace them, in one transaction; it is committed when this returns."""
        ...

    def remove(self, id_: int) -> None: ...

    def lose(self) -> None:
        """Have the source forget everything that was ever in its log, and go on with what comes then."""
        ...


class Replica:
    """The table as a reader of changes knows it; refuses what no right stream contains."""

    def __init__(self) -> None:
        self.rows: dict[int, str] = {}

    def take(self, change: RowChange) -> None:
        if change.op in ("h", "s", "m"):
            return
        if change.op == "t":
            self.rows.clear()
            return
        assert change.key is not None
        id_ = int(change.key.get("id", change.key.get("key", -1)))
        if change.op == "d":
            self.rows.pop(id_, None)
            return
        assert change.after is not None
        self.rows[id_] = change.after["v"]


def read(stream: Changes, count: int) -> list[RowChange]:
    """So many changes of rows; fails if they do not come."""
    found: list[RowChange] = []
    deadline = time.monotonic() + _PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} changes came: {found[-3:]}"
        change = stream.next(1.0)
        if change is not None and change.op != "s":
            found.append(change)
    return found


def rest(stream: Changes, quiet_s: float = 0.7) -> list[RowChange]:
    """What comes until nothing does."""
    found = []
    while (change := stream.next(quiet_s)) is not None:
        if change.op != "s":
            found.append(change)
    return found


def ids(found: Iterable[RowChange]) -> list[int]:
    return [int((change.key or {}).get("id", (change.key or {}).get("key", -1))) for change in found]


class ChangesContract:
    """Subclasses bring a fixture `stand`."""

    stops_within_s: ClassVar[float] = 3.0
    tells_creates: ClassVar[bool] = True  # whether the first write of a key is a create, and later ones updates
    many: ClassVar[int] = 3000

    def open(self, stand: Stand, **more: Any) -> Changes:
        return changes(stand.url, stand.tables, **{**stand.settings, **more})

    def test_changes_come_in_order_from_where_it_was_opened(self, stand: Stand) -> None:
        stand.put({1: "before"})
        with self.open(stand) as stream:
            stand.put({2: "a", 3: "b"})
            stand.put({2: "c"})
            stand.remove(3)
            found = read(stream, 4)
            assert stream.next(0.2) is None
        assert sorted(ids(found[:2])) == [2, 3]
        assert ids(found[2:]) == [2, 3]
        assert [change.op for change in found[2:]] == ["u" if self.tells_creates else found[2].op, "d"]
        if self.tells_creates:
            assert {change.op for change in found[:2]} == {"c"}
        assert found[2].after is not None
        assert found[2].after["v"] == "c"
        assert found[3].after is None
        now_us = time.time() * 1_000_000
        assert all(abs(now_us - change.ts_us) < 3_600_000_000 for change in found)
        assert all(change.time.timestamp() * 1_000_000 == pytest.approx(change.ts_us, abs=2) for change in found)

    def test_a_snapshot_and_what_follows_have_no_gap_and_no_double(self, stand: Stand) -> None:
        stand.put(dict.fromkeys(range(200), "old"))
        stop = threading.Event()
        written: list[int] = []

        def write() -> None:
            number = 1000
            while not stop.is_set():
                stand.put({number: "new"})
                written.append(number)
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            with self.open(stand, snapshot=True) as stream:
                found = read(stream, 220)
                stop.set()
                writer.join(30)
                found += rest(stream)
        finally:
            stop.set()
            writer.join(30)
        assert sorted(ids(found)) == [*range(200), *written]
        first = [change.op for change in found[:200]]
        assert set(first) == {"r"}

    def test_a_token_of_each_change_goes_on_right_behind_it(self, stand: Stand) -> None:
        with self.open(stand, acknowledge=False) as stream:
            stand.put({id_: f"v{id_}" for id_ in range(4)})
            for id_ in (0, 1, 2):
                stand.put({id_: "again"})
            stand.remove(3)
            found = read(stream, 8)
            tokens = [change.position for change in found]
        stand.put({9: "while away"})
        for number in self.resumed(len(found)):
            with self.open(stand, resume=tokens[number], acknowledge=False) as stream:
                later = read(stream, len(found) - number)
                assert ids(later) == [*ids(found[number + 1 :]), 9], number
                assert [c.op for c in later[:-1]] == [c.op for c in found[number + 1 :]]
                assert stream.next(0.1) is None

    def resumed(self, count: int) -> Iterable[int]:
        """The changes of which the tokens are tried."""
        return range(count)

    def test_a_snapshot_that_was_interrupted_goes_on(self, stand: Stand) -> None:
        stand.put(dict.fromkeys(range(self.many), "old"))
        replica = Replica()
        with self.open(stand, snapshot=True) as stream:
            first = read(stream, self.many // 3)
            token = first[-1].position
        for change in first:
            replica.take(change)
        stand.put({5: "new", self.many - 5: "new", self.many + 5: "new"})
        stand.remove(6)
        stand.remove(self.many - 6)
        with self.open(stand, snapshot=True, resume=token) as stream:
            for change in rest(stream, 2.0):
                replica.take(change)
        expected = dict.fromkeys(range(self.many), "old") | {
            5: "new", self.many - 5: "new", self.many + 5: "new"
        }  # fmt: skip
        del expected[6], expected[self.many - 6]
        assert replica.rows == expected

    def test_a_snapshot_without_a_token_begins_anew(self, stand: Stand) -> None:
        rows = dict.fromkeys(range(20), "old")
        stand.put(rows)
        with self.open(stand, snapshot=True) as stream:
            read(stream, 1)  # and its token was stored nowhere
        stand.put({20: "new"})
        replica = Replica()
        with self.open(stand, snapshot=True) as stream:
            for change in rest(stream, 2.0):
                replica.take(change)
        assert replica.rows == rows | {20: "new"}

    def test_it_is_the_same_in_asyncio_and_ends_when_cancelled(self, stand: Stand) -> None:
        async def follow(stream: Changes, found: list[int]) -> None:
            async for change in stream:
                found.extend(ids([change]))

        async def run() -> list[int]:
            found: list[int] = []
            stream = self.open(stand)
            await asyncio.to_thread(stream.open)
            task = asyncio.create_task(follow(stream, found))
            await asyncio.to_thread(stand.put, {1: "a"})
            await asyncio.to_thread(stand.put, {2: "b"})
            async with asyncio.timeout(_PATIENCE_S):
                await asyncio.to_thread(_wait_until, lambda: len(found) == 2)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert stream.is_over
            return found

        assert asyncio.run(run()) == [1, 2]

    def test_another_thread_may_close_it(self, stand: Stand) -> None:
        stream = self.open(stand).open()
        found: list[RowChange] = []
        reader = threading.Thread(target=lambda: found.extend(stream))
        reader.start()
        stand.put({1: "a"})
        _wait_until(lambda: bool(found))
        began = time.monotonic()
        stream.close()
        reader.join(_PATIENCE_S)
        assert not reader.is_alive()
        assert time.monotonic() - began < self.stops_within_s
        stream.close()
        assert stream.next(0.1) is None

    def test_a_quiet_source_has_heartbeats_whose_positions_count(self, stand: Stand) -> None:
        with self.open(stand, heartbeat_s=0.2) as stream:
            beat = stream.next(_PATIENCE_S)
            assert beat is not None
            assert (beat.op, beat.table, beat.key, beat.after) == ("h", "", None, None)
            stand.put({1: "a"})
            while (change := stream.next(_PATIENCE_S)) is not None and change.op == "h":
                token = change.position
            token = beat.position
            assert change is not None
            assert ids([change]) == [1]
        with self.open(stand, resume=token) as stream:
            assert ids(read(stream, 1)) == [1]

    def test_changes_are_chosen(self, stand: Stand) -> None:
        wanted = {
            "operations": ("c", "u"),
            "columns": ("v",),
            "where": lambda change: (change.after or {}).get("id") != 2,
        }
        with self.open(stand, **wanted) as stream:
            stand.put({1: "a"})
            stand.put({2: "b"})
            stand.remove(1)
            stand.put({3: "c"})
            found = read(stream, 1)
            token = found[0].position  # from here on the database keeps what is behind it
            found += read(stream, 1)
        assert ids(found) == [1, 3]
        assert found[0].after == {"v": "a"}
        with self.open(stand, resume=token, **wanted) as stream:
            assert ids(read(stream, 1)) == [3]

    def test_two_readers_see_the_same(self, stand: Stand) -> None:
        with self.open(stand) as one, changes(stand.url, stand.tables, **self.beside(stand)) as other:
            for number in range(20):
                stand.put({number % 5: str(number)})
            first, second = read(one, 20), read(other, 20)
        assert [(c.op, c.key, c.after) for c in first] == [(c.op, c.key, c.after) for c in second]

    def beside(self, stand: Stand) -> dict[str, Any]:
        """The settings of a second reader."""
        return {name: value for name, value in stand.settings.items() if name != "slot"}

    def test_a_token_that_cannot_be_used_is_refused_in_one_sentence(self, stand: Stand) -> None:
        with self.open(stand) as stream:
            stand.put({1: "a"})
            token = read(stream, 1)[0].position
        for text in ("", "nonsense", token[:-1], token[: len(token) // 2], token.replace("hr1", "hr2"), "é" * 10):
            with pytest.raises(BadToken) as refused:
                self.open(stand, resume=text)
            _assert_one_sentence(refused.value)
        with pytest.raises(BadToken, match="secret"):
            self.open(stand, resume=token, token_secret="of our own")  # noqa: S106 - a test's

    def test_what_is_not_kept_any_more_is_one_clear_error(self, stand: Stand) -> None:
        with self.open(stand) as stream:
            stand.put({1: "a"})
            token = read(stream, 1)[0].position
        stand.put({2: "b"})
        stand.lose()
        with pytest.raises(PositionLost) as lost, self.open(stand, resume=token) as stream:
            read(stream, 1)
        _assert_one_sentence(lost.value)
        assert "without resume" in str(lost.value)

    def test_a_slow_reader_is_waited_for(self, stand: Stand) -> None:
        with self.open(stand) as stream:
            for first in range(0, self.many, 500):
                stand.put(dict.fromkeys(range(first, min(first + 500, self.many)), "x"))
            found = read(stream, 10)
            threading.Event().wait(0.5)
            assert stream.read_ahead <= 2048  # a portion and no more
            found += read(stream, self.many - 10)
        assert sorted(ids(found)) == list(range(self.many))

    def test_large_values_come_whole(self, stand: Stand) -> None:
        text = "ü" * 700_000
        with self.open(stand) as stream:
            stand.put({1: text})
            stand.put({2: "small"})
            found = read(stream, 2)
        assert (found[0].after or {})["v"] == text
        assert len(json.dumps(found[0].as_json())) > 700_000

    def test_killed_readers_go_on_without_loss_or_double(self, stand: Stand, tmp_path: Path) -> None:
        total = self.many // 2
        log = tmp_path / "seen"
        with self.open(stand) as stream:
            log.write_text(json.dumps({"position": stream.position, "id": None}) + "\n")

        def write() -> None:
            for id_ in range(total):
                stand.put({id_: "x"})

        writer = threading.Thread(target=write)
        writer.start()
        for share in (0.15, 0.4, 0.7):
            with _reader(stand, log) as process:
                _wait_until(partial(_has_seen, log, int(total * share)))
                process.send_signal(signal.SIGKILL)
                process.wait()
        with _reader(stand, log):
            writer.join(_PATIENCE_S)
            _wait_until(partial(_has_seen, log, total))
        assert _seen(log) == list(range(total))


def _assert_one_sentence(error: HeadraceError) -> None:
    text = str(error)
    assert "\n" not in text
    assert "Traceback" not in text
    assert 20 < len(text) < 700


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        threading.Event().wait(0.01)


# --- a reader that may be killed


@contextmanager
def _reader(stand: Stand, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    _cut(log)
    asked = json.dumps({"url": stand.url, "tables": list(stand.tables), "settings": stand.settings, "log": str(log)})
    process = subprocess.Popen([sys.executable, "-m", "headrace.testing.contracts.changes"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(asked.encode())
    process.stdin.close()
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _lines(log: Path) -> list[dict[str, Any]]:
    """Whole lines; the last one of a killed process may be cut."""
    text = log.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _seen(log: Path) -> list[int]:
    return [line["id"] for line in _lines(log) if line["id"] is not None]


def _has_seen(log: Path, count: int) -> bool:
    return len(_seen(log)) >= count


def _cut(log: Path) -> None:
    text = log.read_bytes()
    os.truncate(log, text.rfind(b"\n") + 1)


def _follow(asked: dict[str, Any]) -> None:
    """Write down each change with its position, in one piece, from the last that was written down on."""
    log = Path(asked["log"])
    token = _lines(log)[-1]["position"]
    with log.open("ab", buffering=0) as out, changes(
        asked["url"], asked["tables"], resume=token, **asked["settings"]
    ) as stream:  # fmt: skip
        for change in stream:
            if change.op != "s":
                out.write((json.dumps({"id": ids([change])[0], "position": change.position}) + "\n").encode())


if __name__ == "__main__":
    _follow(json.load(sys.stdin))
