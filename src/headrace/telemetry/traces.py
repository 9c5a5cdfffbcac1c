"""Spans of requests for OpenTelemetry: those that took long, and a share of the others. Needs `headrace[otel]`.

A span is made after the fact, of the times that are measured anyway, and handed to OpenTelemetry's own exporter, which
sends it from a thread. What always holds: whoever does not ask for traces imports and pays nothing; no more than
`MOST_A_SECOND` spans are made; and a collector that is away holds nothing up, neither requests nor the end of the
process.
"""

import random
import threading
import time
from typing import Final

from headrace import extras

MOST_A_SECOND: Final = 100
_CHANCE: Final = random.SystemRandom()  # a program that seeds `random` keeps its own; forks differ
_END_WITHIN_S: Final = 2.0
_EXPORT_WITHIN_S: Final = 5


class RequestTraces:
    def __init__(self, endpoint: str, *, service: str, instance: str, slow_s: float, share: float) -> None:
        """Send to an OTLP collector over HTTP; `share` is of the requests that are not slow."""
        extras.load("opentelemetry.sdk", "otel.traces.endpoint")
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = Resource.create({"service.name": service, "service.instance.id": instance})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=_EXPORT_WITHIN_S)))
        self._tracer = self._provider.get_tracer("headrace")
        self._slow_s = slow_s
        self._share = share
        self._second = 0
        self._made = 0  # in that second

    def request(
        self, name: str, received_s: float, began_s: float, handled_s: float, now_s: float, *, waits: bool
    ) -> None:
        """A request was answered; `waits` says that it may wait for as long as it likes, which is not slow."""
        took_s = (handled_s if waits else now_s) - received_s
        if took_s < self._slow_s and not _CHANCE.random() < self._share:
            return
        second = int(now_s)
        if second != self._second:
            self._second, self._made = second, 0
        self._made += 1
        if self._made > MOST_A_SECOND:
            return
        offset_s = time.time() - time.monotonic()
        span = self._tracer.start_span(
            name,
            start_time=int((received_s + offset_s) * 1e9),
            attributes={
                "headrace.queue_seconds": began_s - received_s,
                "headrace.local_seconds": handled_s - began_s,
                "headrace.wait_seconds": now_s - handled_s,
            },
        )
        span.end(int((now_s + offset_s) * 1e9))

    def close(self) -> None:
        """Send what is left, if that is possible in a moment."""
        sending = threading.Thread(target=self._provider.shutdown, name="headrace-traces", daemon=True)
        sending.start()
        sending.join(_END_WITHIN_S)
