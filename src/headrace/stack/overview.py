"""How a stack stands, as rows for people: who runs, what it uses, how fast it is, and how far behind. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.connect.sync.places import group_of
from headrace.connect.sync.settings import SECTION as SYNC
from headrace.dashboard.history import smooth
from headrace.dashboard.watch import State
from headrace.stack.state_file import MemberState
from headrace.stack.usage import Usage
from headrace.status import DERIVED


@dataclass(frozen=True, slots=True)
class Row:
    """One member; None where it is not known."""

    member: MemberState
    cpu_share: float | None  # of one processor
    memory_bytes: int | None
    per_s: float | None
    lag_records: int | None
    lag_ms: float | None


@dataclass(frozen=True, slots=True)
class TopicRow:
    name: str
    per_s: float | None
    records: int
    size_bytes: int | None


def member_row(
    member: MemberState,
    before: Mapping[int, Usage],
    now: Mapping[int, Usage],
    seconds: float,
    seen: State | None = None,
) -> Row:
    """One member, compared with some seconds ago; where it is silent, what the cluster knows of it counts."""
    used = now.get(member.pid) if member.pid else None
    earlier = before.get(member.pid) if member.pid else None
    share = max(used.cpu_s - earlier.cpu_s, 0.0) / seconds if used and earlier and seconds > 0 else None
    per_s, lag_records, lag_ms = pace(member.facts)
    if member.kind == SYNC and seen is not None:
        per_s, lag_records, lag_ms = _copy(member.name.partition(".")[2], seen)
    return Row(member, share, used.memory_bytes if used else None, per_s, lag_records, lag_ms)


def pace(facts: Mapping[str, Any]) -> tuple[float | None, int | None, float | None]:
    """Records a second, records behind, and time behind, of all that a member told; a pipeline tells by job."""
    reports = [facts, *(report for report in facts.values() if isinstance(report, Mapping))]
    rates = [report["per_s"] for report in reports if report.get("per_s") is not None]
    lags = [report["lag_records"] for report in reports if report.get("lag_records") is not None]
    times = [report["lag_ms"] for report in reports if report.get("lag_ms") is not None]
    return sum(rates) if rates else None, sum(lags) if lags else None, max(times) if times else None


def _copy(name: str, seen: State) -> tuple[float | None, int | None, float | None]:
    said = seen.statuses.get(DERIVED, {}).get(name)
    per_s = smooth(seen.history.group_reads.get(group_of(name), ()))
    if said is None:
        return per_s, None, None
    lag = said.number("lag_records")
    return per_s, None if lag is None else int(lag), said.number("lag_ms")


def topic_rows(seen: State, most: int) -> list[TopicRow]:
    """The busiest topics, and then the largest; not those that are nobody's data."""
    return sorted(_topics(seen), key=lambda row: (-(row.per_s or 0), -row.records, row.name))[:most]


def _topics(seen: State) -> Iterator[TopicRow]:
    for topic in seen.snapshot.topics.values() if seen.snapshot else ():
        if not topic.is_internal:
            rate = smooth(seen.history.topics.get(topic.name, ()))
            yield TopicRow(topic.name, rate, topic.records, topic.size_bytes)
