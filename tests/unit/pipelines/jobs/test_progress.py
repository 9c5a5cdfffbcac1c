import json
from typing import Any

from headrace.model import TopicPartition
from headrace.pipelines.jobs.progress import read
from headrace.pipelines.jobs.publish import MetricsServer

REPORT: dict[str, Any] = {
    "batchId": 7,
    "timestamp": "2026-01-01T00:00:00.000Z",
    "numInputRows": 300,
    "inputRowsPerSecond": 100.5,
    "processedRowsPerSecond": float("nan"),
    "durationMs": {"triggerExecution": 120},
    "eventTime": {"watermark": "2025-12-31T23:59:00.000Z"},
    "stateOperators": [{"numRowsTotal": 5, "memoryUsedBytes": 1000, "numRowsDroppedByWatermark": 2}],
    "sources": [{"endOffset": {"t": {"0": 10, "1": 20}}, "latestOffset": {"t": {"0": 15, "1": 20, "2": 3}}}],
}


def test_what_a_report_says() -> None:
    found = read("sums", "out", ("rows",), REPORT, late_before=40)
    assert (found.batch, found.rows, found.input_rate, found.processing_rate, found.batch_ms) == (
        7,
        300,
        100.5,
        0.0,
        120,
    )
    assert (found.state_rows, found.state_bytes, found.late_rows, found.late_rows_total) == (5, 1000, 2, 42)
    assert found.watermark == "2025-12-31T23:59:00.000Z"
    assert found.lag_records == 5 + 3  # a partition that is new waits from its start
    assert found.sources[0].name == "rows"
    assert found.sources[0].end == {TopicPartition("t", 0): 10, TopicPartition("t", 1): 20}


def test_offsets_may_come_as_json() -> None:
    """Spark hands over what a Python source said as text."""
    (source,) = REPORT["sources"]
    told = REPORT | {"sources": [{name: json.dumps(offsets) for name, offsets in source.items()}]}
    assert read("sums", "out", ("rows",), told) == read("sums", "out", ("rows",), REPORT)


def test_a_bare_report() -> None:
    found = read(
        "sums", "out", (), {"batchId": 0, "timestamp": "t", "eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}}
    )
    assert (found.watermark, found.lag_records, found.late_rows, found.sources) == (None, None, 0, ())


def test_numbers_as_prometheus_reads_them() -> None:
    from urllib.request import urlopen

    server = MetricsServer(0)
    try:
        url = f"http://127.0.0.1:{server.port}/metrics"
        with urlopen(url) as answer:
            assert answer.read() == b""
        server.show([read('su"ms', "out", ("rows",), REPORT)])
        with urlopen(url) as answer:
            text = answer.read().decode()
    finally:
        server.close()
    labels = r'{job="su\"ms",output="out"}'
    assert (
        "# TYPE headrace_pipeline_late_rows_total counter\n" + f"headrace_pipeline_late_rows_total{labels} 2.0" in text
    )
    assert f"headrace_pipeline_lag_records{labels} 8.0" in text
    assert "lag_milliseconds" not in text  # nothing is known of it here


def test_late_rows_of_our_own_windows_are_counted_with_sparks() -> None:
    report = {
        "batchId": 3,
        "timestamp": "t",
        "stateOperators": [{"numRowsDroppedByWatermark": 2}],
        "observedMetrics": {
            "headrace.late.1": {"late": 3, "no_time": 1},
            "headrace.late.no time.2": {"late": 0, "no_time": None},
            "mine": {"late": 100},
        },
    }
    assert read("job", "out", ("rows",), report, 10).late_rows_total == 16
