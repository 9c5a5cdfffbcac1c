"""Captures at work: each in a thread of its own, what they do told every second, orders obeyed."""

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ClientError
from headrace.connect.capture.connector import make_runtime
from headrace.connect.capture.orders import SNAPSHOT, STOP, Order, heard
from headrace.connect.capture.settings import CaptureSettings
from headrace.connect.errors import UnexpectedFailure
from headrace.connect.runtime import Runtime
from headrace.connect.unseen import stopped_sentences
from headrace.errors import HeadraceError
from headrace.status import (
    CAPTURES,
    ENDED,
    FAILED,
    RUNNING,
    STOPPED,
    WAITING,
    Status,
    StatusWriter,
)
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)
_TICK_S = 1.0
_ORDER_WAIT_MS = 500
Show = Callable[[Sequence[Status]], None]


@dataclass(slots=True)
class Capture:
    """One that runs, or has."""

    settings: CaptureSettings
    runtime: Runtime
    thread: threading.Thread | None = None
    error: HeadraceError | None = None
    is_stopped: bool = False
    seen: tuple[float, int] = field(default=(0.0, 0))  # when the records were last counted, and how many there were

    def status(self, now: float) -> Status:
        progress = self.runtime.progress
        then, before = self.seen
        per_s = (progress.records - before) / (now - then) if then and now > then else 0.0
        self.seen = (now, progress.records)
        is_alive = self.thread is not None and self.thread.is_alive()
        if is_alive:
            state = WAITING if progress.is_waiting else RUNNING
        else:
            state = FAILED if self.error else STOPPED if self.is_stopped else ENDED
        facts = self.runtime.facts()
        problem = str(self.error) if self.error else (progress.last_error or "") if state == WAITING else ""
        problem = problem or stopped_sentences(facts)
        return Status.of(
            self.settings.name,
            self.settings.kind.connector,
            state,
            records=progress.records,
            per_s=round(per_s, 1),
            problem=problem,
            position=progress.position,
            waiting=progress.waiting_for if state == WAITING else "",
            **facts,
            database=self.settings.database,
            topics=list(progress.topics),
            **({} if progress.lag_ms is None else {"lag_ms": progress.lag_ms}),
        )

    def stop(self) -> None:
        """End after the batch that is on its way."""
        self.is_stopped = True
        self.runtime.stop()


def run_captures(
    all_settings: Sequence[CaptureSettings], bootstrap: Sequence[Address], stop: threading.Event, show: Show
) -> dict[str, HeadraceError]:
    """Run captures until told to stop, or until all have ended; answers what each failed with."""
    with ExitStack() as stack:
        writer = StatusWriter(stack.enter_context(_cluster(bootstrap, "captures")), CAPTURES)
        captures = {}
        for settings in all_settings:
            own = stack.enter_context(_cluster(bootstrap, settings.name))
            captures[settings.name] = Capture(settings, make_runtime(settings, bootstrap, own))
        for name, capture in captures.items():
            capture.thread = threading.Thread(target=_keep, args=(capture,), name=f"headrace-cdc-{name}")
            capture.thread.start()
        listener = threading.Thread(
            target=_obey, args=(captures, bootstrap, stop), name="headrace-cdc-orders", daemon=True
        )
        listener.start()
        try:
            _watch(list(captures.values()), writer, stop, show)
        finally:
            stop.set()
            for capture in captures.values():
                if capture.thread is not None and capture.thread.is_alive():
                    capture.stop()
            for capture in captures.values():
                assert capture.thread is not None
                capture.thread.join()
            listener.join()
            _tell(list(captures.values()), writer, show, is_last=True)
    return {name: capture.error for name, capture in captures.items() if capture.error is not None}


def _cluster(bootstrap: Sequence[Address], name: str) -> Cluster:
    return Cluster(bootstrap, ConnectionSettings(client_id=f"headrace-cdc-{name}"))


def _keep(capture: Capture) -> None:
    try:
        capture.runtime.run()
    except HeadraceError as error:
        capture.error = error  # told by whoever runs us
    except Exception as error:  # noqa: BLE001 - a defect must not look like a capture that has come to its end
        _log.error("capture failed unexpectedly", capture=capture.settings.name, trace=traceback.format_exc())
        capture.error = UnexpectedFailure(capture.settings.name, error)


def _watch(captures: list[Capture], writer: StatusWriter, stop: threading.Event, show: Show) -> None:
    while not stop.is_set() and any(capture.thread and capture.thread.is_alive() for capture in captures):
        _tell(captures, writer, show)
        stop.wait(_TICK_S)


def _tell(captures: list[Capture], writer: StatusWriter, show: Show, *, is_last: bool = False) -> None:
    """Show all, and write down what is new; a broker that is away hears it later, and the captures tell of it."""
    now = time.monotonic()
    found = [capture.status(now) for capture in captures]
    show(found)
    for status in found:
        try:
            writer.report(status, is_last=is_last)
        except ClientError as error:
            _log.debug("status not written", capture=status.name, error=str(error))


def _obey(captures: dict[str, Capture], bootstrap: Sequence[Address], stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            with _cluster(bootstrap, "orders") as cluster:
                for orders in heard(cluster, _ORDER_WAIT_MS):
                    for order in orders:
                        _do(captures, order)
                    if stop.is_set():
                        return
        except ClientError as error:  # the broker is away; captures wait for it as well, and say so
            _log.debug("orders not heard", error=str(error))
            stop.wait(_TICK_S)


def _do(captures: dict[str, Capture], order: Order) -> None:
    capture = captures.get(order.capture)
    if capture is None:
        return
    if order.do == STOP:
        capture.stop()
    elif order.do == SNAPSHOT:
        try:
            capture.settings.kind.read_anew(capture.settings.source, order.tables)
        except HeadraceError as error:
            _log.warning("snapshot not begun", capture=order.capture, error=str(error))
