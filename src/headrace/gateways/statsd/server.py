"""A StatsD gateway at work: packets in, and after each interval records out.

What always holds: packets are taken while an interval is written; the counts of what was dropped, by the kernel and by
us, are part of what is told; and a gateway that ends writes the interval that it is in.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from headrace.connect.delivery import Entry
from headrace.extras import look_for
from headrace.gateways.bad_input import BadInput
from headrace.gateways.gateway import Progress
from headrace.gateways.inlet import Inlet
from headrace.gateways.inward import count_unwritten
from headrace.gateways.statsd.aggregation import Aggregator, Summary
from headrace.gateways.statsd.packets import drops_of, open_udp, open_unix
from headrace.gateways.statsd.parse import Event, Kind
from headrace.gateways.statsd.plain import PlainAggregator
from headrace.gateways.statsd.prometheus import Board
from headrace.gateways.statsd.receiving import packet_intake
from headrace.gateways.statsd.records import SummaryForm, check_entry, event_entry
from headrace.gateways.statsd.settings import StatsdSettings
from headrace.gateways.statsd.streams import StreamIntake
from headrace.gateways.writing import Lot

_TICK_S: Final = 0.2  # events and checks do not wait for the interval
_LOT: Final = 2_000  # records
_CLOSE_S: Final = 1.5
Show = Callable[[list[Summary]], None]


class StatsdGateway:
    """Listens, adds up, writes."""

    def __init__(self, settings: StatsdSettings, inlet: Inlet, stopping: threading.Event) -> None:
        self.settings = settings
        self.progress: Progress = inlet.progress
        self.is_listening = False
        self.metrics_url = ""
        self.kernel_drops = 0
        self.intervals = 0
        self._inlet = inlet
        self._stopping = stopping
        self._ending = threading.Event()  # also when a thread of ours failed
        self._failure: BaseException | None = None
        self._lock = threading.Lock()  # whoever holds it may use the aggregator
        self._aggregator = _aggregator(settings)
        self._form = SummaryForm()
        self._bad = BadInput(settings.name, self.progress)
        self._told = _Told()
        self._told_own: dict[str, int] = {}
        self._sources = [f"udp://{settings.host}:{settings.port}"] if settings.udp else []  # as asked, until it listens
        self._packet_sockets: list[socket.socket] = []
        self._drops: list[int] = []

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def source(self) -> str:
        return ", ".join(self._sources)

    @property
    def target(self) -> str:
        return self.settings.topic

    def run(self) -> None:
        """Until it is told to stop; raises what waiting does not mend."""
        self.progress.waiting = "for its loops to be compiled"
        self._aggregator.warm_up()
        self.progress.waiting = ""
        with contextlib.ExitStack() as stack:
            threads = self._listen(stack)
            self._inlet.start()
            stack.callback(self._inlet.close, _CLOSE_S)
            show = self._serve_metrics(stack)
            for thread in threads:
                thread.start()
            stack.callback(self._join, threads)
            self.is_listening = True
            self._go_on(show, threads)
        if self._failure is not None:
            raise self._failure

    def _go_on(self, show: Show, threads: Sequence[threading.Thread]) -> None:
        interval_s = self.settings.interval_s
        began = time.monotonic()
        due = began + interval_s
        while not self._ending.is_set():
            self._stopping.wait(min(_TICK_S, max(due - time.monotonic(), 0)))
            is_over = self._stopping.is_set()
            if is_over:
                self._join(threads)  # what was sent by now is of the last interval
            self._look()
            now = time.monotonic()
            if now < due and not is_over:
                continue
            # Rates are of whole intervals, as the clock that woke us is never quite on time; the last one may be short.
            seconds = now - began if is_over else max(1, round((now - began) / interval_s)) * interval_s
            end_ms = _now_ms()
            # As long as it was, whatever became of the clock on the wall meanwhile.
            self._flush(max(seconds, 0.001), end_ms - round((now - began) * 1000), end_ms, show)
            began = now
            while due <= time.monotonic():
                due += interval_s

    # --- in

    def _listen(self, stack: contextlib.ExitStack) -> list[threading.Thread]:
        asked = self.settings
        intakes: list[tuple[str, Callable[[threading.Event], None]]] = []
        sources: list[str] = []
        if asked.udp:
            for number, bound in enumerate(open_udp(asked.host, asked.port, asked.receivers, asked.receive_buffer)):
                self._packet_sockets.append(stack.enter_context(bound))
                intakes.append((f"udp-{number}", packet_intake(bound, self._aggregator, self._lock, naps=True)))
            host = f"[{asked.host}]" if ":" in asked.host else asked.host
            sources.append(f"udp://{host}:{self._packet_sockets[0].getsockname()[1]}")
        if asked.unix:
            sources.append(f"unix:{asked.unix}")
            bound = stack.enter_context(open_unix(asked.unix, asked.unix_mode, asked.receive_buffer))
            stack.callback(_remove, asked.unix)
            self._packet_sockets.append(bound)
            intakes.append(("unix", packet_intake(bound, self._aggregator, self._lock, naps=False)))
        if asked.streams is not None:
            line_bytes = asked.aggregating.dialect.line_bytes
            streams = StreamIntake(asked.streams, line_bytes, self._bad, self._feed, self._refuse)
            stack.callback(streams.release)
            sources += streams.sources
            intakes.append(("streams", streams.run))
        self._sources = sources
        self._drops = [0] * len(self._packet_sockets)
        return [
            threading.Thread(target=self._guarded, args=(intake,), name=f"headrace-statsd-{word}", daemon=True)
            for word, intake in intakes
        ]

    def _guarded(self, intake: Callable[[threading.Event], None]) -> None:
        try:
            intake(self._ending)
        except BaseException as error:  # noqa: BLE001 - it is raised where the gateway runs
            self._failure = self._failure or error
            self._ending.set()

    def _join(self, threads: Sequence[threading.Thread]) -> None:
        self._ending.set()
        for thread in threads:
            thread.join()

    def _feed(self, packet: bytes) -> None:
        with self._lock:
            self._aggregator.feed(packet)

    def _refuse(self, why: str, count: int) -> None:
        with self._lock:
            self._aggregator.counts.bad += count
            self._aggregator.counts.last_bad = why

    # --- out

    def _look(self) -> None:
        """What does not wait for the end of the interval."""
        with self._lock:
            happened = self._aggregator.fetch_happened()
        now_ms = _now_ms()
        events = [event_entry(one, now_ms) for one in happened if isinstance(one, Event)]
        checks = [check_entry(one, now_ms) for one in happened if not isinstance(one, Event)]
        self._put(self.settings.events_topic, events)
        self._put(self.settings.checks_topic, checks)
        self._count()

    def _count(self) -> None:
        for number, bound in enumerate(self._packet_sockets):
            drops = drops_of(bound)
            new = (drops - self._drops[number]) & 0xFFFFFFFF
            self._drops[number] = drops
            self.kernel_drops += new
            self.progress.dropped += new
        counts, told = self._aggregator.counts, self._told
        self.progress.received = counts.lines
        if bad := counts.bad - told.bad:
            self._bad.refuse(counts.last_bad, count=bad)
        if refused := counts.refused - told.refused:
            most = self.settings.aggregating.series
            self._bad.refuse(f"there are {most} series already: raise max_series, or send fewer", count=refused)
        self.progress.dropped += counts.missed - told.missed
        self._told = _Told(counts.bad, counts.refused, counts.missed)
        self.progress.more |= {
            "packets": counts.packets,
            "packet_bytes": counts.bytes,
            "bad_lines": counts.bad,
            "series": len(self._aggregator.registry),
            "series_refused": counts.refused,
            "kernel_drops": self.kernel_drops,
            "intervals": self.intervals,
        }

    def _flush(self, seconds: float, start_ms: int, end_ms: int, show: Show) -> None:
        with self._lock:
            self._add_own()
            cut = self._aggregator.cut()
        summaries = self._aggregator.summaries(cut, seconds)
        show(summaries)
        for at in range(0, len(summaries), _LOT):
            self._put(self.settings.topic, self._form.entries(summaries[at : at + _LOT], start_ms, end_ms))
        self.intervals += 1
        self._count()

    def _add_own(self) -> None:
        """The gateway's own metrics, the first three of which the reference daemon has too."""
        prefix = self.settings.internal
        if not prefix:
            return
        counts = self._aggregator.counts
        now = {
            "packets_received": counts.packets, "metrics_received": counts.lines, "bad_lines_seen": counts.bad,
            "series_refused": counts.refused, "kernel_drops": self.kernel_drops,
            "records_dropped": self.progress.dropped - self.kernel_drops,
        }  # fmt: skip
        for name, value in now.items():
            self._aggregator.add(Kind.COUNTER, f"{prefix}.{name}", value - self._told_own.get(name, 0))
        self._told_own = now
        self._aggregator.add(Kind.GAUGE, f"{prefix}.series", len(self._aggregator.registry))

    def _put(self, topic: str, entries: list[Entry]) -> None:
        """Hand records over; while the policy is to wait and there is no room, the interval becomes longer."""
        while entries:
            future = self._inlet.offer(Lot(topic, entries))
            if future is not None:
                count_unwritten(future, len(entries), self.progress)
                return
            self._count()
            if self._stopping.wait(_TICK_S):
                self.progress.dropped += len(entries)
                return

    def _serve_metrics(self, stack: contextlib.ExitStack) -> Show:
        """Answer Prometheus, if it is asked for; what takes in each interval's results."""
        if self.settings.metrics_port is None:
            return lambda _: None
        from headrace.gateways.statsd.exposition import serve_metrics

        aggregator = self._aggregator
        board = Board(self.settings.aggregating.rules)

        def render() -> str:
            return board.render(aggregator.counts, self.kernel_drops, len(aggregator.registry))

        self.metrics_url = stack.enter_context(serve_metrics(self.settings, render))
        return lambda summaries: board.show(summaries, list(aggregator.registry.series))


class _Told(NamedTuple):
    """Up to where counts were taken over into what all gateways tell."""

    bad: int = 0
    refused: int = 0
    missed: int = 0


def _aggregator(settings: StatsdSettings) -> Aggregator:
    """The compiled one where Numba is installed. Hashes begin with a number that nobody can know."""
    seed = int.from_bytes(os.urandom(8), "little")
    if look_for("numba", "") or look_for("numpy", ""):
        return PlainAggregator(settings.aggregating, seed=seed)
    from headrace.gateways.statsd.columnar import ColumnarAggregator

    return ColumnarAggregator(settings.aggregating, seed=seed)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
