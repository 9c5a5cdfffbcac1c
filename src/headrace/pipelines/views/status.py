"""What a view reports of itself while it runs, for the dashboard (`headrace.status`).

A thread of its own reports, so that a broker that is away holds up no batch. It reports each view after a batch, but
not more often than every second, and every half minute besides, until the view's query has ended.
"""

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import PATIENT, Cluster
from headrace.client.errors import ClientError
from headrace.client.security import settings_from
from headrace.model import TopicPartition
from headrace.pipelines.jobs.status import lag_of
from headrace.status import EVERY_S, RUNNING, STOPPED, VIEWS, Status, StatusWriter
from headrace.stores.views.store import Freshness, instant

if TYPE_CHECKING:
    from headrace.pipelines.views.sink import ViewSink
    from headrace.stores.views.store import Origin

_SOON_S = 1.0
_ONCE = PATIENT.at_most(1)


def status_of(name: str, kind: str, sources: tuple[str, ...], freshness: Freshness) -> Status:
    """The status of a view that runs, but for its lag."""
    watermark = freshness.standing.watermark_ms
    return Status.of(
        name,
        kind,
        RUNNING,
        rows=freshness.rows,
        source=", ".join(sources),
        written_ms=freshness.written_ms,
        batch=freshness.batch,
        watermark=None if watermark is None else instant(watermark),
    )


def with_lag(cluster: Cluster, freshness: Freshness) -> dict[str, Any]:
    named = {TopicPartition.from_folder(name): offset for name, offset in freshness.standing.offsets.items()}
    offsets = {where: offset for where, offset in named.items() if where is not None}
    if not offsets:
        return {}
    lag = lag_of(cluster, offsets, int(time.time() * 1000))
    return {"lag_records": lag.records, "lag_ms": lag.time_ms}


@dataclass
class _Reported:
    sink: "ViewSink"
    freshness: Freshness
    origin: "Origin"
    at: float = 0.0  # when it was last reported
    is_new: bool = True


class _Reporter(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="headrace-view-status", daemon=True)
        self._views: dict[str, _Reported] = {}
        self._lock = threading.Lock()

    def take(self, sink: "ViewSink", freshness: Freshness, origin: "Origin") -> None:
        with self._lock:
            before = self._views.get(sink.name)
            self._views[sink.name] = _Reported(sink, freshness, origin, before.at if before else 0.0)

    def run(self) -> None:
        while True:
            time.sleep(_SOON_S)
            now = time.monotonic()
            with self._lock:
                known = list(self._views.values())
            for view in known:
                running = view.origin.is_running()
                if view.is_new or not running or now - view.at >= EVERY_S:
                    self._report(view, running=running)
                    view.at, view.is_new = now, False
                if not running:
                    with self._lock:
                        if self._views.get(view.sink.name) is view:
                            del self._views[view.sink.name]

    def _report(self, view: _Reported, *, running: bool) -> None:
        origin = view.origin
        assert origin.bootstrap is not None
        status = status_of(view.sink.name, view.sink.store.kind, view.sink.sources, view.freshness)
        try:
            settings = settings_from(origin.connection)
            with Cluster(parse_bootstrap(origin.bootstrap), settings, retry=_ONCE) as cluster:
                status = status.updated(**with_lag(cluster, view.freshness), state=RUNNING if running else STOPPED)
                StatusWriter(cluster, VIEWS).write(status)
        except ClientError:
            return  # the view itself goes on, or says what is wrong with the broker


_reporter: _Reporter | None = None
_starting = threading.Lock()


def report(sink: "ViewSink", freshness: Freshness, origin: "Origin") -> None:
    """Report a batch that was written, soon."""
    global _reporter
    if origin.bootstrap is None:
        return
    with _starting:
        if _reporter is None:
            _reporter = _Reporter()
            _reporter.start()
    _reporter.take(sink, freshness, origin)
