"""What a guard remembers, with the time in the test's hand."""

from itertools import count

import pytest

from headrace.serving.sessions import Attempts, Role, Session, Sessions, neighbourhood


def numbered():
    numbers = count()
    return lambda: f"key-{next(numbers)}"


def test_a_session_lasts_for_its_time_and_ends_when_told():
    sessions = Sessions(100, fresh=numbered())
    key, session = sessions.begin("alice", Role.READ_ONLY, now_s=0)
    assert session == Session("alice", Role.READ_ONLY, "key-1", 100)
    assert sessions.find(key, 99) == session
    assert sessions.find(key, 100) is None
    assert sessions.find("", 1) is None
    other, _ = sessions.begin("alice", Role.ADMIN, now_s=1)
    sessions.end(key)
    assert sessions.find(key, 2) is None
    assert sessions.find(other, 2) is not None


def test_every_session_has_a_key_and_a_proof_of_its_own():
    sessions = Sessions(100)
    made = [sessions.begin("alice", Role.ADMIN, 0) for _ in range(20)]
    assert len({key for key, _ in made} | {session.csrf for _, session in made}) == 40
    assert all(len(key) >= 43 for key, _ in made)  # 256 bits


def test_there_are_never_too_many_sessions():
    sessions = Sessions(100, most=3, fresh=numbered())
    keys = [sessions.begin("alice", Role.ADMIN, now_s)[0] for now_s in range(5)]
    assert [sessions.find(key, 5) is not None for key in keys] == [False, False, True, True, True]
    sessions.begin("bob", Role.ADMIN, 103.5)
    assert len(sessions) == 2  # those of 2 and 3 had ended


def test_what_is_kept_does_not_open_anything():
    sessions = Sessions(100)
    key, _ = sessions.begin("alice", Role.ADMIN, 0)
    assert key not in repr(vars(sessions))


def test_a_fixed_session_is_always_there():
    sessions = Sessions(1, fixed={"cookie": Session("", Role.ADMIN, "proof")})
    sessions.end("cookie")
    assert sessions.find("cookie", 1e9) == Session("", Role.ADMIN, "proof")


def test_after_too_many_failures_one_waits_until_the_window_ends():
    attempts = Attempts(3, 60)
    for now_s in (0, 10, 20):
        assert attempts.wait_s("a", now_s) == 0
        attempts.count("a", now_s)
    assert attempts.wait_s("a", 20) == 40
    assert attempts.wait_s("b", 20) == 0
    assert attempts.wait_s("a", 60) == 0
    attempts.count("a", 60)  # a new window
    assert attempts.wait_s("a", 61) == 0


def test_there_are_never_too_many_windows():
    attempts = Attempts(1, 60, most_keys=100)
    for number in range(1000):
        attempts.count(f"user-{number}", number / 100)
    assert len(attempts) == 100
    attempts.count("late", 1000)
    assert len(attempts) == 1


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_an_address_counts_for_its_neighbourhood(host, counted):
    assert neighbourhood(host) == counted
