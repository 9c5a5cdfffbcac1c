"""Several sinks at once, each in a thread of its own: one that fails or waits holds up no other."""

import threading
import time
from collections.abc import Callable, Sequence

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.connect.sync.registry import make_sink
from headrace.connect.sync.runner import Runner
from headrace.connect.sync.settings import SyncSettings
from headrace.errors import HeadraceError
from headrace.status import Status
from headrace.stores.errors import SinkError
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)
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
