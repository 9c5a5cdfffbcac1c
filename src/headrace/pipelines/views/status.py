"""What a view tells of itself while it runs: the topic `__headrace_view_status`, for the dashboard.

A thread of its own tells, so that a broker that is away holds up no batch. It tells of each view after a batch, but not
more often than every second, and every half minute besides, until the view's query has ended.
"""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.client.address import parse_bootstrap
from headrace.client.admin import ensure_topic
from headrace.client.cluster import PATIENT, Cluster
from headrace.client.errors import ClientError
from headrace.client.security import settings_from
from headrace.client.writer import NewRecord, Writer
from headrace.model import TopicPartition
from headrace.pipelines.jobs.lag import lag_of
from headrace.status import VIEWS
from headrace.stores.views.freshness import Freshness, instant

if TYPE_CHECKING:
    from headrace.pipelines.views.sink import ViewSink
    from headrace.stores.views.freshness import Origin

_CONFIGS = {"cleanup.policy": "compact"}
_SOON_S, _ALWAYS_S = 1.0, 30.0
_ONCE = PATIENT.at_most(1)


def facts(kind: str, sources: tuple[str, ...], freshness: Freshness) -> dict[str, Any]:
    """What a view tells besides its lag."""
    watermark = freshness.standing.watermark_ms
    return {
        "kind": kind,
        "state": "running",
        "rows": freshness.rows,
        "source": ", ".join(sources),
        "updated_ms": freshness.written_ms,
        "batch": freshness.batch,
        "watermark": None if watermark is None else instant(watermark),
    }


def publish(cluster: Cluster, name: str, told: Mapping[str, Any] | None) -> None:
    """Write a record under the view's name; nothing takes back what was told."""
    ensure_topic(cluster, VIEWS, configs=_CONFIGS)
    writer = Writer(cluster, VIEWS)
    writer.add(
        NewRecord(name.encode(), None if told is None else json.dumps(told).encode(), timestamp=int(time.time() * 1000))
    )
    writer.flush()


def with_lag(cluster: Cluster, freshness: Freshness) -> dict[str, Any]:
    """How far a view is behind its inputs."""
    named = {TopicPartition.from_folder(name): offset for name, offset in freshness.standing.offsets.items()}
    offsets = {where: offset for where, offset in named.items() if where is not None}
    if not offsets:
        return {}
    lag = lag_of(cluster, offsets, int(time.time() * 1000))
    return {"lag_records": lag.records, "lag_ms": lag.time_ms}


@dataclass
class _Told:
    sink: "ViewSink"
    freshness: Freshness
    origin: "Origin"
    at: float = 0.0  # when it was last told of
    is_new: bool = True


class _Teller(threading.Thread):
    """Tells of all views of this process."""

    def __init__(self) -> None:
        super().__init__(name="headrace-view-status", daemon=True)
        self._views: dict[str, _Told] = {}
        self._lock = threading.Lock()

    def take(self, sink: "ViewSink", freshness: Freshness, origin: "Origin") -> None:
        with self._lock:
            before = self._views.get(sink.name)
            self._views[sink.name] = _Told(sink, freshness, origin, before.at if before else 0.0)

    def run(self) -> None:
        while True:
            time.sleep(_SOON_S)
            now = time.monotonic()
            with self._lock:
                known = list(self._views.values())
            for view in known:
                running = view.origin.is_running()
                if view.is_new or not running or now - view.at >= _ALWAYS_S:
                    self._tell(view, running=running)
                    view.at, view.is_new = now, False
                if not running:
                    with self._lock:
                        if self._views.get(view.sink.name) is view:
                            del self._views[view.sink.name]

    def _tell(self, view: _Told, *, running: bool) -> None:
        origin = view.origin
        assert origin.bootstrap is not None
        told = facts(view.sink.store.kind, view.sink.sources, view.freshness)
        try:
            settings = settings_from(origin.connection)
            with Cluster(parse_bootstrap(origin.bootstrap), settings, retry=_ONCE) as cluster:
                told |= with_lag(cluster, view.freshness)
                publish(cluster, view.sink.name, told | ({} if running else {"state": "stopped"}))
        except ClientError:
            return  # the view itself goes on, or says what is wrong with the broker


_teller: _Teller | None = None
_starting = threading.Lock()


def told(sink: "ViewSink", freshness: Freshness, origin: "Origin") -> None:
    """Tell of a batch that was written, soon."""
    global _teller
    if origin.bootstrap is None:
        return
    with _starting:
        if _teller is None:
            _teller = _Teller()
            _teller.start()
    _teller.take(sink, freshness, origin)
