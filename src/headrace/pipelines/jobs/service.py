"""A run from its first check to its last batch: places, session, queries, progress, drain."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, UnknownTopic
from headrace.dead_letters import LetterBox, Letters, in_words, letters_in
from headrace.pipelines.jobs.build import Prepared, check, check_over, prepare
from headrace.pipelines.jobs.declare import AVAILABLE_NOW, DRAIN_NEEDS, REAL_TIME, BadJob, Job
from headrace.pipelines.jobs.endpoints import letter_boxes
from headrace.pipelines.jobs.place import Place, folder_of, lock_folder, mark_started, open_place
from headrace.pipelines.jobs.progress import Progress
from headrace.pipelines.jobs.publish import MetricsServer, ProgressTopic
from headrace.pipelines.jobs.run import Runner
from headrace.pipelines.jobs.status import lag_of
from headrace.pipelines.jobs.versions import at_version
from headrace.pipelines.spark.session import session, settle_sources
from headrace.status import EVERY_S, RUNNING, WAITING, Status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TICK_S = 0.1
_LAG_EVERY_S = 1.0


class Watcher(Protocol):
    def say(self, job: str, sentence: str, **facts: str) -> None:
        """`facts` are for programs."""
        ...

    def step(self, job: str, step: str) -> None:
        """What a job, or Spark itself, is doing until its first batch; nothing once that is done."""
        ...

    def show(self, reports: Sequence[Progress]) -> None: ...


@dataclass(frozen=True)
class RunSettings:
    bootstrap: str
    state: Path
    master: str = "local[*]"
    trigger: str | None = None
    restarts: int = 10
    metrics_port: int | None = None
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)  # of Spark; what a job says itself goes before
    drain: bool = False  # all jobs, also those that do not say so themselves
    wait_for_topics_s: float = 0


def run_jobs(jobs: Sequence[Job], settings: RunSettings, watcher: Watcher) -> None:
    """Run jobs until they are done, or until a signal asks to stop; then each finishes the batch it is in."""
    with ExitStack() as stack:
        places = [(job, open_place(job, settings.state)) for job in jobs]
        current = [(at_version(job, place.version, switched=True), place) for job, place in places]
        until = time.monotonic() + settings.wait_for_topics_s
        if (missing := _check(current, settings)) and not settings.wait_for_topics_s:
            raise missing
        for job, _ in current:
            stack.enter_context(lock_folder(folder_of(job, settings.state)))
        spark = _spark([job for job, _ in current], settings, watcher, stack)
        stopping = stack.enter_context(stop_on_signals())  # after Spark's start, which takes Ctrl-C for itself
        if missing:
            _wait_for_topics(current, settings, watcher, until, stopping)
        if stopping():
            return
        prepared = _prepared(current, spark, settings, watcher)
        if stopping():
            return
        for job, place in places:
            mark_started(job, place)
        runner = Runner(prepared, restarts=settings.restarts, say=watcher.say)
        metrics = None
        if settings.metrics_port is not None:
            metrics = MetricsServer(settings.metrics_port)
            stack.callback(metrics.close)
            watcher.say("metrics", f"at http://127.0.0.1:{metrics.port}/metrics")
        stack.callback(runner.drain)
        runner.begin()
        boxes = {job.name: letter_boxes(job, settings.bootstrap) for job in jobs}
        reporter = Reporter(jobs[0].home(settings.bootstrap), watcher, metrics, boxes)
        try:
            _tend(runner, reporter, watcher, stopping)
        finally:
            reporter.report(runner.statuses(is_stopping=True), is_last=True)


def _check(current: Sequence[tuple[Job, Place]], settings: RunSettings) -> BadJob | None:
    """Refuse what is wrong with a job; a topic that is not there is returned, for it may come yet."""
    missing = None
    for job, place in current:
        _drains(job, settings)
        try:
            check(job, settings.bootstrap, trigger=settings.trigger)
            check_over(job, place, settings.bootstrap, settings.trigger or job.trigger)
        except BadJob as error:
            if not isinstance(error.__cause__, UnknownTopic):
                raise
            missing = missing or error
    return missing


def _wait_for_topics(
    current: Sequence[tuple[Job, Place]],
    settings: RunSettings,
    watcher: Watcher,
    until: float,
    stopping: Callable[[], bool],
) -> None:
    said = ""
    while (missing := _check(current, settings)) and not stopping():
        if time.monotonic() >= until:
            raise missing
        topic = missing.__cause__.topic if isinstance(missing.__cause__, UnknownTopic) else ""
        if topic != said:
            watcher.say("pipeline", f"waits for topic {topic}", state=WAITING, waiting=f"for topic {topic}")
            said = topic
        time.sleep(_TICK_S)
    if said and not stopping():
        watcher.say("pipeline", "has its topics", state=RUNNING)


def _spark(jobs: Sequence[Job], settings: RunSettings, watcher: Watcher, stack: ExitStack) -> "SparkSession":
    watcher.say("spark", f"starts on {settings.master} for {', '.join(job.name for job in jobs)}")
    started = time.monotonic()
    spark = session(
        jobs[0].name,
        master=settings.master,
        conf={**settings.conf, **{name: value for job in jobs for name, value in job.conf.items()}},
        jvm_kafka=any((settings.trigger or job.trigger) == REAL_TIME for job in jobs),
        report=lambda step: watcher.step("spark", step),
    )
    stack.callback(spark.stop)
    watcher.step("spark", "")
    watcher.say("spark", f"is ready after {time.monotonic() - started:.1f} s")
    return spark


def _prepared(
    current: Sequence[tuple[Job, Place]], spark: "SparkSession", settings: RunSettings, watcher: Watcher
) -> list[Prepared]:
    settle_sources(spark)
    prepared = []
    for job, place in current:
        watcher.step(job.name, "reading the schemas of its sources")
        prepared.append(
            prepare(
                job,
                spark,
                place,
                bootstrap=settings.bootstrap,
                trigger=settings.trigger,
                drain=_drains(job, settings),
            )
        )
    return prepared


def _drains(job: Job, settings: RunSettings) -> bool:
    """Whether a job is drained at its end; raises `BadJob` where its run has none."""
    drain, trigger = job.drain or settings.drain, settings.trigger or job.trigger
    if drain and trigger != AVAILABLE_NOW:
        raise BadJob(f"{job.place}: job {job.name!r} is to be drained, and its trigger is {trigger!r}: {DRAIN_NEEDS}")
    return drain


def _tend(runner: Runner, reporter: "Reporter", watcher: Watcher, stopping: Callable[[], bool]) -> None:
    while runner.tend() and not stopping():
        for job, step in runner.steps().items():
            watcher.step(job, step)
        reporter.take(runner.news())
        reporter.report(runner.statuses())
        runner.wait(_TICK_S)
    reporter.take(runner.news())
    if stopping():
        watcher.say("pipeline", "is stopping: each job finishes its batch; a second Ctrl-C stops at once")


class Reporter:
    def __init__(
        self,
        cluster: Cluster,
        watcher: Watcher,
        metrics: MetricsServer | None,
        boxes: Mapping[str, Sequence[LetterBox]] | None = None,
    ) -> None:
        """`boxes` hold the dead letters of each job."""
        self._boxes = boxes or {}
        self._letters: dict[str, Letters] = {}
        self._cluster = cluster
        self._watcher = watcher
        self._metrics = metrics
        self._topic = ProgressTopic(cluster)
        self._latest: dict[tuple[str, str], Progress] = {}
        self._lag_at = 0.0
        self._next_report = 0.0

    def report(self, statuses: Sequence[Status], *, is_last: bool = False) -> None:
        """Publish what jobs are doing; a broker that is away is asked again later, and holds up little."""
        now = time.monotonic()
        if now < self._next_report and not is_last:
            return
        try:
            self._topic.report(statuses, is_last=is_last)
        except ClientError:  # the jobs have their own way of waiting for a broker
            self._next_report = now + EVERY_S

    def take(self, news: list[Progress]) -> None:
        if not news:
            return
        news = [self._with_letters(report) for report in self._with_lag(news)]
        self._latest |= {(report.job, report.output): report for report in news}
        self._watcher.show(list(self._latest.values()))
        if self._metrics:
            self._metrics.show(self._latest.values())
        try:
            self._topic.write(news)
        except ClientError as error:  # the jobs have their own way of waiting for a broker
            self._watcher.say("progress", f"could not be published: {error}")

    def _with_lag(self, news: list[Progress]) -> list[Progress]:
        """How long the next record has waited is a question to the broker, so it is not asked at every batch."""
        now = time.monotonic()
        if now - self._lag_at < _LAG_EVERY_S:
            known = {key: report.lag_ms for key, report in self._latest.items()}
            return [replace(report, lag_ms=known.get((report.job, report.output))) for report in news]
        self._lag_at = now
        return [replace(report, lag_ms=self._lag_ms(report)) for report in news]

    def _with_letters(self, report: Progress) -> Progress:
        """What the job could not decode; said when there is more of it."""
        before = self._letters.get(report.job, Letters())
        with suppress(ClientError):  # the jobs have their own way of waiting for a broker
            self._letters[report.job] = letters_in(self._boxes.get(report.job, ()), self._cluster)
        now = self._letters.get(report.job, before)
        if now.total > before.total:
            self._watcher.say(report.job, in_words(*now))
        return replace(report, dead_letters=now.total, dead_letter_reasons=now.reasons)

    def _lag_ms(self, report: Progress) -> int | None:
        offsets = {where: offset for source in report.sources for where, offset in source.end.items()}
        if not offsets:
            return None
        try:
            return lag_of(self._cluster, offsets, int(time.time() * 1000)).time_ms
        except ClientError:
            return None


@contextmanager
def stop_on_signals() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C or SIGTERM asked to stop; a second one ends at once."""
    asked: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
