"""The runner with queries that fail when a test says so; the real ones are in the integration tests."""

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.pipelines import topic
from headrace.pipelines.jobs import run as module
from headrace.pipelines.jobs.run import GaveUp, Runner


class Query:
    def __init__(self) -> None:
        self.isActive = True
        self.status = {"isTriggerActive": False}
        self.recentProgress: list[dict[str, Any]] = []
        self._error: Exception | None = None
        self.has_name = True  # Spark gives a query's name free some time after the query is not active any more

    def fail(self, text: str) -> None:
        self.isActive, self._error = False, RuntimeError(text)

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        self.isActive = False

    def awaitTermination(self) -> None:  # noqa: N802 - Spark's name
        assert not self.isActive
        self.has_name = False


class EndingQuery(Query):
    """One that ends between two questions whether it is active."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self._error = error
        self._asked = 0

    @property
    def isActive(self) -> bool:  # type: ignore[override]  # noqa: N802 - Spark's name
        self._asked += 1
        return self._asked == 1

    @isActive.setter
    def isActive(self, _: bool) -> None:  # noqa: N802
        self._asked = 0


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, restarts: int = 3) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.started: list[Query] = []
        self.endings: list[Query] = []
        monkeypatch.setattr(module, "start", self._start)
        monkeypatch.setattr(module, "start_ending", self._start_ending)
        monkeypatch.setattr(module, "is_over", lambda _: False)
        prepared: Any = SimpleNamespace(
            job=SimpleNamespace(
                name="sums",
                place="sums.py:3",
                inputs={"rows": topic("numbers").as_input()},
                outputs={"out": topic("sums").as_output()},
            ),
            bootstrap="127.0.0.1:9092",
        )
        self.runner = Runner(
            [prepared], restarts=restarts, say=lambda _, text: self.said.append(text), clock=lambda: self.now
        )
        self.runner.begin()

    def _start(self, _: Any) -> dict[str, Query]:
        self.started.append(Query())
        return {"out": self.started[-1]}

    def _start_ending(self, _: Any, *, was_over: bool) -> dict[str, Query]:
        assert not any(query.has_name for query in self.started)
        assert not was_over
        return {"out": self.endings.pop()} if self.endings else {}


def test_a_job_that_fails_starts_again_after_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    for pause in (1.0, 2.0, 4.0):
        count = len(world.started)
        world.started[-1].fail("disk full")
        assert world.runner.tend()
        world.now += pause - 0.01
        assert world.runner.tend()
        assert len(world.started) == count
        world.now += 0.02
        world.runner.tend()
        assert len(world.started) == count + 1
    world.started[-1].fail("disk full")
    with pytest.raises(GaveUp, match="job 'sums' failed: disk full"):
        world.runner.tend()
    assert world.said[0] == "failed: disk full; starts again in 1 s"


def test_what_others_are_told_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, restarts=1)

    def told(*, is_stopping: bool = False) -> tuple[str, str]:
        (status,) = world.runner.statuses(is_stopping=is_stopping)
        assert status.name == "sums"
        return status.state_text, status.text("problem")

    assert told() == ("running", "")
    assert told(is_stopping=True) == ("stopped", "")
    world.started[-1].fail("disk full")
    world.runner.tend()
    assert told() == ("waiting: to start again", "disk full")
    world.now += 2
    world.runner.tend()
    assert told() == ("running", "")
    world.started[-1].fail("disk full")
    with pytest.raises(GaveUp):
        world.runner.tend()
    assert told(is_stopping=True) == ("failed", "disk full")
    done = World(monkeypatch)
    done.started[-1].stop()
    done.runner.tend()
    assert [status.state for status in done.runner.statuses(is_stopping=True)] == ["ended"]


def test_failures_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, restarts=1)
    for _ in range(3):
        world.started[-1].fail("once")
        world.runner.tend()
        world.now += 2
        world.runner.tend()
        world.now += 1000
    assert len(world.started) == 4


def test_a_job_that_is_done_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.started[-1].stop()
    assert not world.runner.tend()


def test_what_ends_while_it_is_looked_at_is_seen_to_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, restarts=0)
    ending = Query()
    world.endings.append(ending)
    world.started[-1] = world.runner.jobs[0].queries["out"] = EndingQuery()  # type: ignore[index]
    assert world.runner.tend(), "its final batch is left to do"
    assert world.runner.tend()
    assert world.runner.jobs[0].queries == {"out": ending}
    failed = World(monkeypatch, restarts=0)
    failed.runner.jobs[0].queries["out"] = EndingQuery(RuntimeError("disk full"))  # type: ignore[index]
    assert failed.runner.tend()
    assert [status.state for status in failed.runner.statuses()] == ["running"]
    with pytest.raises(GaveUp, match="disk full"):
        failed.runner.tend()


def test_the_ending_runs_behind_what_was_read_and_no_report_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    read, ending = world.started[-1], Query()
    world.endings.append(ending)
    read.recentProgress = [{"batchId": 0, "timestamp": "t"}]
    read.stop()
    assert world.runner.tend()
    ending.recentProgress = [{"batchId": 1, "timestamp": "t"}]
    ending.stop()
    assert not world.runner.tend()
    assert not world.runner.tend()
    assert [report.batch for report in world.runner.news()] == [0, 1]


def test_each_batch_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    query = world.started[-1]
    operators = [{"numRowsDroppedByWatermark": 2}]
    query.recentProgress = [{"batchId": number, "timestamp": "t", "stateOperators": operators} for number in range(2)]
    assert [(report.batch, report.late_rows, report.late_rows_total) for report in world.runner.news()] == [
        (0, 2, 2),
        (1, 2, 4),
    ]
    query.recentProgress.append({"batchId": 2, "timestamp": "t", "stateOperators": operators})
    assert [(report.batch, report.late_rows_total) for report in world.runner.news()] == [(2, 6)]
    assert world.runner.news() == []


def test_a_report_names_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.started[-1].recentProgress = [{"batchId": 0, "timestamp": "t"}]
    (report,) = world.runner.news()
    told = report.as_json()
    assert told["writes"] == {"kind": "topic", "name": "sums", "text": "topic sums"}
    assert told["dead_letter_topics"] == ["numbers.dead-letters"]
