"""Who uses a topic, as far as the cluster and a stack's file know: to be named before the topic is deleted."""

from collections.abc import Collection, Iterator
from pathlib import Path

from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.clock import SystemClock
from headrace.connect.sync.places import group_of
from headrace.connect.sync.settings import SECTION
from headrace.dashboard.reports import LOOK_BACK, batch_report
from headrace.dashboard.sampling import take_snapshot
from headrace.dashboard.snapshot import Snapshot
from headrace.errors import HeadraceError
from headrace.stack import DEFAULT_FILE
from headrace.stack.loading import load
from headrace.stack.plan import members_of
from headrace.status import CAPTURES, PROGRESS, StatusReader, TopicFeed


def users_of(cluster: Cluster, topics: Collection[str], file: Path = Path(DEFAULT_FILE)) -> dict[str, list[str]]:
    """For each of the topics that is used: by which groups, jobs, captures, derived systems and sections of `file`."""
    snapshot = take_snapshot(cluster, Coordinators(cluster), SystemClock().now_ms())
    found = [*_readers(snapshot), *_reporters(cluster, snapshot), *_sections(file)]
    return {
        topic: names for topic in topics if (names := sorted({name for name, used in found if topic in used}))
    }  # fmt: skip


def _readers(snapshot: Snapshot) -> Iterator[tuple[str, Collection[str]]]:
    """Groups; a derived system keeps its offsets in one."""
    prefix = group_of("")
    for group in snapshot.groups.values():
        name = group.name
        shown = f"derived system {name.removeprefix(prefix)}" if name.startswith(prefix) else f"group {name}"
        yield shown, {*group.topics, *(where.topic for member in group.members for where in member.partitions)}


def _reporters(cluster: Cluster, snapshot: Snapshot) -> Iterator[tuple[str, Collection[str]]]:
    """Jobs and captures, by what they last reported."""
    for read in TopicFeed(PROGRESS, LOOK_BACK).news(cluster, snapshot.topics):
        if report := batch_report(read):
            yield f"job {report.job}", {where.topic for where in report.places}
    for capture in StatusReader(CAPTURES).read(cluster, snapshot.topics).values():
        if isinstance(written := capture.facts.get("topics"), list):
            yield f"capture {capture.name}", [str(topic) for topic in written]


def _sections(file: Path) -> Iterator[tuple[str, Collection[str]]]:
    """What a stack's file names, whether it runs or not."""
    if not file.is_file():
        return
    try:
        stack = load(file)
        members = list(members_of(stack))
    except (HeadraceError, OSError):
        return  # what is wrong with it is reported by headrace up
    for member in members:
        yield f"[{member.name}] of {file}", member.topics
    for name, values in stack.several(SECTION).items():
        yield f"[{SECTION}.{name}] of {file}", [str(values.get("topic"))]
