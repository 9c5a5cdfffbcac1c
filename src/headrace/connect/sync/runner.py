"""One sink kept in step with its topic, for as long as it is let.

A session opens the sink, goes on from the place that the target holds, and applies batch after batch. Whatever may
pass by itself (a target that is down, a broker that is away) ends the session, and a new one begins after a pause
that grows; the place is in the target, so nothing is lost and nothing has to be remembered here.
"""

import threading
from collections.abc import Callable
from contextlib import suppress

from headrace.client.cluster import Cluster, is_passing
from headrace.client.coordinators import Coordinators
from headrace.client.errors import BrokerUnreachable, ClientError, RequestTimedOut, TopicReplaced, UnknownTopic
from headrace.client.offsets import bounds
from headrace.clock import Clock, SystemClock
from headrace.connect.avro.errors import SchemasUnavailable
from headrace.connect.sink import ChangeBatch, Place, Sink, SinkUnavailable, TargetReplaced
from headrace.connect.sync.dead_letters import write_letters
from headrace.connect.sync.feed import Feed, Gathered
from headrace.connect.sync.places import Condition, State, checked_place, publish, published, replaced
from headrace.connect.sync.poison import apply_or_bury
from headrace.connect.sync.reduction import each_change, reduce_records
from headrace.connect.sync.settings import SyncSettings
from headrace.errors import HeadraceError
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)
_PUBLISH_EVERY_MS = 1_000
_LOOK_EVERY_MS = 30_000  # for new partitions, and to say that one is alive


class Runner:
    """Runs one sink; belongs to one thread."""

    def __init__(
        self,
        settings: SyncSettings,
        sink: Sink,
        connect: Callable[[], Cluster],
        *,
        clock: Clock | None = None,
        is_shown: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Not `is_shown` means that nobody is told about the place: a target that is being built."""
        self._settings = settings
        self._sink = sink
        self._connect = connect
        self._form = settings.form.opened(connect)
        self._clock = clock or SystemClock()
        self._is_shown = is_shown
        self._progress = progress
        self._place: Place | None = None  # what the target holds, as last known
        self._published: tuple[Place, State] | None = None
        self._published_ms = 0
        self.applied_records = 0

    def run(self, stop: threading.Event) -> None:
        """Until told to stop; raises what somebody has to mend."""
        pause_s = self._settings.first_pause_s
        while not stop.is_set():
            begun_with = self.applied_records
            try:
                self._session(stop, to_end=False)
            except TargetReplaced:
                _log.info("target replaced", sink=self._settings.name)
            except HeadraceError as error:
                if not _may_pass(error):
                    self._tell_anew(State.FAILED, str(error))
                    raise
                if self.applied_records > begun_with:
                    pause_s = self._settings.first_pause_s
                _log.warning("sink waits", sink=self._settings.name, pause_s=pause_s, error=str(error))
                self._tell_anew(State.RETRYING, str(error))
                stop.wait(pause_s)
                pause_s = min(pause_s * 2, self._settings.longest_pause_s)
            else:
                pause_s = self._settings.first_pause_s
        self._tell_anew(State.STOPPED, "")

    def catch_up(self, stop: threading.Event | None = None) -> Place:
        """Once, up to where the topic ends when this begins; errors are raised as they come."""
        self._session(stop or threading.Event(), to_end=True)
        assert self._place is not None
        return self._place

    # --- a session

    def _session(self, stop: threading.Event, *, to_end: bool) -> None:
        settings = self._settings
        with self._connect() as cluster:
            try:
                place = checked_place(cluster, settings.topic, settings.name, self._sink, self._sink.open())
                self._place = place
                coordinators = Coordinators(cluster)
                until = _ends(cluster, settings.topic) if to_end else None
                feed = Feed(
                    cluster,
                    settings.topic,
                    place.offsets,
                    self._form,
                    settings.limits,
                    until=until,
                    topic_id=place.topic_id,
                )
                self._tell(coordinators, State.RUNNING)
                looked_ms = self._clock.now_ms()
                while not stop.is_set() and not feed.is_at_end:
                    gathered = feed.next()
                    if gathered is not None:
                        self._take(cluster, gathered)
                    self._tell(coordinators, State.RUNNING)
                    if self._clock.now_ms() - looked_ms > _LOOK_EVERY_MS:
                        looked_ms = self._clock.now_ms()
                        self._published = None
                        if until is None:
                            feed.add_partitions()
                self._published = None
                self._tell(coordinators, State.RUNNING if until is None else State.STOPPED)
            except TopicReplaced as error:
                raise replaced(error, settings.name, self._sink) from error
            finally:
                self._sink.close()

    def _take(self, cluster: Cluster, gathered: Gathered) -> None:
        settings = self._settings
        assert self._place is not None
        reduce = each_change if self._sink.every_change else reduce_records
        reduced = reduce(gathered.records, self._form)
        if reduced.broken:
            _log.warning("dead letters", sink=settings.name, records=len(reduced.broken))
            write_letters(
                cluster, settings.dead_letters_topic, settings.topic, settings.name, reduced.broken, settings.form.value
            )
        place = Place(settings.topic, gathered.offsets, self._place.topic_id)
        batch = ChangeBatch(reduced.changes, place, gathered.clears)
        for refused in apply_or_bury(self._sink, batch, self._place, gathered.records):
            _log.warning("dead letter", sink=settings.name, offset=refused.record.offset, error=refused.reason)
            write_letters(
                cluster, settings.dead_letters_topic, settings.topic, settings.name, [refused], settings.form.value
            )
        self._place = place
        self.applied_records += len(gathered.records)
        if self._progress is not None:
            self._progress(self.applied_records)

    # --- telling

    def _tell(self, coordinators: Coordinators, state: State) -> None:
        assert self._place is not None
        now_ms = self._clock.now_ms()
        if not self._is_shown or self._published == (self._place, state):
            return
        is_same_state = self._published is not None and self._published[1] is state
        if is_same_state and now_ms - self._published_ms < _PUBLISH_EVERY_MS:
            return
        publish(coordinators, self._settings.name, self._place, self._condition(state, now_ms))
        self._published, self._published_ms = (self._place, state), now_ms

    def _tell_anew(self, state: State, error: str) -> None:
        """On a connection of its own, because the old one may be what is broken; and if nobody hears it, so be it."""
        if not self._is_shown:
            return
        with suppress(HeadraceError), self._connect() as cluster:
            coordinators = Coordinators(cluster)
            condition = self._condition(state, self._clock.now_ms(), error)
            publish(coordinators, self._settings.name, self._place or self._last_told(coordinators), condition)
            self._published = None

    def _condition(self, state: State, now_ms: int, error: str = "") -> Condition:
        return Condition(state, now_ms, error, self._settings.sink, self._settings.target)

    def _last_told(self, coordinators: Coordinators) -> Place:
        """For a target that could not be opened yet: what was told the last time, or the beginning."""
        told = published(coordinators, self._settings.name, self._settings.topic)
        if told is not None:
            return told[0]
        held = bounds(coordinators.cluster, coordinators.cluster.partitions(self._settings.topic))
        return Place(self._settings.topic, {where.partition: bound.start for where, bound in held.items()})


def _ends(cluster: Cluster, topic: str) -> dict[int, int]:
    held = bounds(cluster, cluster.partitions(topic), committed=True)
    return {where.partition: bound.end for where, bound in held.items()}


def _may_pass(error: HeadraceError) -> bool:
    if isinstance(error, ClientError):
        return is_passing(error) or isinstance(error, BrokerUnreachable | RequestTimedOut | UnknownTopic)
    return isinstance(error, SinkUnavailable | SchemasUnavailable)
