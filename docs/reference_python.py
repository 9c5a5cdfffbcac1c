"""Two reference pages, from the code: `headrace.Broker`, and the fields of a pipeline's progress reports.

`generate.py` writes them, and a test compares what is explained here with what there is.
"""

import inspect
from collections.abc import Mapping

from headrace import Broker
from headrace.pipelines.jobs.progress import Progress, read
from headrace.pipelines.jobs.publish import METRICS

BROKER: Mapping[str, str] = {
    "data_dir": "Where it keeps its data; without it in a temporary folder, which is removed when the broker stops.",
    "listen": "`host:port`, or a list of them; port 0 takes one that is free, which `bootstrap_servers` then names.",
    "durability": "`fsync`: what is acknowledged has been synced to disk; `os`: it has been handed to the kernel.",
    "settings": "Kafka's settings by their [names](settings.md), as text: `{'num.partitions': '4'}`.",
    "own_process": "Run it in a process of its own: its work does not hold up yours, and it can be killed.",
    "is_insecure": "Let anybody in who can reach a public address.",
}

_EXAMPLE = """
```python
from confluent_kafka import Consumer, Producer

import headrace

with headrace.Broker(settings={"num.partitions": "4"}) as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("orders", value="espresso")
    producer.flush()

    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "bar", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    assert message is not None
    assert message.value() == b"espresso"
    consumer.close()
```
"""

PROGRESS: Mapping[str, str] = {
    "job": "The job.",
    "output": "Which of its outputs; `out` if there is one only.",
    "batch": "The number of the batch, counted from 0 since the checkpoint was made.",
    "time": "When the batch began, ISO 8601 in UTC.",
    "rows": "How many rows the batch read.",
    "input_rate": "Rows that came in per second since the batch before.",
    "processing_rate": "Rows processed per second while the batch ran.",
    "batch_ms": "How long the batch took.",
    "watermark": "Event time up to which windows are closed, as the batch began; null if there is none yet.",
    "state_rows": "Rows that all stateful operators of the query keep between batches.",
    "state_bytes": "The memory that takes.",
    "late_rows": "Rows of the batch that were left out because their window was closed, or because they had no time.",
    "late_rows_total": "The same, since the run began.",
    "lag_records": "Records in all inputs that were not read when the batch began; null where a source does not know.",
    "lag_ms": "How long the next record that is not read yet has waited; asked for once a second.",
    "writes": "What the output is: its `kind` (topic, view or store), its `name`, and a `text` for people.",
    "dead_letter_topics": "The topics that take records of its inputs which it cannot decode.",
    "dead_letters": "How many dead letters the job has.",
    "dead_letter_reasons": "The reasons that most of them have, and how many.",
    "events_matched": "Rows that patterns looked at, since the checkpoint was made.",
    "patterns": "Each pattern by itself: `name`, `version`, `state`, `problem`, `matches`, `timed_out`, `dropped`, "
    "`partial`, `matches_in_batch`, the `keys` with most partial matches, and the `diagram` that the dashboard draws.",
    "sources": "Each input by itself, see below.",
}
SOURCES: Mapping[str, str] = {
    "name": "The input, as the function calls it.",
    "input_rate": "As above, of this input.",
    "processing_rate": "As above, of this input.",
    "lag_records": "As above, of this input.",
    "offsets": "Up to where each partition was read: `TOPIC-PARTITION` and the offset of the next record.",
}


def sample() -> Progress:
    """A report as Spark could make one, for the names of the fields."""
    ends = {"orders": {"0": 420}}
    source = {"endOffset": ends, "latestOffset": ends}
    report = {"batchId": 7, "timestamp": "2026-01-01T10:00:00.000Z", "numInputRows": 20, "sources": [source]}
    return read("by-size", "large", ("orders",), report)


def broker_page(note: str) -> str:
    """`headrace.Broker`."""
    lines = ["# headrace.Broker\n", note, inspect.getdoc(Broker) or "", _EXAMPLE]
    lines += ["It is the broker that `headrace broker start` runs, whole: any Kafka client can use it, from this"]
    lines += ["process and others. [How to use it in tests](../how-to/test-with-a-broker.md).\n"]
    lines += ["## Parameters\n", "| parameter | default | meaning |", "|---|---|---|"]
    for name, parameter in inspect.signature(Broker).parameters.items():
        default = "" if parameter.default is None else f"`{parameter.default!r}`"
        lines.append(f"| `{name}` | {default} | {BROKER[name]} |")
    lines += ["\nWhat it cannot work with it refuses when it is made or started: `headrace.errors.HeadraceError`.\n"]
    lines += ["## What it has\n", "| | |", "|---|---|"]
    for name, member in vars(Broker).items():
        if name.startswith("_"):
            continue
        words = "" if isinstance(member, property) else str(inspect.signature(member)).split(" -> ")[0]
        shown = name + words.replace("(self, ", "(").replace("(self)", "()")
        lines.append(f"| `{shown}` | {' '.join((inspect.getdoc(member) or '').split())} |")
    lines += ["\nA `with` block starts and stops it, and so does `async with`, without holding up the event loop."]
    return "\n".join([*lines, ""])


def progress_page(note: str) -> str:
    """The fields of a report."""
    lines = ["# Progress reports\n", note]
    lines += ["Each batch of a job is reported once for each output: as a line of JSON on standard output with"]
    lines += ["`headrace pipeline run … --json`, as a record in the topic `__headrace_progress` with the job's name as"]
    lines += ["its key, and as numbers for Prometheus with `--metrics-port`:"]
    lines += ["[how to run pipelines](../how-to/run-pipelines.md).\n"]
    lines += ["| field | for Prometheus | meaning |", "|---|---|---|"]
    for name in sample().as_json():
        metric = f"`{METRICS[name][0]}`" if name in METRICS else ""
        lines.append(f"| `{name}` | {metric} | {PROGRESS[name]} |")
    lines += ["\nMetrics have the labels `job` and `output`.\n"]
    lines += ["## Fields of a source\n", "| field | meaning |", "|---|---|"]
    (source,) = sample().as_json()["sources"]
    lines += [f"| `{name}` | {SOURCES[name]} |" for name in source]
    lines += ["\n## Events\n"]
    lines += ["With `--json`, lines with a field `event` tell in words what happens to a job besides:"]
    lines += [
        '`{"event": "starts again", "job": "by-size"}`. Programs tell the two apart by `batch`, which only reports'
    ]
    lines += ["have."]
    return "\n".join([*lines, ""])
