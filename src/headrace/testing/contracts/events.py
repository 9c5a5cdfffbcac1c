"""What every store of events must do; see `headrace.eventsourcing.store`.

    class TestMyStore(EventStoreContract):
        @pytest.fixture
        def open_store(self, tmp_path):
            return lambda: my_store(tmp_path / "events")

`open_store` opens one and the same store, empty at first, each time as another program would. `SnapshotStoreContract`
is for stores that keep snapshots as well.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from typing import Any

import pytest

from headrace.eventsourcing.errors import BoundaryConflict, Conflict, InvalidAppend
from headrace.eventsourcing.model import (
    ALL,
    ANY,
    NEW,
    Condition,
    NewEvent,
    Query,
    Snapshot,
    StoredEvent,
    StreamAppend,
    where,
)
from headrace.eventsourcing.store import EventStore, SnapshotStore

PATIENCE_S = 60.0  # for a slow machine; nothing waits so long when all is well


def made(kind: str = "noted", data: bytes = b"{}", *tags: str, **more: Any) -> NewEvent:
    """An event."""
    return NewEvent(kind, data, tags, **more)


def put(store: EventStore, stream: str, *events: NewEvent, expected: int = ANY, **more: Any) -> Any:
    """Append to one stream; without events, one of no importance."""
    return store.append([StreamAppend(stream, events or (made(),), expected)], **more)


def streams_of(events: Iterator[StoredEvent]) -> list[str]:
    """Whose events they are."""
    return [each.stream for each in events]


def versions_of(events: Iterator[StoredEvent]) -> list[int]:
    """Their numbers in their streams."""
    return [each.version for each in events]


class EventStoreContract:
    """Appending, reading and waiting."""

    @pytest.fixture
    def open_store(self) -> Callable[[], EventStore]:
        raise NotImplementedError

    @pytest.fixture
    def store(self, open_store: Callable[[], EventStore]) -> Iterator[EventStore]:
        store = open_store()
        yield store
        store.close()

    # --- appending

    def test_an_event_is_read_as_it_was_appended(self, store: EventStore, open_store: Any) -> None:
        event = NewEvent(
            "größe-geändert", bytes(range(256)), ("student:ann", "course:ünï 1"), 3, "id-1", 1_700_000_000_123,
            "cause", "correlation", {"user": "ann", "note": "a \"b\"\n'c' \\ ✓", "empty": ""},
        )  # fmt: skip
        appended = put(store, "account-é 7", event, command_id="command-1")
        other = open_store()
        [found] = other.read_stream("account-é 7")
        assert list(other.read()) == [found]
        other.close()
        assert found == StoredEvent(
            appended.position, "account-é 7", 1, event.type, 3, event.data, "id-1", event.time_ms, event.tags,
            "cause", "correlation", "command-1", event.headers,
        )  # fmt: skip
        assert appended.versions == {"account-é 7": 1}
        assert not appended.is_repeat

    def test_an_event_without_tags_and_headers(self, store: EventStore) -> None:
        put(store, "a", made(data=b""))
        [found] = store.read_stream("a")
        assert (found.tags, dict(found.headers), found.data) == ((), {}, b"")
        assert (found.causation_id, found.correlation_id, found.command_id) == ("", "", "")

    def test_large_events_and_many_in_one_append(self, store: EventStore) -> None:
        large = made("large", b"x" * 400_000)
        put(store, "a", large, *(made("small", str(number).encode(), f"n:{number}") for number in range(1_000)))
        found = list(store.read_stream("a"))
        assert found[0].data == large.data
        assert [each.version for each in found] == list(range(1, 1_002))
        assert [each.data for each in found[1:]] == [str(number).encode() for number in range(1_000)]
        assert versions_of(store.read(where(tags=["n:999"]))) == [1_001]

    def test_the_expected_version_is_checked(self, store: EventStore) -> None:
        assert put(store, "a", made(), made(), expected=NEW).versions == {"a": 2}
        for wrong in (NEW, 1, 3):
            with pytest.raises(Conflict) as conflict:
                put(store, "a", expected=wrong)
            assert (conflict.value.stream, conflict.value.expected, conflict.value.actual) == ("a", wrong, 2)
            assert f"version {wrong}" in str(conflict.value)
            assert "version 2" in str(conflict.value)
        assert put(store, "a", expected=2).versions == {"a": 3}
        assert put(store, "a", expected=ANY).versions == {"a": 4}
        assert put(store, "new", expected=ANY).versions == {"new": 1}
        with pytest.raises(Conflict) as conflict:
            put(store, "missing", expected=1)
        assert conflict.value.actual == 0
        assert versions_of(store.read_stream("a")) == [1, 2, 3, 4]
        assert list(store.read_stream("missing")) == []

    def test_several_streams_are_appended_to_together_or_not_at_all(self, store: EventStore) -> None:
        both = [StreamAppend("a", [made(), made()], NEW), StreamAppend("b", [made()], NEW)]
        appended = store.append(both)
        assert appended.versions == {"a": 2, "b": 1}
        assert appended.position == list(store.read())[-1].position
        with pytest.raises(Conflict) as conflict:
            store.append([StreamAppend("a", [made()], 2), StreamAppend("c", [made()]), StreamAppend("b", [made()], 0)])
        assert conflict.value.stream == "b"
        assert streams_of(store.read()) == ["a", "a", "b"]
        assert store.append([StreamAppend("b", [made()], 1), StreamAppend("a", [made()], 2)]).versions == {
            "a": 3,
            "b": 2,
        }

    def test_an_append_is_done_once_for_a_command_id(self, store: EventStore, open_store: Any) -> None:
        appends = [StreamAppend("a", [made(), made()], NEW), StreamAppend("b", [made()])]
        first = store.append(appends, command_id="order-1")
        put(store, "a", made("later", b"", "t"))
        other = open_store()
        for again in (store, other):
            repeated = again.append(appends, condition=Condition(where(tags=["t"]), 0), command_id="order-1")
            assert repeated.is_repeat
            assert (repeated.position, dict(repeated.versions)) == (first.position, {"a": 2, "b": 1})
            assert again.find_command("order-1") == repeated
            assert again.find_command("order-2") is again.find_command("") is None
        other.close()
        assert streams_of(store.read()) == ["a", "a", "b", "a"]
        assert not put(store, "a", command_id="order-2").is_repeat
        assert [each.command_id for each in store.read()] == ["order-1"] * 3 + ["", "order-2"]

    def test_a_command_that_conflicted_may_be_tried_again(self, store: EventStore) -> None:
        put(store, "a")
        with pytest.raises(Conflict):
            put(store, "a", expected=NEW, command_id="order-1")
        assert not put(store, "a", expected=1, command_id="order-1").is_repeat

    @pytest.mark.parametrize(
        ("appends", "reason"),
        [
            ([], "nothing to append"),
            ([StreamAppend("a", [])], "no events for stream 'a'"),
            ([StreamAppend("a", [made()]), StreamAppend("a", [made()])], "'a' is named twice"),
            ([StreamAppend("", [made()])], "stream '' is not possible"),
            ([StreamAppend("a\0b", [made()])], "printable"),
            ([StreamAppend("\ud800", [made()])], "printable"),
            ([StreamAppend("é" * 251, [made()])], "500 bytes"),
            ([StreamAppend("a", [made()], -2)], "cannot be at version -2"),
            ([StreamAppend("a", [made()]), StreamAppend("b", [made("")])], "event type '' is not possible"),
            ([StreamAppend("a", [made("x", b"", "t\n")])], "tag 't\\\\n' is not possible"),
            ([StreamAppend("a", [made("x", b"", "t", "t")])], "same tag twice"),
            ([StreamAppend("a", [made(headers={"h": "\0"})])], "without NUL"),
            ([StreamAppend("a", [made("x", b"", *map(str, range(101)))])], "has 101 tags"),
            ([StreamAppend("a", [made(schema=-1)])], "cannot have schema -1"),
            ([StreamAppend("a", [made(schema=2**31)])], "cannot have schema 2147483648"),
            ([StreamAppend("a", [made(time_ms=2**63)])], "milliseconds since 1970"),
        ],
    )
    def test_what_cannot_be_stored_is_refused_and_nothing_is_written(
        self, store: EventStore, appends: list[StreamAppend], reason: str
    ) -> None:
        with pytest.raises(InvalidAppend, match=reason):
            store.append(appends)
        assert list(store.read()) == []
        assert store.last_position() == 0

    # --- conditions

    def test_a_condition_sees_what_was_appended_after_its_position(self, store: EventStore) -> None:
        taken = where(types=["taken", "moved"], tags=["seat:1", "show:x"])
        put(store, "a", made("taken", b"", "seat:1", "show:x", "hall:7"))
        seen = store.last_position()
        for other in (("taken", "seat:1"), ("freed", "seat:1", "show:x"), ("taken", "seat:2", "show:x")):
            put(store, "a", made(other[0], b"", *other[1:]), condition=Condition(taken, seen))
        last = put(store, "b", made("moved", b"", "show:x", "seat:1"), condition=Condition(taken, seen)).position
        with pytest.raises(BoundaryConflict) as conflict:
            put(store, "c", condition=Condition(taken, seen))
        assert (conflict.value.expected, conflict.value.actual) == (seen, last)
        put(store, "c", condition=Condition(taken, last))
        assert streams_of(store.read()) == ["a", "a", "a", "a", "b", "c"]

    @pytest.mark.parametrize(
        "query",
        [
            where(types=["a"]), where(tags=["t"]), where(category="cat"), ALL,
            where(types=["z"]) | where(tags=["t", "u"]), where(types=["a", "b"], tags=["u"], category="cat"),
        ],
        ids=str,
    )  # fmt: skip
    def test_a_condition_may_be_any_query(self, store: EventStore, query: Query) -> None:
        put(store, "cat-1", made("a", b"", "t", "u"), condition=Condition(query, 0))
        with pytest.raises(BoundaryConflict):
            put(store, "cat-1", made("a", b"", "t", "u"), condition=Condition(query, 0))
        assert versions_of(store.read()) == [1]

    def test_of_many_whose_conditions_exclude_each_other_one_wins(self, open_store: Any) -> None:
        """Each under another name of the same store, all at once."""
        together = threading.Barrier(8)

        def reserve(number: int) -> int:
            store = open_store()
            won = 0
            for name in ("ann", "bob", "eve"):
                together.wait(PATIENCE_S)
                with suppress(Conflict):
                    condition = Condition(where(tags=[f"name:{name}"]), 0)
                    put(
                        store,
                        f"user-{name}{number}",
                        made("named", b"", f"name:{name}", f"n:{number}"),
                        condition=condition,
                    )
                    won += 1
            store.close()
            return won

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(reserve, range(8))) == 3
        store = open_store()
        assert sorted(each.tags[0] for each in store.read()) == ["name:ann", "name:bob", "name:eve"]
        store.close()

    # --- reading

    def test_a_part_of_a_stream(self, store: EventStore) -> None:
        put(store, "a", *(made() for _ in range(5)))
        put(store, "b")
        assert versions_of(store.read_stream("a", after=2)) == [3, 4, 5]
        assert versions_of(store.read_stream("a", to=2)) == [1, 2]
        assert versions_of(store.read_stream("a", after=1, to=4, limit=2)) == [2, 3]
        assert versions_of(store.read_stream("a", backward=True)) == [5, 4, 3, 2, 1]
        assert versions_of(store.read_stream("a", after=1, to=4, limit=2, backward=True)) == [4, 3]
        assert versions_of(store.read_stream("a", limit=0)) == []
        assert versions_of(store.read_stream("a", after=9)) == []

    def test_all_events_in_the_order_of_positions(self, store: EventStore) -> None:
        assert store.last_position() == 0
        assert list(store.read()) == []
        for name in "abcab":
            put(store, name)
        found = list(store.read())
        positions = [each.position for each in found]
        assert streams_of(iter(found)) == list("abcab")
        assert positions == sorted(set(positions))
        assert positions[0] > 0
        assert store.last_position() >= positions[-1]
        assert list(store.read(after=positions[1])) == found[2:]
        assert list(store.read(after=positions[1], to=positions[3])) == found[2:4]
        assert list(store.read(limit=2)) == found[:2]
        assert list(store.read(after=positions[0], limit=3, backward=True)) == found[:1:-1]
        assert list(store.read(to=positions[2], backward=True)) == found[2::-1]
        assert list(store.read(after=store.last_position())) == []

    def test_events_by_query(self, store: EventStore) -> None:
        put(store, "account-1", made("opened", b"1", "owner:ann"), made("paid", b"2", "owner:ann", "to:bob"))
        put(store, "account-2", made("opened", b"3", "owner:bob"), made("paid", b"4", "owner:bob", "to:ann"))
        put(store, "accounts", made("opened", b"5"))
        put(store, "card-1", made("opened", b"6", "owner:ann"))

        def found(query: Query, **part: Any) -> bytes:
            return b"".join(each.data for each in store.read(query, **part))

        assert found(where(types=["opened"])) == b"1356"
        assert found(where(types=["opened", "paid", "other"])) == b"123456"
        assert found(where(tags=["owner:ann"])) == b"126"
        assert found(where(tags=["owner:ann", "to:bob"])) == b"2"
        assert found(where(category="account")) == b"1234"
        assert found(where(category="account", types=["opened"], tags=["owner:bob"])) == b"3"
        assert found(where(types=["opened"], tags=["owner:ann"]) | where(tags=["to:ann"])) == b"146"
        assert found(where(tags=["owner:ann"]) | where(types=["opened"])) == b"12356"
        assert found(where(tags=["owner:ann"]) | ALL) == b"123456"
        assert found(where(tags=["owner:nobody"])) == b""
        assert found(where(tags=["owner:ann"]), limit=2, backward=True) == b"62"
        first = next(iter(store.read())).position
        assert found(where(types=["opened"]), after=first, limit=2) == b"35"

    def test_streams_are_listed_by_name(self, store: EventStore) -> None:
        names = ["account-2", "account", "account-10", "accounts-1", "account!", "account.", "bank-é", "bank-z", "a"]
        store.append([StreamAppend(name, [made()] * (number + 1)) for number, name in enumerate(names)])
        put(store, "bank-z")
        listed = {each.name: each.version for each in store.list_streams()}
        assert listed == {name: number + 1 + (name == "bank-z") for number, name in enumerate(names)}
        assert list(listed) == sorted(names)
        assert [each.name for each in store.list_streams("account")] == ["account", "account-10", "account-2"]
        assert [each.name for each in store.list_streams("account", after="account-10")] == ["account-2"]
        assert [each.name for each in store.list_streams(after="bank")] == ["bank-z", "bank-é"]
        assert list(store.list_streams("nothing")) == []

    def test_more_streams_than_a_page_has(self, store: EventStore) -> None:
        store.append([StreamAppend(f"s-{number:04}", [made()]) for number in range(1_234)])
        seen: list[tuple[int, int]] = []
        listed = list(store.list_streams(on_progress=lambda *progress: seen.append(progress)))
        assert [each.name for each in listed] == [f"s-{number:04}" for number in range(1_234)]
        assert all(0 < done <= total and total >= 1_234 for done, total in seen)

    # --- several at once

    def test_no_conflict_is_lost_and_no_event_either(self, open_store: Any) -> None:
        """Writers count in two streams, each from the version it has read: every number is there once."""
        writers, each_writes = 6, 15

        def count(number: int) -> list[tuple[int, Conflict]]:
            store, conflicts = open_store(), []
            for turn in range(each_writes):
                while True:
                    version = max(versions_of(store.read_stream("counter", backward=True, limit=1)), default=0)
                    own = StreamAppend(f"own-{number}", [made("turn", str(turn).encode())], turn)
                    try:
                        store.append([StreamAppend("counter", [made("n", str(version).encode())], version), own])
                        break
                    except Conflict as conflict:
                        conflicts.append((version, conflict))
            store.close()
            return conflicts

        with ThreadPoolExecutor(writers) as pool:
            for version, conflict in chain.from_iterable(pool.map(count, range(writers))):
                assert conflict.stream == "counter"
                assert conflict.expected == version < conflict.actual
        store = open_store()
        found = list(store.read_stream("counter"))
        assert [each.version for each in found] == list(range(1, writers * each_writes + 1))
        assert [int(each.data) for each in found] == list(range(writers * each_writes))
        for number in range(writers):
            assert versions_of(store.read_stream(f"own-{number}")) == list(range(1, each_writes + 1))
        store.close()

    def test_one_command_id_sent_by_many_at_once_is_done_once(self, open_store: Any) -> None:
        together = threading.Barrier(6)

        def send(number: int) -> tuple[bool, int]:
            store = open_store()
            together.wait(PATIENCE_S)
            # Each to a stream of its own, so that nothing but the command id keeps them apart.
            appended = put(store, f"s-{number}", command_id="once")
            store.close()
            return appended.is_repeat, appended.position

        with ThreadPoolExecutor(6) as pool:
            results = list(pool.map(send, range(6)))
        assert sorted(is_repeat for is_repeat, _ in results) == [False] + [True] * 5
        assert len({position for _, position in results}) == 1
        store = open_store()
        assert len(list(store.read())) == 1
        store.close()

    def test_a_reader_that_follows_misses_nothing(self, open_store: Any) -> None:
        """While writers append to streams of their own, one reader goes on from its last position, again and again."""
        writers, each_writes = 5, 30

        def write(number: int) -> None:
            store = open_store()
            for turn in range(each_writes):
                put(store, f"w-{number}", *(made() for _ in range(1 + (number + turn) % 3)), expected=ANY)
            store.close()

        def follow(wanted: int) -> list[StoredEvent]:
            store, found = open_store(), list[StoredEvent]()
            while len(found) < wanted:
                after = found[-1].position if found else 0
                assert store.wait(after, PATIENCE_S)
                found += store.read(after=after)
            store.close()
            return found

        wanted = sum(1 + (number + turn) % 3 for number in range(writers) for turn in range(each_writes))
        with ThreadPoolExecutor(writers + 1) as pool:
            followed = pool.submit(follow, wanted)
            list(pool.map(write, range(writers)))
            found = followed.result(PATIENCE_S)
        store = open_store()
        assert found == list(store.read())
        for number in range(writers):
            own = [each.version for each in found if each.stream == f"w-{number}"]
            assert own == list(range(1, len(own) + 1))
        store.close()

    # --- waiting

    def test_a_wait_ends_with_news_or_its_time(self, store: EventStore) -> None:
        assert not store.wait(0, 0.01)
        put(store, "a")
        assert store.wait(0, PATIENCE_S)
        assert not store.wait(store.last_position(), 0.01)

    def test_whoever_waits_is_woken_by_another_programs_append(self, store: EventStore, open_store: Any) -> None:
        put(store, "a")
        last = store.last_position()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(store.wait, last, PATIENCE_S)
            other = open_store()
            put(other, "b")
            assert waiting.result(PATIENCE_S * 2)
            other.close()
        assert streams_of(store.read(after=last)) == ["b"]


class SnapshotStoreContract:
    """Snapshots; `store` is a fixture that gives an empty one."""

    def test_a_snapshot_is_kept_for_the_fold_that_made_it(self, store: SnapshotStore) -> None:
        assert store.read_snapshot("a", "fold-1") is None
        store.write_snapshot("a", Snapshot(3, "fold-1", bytes(range(256))))
        assert store.read_snapshot("a", "fold-1") == Snapshot(3, "fold-1", bytes(range(256)))
        assert store.read_snapshot("a", "fold-2") is None
        assert store.read_snapshot("b", "fold-1") is None

    def test_the_newest_snapshot_stays(self, store: SnapshotStore) -> None:
        for version in (3, 7, 5):
            store.write_snapshot("a", Snapshot(version, "fold-1", b"%d" % version))
        assert store.read_snapshot("a", "fold-1") == Snapshot(7, "fold-1", b"7")

    def test_a_snapshot_of_another_fold_is_replaced(self, store: SnapshotStore) -> None:
        store.write_snapshot("a", Snapshot(7, "fold-1", b"old"))
        store.write_snapshot("a", Snapshot(5, "fold-2", b"new"))
        assert store.read_snapshot("a", "fold-2") == Snapshot(5, "fold-2", b"new")
        assert store.read_snapshot("a", "fold-1") is None

    def test_no_snapshot_is_left_of_a_stream(self, store: SnapshotStore) -> None:
        store.write_snapshot("a", Snapshot(7, "fold-1", b""))
        store.write_snapshot("b", Snapshot(8, "fold-1", b""))
        store.delete_snapshots("a")
        assert store.read_snapshot("a", "fold-1") is None
        assert store.read_snapshot("b", "fold-1") == Snapshot(8, "fold-1", b"")
