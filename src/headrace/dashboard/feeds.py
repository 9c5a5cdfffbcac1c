"""Following the topics in which others report: what is new since the last look, and no more than fits.

What always holds: a look reads up to the end that it found and never waits; a topic that is missing is simply silent;
and what is remembered is bounded, the oldest going first.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.client.cluster import Cluster
from headrace.client.errors import OffsetOutOfRange
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import ReadRecord, read_records
from headrace.dashboard.reports import BatchReport, Status, batch_report, name_of, status
from headrace.dashboard.snapshot import Snapshot
from headrace.model import TopicPartition
from headrace.status import CAPTURES, DERIVED, VIEWS

PROGRESS_TOPIC = "__headrace_progress"
CAPTURES_TOPIC, COPIES_TOPIC, VIEWS_TOPIC = CAPTURES, DERIVED, VIEWS

BATCHES = 120  # remembered of each job
MAX_JOBS = 200
MAX_STATUSES = 500
_AT_FIRST = 5000  # records of each partition to look back at the start
_OPTIONS = FetchOptions(max_wait_ms=200, committed=True)  # a position that was taken back was never one

Jobs = Mapping[tuple[str, str], tuple[BatchReport, ...]]
Statuses = Mapping[str, Mapping[str, Status]]


@dataclass(slots=True)
class TopicFeed:
    """The place that was read up to, in one topic."""

    topic: str
    places: dict[TopicPartition, int] = field(default_factory=dict)

    def news(self, cluster: Cluster, seen: Snapshot) -> list[ReadRecord]:
        """The records since the last look, oldest first."""
        if self.topic not in seen.topics:
            self.places.clear()
            return []
        held = bounds(cluster, cluster.partitions(self.topic), committed=True)
        starts = {}
        for where, bound in held.items():
            place = self.places.get(where, bound.end - _AT_FIRST)
            # An end before our place means that the topic was made anew.
            starts[where] = bound.start if place > bound.end else max(place, bound.start, bound.end - _AT_FIRST)
        ends = {where: bound.end for where, bound in held.items()}
        found: list[ReadRecord] = []
        try:
            for group in read_records(cluster, starts, until=ends, options=_OPTIONS):
                found.extend(group)
        except OffsetOutOfRange:  # removed while we read: the next look begins at what is left
            self.places.clear()
            return found
        self.places = ends
        return found


def with_batches(jobs: Jobs, news: list[ReadRecord]) -> Jobs:
    """What is known of jobs, with these reports; the jobs that were silent longest are forgotten first."""
    found = dict(jobs)
    for read in news:
        report = batch_report(read)
        if report:
            key = (report.job, report.output)
            found[key] = (*found.pop(key, ())[-BATCHES + 1 :], report)
    return dict(list(found.items())[-MAX_JOBS:])


def with_statuses(
    known: Mapping[str, Status], news: list[ReadRecord], telling: Callable[[ReadRecord], Status | None] = status
) -> Mapping[str, Status]:
    """The last status of each name, with these; a record without a value takes its name away."""
    found = dict(known)
    for read in news:
        said, name = telling(read), name_of(read)
        if said:
            found.pop(said.name, None)
            found[said.name] = said
        elif read.record.value is None and name is not None:
            found.pop(name, None)
    return dict(list(found.items())[-MAX_STATUSES:])
