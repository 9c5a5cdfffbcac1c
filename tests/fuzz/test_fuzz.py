"""A slice of `make fuzz`: lives, damaged directories, a broker on sockets; and that what fails can be run again."""

from collections import Counter
from pathlib import Path

import pytest

from headrace.broker.connection import Connection
from tests.fuzz import run
from tests.fuzz.directories import open_damaged
from tests.fuzz.frames import API_VERSIONS
from tests.fuzz.life import live
from tests.fuzz.sockets import attack


def test_a_broker_lives_through_requests_of_every_api_and_version() -> None:
    counts: Counter[str] = Counter()
    for seed in range(6):
        outcome = live(seed)
        assert outcome.failure is None, (seed, outcome.failure)
        counts += outcome.counts
    asked = [pair for pair in API_VERSIONS if counts[f"api {int(pair[0])} {pair[1]}"]]
    answered = {int(key) for key, version in API_VERSIONS if counts[f"answered {int(key)} {version}"]}
    assert len(asked) == len(API_VERSIONS)
    assert answered == {int(key) for key, _ in API_VERSIONS}
    assert counts["answers"] > 1000
    assert counts["closed"] > 200


def test_the_same_seed_is_the_same_life() -> None:
    first, second = live(7, 200), live(7, 200)
    assert first.digest == second.digest
    assert first.counts == second.counts


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_damaged_directories_are_opened_or_refused(first: int) -> None:
    counts: Counter[str] = Counter()
    for index in range(first, first + 20):
        result = open_damaged(0, index)
        assert result.failure is None, (index, result.notes, result.failure)
        counts += result.counts
    assert counts["opened"] > 5


def test_a_broker_on_sockets_goes_on() -> None:
    report = attack(5, 400)
    assert report.failure is None
    assert report.counts["neighbour served"] >= 2


def test_a_failure_is_written_down_small_and_fails_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake that is put in on purpose: a broker that stumbles over a null in the client's name."""
    handle = Connection._handle

    def stumble(self: Connection, frame: memoryview) -> object:
        if bytes(frame[8:10]) == b"\xff\xff":
            raise KeyError("client_id")
        return handle(self, frame)

    monkeypatch.setattr(Connection, "_handle", stumble)
    done = run.work(run.Task("life", 21, 0, 200))
    (failure,) = done.failures
    assert "KeyError" in failure["failure"]
    assert len(failure["events"]) < 20
    path = run.write_down(tmp_path, failure)
    assert "KeyError" in (run.replay(path) or "")
    monkeypatch.undo()
    assert run.replay(path) is None
