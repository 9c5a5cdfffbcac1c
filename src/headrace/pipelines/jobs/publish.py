"""Progress for others to see: the topic `__headrace_progress`, and numbers as Prometheus reads them."""

import json
import threading
import time
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.writer import NewRecord, Writer
from headrace.pipelines.jobs.progress import Progress

TOPIC = "__headrace_progress"
_CONFIGS = {"cleanup.policy": "delete", "retention.ms": str(7 * 86_400_000)}
METRICS = {
    "rows": ("headrace_pipeline_batch_rows", "rows of the last batch"),
    "input_rate": ("headrace_pipeline_input_rows_per_second", "rows that came in each second"),
    "processing_rate": ("headrace_pipeline_processed_rows_per_second", "rows that were processed each second"),
    "batch": ("headrace_pipeline_batch_id", "the last batch"),
    "batch_ms": ("headrace_pipeline_batch_milliseconds", "how long the last batch took"),
    "state_rows": ("headrace_pipeline_state_rows", "rows kept between batches"),
    "state_bytes": ("headrace_pipeline_state_bytes", "memory of what is kept between batches"),
    "late_rows_total": ("headrace_pipeline_late_rows_total", "rows that came after their window was closed"),
    "dead_letters": ("headrace_pipeline_dead_letters", "records that could not be decoded, and are set aside"),
    "lag_records": ("headrace_pipeline_lag_records", "records that wait to be read"),
    "lag_ms": ("headrace_pipeline_lag_milliseconds", "how long the next record has waited"),
}


class ProgressTopic:
    """Writes reports; a broker that is away is no reason to stop a job."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._writer: Writer | None = None

    def write(self, reports: Iterable[Progress]) -> None:
        """A record for each report, under the job's name."""
        if self._writer is None:
            ensure_topic(self._cluster, TOPIC, configs=_CONFIGS)
            self._writer = Writer(self._cluster, TOPIC)
        for report in reports:
            self._writer.add(
                NewRecord(report.job.encode(), json.dumps(report.as_json()).encode(), timestamp=int(time.time() * 1000))
            )
        self._writer.flush()


def exposition(reports: Iterable[Progress]) -> str:
    """The latest reports in Prometheus' text format."""
    latest = {(report.job, report.output): report.as_json() for report in reports}
    lines: list[str] = []
    for field, (name, meaning) in METRICS.items():
        values = [
            f'{name}{{job="{job}",output="{output}"}} {found[field]}'
            for (job, output), found in sorted(latest.items())
            if found[field] is not None
        ]
        if values:
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *values]
    return "\n".join(lines) + "\n" if lines else ""


class MetricsServer:
    """Serves `/metrics` on loopback."""

    def __init__(self, port: int) -> None:
        self._text = b""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = outer._text if self.path == "/metrics" else b""
                self.send_response(200 if self.path == "/metrics" else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nobody wants a line for each scrape."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True, name="headrace-metrics").start()

    def show(self, reports: Iterable[Progress]) -> None:
        """Serve these from now on."""
        self._text = exposition(reports).encode()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
