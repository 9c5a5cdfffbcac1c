"""How a job stands, from its checkpoint and the broker alone: no Spark is started for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.html_tables import facts, table
from headrace.client.lag import timestamps_at
from headrace.client.offsets import EARLIEST, LATEST, list_offsets
from headrace.dead_letters import NO_LETTERS, Letters, letters_in
from headrace.model import TopicPartition
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.jobs.declare import Job, TopicOutput, cluster_of
from headrace.pipelines.jobs.endpoints import check_input, letter_boxes
from headrace.pipelines.jobs.place import Place, folder_of, lock_folder, read_record
from headrace.pipelines.jobs.progress import Written
from headrace.pipelines.jobs.versions import at_version
from headrace.pipelines.source.offsets import select_partitions
from headrace.pipelines.spark.checkpoint import Done, read_done
from headrace.pipelines.spark.draining import Stage, stage_of


class Lag(NamedTuple):
    """How many records wait, and how long the next one has; None where nothing can be said, 0 where nothing waits."""

    records: int
    time_ms: int | None


def lag_of(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], now_ms: int, ids: Mapping[str, str] | None = None
) -> Lag:
    """What lies behind these offsets; all of a topic that is not the one of this id any more."""
    for topic, id_before in (ids or {}).items():
        if id_before != (cluster.topic(topic, refresh=True).id_text or id_before):
            offsets = dict.fromkeys(cluster.partitions(topic), 0) | {
                where: offset for where, offset in offsets.items() if where.topic != topic
            }
    ends = list_offsets(cluster, dict.fromkeys(offsets, LATEST), committed=True)
    waiting = {where: offset for where, offset in offsets.items() if ends[where].offset > offset}
    records = sum(ends[where].offset - offset for where, offset in waiting.items())
    if not waiting:
        return Lag(0, 0)
    stamps = timestamps_at(cluster, waiting)
    return Lag(records, max(now_ms - min(stamps.values()), 0) if stamps else None)


def job_lag(job: Job, done: Done, bootstrap: str, now_ms: int) -> Lag:
    """What its inputs have that was not read, records of partitions that were added since among them."""
    clusters: dict[Cluster, dict[TopicPartition, int]] = {}
    for given in job.inputs.values():
        cluster = cluster_of(given, bootstrap)
        there = select_partitions(cluster, check_input(given, bootstrap, jvm=False))
        added = list_offsets(cluster, {where: EARLIEST for where in there if where not in done.offsets})
        offsets = {where: added[where].offset if where in added else done.offsets[where] for where in there}
        clusters[cluster] = clusters.get(cluster, {}) | offsets
    lags = []
    for cluster, offsets in clusters.items():
        topics = {where.topic for where in offsets}
        ids = {name: id_ for name, id_ in done.ids.items() if name in topics}
        lags.append(lag_of(cluster, offsets, now_ms, ids))
    times = [lag.time_ms for lag in lags if lag.time_ms is not None]
    return Lag(sum(lag.records for lag in lags), max(times, default=None))


@dataclass(frozen=True)
class OutputStatus:
    name: str
    target: str
    done: Done
    lag: Lag | None
    is_drained: bool


@dataclass(frozen=True)
class JobStatus:
    name: str
    version: int
    is_running: bool
    outputs: tuple[OutputStatus, ...]
    letters: Letters = NO_LETTERS

    def as_json(self) -> dict[str, Any]:
        return {
            "job": self.name,
            "version": self.version,
            "running": self.is_running,
            "dead_letters": self.letters.total,
            "dead_letter_reasons": dict(self.letters.reasons),
            "outputs": [
                {
                    "output": output.name,
                    "target": output.target,
                    "batch": output.done.batch,
                    "finished": output.done.finished_s,
                    "offsets": {str(where): offset for where, offset in output.done.offsets.items()},
                    "lag_records": output.lag.records if output.lag else None,
                    "lag_ms": output.lag.time_ms if output.lag else None,
                    "drained": output.is_drained,
                }
                for output in self.outputs
            ],
        }


def status_of(job: Job, state: Path, bootstrap: str, now_ms: int) -> JobStatus:
    """How a job stands; a lag is left out where the broker cannot be asked."""
    folder = folder_of(job, state)
    record = read_record(folder)
    version = record.version if record else 1
    place = Place(folder, version)
    shown = at_version(job, version, switched=True)
    outputs = []
    for word, output in shown.outputs.items():
        checkpoint = place.checkpoint(word)
        done, is_drained = read_done(checkpoint), stage_of(checkpoint) is Stage.DRAINED
        outputs.append(
            OutputStatus(word, describe_output(output), done, _lag(job, done, bootstrap, now_ms), is_drained)
        )
    return JobStatus(job.name, version, _is_running(folder), tuple(outputs), _letters(job, bootstrap))


def describe_output(output: object) -> str:
    """What an output is, in a few words; never with a password."""
    if type(output).__str__ is not object.__str__:
        return str(output)
    target = getattr(output, "target", None)
    return f"table {target.table}" if target else type(output).__name__


def describe_target(output: object) -> Written:
    """What an output is, for who draws where a job's rows go."""
    if isinstance(output, TopicOutput):
        return Written("topic", output.name, describe_output(output))
    kind = getattr(output, "kind", "store")
    return Written(kind, output.name if kind == "view" else describe_output(output), describe_output(output))  # type: ignore[attr-defined]


def _lag(job: Job, done: Done, bootstrap: str, now_ms: int) -> Lag | None:
    try:
        return job_lag(job, done, bootstrap, now_ms) if done.offsets else None
    except ClientError:
        return None


def _letters(job: Job, bootstrap: str) -> Letters:
    try:
        return letters_in(letter_boxes(job, bootstrap), job.home(bootstrap))
    except ClientError:
        return NO_LETTERS


def _is_running(folder: Path) -> bool:
    if not folder.exists():
        return False
    try:
        with lock_folder(folder):
            return False
    except PipelineError:
        return True


def job_html(job: Job) -> str:
    """For a notebook; options are left out, which may hold passwords."""
    said = facts(f"job {job.name}", [("trigger", job.trigger), ("mode", job.mode), ("declared", job.place)])
    rows: list[tuple[object, ...]] = [
        ("reads", word, str(item), f"{item.watermark[0]}, {item.watermark[1]} late" if item.watermark else None)
        for word, item in job.inputs.items()
    ]
    rows += [("writes", word, describe_output(output), None) for word, output in job.outputs.items()]
    return f"<div>{said}{table(('', 'name', 'what', 'watermark'), rows)}</div>"
