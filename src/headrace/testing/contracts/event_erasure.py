"""What every store of events must do about links, redaction and archives; see `headrace.eventsourcing.store`.

`ChainContract` is for every store that has others beside it, `ErasureContract` for those that let events be redacted
and archived. Both need the fixture `open_store` of `EventStoreContract`.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from headrace.delivery.redaction import REDACTION, make_stand_in
from headrace.eventsourcing.aggregate import Aggregate
from headrace.eventsourcing.archives import InvalidArchive, Retention, archive, read_archive, retain
from headrace.eventsourcing.erasure import redact
from headrace.eventsourcing.errors import (
    ArchivedEvents,
    BoundaryConflict,
    Conflict,
    ErasureRefused,
    InvalidAppend,
)
from headrace.eventsourcing.event_types import EventTypes
from headrace.eventsourcing.hash_chain import Mark, chain, newest_link, open_links
from headrace.eventsourcing.model import NEW, Condition, Snapshot, StreamAppend, where
from headrace.eventsourcing.repository import Repository
from headrace.eventsourcing.snapshots import Snapshots
from headrace.eventsourcing.traces import ARCHIVAL, ArchivalTrace, Redacted, RedactionTrace
from headrace.eventsourcing.verification import verify
from headrace.testing.contracts.events import PATIENCE_S, made, put, streams_of, versions_of

TYPES = EventTypes()


@TYPES.event("added")
@dataclass(frozen=True)
class Added:
    """A number for a sum."""

    amount: int
    note: str = ""


@dataclass(frozen=True)
class Sum:
    """What numbers add up to, and how many are not known any more."""

    total: int = 0
    unknown: int = 0


@dataclass(frozen=True)
class Add:
    """A command."""

    amount: int
    note: str = ""


def make_sums(*, counts_redacted: bool = False) -> Aggregate[Sum]:
    """An aggregate of sums."""
    sums = Aggregate("sum", Sum, types=TYPES)

    @sums.decide
    def add(_: Sum, command: Add) -> Added:
        return Added(command.amount, command.note)

    @sums.evolve
    def added(state: Sum, event: Added) -> Sum:
        return replace(state, total=state.total + event.amount)

    if counts_redacted:

        @sums.evolve
        def redacted(state: Sum, _: Redacted) -> Sum:
            return replace(state, unknown=state.unknown + 1)

    return sums


class ChainContract:
    """Chaining and verifying."""

    @pytest.fixture
    def chained(self, open_store: Callable[[], Any]) -> Iterator[Any]:
        store = open_store()
        yield store
        store.close()

    def test_an_empty_store_is_intact(self, chained: Any) -> None:
        assert chain(chained) is None
        found = verify(chained)
        assert (found.is_intact, found.chained, found.unchained, found.newest) == (True, 0, 0, None)

    def test_what_is_sealed_is_verified_and_what_is_not_is_counted(self, chained: Any, open_store: Any) -> None:
        put(chained, "a", made("x", b"\xff\0", "t", "u", headers={"b": "1", "a": "é"}), made())
        before = verify(chained)
        assert (before.is_intact, before.chained, before.unchained, before.links) == (True, 0, 2, 0)
        mark = chain(chained)
        put(chained, "b", made(), command_id="c-1")
        other = open_store()
        found = verify(other, against=mark)
        assert (found.is_intact, found.chained, found.unchained, found.newest) == (True, 2, 1, mark)
        second = chain(other)
        other.close()
        assert mark is not None
        assert second is not None
        assert second.number == mark.number + 1
        assert chain(chained) == second  # there is nothing more to be chained
        assert Mark.parse(f" {second}\n") == second
        found = verify(chained, against=mark)
        assert (found.is_intact, found.chained, found.unchained, found.links) == (True, 3, 0, 2)
        assert [each.type for each in chained.read()] == ["x", "noted", "noted"]  # links are not among its events

    def test_a_link_that_was_kept_elsewhere_shows_that_all_were_written_anew(self, chained: Any) -> None:
        put(chained, "a")
        mark = chain(chained)
        assert mark is not None
        found = verify(chained, against=mark._replace(hash=bytes(32)))
        assert [each.kind for each in found.findings] == ["link"]
        assert "written anew" in found.findings[0].text
        found = verify(chained, against=mark._replace(number=7))
        assert "link 7, which was kept elsewhere, is not in the store" in found.findings[0].text

    def test_two_that_link_at_once_make_one_chain(self, open_store: Any) -> None:
        store = open_store()
        for number in range(5):
            put(store, f"s-{number}")

        def chain_it(_: int) -> Mark | None:
            own = open_store()
            put(own, "other")
            done = chain(own)
            own.close()
            return done

        with ThreadPoolExecutor(3) as pool:
            marks = list(pool.map(chain_it, range(3)))
        newest = chain(store)
        assert newest is not None
        assert newest.number >= max(mark.number for mark in marks if mark)
        found = verify(store)
        assert (found.is_intact, found.chained, found.unchained) == (True, 8, 0)
        beside = open_links(store, create=False)
        last = newest_link(beside)
        assert beside is not None
        assert last is not None
        assert last.mark == newest
        beside.close()
        store.close()


class RefusedRedactionContract:
    """For stores in which nothing can be redacted: it is said in a sentence, and nothing is changed."""

    def test_redaction_is_refused(self, store: Any) -> None:
        put(store, "a")
        before = list(store.read())
        with pytest.raises(ErasureRefused, match="event 1 of stream 'a'"):
            redact(store, "a", 1, reason="why not")
        assert list(store.read()) == before


class RefusedArchivingContract:
    """The same for archives."""

    def test_archiving_is_refused(self, store: Any, tmp_path: Path) -> None:
        put(store, "a", made(), made())
        before = list(store.read())
        with pytest.raises(ErasureRefused, match="stream 'a' is in a topic"):
            archive(store, "a", below=2, to=None, needs_state=False)
        assert list(store.read()) == before
        assert list(tmp_path.iterdir()) == []


class RedactionContract:
    """Redaction of one event."""

    @pytest.fixture
    def chained(self, open_store: Callable[[], Any]) -> Iterator[Any]:
        store = open_store()
        yield store
        store.close()

    def test_a_redacted_event_stays_without_its_data(self, store: Any, open_store: Any) -> None:
        put(store, "a-1", made("x", b"1", "t"), made("y", b"secret", "t", "u", headers={"h": "v"}), made("z", b"3"))
        put(store, "b-1", made("x", b"4"), command_id="c-1")
        mark = chain(store)
        before = list(store.read())
        appended = redact(store, "a-1", 2, reason="a name in a note", by="ann")
        assert dict(appended.versions) == {"a-1": 4}
        other = open_store()
        after = list(other.read())
        assert [*before[:1], after[1], *before[2:]] == after[:4]
        assert after[1] == before[1]._replace(data=after[1].data)
        assert b"secret" not in after[1].data
        [trace] = after[4:]
        assert (trace.stream, trace.version, trace.position, trace.type) == ("a-1", 4, appended.position, REDACTION)
        assert {"t", "u"} < set(trace.tags)  # whoever asks by its tags learns of it
        told = TYPES.decode(trace)
        assert isinstance(told, RedactionTrace)
        assert (told.stream, told.version, told.position) == ("a-1", 2, before[1].position)
        assert (told.reason, told.by, told.type) == ("a name in a note", "ann", "y")
        found = verify(other, against=mark)
        assert found.is_intact
        assert found.redacted == [told]
        assert (found.chained, found.unchained) == (4, 1)
        assert list(other.read_stream("a-1", after=1, to=2)) == [after[1]]
        assert versions_of(other.read(where(types=["y"]))) == [2]
        assert put(other, "b-1", command_id="c-1").is_repeat
        assert put(other, "a-1", expected=4).versions == {"a-1": 5}
        other.close()

    def test_it_is_done_once_and_another_program_sees_it(self, store: Any, open_store: Any) -> None:
        put(store, "a", made("x", b"secret"))
        first = redact(store, "a", 1, reason="r")
        other = open_store()
        again = redact(other, "a", 1, reason="again")
        other.close()
        assert again.is_repeat
        assert (again.position, dict(again.versions)) == (first.position, {"a": 2})
        assert versions_of(store.read_stream("a")) == [1, 2]

    def test_of_two_at_once_one_leaves_a_trace(self, open_store: Any) -> None:
        store = open_store()
        put(store, "a", made("x", b"secret"))

        def redact_it(_: int) -> str:
            own = open_store()
            try:
                redact(own, "a", 1, reason="r")
            except ErasureRefused as refusal:
                return str(refusal)
            finally:
                own.close()
            return ""

        with ThreadPoolExecutor(3) as pool:
            results = list(pool.map(redact_it, range(3)))
        assert all(each == "" or "meanwhile" in each for each in results)
        assert [each.type for each in store.read()] == ["x", REDACTION]
        store.close()

    def test_what_cannot_be_redacted(self, store: Any) -> None:
        put(store, "a", made("x", b"secret"))
        redact(store, "a", 1, reason="r")
        before = list(store.read())
        for stream, version, reason in (
            ("a", 2, "is a trace"), ("a", 3, "has no event 3"), ("a", 0, "has no event 0"), ("b", 1, "no stream 'b'")
        ):  # fmt: skip
            with pytest.raises(ErasureRefused, match=reason):
                redact(store, stream, version, reason="r")
        with pytest.raises(InvalidAppend, match="mark of a redacted event"):
            put(store, "a", made("x", make_stand_in(bytes(32))))
        assert list(store.read()) == before

    def test_an_empty_event_can_be_redacted(self, store: Any) -> None:
        put(store, "a", made("x", b""), made("x", b"\xff" * 70_000))
        redact(store, "a", 1, reason="r")
        redact(store, "a", 2, reason="r")
        assert verify(store).is_intact
        assert all(len(each.data) < 100 for each in store.read_stream("a", to=2))

    def test_a_wait_ends_with_a_redaction(self, store: Any) -> None:
        put(store, "a", made("x", b"secret"))
        last = store.last_position()
        redact(store, "a", 1, reason="r")
        assert store.wait(last, PATIENCE_S)
        assert [each.type for each in store.read(after=last)] == [REDACTION]

    def test_a_fold_passes_it_by_or_takes_it(self, store: Any) -> None:
        sums, counting = make_sums(), make_sums(counts_redacted=True)
        repository = Repository(store)
        for amount in (1, 20, 300):
            repository.handle(sums, "1", Add(amount))
        redact(store, "sum-1", 2, reason="r")
        loaded = repository.load(sums, "1")
        assert (loaded.state, loaded.version, loaded.redacted) == (Sum(301), 4, 1)
        loaded = repository.load(counting, "1")
        assert (loaded.state, loaded.redacted) == (Sum(301, unknown=1), 0)
        repository.handle(sums, "1", Add(4000))
        assert repository.load(sums, "1").state == Sum(4301)

    def test_who_decided_by_the_data_decides_again(self, store: Any) -> None:
        sums, repository = make_sums(), Repository(store)
        repository.handle(sums, "1", Add(1))
        seen = []

        def add(work: Any) -> None:
            state = work.load(sums, "1").state
            seen.append(state.total)
            if len(seen) == 1:
                redact(store, "sum-1", 1, reason="r")
            work.handle(sums, "1", Add(1 + state.total))

        repository.run(add)
        assert seen == [1, 0]
        assert repository.load(sums, "1").state == Sum(1)


class ErasureContract(RedactionContract):
    """Redaction with snapshots, and archives."""

    # --- redaction and snapshots

    def test_no_snapshot_is_left_and_none_is_made_of_what_was_read_before(self, store: Any) -> None:
        put(store, "a", made("x", b"1"), made("x", b"2"))
        store.write_snapshot("a", Snapshot(2, "fold-1", b"with data"))
        redact(store, "a", 1, reason="r")
        assert store.read_snapshot("a", "fold-1") is None
        assert store.find_snapshot("a") is None
        for fold in ("fold-1", "fold-2"):
            store.write_snapshot("a", Snapshot(2, fold, b"with data"))  # by one who has read it before
            assert store.read_snapshot("a", fold) is None
        store.write_snapshot("a", Snapshot(4, "fold-1", b"later"))
        assert store.read_snapshot("a", "fold-1") == store.find_snapshot("a") == Snapshot(4, "fold-1", b"later")

    # --- archives

    def test_archived_events_are_in_a_file_and_not_in_the_store(
        self, store: Any, open_store: Any, tmp_path: Path
    ) -> None:
        put(store, "a/1-é", made("x", b"1", "t", headers={"h": "v"}, causation_id="e"), made("y", b"\xff\0"))
        put(store, "b", made("x", b"b"))
        put(store, "a/1-é", made("z", b"3"), made("z", b"4"))
        mark = chain(store)
        before, last = list(store.read()), store.last_position()
        folder = tmp_path / "archives"
        folder.mkdir()
        done = archive(store, "a/1-é", below=4, to=folder, needs_state=False, reason="old", by="ann")
        assert (done.first, done.last, done.events, done.trace_version) == (1, 3, 3, 5)
        assert done.path is not None
        assert list(folder.iterdir()) == [done.path]
        assert list(read_archive(done.path)) == [before[0], before[1], before[3]]
        other = open_store()
        after = list(other.read())
        assert after[:2] == [before[2], before[4]]
        trace = TYPES.decode(after[2])
        assert isinstance(trace, ArchivalTrace)
        assert (trace.first, trace.last, trace.archive, trace.reason, trace.by) == (1, 3, done.path.name, "old", "ann")
        assert (after[2].stream, after[2].version, after[2].position) == ("a/1-é", 5, last + 1)
        assert versions_of(other.read_stream("a/1-é")) == [4, 5]
        assert versions_of(other.read_stream("a/1-é", backward=True)) == [5, 4]
        assert versions_of(other.read_stream("a/1-é", limit=1)) == [4]
        assert list(other.read(where(tags=["t"]))) == list(other.read(where(types=["x"]), limit=1))[1:]
        assert streams_of(other.read(where(types=["x", "z"]), limit=2)) == ["b", "a/1-é"]
        assert streams_of(other.read(limit=1, backward=True)) == ["a/1-é"]
        assert other.last_position() == last + 1
        assert other.wait(last, PATIENCE_S)
        found = verify(other, against=mark)
        assert found.is_intact
        assert (found.chained, found.unchained, found.archived_events, found.archived) == (5, 1, 3, [trace])
        other.close()

    def test_pages_of_archived_events_do_not_end_a_read(self, store: Any) -> None:
        put(store, "a", *(made("x", b"1", "t") for _ in range(700)))
        put(store, "b", *(made("x", b"1", "t") for _ in range(3)))
        archive(store, "a", below=700, to=None, needs_state=False)
        for query in (where(tags=["t"]), where(types=["x"]), where(types=["x"], tags=["t"])):
            assert streams_of(store.read(query)) == ["a", "b", "b", "b"]
            assert streams_of(store.read(query, backward=True, limit=2)) == ["b", "b"]
        assert [each.version for each in store.read_stream("a")] == [700, 701]

    def test_versions_conditions_and_command_ids_stay_right(self, store: Any) -> None:
        put(store, "user-1", made("named", b"", "name:ann"), command_id="c-1")
        both = [StreamAppend("user-1", [made()]), StreamAppend("user-2", [made()])]
        first = store.append(both, command_id="c-2")
        seen = store.last_position()
        archive(store, "user-1", below=3, to=None, needs_state=False)
        assert versions_of(store.read_stream("user-1")) == [3]
        again = store.append(both, command_id="c-2")
        assert again.is_repeat
        assert (again.position, dict(again.versions)) == (first.position, dict(first.versions))
        assert store.find_command("c-1").versions == {"user-1": 1}
        assert put(store, "user-1", command_id="c-1").is_repeat
        with pytest.raises(Conflict) as conflict:
            put(store, "user-1", expected=NEW)
        assert conflict.value.actual == 3
        for query in (where(tags=["name:ann"]), where(types=["named"]), where(category="user", tags=["name:ann"])):
            with pytest.raises(BoundaryConflict):
                put(store, "user-9", condition=Condition(query, 0))
            assert store.find_archived(query) is not None
            put(store, "other", condition=Condition(query, seen))
        assert store.find_archived(where(tags=["name:bob"])) is None
        assert put(store, "user-1", expected=3).versions == {"user-1": 4}

    def test_a_stream_is_loaded_by_the_state_in_the_trace(self, store: Any, tmp_path: Path) -> None:
        sums, repository = make_sums(), Repository(store)
        for amount in (1, 20, 300, 4000):
            repository.handle(sums, "1", Add(amount))
        archive(store, "sum-1", below=3, to=tmp_path, aggregate=sums)
        loaded = repository.load(sums, "1")
        assert (loaded.state, loaded.version) == (Sum(4321), 5)
        assert repository.load(sums, "1", to=3).state == Sum(321)
        assert repository.load(sums, "1", to=2).state == Sum(21)
        with pytest.raises(ArchivedEvents, match=r"events up to 2 of stream 'sum-1' are in the archive sum-1\.1-2"):
            repository.load(sums, "1", to=1)
        repository.handle(sums, "1", Add(50_000))
        archive(store, "sum-1", below=7, to=tmp_path, aggregate=sums)  # with the first trace
        loaded = repository.load(make_sums(counts_redacted=True), "1")  # by another fold
        assert (loaded.state, loaded.version) == (Sum(54321), 7)
        assert [each.type for each in store.read_stream("sum-1")] == [ARCHIVAL]
        assert verify(store, archives=tmp_path).is_intact
        assert [each.version for path in sorted(tmp_path.glob("*.jsonl")) for each in read_archive(path)] == [
            1, 2, 3, 4, 5, 6
        ]  # fmt: skip

    def test_what_is_archived_while_it_is_read_is_not_missing_in_a_state(
        self, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Events are read page by page: a fold that begins before an archival and ends after it would miss some."""
        sums, repository = make_sums(), Repository(store)
        repository.run(lambda work: [work.handle(sums, "1", Add(1)) for _ in range(1_200)])
        read_stream, is_archived = store.read_stream, list[bool]()

        def archive_meanwhile(*asked: Any, **more: Any) -> Iterator[Any]:
            for number, event in enumerate(read_stream(*asked, **more), 1):
                if number == 100 and not is_archived and not more.get("backward"):
                    is_archived.append(True)
                    archive(store, "sum-1", below=1_100, to=None, aggregate=sums)
                yield event

        monkeypatch.setattr(store, "read_stream", archive_meanwhile)
        loaded = repository.load(sums, "1")
        monkeypatch.undo()
        assert (loaded.state, loaded.version) in ((Sum(1_200), 1_200), (Sum(1_200), 1_201))
        assert repository.load(sums, "1").version == 1_201

    def test_what_is_archived_while_a_query_is_read_is_noticed(
        self, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sums, repository, read = make_sums(), Repository(store), store.read
        put(store, "a", made("added", b'{"amount":1}', "t"), made("added", b'{"amount":2}', "t"))

        def archive_first(*asked: Any, **more: Any) -> Any:
            monkeypatch.undo()
            archive(store, "a", below=3, to=None, needs_state=False)
            return read(*asked, **more)

        monkeypatch.setattr(store, "read", archive_first)
        with pytest.raises(ArchivedEvents, match="was archived: a decision by these events needs all of them"):
            repository.run(lambda work: work.handle_within(sums, where(tags=["t"]), Add(1), stream="sum-1"))
        assert list(store.read_stream("sum-1")) == []

    def test_a_stream_is_archived_below_its_snapshot(self, store: Any, tmp_path: Path) -> None:
        sums, repository = make_sums(), Repository(store, snapshots=Snapshots(every=3))
        for amount in (1, 20, 300, 4000):
            repository.handle(sums, "1", Add(amount))
        with pytest.raises(ErasureRefused, match="a snapshot of version 3, and events below 5 could not be loaded"):
            archive(store, "sum-1", below=5, to=tmp_path)
        assert list(tmp_path.glob("*.jsonl*")) == []
        archive(store, "sum-1", below=3, to=tmp_path)
        for one in (repository, Repository(store)):  # one uses the snapshot, the other the trace
            loaded = one.load(sums, "1")
            assert (loaded.state, loaded.version) == (Sum(4321), 5)
        with pytest.raises(ErasureRefused, match="is part of the state that event 5 of stream 'sum-1'"):
            redact(store, "sum-1", 3, reason="r")
        redact(store, "sum-1", 4, reason="r")
        assert Repository(store).load(sums, "1").state == Sum(321)

    def test_without_a_state_a_stream_cannot_be_loaded_any_more(self, store: Any) -> None:
        sums, repository = make_sums(), Repository(store)
        for amount in (1, 20):
            repository.handle(sums, "1", Add(amount))
        with pytest.raises(ErasureRefused, match="no snapshot, and events below 2 could not be loaded"):
            archive(store, "sum-1", below=2, to=None)
        archive(store, "sum-1", below=2, to=None, needs_state=False)
        with pytest.raises(ArchivedEvents, match="are deleted: the state after them cannot be loaded"):
            repository.load(sums, "1")

    def test_a_decision_by_a_query_needs_all_of_its_events(self, store: Any) -> None:
        sums, repository = make_sums(), Repository(store)
        store.append([StreamAppend("sum-1", [TYPES.encode(Added(1)), TYPES.encode(Added(2))])])
        query = where(types=["added"])
        archive(store, "sum-1", below=2, to=None, needs_state=False)
        with pytest.raises(ArchivedEvents, match=r"matches .* and was archived"):
            repository.run(lambda work: work.handle_within(sums, query, Add(1), stream="sum-2"))

    @pytest.mark.parametrize("below", [0, 1, 4])
    def test_there_must_be_something_to_archive(self, store: Any, below: int) -> None:
        put(store, "a", made(), made())
        with pytest.raises(ErasureRefused, match="archive below a version from 2 to 3"):
            archive(store, "a", below=below, to=None, needs_state=False)
        with pytest.raises(ErasureRefused, match="no stream 'b'"):
            archive(store, "b", below=1, to=None)

    def test_an_archive_that_failed_is_gone_on_with(self, store: Any, tmp_path: Path) -> None:
        put(store, "a", made("x", b"1"), made("x", b"2"), made("x", b"3"))
        kept = archive(store, "a", below=2, to=tmp_path, needs_state=False).path
        assert kept is not None
        other = kept.with_name("a.2-3.jsonl")
        other.write_bytes(kept.read_bytes())
        with pytest.raises(ErasureRefused, match=r"a\.2-3\.jsonl with other events"):
            archive(store, "a", below=4, to=tmp_path, needs_state=False)
        assert versions_of(store.read_stream("a")) == [2, 3, 4]
        kept.write_text(kept.read_text().replace('"data":"1"', '"data":"7"'))
        with pytest.raises(InvalidArchive, match=r"event 1 of stream 'a' .* is not as it was archived"):
            list(read_archive(kept))
        assert verify(store).is_intact
        [finding] = verify(store, archives=tmp_path).findings
        assert (finding.kind, finding.stream, finding.version) == ("archive", "a", 1)
        assert "is not as it was archived" in finding.text
        kept.write_text("\n".join(kept.read_text().splitlines()[:1]))
        assert "holds other events than were archived" in verify(store, archives=tmp_path).findings[0].text
        kept.unlink()
        assert "cannot be read: no such file" in verify(store, archives=tmp_path).findings[0].text

    def test_a_redacted_event_is_archived_as_such(self, store: Any, tmp_path: Path) -> None:
        put(store, "a", made("x", b"secret"), made())
        mark = chain(store)
        redact(store, "a", 1, reason="r")
        done = archive(store, "a", below=4, to=tmp_path, needs_state=False)
        assert done.path is not None
        assert "secret" not in done.path.read_text()
        with pytest.raises(ErasureRefused, match="event 1 of stream 'a' was archived"):
            redact(store, "a", 1, reason="r")
        assert verify(store, against=mark).is_intact

    # --- retention

    def test_retention_by_count_and_age(self, store: Any) -> None:
        now, day = 1_700_000_000_000, 86_400_000
        for name in ("s-1", "s-2", "t-1"):
            put(store, name, *(made("x", b"%d" % age, time_ms=now - age * day) for age in (4, 3, 2, 1)))

        def run(**policy: Any) -> list[tuple[str, int, int]]:
            done = retain(store, Retention(**policy), to=None, now_ms=now, needs_state=False)
            return [(each.stream, each.first, each.last) for each in done if not isinstance(each, Exception)]

        assert run(category="s", keep=3) == [("s-1", 1, 1), ("s-2", 1, 1)]
        assert run(category="s", keep=3) == []  # once, whatever it has appended
        assert run(stream="s-1", age_ms=2 * day + 1) == [("s-1", 2, 2)]
        assert run(stream="s-1", age_ms=2 * day + 1, keep=1) == []
        assert run(stream="s-1", age_ms=1) == [("s-1", 3, 4)]
        assert [each.data for each in store.read(where(types=["x"]))] == [b"3", b"2", b"1", b"4", b"3", b"2", b"1"]
        assert verify(store).is_intact

    def test_retention_goes_as_far_as_there_is_a_state(self, store: Any) -> None:
        put(store, "s-1", *(made() for _ in range(6)))
        put(store, "s-2", *(made() for _ in range(6)))
        store.write_snapshot("s-1", Snapshot(3, "fold-1", b"{}"))
        done = list(retain(store, Retention(category="s", keep=1), to=None, now_ms=0))
        assert [(each.stream, each.last) for each in done if not isinstance(each, Exception)] == [("s-1", 3)]
        [refusal] = [each for each in done if isinstance(each, Exception)]
        assert "stream 's-2' has no snapshot" in str(refusal)

    @pytest.mark.parametrize("policy", [{}, {"stream": "a", "category": "b", "keep": 1}, {"stream": "a"}])
    def test_a_retention_that_makes_no_sense(self, policy: dict[str, Any]) -> None:
        with pytest.raises(ErasureRefused, match="retention"):
            Retention(**policy)
