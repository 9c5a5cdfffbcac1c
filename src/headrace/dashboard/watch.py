"""The thread that looks at the cluster again and again, and the state it leaves behind for pages.

What always holds: a state never changes once it is there; whoever waits for the next one is woken when it comes; and a
cluster that is slow to answer is asked less often, so that looking takes at most a quarter of the time.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from headrace.client.cluster import PATIENT, Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.errors import LostConnection
from headrace.client.reader import ReadRecord
from headrace.clock import Clock, SystemClock
from headrace.connect.delivery import OFFSETS_TOPIC
from headrace.dashboard.alerts import Alert, Known, find_alerts
from headrace.dashboard.history import History
from headrace.dashboard.reports import LOOK_BACK, MAX_STATUSES, Jobs, Statuses, copy_status, position, with_batches
from headrace.dashboard.sampling import take_snapshot, unread_times
from headrace.dashboard.settings import Settings
from headrace.dashboard.snapshot import Snapshot
from headrace.errors import HeadraceError
from headrace.model import TopicPartition
from headrace.queues.overview import QueueLook
from headrace.status import (
    CAPTURES,
    DERIVED,
    EVENTS,
    GATEWAYS,
    PIPELINES,
    PROGRESS,
    SEARCHES,
    VIEWS,
    Status,
    StatusReader,
    TopicFeed,
    join_statuses,
    last_by_name,
)
from headrace.telemetry import logs

R = TypeVar("R")

_log = logs.get_logger(__name__)
_QUICK = PATIENT.at_most(2)  # the next look is soon enough; a person wants to know that the broker is away
_SHARE = 3  # after a look, rest at least so many times as long as it took
# How old the first unread record of each topic is, for each output of a job.
JobAges = Mapping[tuple[str, str], Mapping[str, int]]
_STATUS_TOPICS = (CAPTURES, DERIVED, VIEWS, PIPELINES, EVENTS, GATEWAYS, SEARCHES)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the cluster cannot be seen just now."""

    sentence: str
    since_ms: int
    is_away: bool  # no connection, as against an answer that was no use


@dataclass(frozen=True, slots=True)
class State:
    """All that pages know; `snapshot` is None until the cluster was seen for the first time."""

    version: int = 0
    at_ms: int = 0
    snapshot: Snapshot | None = None
    problem: Problem | None = None
    history: History = field(default_factory=History)
    jobs: Jobs = field(default_factory=dict)
    statuses: Statuses = field(default_factory=dict)
    alerts: tuple[Alert, ...] = ()
    job_ages_ms: JobAges = field(default_factory=dict)


class Watch:
    """Looks at a cluster from a thread of its own, until it is stopped."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.state = State()
        self._settings = settings
        self._clock = clock or SystemClock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._lock = threading.Lock()
        self._progress = TopicFeed(PROGRESS, LOOK_BACK)
        self._stored = TopicFeed(OFFSETS_TOPIC, LOOK_BACK)
        self._readers = {topic: StatusReader(topic, look_back=LOOK_BACK, most=MAX_STATUSES) for topic in _STATUS_TOPICS}
        self._queues = QueueLook()
        self._is_doubtful = False
        self._jobs: Jobs = {}
        self._positions: Mapping[str, Status] = {}
        self._known: dict[str, Mapping[str, Status]] = {}

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="headrace-dashboard-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread:
            self._thread.join()

    async def newer_than(self, version: int, timeout_s: float) -> State:
        """The state as soon as it is newer than this one, or as it is when the time is up."""
        event = asyncio.Event()
        with self._lock:
            self._waiting[event] = asyncio.get_running_loop()
        try:
            if self.state.version <= version:
                async with asyncio.timeout(timeout_s):
                    await event.wait()
        except TimeoutError:
            pass
        finally:
            with self._lock:
                self._waiting.pop(event, None)
        return self.state

    # --- in the thread

    def _run(self) -> None:
        with Cluster(self._settings.bootstrap, self._settings.connection, retry=_QUICK) as cluster:
            coordinators = Coordinators(cluster)
            while not self._stopping.is_set():
                began = time.monotonic()
                try:
                    self._publish(self._look(cluster, coordinators))
                except Exception as error:  # pages must not go on to look alive
                    sentence = f"the dashboard itself failed ({error!r}): see its log, and start it again"
                    problem = Problem(sentence, self._clock.now_ms(), is_away=False)
                    self._publish(replace(self.state, problem=problem))
                    raise
                took_s = time.monotonic() - began
                self._stopping.wait(max(self._settings.interval_s, took_s * _SHARE))

    def _look(self, cluster: Cluster, coordinators: Coordinators) -> State:
        before = self.state
        now_ms = self._clock.now_ms()
        try:
            snapshot = take_snapshot(cluster, coordinators, now_ms, self._queues)
            self._jobs = with_batches(self._jobs, self._news(self._progress, cluster, snapshot))
            statuses = self._statuses(cluster, snapshot)
            ages = {key: _ages(cluster, snapshot, reports[-1].places) for key, reports in self._jobs.items()}
        except HeadraceError as error:
            is_away = isinstance(error, LostConnection)
            # A topic that is deleted between two questions of one look is no trouble; twice in a row it is one.
            if not is_away and not self._is_doubtful and before.snapshot:
                self._is_doubtful = True
                return before
            since_ms = before.problem.since_ms if before.problem else now_ms
            return replace(before, at_ms=now_ms, problem=Problem(str(error), since_ms, is_away))
        self._is_doubtful = False
        history = before.history.advance(snapshot)
        known = Known(now_ms, snapshot, history, self._jobs, statuses)
        alerts = find_alerts(known, {alert.key: alert for alert in before.alerts})
        return State(0, now_ms, snapshot, None, history, self._jobs, statuses, alerts, ages)

    def _statuses(self, cluster: Cluster, snapshot: Snapshot) -> Statuses:
        topics = snapshot.topics
        for topic, reader in self._readers.items():
            read = partial(reader.read, cluster, topics)
            self._known[topic] = _try_reading(topic, read, self._known.get(topic, {}))
        news = self._news(self._stored, cluster, snapshot)
        self._positions = last_by_name(self._positions, news, position, MAX_STATUSES)
        copies = [said for group in snapshot.groups.values() if (said := copy_status(group))]
        return self._known | {
            CAPTURES: join_statuses(self._positions, self._known[CAPTURES]),
            DERIVED: join_statuses(self._known[DERIVED], {said.name: said for said in copies}),
        }

    def _news(self, feed: TopicFeed, cluster: Cluster, snapshot: Snapshot) -> list[ReadRecord]:
        return _try_reading(feed.topic, lambda: feed.news(cluster, snapshot.topics), [])

    def _publish(self, state: State) -> None:
        if (state.problem is None) != (self.state.problem is None):
            _log.info("cluster is away" if state.problem else "cluster is there", bootstrap=self._settings.cluster_name)
        self.state = replace(state, version=self.state.version + 1)
        with self._lock:
            for event, loop in self._waiting.items():
                if not loop.is_closed():
                    loop.call_soon_threadsafe(event.set)


def _ages(cluster: Cluster, snapshot: Snapshot, places: Mapping[TopicPartition, int]) -> dict[str, int]:
    """The age of the oldest unread record of each topic; 0 where all is read."""
    found = {where.topic: 0 for where in places if where.topic in snapshot.topics}
    for where, at_ms in unread_times(cluster, snapshot, places).items():
        found[where.topic] = max(found[where.topic], snapshot.at_ms - at_ms, 0)
    return found


def _try_reading(topic: str, read: Callable[[], R], otherwise: R) -> R:
    """What a topic of reports holds; one that cannot be read must not hide the cluster."""
    try:
        return read()
    except LostConnection:
        raise
    except HeadraceError as error:
        _log.warning("a topic of reports cannot be read", topic=topic, reason=str(error))
        return otherwise
