"""Keeping queries running: start, watch, restart after a failure with growing pauses, and drain at the end."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.pipelines.errors import PipelineError
from headrace.pipelines.jobs.build import Prepared, is_over, start, start_ending
from headrace.pipelines.jobs.declare import REAL_TIME
from headrace.pipelines.jobs.endpoints import dead_letter_topics
from headrace.pipelines.jobs.failures import sentence_of, will_last
from headrace.pipelines.jobs.patterns import NOTHING, PatternStand
from headrace.pipelines.jobs.progress import Progress, read
from headrace.pipelines.jobs.status import describe_target
from headrace.pipelines.spark.watermarks import keep_now
from headrace.retry import Backoff
from headrace.status import ENDED, FAILED, RUNNING, STOPPED, WAITING, Status

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_PAUSES = Backoff(1.0, 60.0)
_HEALTHY_S = 300.0  # a job that ran so long starts to count its failures anew
_DRAIN_S = 60.0
# What `StreamingQuery.status` says, by how it begins.
_MEANINGS: Final = (
    ("Initializing", "opening its sources"),
    ("Getting offsets", "asking its topics for new records"),
    ("Waiting for data", "waiting for records"),
    ("Waiting for next trigger", "waiting for its next trigger"),
)


@dataclass
class Running:
    """A job's queries, and how often they failed."""

    prepared: Prepared
    queries: Mapping[str, "StreamingQuery"] = field(default_factory=dict)
    failures: int = 0
    failed_at: float = 0.0
    retry_at: float | None = None
    last_error: str | None = None
    late_rows: dict[str, int] = field(default_factory=dict)
    patterns: dict[str, PatternStand] = field(default_factory=dict)
    last_batch: dict[str, int] = field(default_factory=dict)
    has_begun: bool = False
    was_over: bool = False
    has_failed: bool = False  # for good
    has_ended: bool = False  # by itself, with nothing left to do

    @property
    def name(self) -> str:
        return self.prepared.job.name

    def status(self, *, is_stopping: bool) -> Status:
        if self.has_failed:
            return Status.of(self.name, "pipeline", FAILED, problem=self.last_error or "")
        if self.has_ended:
            return Status.of(self.name, "pipeline", ENDED)
        if is_stopping:
            return Status.of(self.name, "pipeline", STOPPED)
        if self.retry_at is not None:
            return Status.of(self.name, "pipeline", WAITING, waiting="to start again", problem=self.last_error or "")
        return Status.of(self.name, "pipeline", RUNNING)


class GaveUp(PipelineError):
    """A job failed as often as was allowed; the text is the last failure's."""


class Runner:
    """Runs jobs until they are done, or until it is stopped."""

    def __init__(
        self,
        jobs: list[Prepared],
        *,
        restarts: int,
        say: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`say(job, sentence)` is called at failures and restarts."""
        self.jobs = [Running(prepared) for prepared in jobs]
        self._restarts = restarts
        self._say = say
        self._clock = clock
        self._unread: list[Progress] = []

    def begin(self) -> None:
        for running in self.jobs:
            running.was_over = is_over(running.prepared)
            running.queries = start(running.prepared)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def tend(self) -> bool:
        """See to what failed or ended; whether anything is left to do. Raises `GaveUp` for a job that failed too often.

        What ends while this looks counts as running: how it ended, and what has to follow, is for the next look.
        """
        for running in self.jobs:
            self._tend(running)
        return not all(running.has_ended for running in self.jobs)

    def _tend(self, running: Running) -> None:
        now = self._clock()
        if running.retry_at is not None:
            if now >= running.retry_at:
                running.retry_at = None
                self._unread += self._reports(running)
                self._say(running.name, "starts again")
                try:
                    running.queries = start(running.prepared)
                except PipelineError as error:
                    self._failed(running, str(error), now)
            return
        ended = [query for query in running.queries.values() if not query.isActive]
        broken = [query.exception() for query in ended if query.exception()]
        if not broken:
            if running.queries and len(ended) == len(running.queries):
                for query in ended:
                    query.awaitTermination()  # only then Spark lets another one have its name
                self._unread += self._reports(running)
                keep_now()
                running.queries = start_ending(running.prepared, was_over=running.was_over)
            running.has_ended = not running.queries
            return
        for query in running.queries.values():
            query.stop()  # outputs of one job go on together
        failure = broken[0]
        assert failure is not None
        self._failed(running, sentence_of(failure), now, lasting=will_last(failure))

    def _failed(self, running: Running, error: str, now: float, *, lasting: bool = False) -> None:
        if now - running.failed_at > _HEALTHY_S:
            running.failures = 0
        running.failures += 1
        running.failed_at = now
        running.last_error = error
        if lasting or running.failures > self._restarts:
            running.has_failed = True
            raise GaveUp(f"{running.prepared.job.place}: job {running.name!r} failed: {running.last_error}")
        pause = _PAUSES.pause_s(running.failures)
        running.retry_at = now + pause
        self._say(running.name, f"failed: {running.last_error}; starts again in {pause:g} s")

    def statuses(self, *, is_stopping: bool = False) -> list[Status]:
        """What each job does now, or how it ended; `is_stopping` is for those that would run on."""
        return [running.status(is_stopping=is_stopping) for running in self.jobs]

    def news(self) -> list[Progress]:
        """The reports of batches that ended since this was last asked."""
        found = self._unread + [report for running in self.jobs for report in self._reports(running)]
        self._unread = []
        return found

    def _reports(self, running: Running) -> list[Progress]:
        found = []
        inputs = tuple(running.prepared.job.inputs)
        for word, query in running.queries.items():
            for report in query.recentProgress:
                if report["batchId"] <= running.last_batch.get(word, -1):
                    continue
                late = running.late_rows.get(word, 0)
                stand = running.patterns.get(word, NOTHING).heard(report.get("observedMetrics") or {})
                running.patterns[word] = stand
                progress = replace(
                    read(running.name, word, inputs, dict(report), late),
                    writes=describe_target(running.prepared.job.outputs[word]),
                    dead_letter_topics=dead_letter_topics(running.prepared.job, running.prepared.bootstrap),
                    events_matched=stand.events,
                    patterns=stand.patterns,
                )
                running.last_batch[word] = progress.batch
                running.late_rows[word] = progress.late_rows_total
                found.append(progress)
        return found

    def steps(self) -> dict[str, str]:
        """What each job is doing that has not finished a batch yet; nothing, once, for one that has."""
        found: dict[str, str] = {}
        for running in self.jobs:
            if running.has_begun:
                continue
            running.has_begun = bool(running.last_batch)
            waiting = [query for word, query in running.queries.items() if word not in running.last_batch]
            context = next(iter(running.prepared.results.values())).sparkSession.sparkContext
            steps = [_describe_step(query, context) for query in waiting if query.isActive]
            found[running.name] = "" if running.has_begun or not steps else steps[0]
        return found

    def drain(self) -> None:
        """Let each query finish the batch it is in, then stop it; in real-time mode a batch lasts minutes."""
        until = self._clock() + _DRAIN_S
        for running in self.jobs:
            running.retry_at = None
            waits = running.prepared.trigger != REAL_TIME
            for query in running.queries.values():
                while waits and query.isActive and query.status["isTriggerActive"] and self._clock() < until:
                    time.sleep(0.02)
                query.stop()
        keep_now()


def _describe_step(query: "StreamingQuery", context: Any) -> str:
    """What a query is doing that has not finished a batch yet."""
    message = str(query.status["message"])
    for beginning, meaning in _MEANINGS:
        if message.startswith(beginning):
            return meaning
    tracker = context.statusTracker()
    stages = [info for number in tracker.getActiveStageIds() if (info := tracker.getStageInfo(number))]
    if not stages:
        return "planning its first batch"
    if not any(stage.numCompletedTasks for stage in stages):
        return "running its first batch, for which Python workers start"
    done, total = sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
    return f"running its first batch, {done} of {total} tasks done"
