"""One sink kept in step with its topic, for as long as it is let.

A session opens the sink, goes on from the place that the target holds, and applies batch after batch. Whatever may
pass by itself (a target that is down, a broker that is away) ends the session, and a new one begins after a pause
that grows; the place is in the target, so nothing is lost and nothing has to be remembered here.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster, is_passing
from headrace.client.connection import ConnectionSettings
from headrace.client.coordinators import Coordinators
from headrace.client.errors import BrokerUnreachable, ClientError, Refused, RequestTimedOut, TopicReplaced, UnknownTopic
from headrace.client.offsets import bounds
from headrace.clock import Clock, SystemClock
from headrace.connect.sync.feed import Feed, Gathered
from headrace.connect.sync.forgotten import Forgotten
from headrace.connect.sync.keyless import reduce_rows
from headrace.connect.sync.places import checked_place, publish, replaced
from headrace.connect.sync.poison import apply_in_parts, apply_or_bury
from headrace.connect.sync.reduction import BrokenRecord, LogRecord, each_change
from headrace.connect.sync.registry import NEED_KEYS, make_sink
from headrace.connect.sync.settings import SECTION, SyncSettings
from headrace.dead_letters import LetterBox, forget_letters, write_letters
from headrace.delivery.letters import Letter
from headrace.errors import HeadraceError
from headrace.forgetting.errors import KeyStoreUnavailable
from headrace.retry import Backoff
from headrace.schema_registry import RegistryUnavailable
from headrace.status import DERIVED, FAILED, RUNNING, STOPPED, WAITING, Status, StatusWriter
from headrace.stores.derived import Place, ReadableSink, RestingSink, RowChange, Sink
from headrace.stores.errors import SinkError, SinkRefused, SinkUnavailable, TargetReplaced
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)
_PUBLISH_EVERY_MS = 1_000
_LOOK_EVERY_MS = 30_000  # for new partitions, and to say that one is alive
_TOPIC_PAUSE_S = 2.0  # a topic that somebody is about to make is looked for often: it costs nothing
STARTING = "starting"


class Runner:
    """Runs one sink; belongs to one thread. `status` is what it does, for whoever watches."""

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
        self._published: Place | None = None
        self._published_ms = 0
        self._forgotten: Forgotten | None = None
        if settings.open:
            if self._form.keys is None:
                raise SinkRefused(f"[{SECTION}.{settings.name}] opens sealed values, and there are no keys: add a "
                                  "section [forgetting]")  # fmt: skip
            self._forgotten = Forgotten(self._form.keys, f"{SECTION}.{settings.name}", self._form)
        self._letters = LetterBox(settings.dead_letters_topic, settings.topic, settings.name)
        self._written: Status | None = None
        self._written_ms = 0
        self.status = Status.of(settings.name, settings.sink, STARTING)
        self.letters: set[bytes] = set()  # that were written here
        self.applied_records = 0

    def run(self, stop: threading.Event) -> None:
        """Until told to stop; raises what somebody has to mend."""
        backoff = Backoff(self._settings.first_pause_s, self._settings.longest_pause_s)
        failures = 0  # in a row
        while not stop.is_set():
            begun_with = self.applied_records
            try:
                self._session(stop, to_end=False)
            except TargetReplaced:
                _log.info("target replaced", sink=self._settings.name)
            except HeadraceError as error:
                if not _may_pass(error):
                    self._report_anew(FAILED, str(error))
                    raise
                failures = 1 if self.applied_records > begun_with else failures + 1
                pause_s = backoff.pause_s(failures)
                waiting = _waiting_for(error)
                # Its status says so to whoever watches, once; a second line in the log would be noise.
                _log.debug("sink waits", sink=self._settings.name, waiting=waiting, error=str(error))
                self._report_anew(WAITING, str(error), waiting)
                stop.wait(min(pause_s, _TOPIC_PAUSE_S) if isinstance(error, UnknownTopic) else pause_s)
            except Exception as error:
                self._report_anew(FAILED, f"unexpected {type(error).__name__}: {error}")
                raise
            else:
                failures = 0
        self._report_anew(STOPPED, "")

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
                self._letters.look(cluster)
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
                self._report(coordinators, RUNNING)
                looked_ms = self._clock.now_ms()
                while not stop.is_set() and not feed.is_at_end:
                    if self._forgotten is not None:
                        self._forgotten.follow(cluster, self._sink, self._place)
                    gathered = feed.next()
                    if gathered is not None:
                        self._take(cluster, gathered)
                    elif isinstance(self._sink, RestingSink):
                        self._sink.rest()
                    self._report(coordinators, RUNNING)
                    if self._clock.now_ms() - looked_ms > _LOOK_EVERY_MS:
                        looked_ms = self._clock.now_ms()
                        if until is None:
                            feed.add_partitions()
                self._published = None
                self._report(coordinators, RUNNING if until is None else STOPPED)
            except TopicReplaced as error:
                raise replaced(error, settings.name, self._sink) from error
            finally:
                self._sink.close()

    def _take(self, cluster: Cluster, gathered: Gathered) -> None:
        settings = self._settings
        assert self._place is not None
        place = Place(settings.topic, gathered.offsets, self._place.topic_id)
        records = gathered.records

        def bury(broken: Sequence[BrokenRecord]) -> None:
            self._bury(cluster, broken)

        def reduce(records: Sequence[LogRecord]) -> Sequence[RowChange]:
            changes, broken = self._reduced(records)
            if broken:
                bury(broken)
            return changes

        if not self._sink.every_change and any(found.record.key is None for found in records):
            apply_in_parts(self._sink, records, self._place, place, reduce, bury)
        else:
            if gathered.clears:
                self._take_back(cluster, gathered.offsets)
            apply_or_bury(self._sink, records, self._place, place, reduce, bury, clears=gathered.clears)
        self._place = place
        self.applied_records += len(gathered.records)
        if self._progress is not None:
            self._progress(self.applied_records)

    def _bury(self, cluster: Cluster, broken: Sequence[BrokenRecord]) -> None:
        """Set records aside; they are durable when this returns."""
        settings = self._settings
        letters = [
            Letter(
                settings.topic,
                partition,
                record.offset,
                record.timestamp,
                record.key,
                record.value,
                reason,
                settings.form.value,
                settings.name,
            )
            for partition, record, reason in broken
        ]
        write_letters(cluster, settings.dead_letters_topic, letters)
        self.letters.update(letter.id for letter in letters)
        self._letters.look(cluster)
        _log.warning(
            "dead letters",
            sink=settings.name,
            records=len(letters),
            first=letters[0].place,
            reason=letters[0].reason,
            topic=settings.dead_letters_topic,
        )

    def _take_back(self, cluster: Cluster, offsets: Mapping[int, int]) -> None:
        """The target is emptied, so what records before that would have done to it is of no interest any more."""
        outdated = self._letters.ids_before(offsets)
        if outdated:
            forget_letters(cluster, self._settings.dead_letters_topic, outdated)
            self._letters.look(cluster)
            self.letters -= outdated

    def _reduced(self, records: Sequence[LogRecord]) -> tuple[list[RowChange], list[BrokenRecord]]:
        sink, settings = self._sink, self._settings
        if sink.every_change:
            every = each_change(records, self._form)
            return every.changes, every.broken
        look_up = sink.look_up if isinstance(sink, ReadableSink) and settings.sink not in NEED_KEYS else None
        return reduce_rows(records, self._form, settings.sink, look_up)

    # --- reporting

    def _report(self, coordinators: Coordinators, state: str) -> None:
        """Where it is and how it stands, as often as others need to know."""
        assert self._place is not None
        if not self._is_shown:
            return
        now_ms = self._clock.now_ms()
        if self._published is None or (
            self._published != self._place and now_ms - self._published_ms >= _PUBLISH_EVERY_MS
        ):
            publish(coordinators, self._settings.name, self._place)
            self._published, self._published_ms = self._place, now_ms
        self._write_status(coordinators.cluster, self._status(state))

    def _status(self, state: str, problem: str = "", waiting: str = "") -> Status:
        settings = self._settings
        facts = {
            "source": settings.topic,
            "target": settings.target,
            "dead_letters_topic": settings.dead_letters_topic,
            **self._letters.facts(),
        }
        return Status.of(
            settings.name, settings.sink, state, records=0, per_s=0.0, problem=problem, waiting=waiting, **facts
        )

    def _write_status(self, cluster: Cluster, status: Status) -> None:
        self.status = status
        now_ms = self._clock.now_ms()
        if status != self._written or now_ms - self._written_ms > _LOOK_EVERY_MS:
            with suppress(Refused):  # somebody else's cluster may not let us have a topic for it
                StatusWriter(cluster, DERIVED).write(status)
            self._written, self._written_ms = status, now_ms

    def _report_anew(self, state: str, problem: str, waiting: str = "") -> None:
        """On a connection of its own, because the old one may be what is broken; and if nobody hears it, so be it."""
        self.status = self._status(state, problem, waiting)
        if not self._is_shown:
            return
        with suppress(HeadraceError), self._connect() as cluster:
            self._write_status(cluster, self.status)
            if self._place is not None:
                publish(Coordinators(cluster), self._settings.name, self._place)
            self._published = None


def _ends(cluster: Cluster, topic: str) -> dict[int, int]:
    held = bounds(cluster, cluster.partitions(topic), committed=True)
    return {where.partition: bound.end for where, bound in held.items()}


def _waiting_for(error: HeadraceError) -> str:
    if isinstance(error, UnknownTopic):
        return f"for topic {error.topic}"
    if isinstance(error, SinkUnavailable):
        return f"for {error.what}"
    if isinstance(error, KeyStoreUnavailable):
        return "for the key store"
    return "for the schema registry" if isinstance(error, RegistryUnavailable) else "for the broker"


def _may_pass(error: HeadraceError) -> bool:
    if isinstance(error, ClientError):
        return is_passing(error) or isinstance(error, BrokerUnreachable | RequestTimedOut | UnknownTopic)
    return isinstance(error, SinkUnavailable | RegistryUnavailable | KeyStoreUnavailable)


_TICK_S = 1.0


def connector(bootstrap: str, name: str) -> Callable[[], Cluster]:
    """Makes connections for one sink."""
    addresses = parse_bootstrap(bootstrap)
    return lambda: Cluster(addresses, ConnectionSettings(client_id=f"headrace-sync-{name}"))


def run_all(
    all_settings: Sequence[SyncSettings],
    bootstrap: str,
    stop: threading.Event,
    show: Callable[[Sequence[Status]], None] | None = None,
) -> dict[str, HeadraceError]:
    """Keep all in step until told to stop, or until all have failed; answers what each failed with.

    How they stand is shown every second, and once more at the end.
    """
    # What the settings get wrong is told before anything starts.
    runners = [
        (settings.name, Runner(settings, make_sink(settings, bootstrap), connector(bootstrap, settings.name)))
        for settings in all_settings
    ]
    failures: dict[str, HeadraceError] = {}

    def keep(name: str, runner: Runner) -> None:
        try:
            runner.run(stop)
        except HeadraceError as error:
            failures[name] = error
            _log.error("sink failed", sink=name, error=str(error))
        except Exception as error:  # noqa: BLE001 - a mistake of ours must not look like a clean end
            failures[name] = SinkError(f"unexpected {type(error).__name__}: {error}")
            _log.error("sink failed", sink=name, error=repr(error))

    threads = [
        threading.Thread(target=keep, args=(name, runner), name=f"headrace-sync-{name}") for name, runner in runners
    ]
    for thread in threads:
        thread.start()
    pace = _Pace()
    try:
        while alive := [thread for thread in threads if thread.is_alive()]:
            if show is not None:
                show([pace.of(runner) for _, runner in runners])
            alive[0].join(_TICK_S)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        if show is not None:
            show([pace.of(runner) for _, runner in runners])
    return failures


class _Pace:
    """How many records each has applied, and how many a second since the last look."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, int]] = {}

    def of(self, runner: Runner) -> Status:
        status, now, records = runner.status, time.monotonic(), runner.applied_records
        then, before = self._seen.get(status.name, (now, records))
        self._seen[status.name] = (now, records)
        per_s = (records - before) / (now - then) if now > then else 0.0
        return status.updated(records=records, per_s=round(per_s, 1))
