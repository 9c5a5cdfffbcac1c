"""The index of events finds what a walk through the log finds, however it was written, merged and opened again."""

import random
import sqlite3
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.delivery.events import (
    TAG,
    TYPE,
    VERSION,
    Criterion,
    Event,
    find_matches,
    find_versions,
    read_event,
    stream_term,
)
from headrace.records import Header, Record
from headrace.storage.event_index import EventIndex, LiveIndex
from headrace.storage.filesystem import OsFileSystem

STREAMS, KINDS, TAGS = ("a-1", "a-2", "b-1", "c"), ("x", "y", "z"), ("t", "u", "v")


def make_log(chance: random.Random, count: int) -> list[tuple[str, str, list[str]]]:
    """The stream, type and tags of each event."""
    return [
        (chance.choice(STREAMS), chance.choice(KINDS), chance.sample(TAGS, chance.randrange(3))) for _ in range(count)
    ]


def to_events(log: list[tuple[str, str, list[str]]]) -> list[Event]:
    versions: dict[str, int] = {}
    events = []
    for stream, kind, tags in log:
        versions[stream] = version = versions.get(stream, 0) + 1
        headers = [Header(VERSION, b"%d" % version), Header(TYPE, kind.encode())]
        headers += [Header(TAG, tag.encode()) for tag in tags]
        events.append(read_event(Record(0, 0, stream.encode(), b"", tuple(headers))))
    return events


def names(of: tuple[str, ...]) -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(st.sampled_from((*of, "other")), max_size=3)


criteria = st.builds(Criterion, names(KINDS), names(TAGS), st.sampled_from(("", "a", "b", "c"))).filter(
    lambda each: bool(each.alternatives)
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(0, 80),
    query=st.lists(criteria, min_size=1, max_size=3),
    first=st.integers(0, 160),
)
def test_what_is_found_is_what_matches(
    tmp_path: Path, seed: int, count: int, query: list[Criterion], first: int
) -> None:
    chance = random.Random(seed)
    log = make_log(chance, count)
    path = str(tmp_path / f"{seed}-{count}")
    index = EventIndex(OsFileSystem(), path, "p")
    index.clear()
    live = LiveIndex(index)
    for offset, event in enumerate(to_events(log)):
        live.note([(offset, event)], offset + 1)
        if not chance.randrange(4):  # portions of a few, so that there are enough to be merged
            live.begin_portion()()
            live.end_portion()
        if not chance.randrange(60):
            live.begin_portion()()
            index.close()
            index = EventIndex(OsFileSystem(), path, "p")
            assert index.place == offset + 1
            live = LiveIndex(index)
    reader = live.reader()
    expected = [
        offset
        for offset, (stream, kind, tags) in enumerate(log)
        if offset >= first
        and any(
            (not each.types or kind in each.types)
            and each.tags <= set(tags)
            and (not each.category or stream.partition("-")[0] == each.category)
            for each in query
        )
    ]
    assert [each for each in find_matches(tuple(query), reader.find, first) if each is not None] == expected
    for stream in STREAMS:
        own = [offset for offset, each in enumerate(log) if each[0] == stream]
        term = stream_term(stream.encode())
        assert reader.find_last(term) == len(own)
        assert list(find_versions(term, reader.find, 2, len(own) - 1)) == own[1:-1]
    assert len(index.runs) <= 8 * 3
    index.close()


def test_a_file_that_is_damaged_or_anothers_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "index"
    index = EventIndex(OsFileSystem(), str(path), "one")
    live = LiveIndex(index)
    live.note(enumerate(to_events([("a-1", "x", [])])), 1)
    live.begin_portion()()
    index.close()
    for owner, damage in (("other", None), ("other", b"not a database" * 100), ("other", None)):
        if damage is not None:
            path.write_bytes(damage)
        again = EventIndex(OsFileSystem(), str(path), owner)
        assert (again.place, again.here.find_last(stream_term(b"a-1"))) == (0, None)
        again.close()
    connection = sqlite3.connect(path)
    connection.execute("update facts set format = 99, place = 7")
    connection.commit()
    connection.close()
    newer = EventIndex(OsFileSystem(), str(path), "other")
    assert newer.place == 0
    newer.close()
