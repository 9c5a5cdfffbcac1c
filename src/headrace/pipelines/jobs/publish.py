"""Progress for others to see: the topic `__headrace_progress`, and numbers as Prometheus reads them."""

import json
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from headrace.client.cluster import Cluster
from headrace.client.writer import NewRecord
from headrace.pipelines.jobs.progress import Progress
from headrace.status import PIPELINES, PROGRESS, Status, StatusWriter

if TYPE_CHECKING:
    from prometheus_client import Metric

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
    """Writes what others see of jobs: a record for each batch, and the status of each job."""

    def __init__(self, cluster: Cluster) -> None:
        self._progress = StatusWriter(cluster, PROGRESS, _CONFIGS)
        self._statuses = StatusWriter(cluster, PIPELINES)

    def write(self, reports: Iterable[Progress]) -> None:
        now_ms = int(time.time() * 1000)
        records = [NewRecord(one.job.encode(), json.dumps(one.as_json()).encode(), now_ms) for one in reports]
        self._progress.write_records(records)

    def report(self, statuses: Iterable[Status], *, is_last: bool = False) -> None:
        """What is new of how jobs are doing, and every half minute what is not."""
        for status in statuses:
            self._statuses.report(status, is_last=is_last)


class Metrics:
    """The latest reports, in the form that prometheus-client collects."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str, str], dict[str, Any]] = {}

    def show(self, reports: Iterable[Progress]) -> None:
        self._latest = {(report.job, report.output): report.as_json() for report in reports}

    def collect(self) -> Iterator["Metric"]:
        """A family for each number that is known."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        latest = sorted(self._latest.items())
        for field, (name, meaning) in METRICS.items():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(name, meaning, labels=("job", "output"))
            for labels, report in latest:
                if report[field] is not None:
                    family.add_metric(labels, report[field])
            if family.samples:
                yield family


class MetricsServer:
    def __init__(self, port: int) -> None:
        """Port 0 means any that is free."""
        from prometheus_client import CollectorRegistry, start_http_server

        metrics, registry = Metrics(), CollectorRegistry()
        registry.register(metrics)
        self.show = metrics.show
        self._server, self._thread = start_http_server(port, "127.0.0.1", registry)
        self.port = int(self._server.server_port)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
