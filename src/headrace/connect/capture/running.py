"""Captures put together and at work: each in a thread of its own, its status written every second, orders obeyed."""

import json
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.client.address import Address
from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ClientError
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.connect.avro.places import schemas_at
from headrace.connect.capture.settings import CaptureSettings
from headrace.connect.delivery import Delivery
from headrace.connect.envelope import AVRO, EnvelopeSettings, EnvelopeWriter
from headrace.connect.errors import SourceRefused, UnexpectedFailure
from headrace.connect.runtime import Runtime
from headrace.connect.source import Source
from headrace.connect.unseen import stopped_sentences
from headrace.errors import HeadraceError
from headrace.retry import Backoff
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
from headrace.version import version


def make_runtime(
    settings: CaptureSettings, bootstrap: Sequence[Address], cluster: Cluster, *, backoff: Backoff | None = None
) -> Runtime:
    """What runs a capture; `cluster` is for what a source keeps in topics of its own, and stays the caller's."""

    def writer_of(source: Source) -> EnvelopeWriter:
        opened: Any = source  # every source knows its database's name once it is open
        return make_writer(settings, opened.database, cluster)

    return Runtime(
        settings.name,
        lambda: settings.kind.make(settings.source, cluster, settings.name),
        writer_of,
        bootstrap,
        topics=settings.topics,
        backoff=backoff or Backoff(),
    )


def make_writer(settings: CaptureSettings, database: str, cluster: Cluster) -> EnvelopeWriter:
    """What writes the records of a capture."""
    schema_ids = None
    if settings.writing.get("format") == AVRO:
        schema_ids = schemas_at(settings.registry, lambda: cluster).register
    return EnvelopeWriter(_envelope(settings, database), settings.filters, schema_ids)


def _envelope(settings: CaptureSettings, database: str) -> EnvelopeSettings:
    return EnvelopeSettings(
        connector=settings.kind.connector,
        database=database,
        version=version(),
        names=settings.names,
        **settings.writing,
    )


TOPIC: Final = "__headrace_connect_orders"
STOP, SNAPSHOT = "stop", "snapshot"


@dataclass(frozen=True, slots=True)
class Order:
    """One order; `tables` for a snapshot."""

    capture: str
    do: str
    tables: tuple[str, ...] = ()


def give(cluster: Cluster, order: Order) -> None:
    """Write an order down."""
    _ensure(cluster)
    value = json.dumps({"do": order.do, "tables": list(order.tables)}).encode()
    writer = Writer(cluster, TOPIC)
    writer.add(NewRecord(order.capture.encode(), value, time.time_ns() // 1_000_000))
    writer.flush()


def heard(cluster: Cluster, wait_ms: int) -> Iterator[list[Order]]:
    """Orders from now on, as they come; an empty list each time that a wait ends without one."""
    _ensure(cluster)
    held = bounds(cluster, cluster.partitions(TOPIC))
    starts = {where: bound.end for where, bound in held.items()}
    for records in read_records(cluster, starts, options=FetchOptions(max_wait_ms=wait_ms)):
        yield [order for _, record in records if (order := _read(record.key, record.value)) is not None]


def _read(key: bytes | None, value: bytes | None) -> Order | None:
    try:
        order = json.loads(value or b"")
        return Order((key or b"").decode(), str(order["do"]), tuple(map(str, order.get("tables", ()))))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # written by somebody else


def _ensure(cluster: Cluster) -> None:
    ensure_topic(cluster, TOPIC, partitions=1, configs={"retention.ms": str(24 * 3600 * 1000)})


def rebuild(settings: CaptureSettings, cluster: Cluster) -> str:
    """Write the history down again, and the position that goes with it, for a capture that does not run; the GTID.

    Whoever runs under the same name is fenced: a position must not be written from two places.
    """
    if settings.kind.connector != "mysql":
        raise SourceRefused(f"capture {settings.name!r} keeps no history: only those of MariaDB and MySQL need one")
    from headrace.connect.mysql.history import TopicHistory, rebuild_history

    delivery = Delivery(cluster, settings.name, settings.topics)
    position = delivery.begin()
    if position is None:
        raise SourceRefused(f"capture {settings.name!r} has no position yet, and so no history", "headrace cdc start")
    made = rebuild_history(settings.source, TopicHistory(cluster, settings.name), position)
    delivery.deliver([], made, time.time_ns() // 1_000_000)
    return str(made["gtid"])


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
            _report(list(captures.values()), writer, show, is_last=True)
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
        _report(captures, writer, show)
        stop.wait(_TICK_S)


def _report(captures: list[Capture], writer: StatusWriter, show: Show, *, is_last: bool = False) -> None:
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
