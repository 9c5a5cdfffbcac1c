"""The projections and processes that a section `[events.NAME]` names, at work: each in a thread, its status reported.

    [events.bank]
    url = "sqlite:///bank.db"
    projections = ["bank:statements"]      # statements of bank.py, beside the file
    processes = ["bank:transfers"]

A store that is away is waited for. One that fails is reported as failed, and the others go on.
"""

import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ClientError
from headrace.connect.errors import UnexpectedFailure
from headrace.errors import HeadraceError
from headrace.eventsourcing.aggregate import Aggregate
from headrace.eventsourcing.background import RETRY
from headrace.eventsourcing.errors import EventSourcingError, StoreUnavailable
from headrace.eventsourcing.flow import check_section
from headrace.eventsourcing.opening import open_store
from headrace.eventsourcing.process import Process
from headrace.eventsourcing.process_runner import ProcessRunner
from headrace.eventsourcing.projection import Projection
from headrace.eventsourcing.projection_runner import ProjectionRunner
from headrace.eventsourcing.store import EventStore
from headrace.extras import import_named
from headrace.status import EVENTS, FAILED, STOPPED, WAITING, Status, StatusWriter
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)
_TICK_S: Final = 1.0
_KINDS: Final[Mapping[str, type]] = {"projection": Projection, "process": Process, "aggregate": Aggregate}
Show = Callable[[Sequence[Status]], None]


class Runner(Protocol):
    """What keeps a projection or a process going."""

    def run(self) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...
    def status(self) -> Status: ...


@dataclass(frozen=True, slots=True)
class FollowerSettings:
    """One projection or process of a store."""

    store: str  # the section's name
    url: str = field(repr=False)  # it may hold a password
    kind: str
    target: str  # MODULE:NAME
    views: str | None = field(default=None, repr=False)
    on_change: Any = "fail"

    def make(self, store: EventStore, target: Any) -> Runner:
        if self.kind == "process":
            return ProcessRunner(store, target)
        return ProjectionRunner(store, target, views=self.views, on_change=self.on_change)


def followers_of(name: str, section: Mapping[str, Any]) -> list[FollowerSettings]:
    """What a section has follow its events; raises before anything is done."""
    given = check_section(name, section)
    views, on_change = given.get("views"), given.get("on_change", "fail")
    return [
        FollowerSettings(name, given["url"], kind, target, views, on_change)
        for kind, key in (("projection", "projections"), ("process", "processes"))
        for target in given.get(key, ())
    ]


def load(kind: str, target: str) -> Any:
    """A user's projection, process or aggregate by MODULE:NAME; its module is imported."""
    return import_named(target, kind, lambda one: isinstance(one, _KINDS[kind]))


class Follower:
    """One that runs, or has."""

    def __init__(self, settings: FollowerSettings) -> None:
        self._settings = settings
        self._target = load(settings.kind, settings.target)
        self.name = f"{settings.store}.{self._target.name}"
        self.error: HeadraceError | None = None
        self._waiting = ""
        self._runner: Runner | None = None
        self._stopping = threading.Event()
        self._seen = (0.0, 0.0)  # when the position was last looked at, and what it was
        self._thread = threading.Thread(target=self._keep, name=f"headrace-{self.name}")

    def start(self) -> None:
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def _keep(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                self._run()
            except StoreUnavailable as error:  # before it ran; a runner waits by itself
                failures += 1
                self._waiting = str(error)
                self._stopping.wait(RETRY.pause_s(failures))
            except HeadraceError as error:
                self.error = error
                return
            except Exception as error:  # noqa: BLE001 - of the user's code, or a defect: it must not look alive
                _log.error("it failed unexpectedly", follower=self.name, trace=traceback.format_exc())
                self.error = UnexpectedFailure(self.name, error)
                return

    def _run(self) -> None:
        store = open_store(self._settings.url)
        try:
            runner = self._settings.make(store, self._target)
            try:
                self._runner, self._waiting = runner, ""
                runner.run()
            finally:
                self._runner = None
                runner.close()
        finally:
            store.close()

    def stop(self) -> None:
        """Have it end, and wait for that."""
        self._stopping.set()
        while self._thread.is_alive():
            if (runner := self._runner) is not None:
                runner.stop()
            self._thread.join(0.1)

    def status(self) -> Status:
        """As others read it; of a store that is away, that it is waited for."""
        runner, facts = self._runner, {"source": self._settings.store}
        if self.error is not None or not self.is_running:
            state = FAILED if self.error else STOPPED
            return Status.of(self.name, self._settings.kind, state, problem=str(self.error or ""), **facts)
        try:
            if runner is not None:
                found = replace(runner.status(), name=self.name)
                return found.updated(per_s=self._rate(found.number("position") or 0.0), **facts)
        except EventSourcingError as error:
            self._waiting = str(error)
        return Status.of(
            self.name, self._settings.kind, WAITING, waiting="for the store", problem=self._waiting, per_s=0.0, **facts
        )

    def _rate(self, position: float) -> float:
        (then, before), now = self._seen, time.monotonic()
        self._seen = (now, position)
        return round(max(position - before, 0.0) / (now - then), 1) if then and now > then else 0.0


def run_followers(
    all_settings: Sequence[FollowerSettings], bootstrap: Sequence[Address], stop: threading.Event, show: Show
) -> dict[str, HeadraceError]:
    """Run projections and processes until told to stop, or until all have failed; answers what each failed with."""
    followers = [Follower(settings) for settings in all_settings]  # all code is there before anything starts
    with Cluster(bootstrap, ConnectionSettings(client_id="headrace-events")) as cluster:
        writer = StatusWriter(cluster, EVENTS)
        for follower in followers:
            follower.start()
        try:
            while not stop.wait(_TICK_S) and any(follower.is_running for follower in followers):
                _report(followers, writer, show)
        finally:
            for follower in followers:
                follower.stop()
            _report(followers, writer, show, is_last=True)
    return {follower.name: follower.error for follower in followers if follower.error is not None}


def _report(followers: Sequence[Follower], writer: StatusWriter, show: Show, *, is_last: bool = False) -> None:
    found = [follower.status() for follower in followers]
    show(found)
    for status in found:
        with suppress(ClientError):  # the broker is away: the events are not there, and go on
            writer.report(status, is_last=is_last)


def _main() -> None:
    """Whether code can be loaded: `headrace up --check` asks in a process of its own, for it runs user code."""
    try:
        for kind, target in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
            load(kind, target)
    except HeadraceError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    _main()
