"""What a session watches, and that nothing of it is left when it ends."""

from typing import Any

import pytest

from headrace.broker.fetches import MAX_PARTITIONS, Waiting
from headrace.broker.share_sessions import Member, ShareSession, ShareSessions
from headrace.broker.turns import run_through
from headrace.coordinator.share.records import ShareKey
from headrace.protocol.schema import Uuid
from headrace.security.principal import ANONYMOUS

KEYS = [ShareKey("workers", Uuid(bytes(16)), partition) for partition in range(100)]


@pytest.fixture
def sessions() -> ShareSessions:
    return ShareSessions(10, run_through)


@pytest.fixture
def appends() -> Waiting:
    return Waiting(run_through)


@pytest.fixture
def releases() -> Waiting:
    return Waiting(run_through)


def log_of(key: ShareKey) -> Any:
    """What stands for a log, of which only the identity matters."""
    return f"log {key.partition}"


def open_session(sessions: ShareSessions) -> ShareSession:
    return sessions.open(Member("workers", "ann"), ANONYMOUS, KEYS, {})


def watch_all(session: ShareSession, appends: Waiting, releases: Waiting) -> None:
    for key in KEYS:
        assert session.watch(key, log_of(key), appends, releases)
        session.ready.pop(key)


def test_all_partitions_are_looked_at_once(sessions: ShareSessions) -> None:
    assert list(open_session(sessions).ready) == KEYS


@pytest.mark.parametrize("is_release", [False, True])
def test_news_are_noted_once_and_whoever_waits_is_told(
    sessions: ShareSessions, appends: Waiting, releases: Waiting, is_release: bool
) -> None:
    session = open_session(sessions)
    watch_all(session, appends, releases)
    told: list[ShareKey] = []
    session.waiting[told.append] = None
    for _ in range(2):
        releases.appended(KEYS[7]) if is_release else appends.appended(log_of(KEYS[7]))
    assert list(session.ready) == told == [KEYS[7]]
    assert (len(appends), len(releases)) == (99, 99)


def test_a_forgotten_partition_is_watched_no_more(sessions: ShareSessions, appends: Waiting, releases: Waiting) -> None:
    session = open_session(sessions)
    watch_all(session, appends, releases)
    sessions.change(session, [], KEYS[:40])
    appends.appended(log_of(KEYS[0]))
    assert not session.ready
    assert (len(appends), len(releases)) == (60, 60)
    sessions.change(session, KEYS[:1], [])
    assert list(session.ready) == KEYS[:1]


def test_nothing_is_left_of_a_session_that_ended(sessions: ShareSessions, appends: Waiting, releases: Waiting) -> None:
    first = open_session(sessions)
    watch_all(first, appends, releases)
    second = open_session(sessions)  # in place of the first one
    assert (len(appends), len(releases)) == (0, 0)
    watch_all(second, appends, releases)
    sessions.close(second)
    assert (len(appends), len(releases), len(sessions)) == (0, 0, 0)


def test_what_cannot_be_watched_stays_ready(sessions: ShareSessions, appends: Waiting, releases: Waiting) -> None:
    session = open_session(sessions)
    for number in range(MAX_PARTITIONS - 50):
        appends.add(number, lambda: None)
    assert not session.watch(KEYS[0], log_of(KEYS[0]), appends, releases)
    assert KEYS[0] in session.ready
