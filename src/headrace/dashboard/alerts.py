"""What a person should be told, whatever page they look at: rules over what is known. Pure.

A rule is a function from `Known` to alerts; `RULES` lists them, and a new capability adds its own there.

How long until a slow reader loses records is retention against the speed of reading. The record that a group reads next
is removed when it is as old as the retention. While the group reads, that record is replaced by younger ones: if it
reads one second's worth of records in two seconds, its next record ages at half the pace, and what is left lasts twice
as long. A group that reads at the pace of the writers or faster never gets there.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from urllib.parse import quote

from headrace.client.groups import SHARE
from headrace.client.lag import Loss, PartitionLag, Trouble, trouble_of
from headrace.connect.sync.places import owner_of
from headrace.dashboard.format import count, duration, moment, size
from headrace.dashboard.history import DEPTH, History, Series, window
from headrace.dashboard.reports import Jobs, Statuses
from headrace.dashboard.snapshot import Snapshot
from headrace.dead_letters import in_words
from headrace.queues.overview import Letters
from headrace.status import (
    BATCHES_SILENT_AFTER_MS,
    CAPTURES,
    DERIVED,
    EVENTS,
    FAILED,
    GATEWAYS,
    PIPELINES,
    SEARCHES,
    VIEWS,
)

_ALMOST = 0.995  # closer to the writers' pace than anybody can measure in a minute
_SHORTEST_MS = 1000  # of looking: less says nothing about a pace


@dataclass(frozen=True, slots=True)
class Danger:
    """What a group stands to lose in one partition."""

    lag: PartitionLag
    setting: str
    left_ms: int | None  # until the first loss; None if it will not come, or nobody can say
    pace: float | None  # seconds' worth of records read in a second; None while it cannot be told
    is_near: bool

    @property
    def is_catching_up(self) -> bool:
        """Whether it reads as fast as is written, or faster."""
        return self.pace is not None and self.pace >= _ALMOST


def pace_of(places: Series) -> float | None:
    """How many milliseconds of the log are read in one millisecond; None while it cannot be told."""
    if len(places) < 2 or places[-1].at_ms - places[0].at_ms < _SHORTEST_MS:
        return None
    first, last = places[0], places[-1]
    return max((last.value - first.value) / (last.at_ms - first.at_ms), 0.0)


def danger_of(lag: PartitionLag, places: Series, now_ms: int) -> Danger | None:
    """What threatens a group in a partition; None if nothing does, because it has read all or nothing is removed."""
    loss = lag.loss(now_ms)
    if loss is None:
        return None
    pace = pace_of(places)
    if pace is not None and pace >= _ALMOST:
        return Danger(lag, loss.setting, None, pace, is_near=False)
    slower = 1.0 / (1.0 - (pace or 0.0))  # who is not known to read is taken to stand still
    left_ms = None if loss.left_ms is None else int(loss.left_ms * slower)
    near = Loss(loss.setting, left_ms, min(loss.share_left * slower, 1.0)).is_near
    return Danger(lag, loss.setting, left_ms, pace, is_near=near)


def worst(dangers: list[Danger]) -> Danger | None:
    coming = [danger for danger in dangers if danger.left_ms is not None]
    return min(coming, key=lambda danger: danger.left_ms or 0) if coming else (dangers[0] if dangers else None)


GROWING_MS = 30_000  # how long a lag has to grow before it is worth a word
OLD_MS = 15 * 60_000  # how long a message may wait in a queue that somebody works on before it is worth a word
SMALL_LAG = 100  # records: below, growing means little
MAX_ALERTS = 200
_PAGES = {
    CAPTURES: "/changes",
    DERIVED: "/derived",
    VIEWS: "/views",
    PIPELINES: "/pipelines",
    EVENTS: "/events",
    GATEWAYS: "/gateways",
    SEARCHES: "/searches",
}


class Severity(IntEnum):
    NOTE = 1
    WARNING = 2
    DANGER = 3


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing that is wrong, where to look, and since when."""

    key: str
    severity: Severity
    subject: str
    sentence: str
    link: str
    since_ms: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    now_ms: int
    snapshot: Snapshot
    history: History
    jobs: Jobs
    statuses: Statuses


def find_alerts(known: Known, before: Mapping[str, Alert]) -> tuple[Alert, ...]:
    """What is wrong now, the worst first; what was wrong before keeps its beginning."""
    found = [
        replace(alert, since_ms=before[alert.key].since_ms if alert.key in before else known.now_ms)
        for rule in RULES
        for alert in rule(known)
    ]
    return tuple(sorted(found, key=lambda alert: (-alert.severity, alert.since_ms, alert.key))[:MAX_ALERTS])


def is_growing(series: Series) -> bool:
    """Whether a lag grew over the whole of the last while: each third of it higher than the one before."""
    recent = window(series, GROWING_MS)
    if len(recent) < 6 or recent[-1].at_ms - recent[0].at_ms < GROWING_MS * 0.8 or recent[-1].value < SMALL_LAG:
        return False
    third = len(recent) // 3
    means = [sum(point.value for point in part) / len(part) for part in (recent[:third], recent[third:-third])]
    end = sum(point.value for point in recent[-third:]) / third
    return means[0] < means[1] < end and end > means[0] * 1.05


# --- rules


def partitions(known: Known) -> Iterator[Alert]:
    for topic in known.snapshot.topics.values():
        lost = [partition.index for partition in topic.partitions if partition.leader < 0]
        thin = [partition.index for partition in topic.partitions if partition.leader >= 0 and not partition.is_whole]
        if lost:
            yield Alert(
                f"leader:{topic.name}", Severity.DANGER, topic.name,
                f"{_partitions(lost)} no leader and cannot be read or written.", topic_link(topic.name),
            )  # fmt: skip
        if thin:
            yield Alert(
                f"replicas:{topic.name}", Severity.WARNING, topic.name,
                f"{_partitions(thin)} fewer in-sync replicas than configured.", topic_link(topic.name),
            )  # fmt: skip


def groups(known: Known) -> Iterator[Alert]:
    """Groups that lose records, will lose some, or fall behind."""
    for group in known.snapshot.groups.values():
        link = group_link(group.name)
        troubles = {lag.partition: trouble_of(lag, known.now_ms) for lag in group.partitions}
        removed = sum(lag.removed for lag in group.partitions)
        if removed:
            yield Alert(
                f"removed:{group.name}", Severity.DANGER, group.name,
                f"{count(removed)} records were deleted by retention before this group read them.", link,
            )  # fmt: skip
        places = known.history.places.get(group.name, {})
        dangers = [danger_of(lag, places.get(lag.partition, ()), known.now_ms) for lag in group.partitions]
        near = [danger for danger in dangers if danger and danger.is_near and danger.left_ms is not None]
        if near:
            first = min(near, key=lambda danger: danger.left_ms or 0)
            yield Alert(
                f"loss:{group.name}", Severity.DANGER, group.name,
                f"reads {first.lag.partition} too slowly: in {duration(first.left_ms)} {first.setting} starts to "
                "delete records that it has not read.", link,
            )  # fmt: skip
        if owner_of(group.name) is not None:
            continue  # a derived system reads without members, and reports its state itself
        if Trouble.BEYOND_END in troubles.values():
            yield Alert(
                f"beyond:{group.name}", Severity.WARNING, group.name,
                "its offset is past the end of the log, which was truncated or recreated: reset its offsets.", link,
            )  # fmt: skip
        lag = group.lag_records or 0
        if lag and not group.members and group.state.lower() == "empty":
            yield Alert(
                f"unread:{group.name}", Severity.NOTE, group.name,
                f"has no members, and {count(lag)} records are unread.", link,
            )  # fmt: skip
        elif group.kind != SHARE and is_growing(known.history.group_lags.get(group.name, ())):
            yield Alert(
                f"growing:{group.name}", Severity.WARNING, group.name,
                f"is falling behind: its lag grows and is now {count(lag)} records.", link,
            )  # fmt: skip


def queues(known: Known) -> Iterator[Alert]:
    """Queues that grow, whose messages wait for long though somebody works, or that have dead letters."""
    told: set[str] = set()  # topics of dead letters, which several groups may have
    for queue in known.snapshot.queues.values():
        link = queue_link(queue.topic)
        for group in queue.groups:
            key, subject = f"{queue.topic}:{group.name}", f"{queue.topic} ({group.name})"
            depth, age_ms = group.depth or 0, group.age_ms(known.now_ms)
            if group.members and is_growing(known.history.queues.get((queue.topic, group.name), {}).get(DEPTH, ())):
                yield Alert(
                    f"depth:{key}", Severity.WARNING, subject,
                    f"the queue grows: {count(depth)} messages wait, more than its consumers finish.", link,
                )  # fmt: skip
            if group.members and depth and age_ms is not None and age_ms > OLD_MS:
                yield Alert(
                    f"oldest:{key}", Severity.WARNING, subject,
                    f"its oldest message has waited for {duration(age_ms)}: see headrace queue peek {queue.topic}.",
                    link,
                )  # fmt: skip
            if group.letters and group.letters.number and group.letters.topic not in told:
                told.add(group.letters.topic)
                yield Alert(
                    f"letters:queue:{group.letters.topic}", Severity.WARNING, subject,
                    f"{_letters(group.letters)} in {group.letters.topic}: see headrace queue redrive {queue.topic}.",
                    link,
                )  # fmt: skip


def _letters(letters: Letters) -> str:
    if letters.number == 1:
        return "1 message is a dead letter"
    return f"{'' if letters.is_exact else 'up to '}{count(letters.number)} messages are dead letters"


def jobs(known: Known) -> Iterator[Alert]:
    """Jobs that said nothing for long though there is work, or fall behind."""
    for (job, output), reports in known.jobs.items():
        last = reports[-1]
        silent_ms = known.now_ms - last.at_ms
        waiting = known.snapshot.waiting(last.places)
        key, link = f"{job}.{output}", job_link(job)
        if last.dead_letters:
            said = in_words(last.dead_letters, last.dead_letter_reasons)
            yield Alert(f"letters:{job}", Severity.WARNING, job, f"{said}.", link)
        if silent_ms > BATCHES_SILENT_AFTER_MS and waiting:
            yield Alert(
                f"silent:{key}", Severity.WARNING, last.name,
                f"has finished no batch for {duration(silent_ms)}, and {count(waiting)} records are unread: it failed "
                "or was stopped.", link,
            )  # fmt: skip
        elif len(reports) >= 5 and all(
            later.batch_ms > 0 and later.processing_rate and later.input_rate > later.processing_rate * 1.05
            for later in reports[-5:]
        ):
            yield Alert(
                f"slow:{key}", Severity.WARNING, last.name,
                "receives more rows than it processes and is falling behind.", link,
            )  # fmt: skip


def patterns(known: Known) -> Iterator[Alert]:
    """Patterns that cannot be matched, or not completely."""
    for reports in known.jobs.values():
        last = reports[-1]
        for pattern in last.patterns:
            name = last.name_of(pattern)
            link = pattern_link(name)
            if pattern.state == FAILED:
                said = (pattern.problem or "it cannot be read").splitlines()[0]
                yield Alert(f"pattern:{name}", Severity.DANGER, name, f"is not matched: {said}.", link)
            if pattern.dropped:
                one = pattern.dropped == 1
                yield Alert(
                    f"cap:{name}", Severity.WARNING, name,
                    f"dropped {count(pattern.dropped)} partial match{'' if one else 'es'} at the cap, so matches may "
                    "be missing: raise most_partial, or shorten the time.", link,
                )  # fmt: skip


def parts(known: Known) -> Iterator[Alert]:
    """What captures, copies and views say is wrong with them."""
    for topic, statuses in known.statuses.items():
        page = _PAGES[topic]
        for status in statuses.values():
            problem = status.text("problem")
            if problem or status.state == FAILED:
                is_trying = status.text("state") in ("waiting", "retrying")
                yield Alert(
                    f"failed:{topic}:{status.name}", Severity.WARNING if is_trying else Severity.DANGER, status.name,
                    problem or "has failed: see its log.", page,
                )  # fmt: skip
            held, limit = status.number("slot_lag_bytes"), status.number("slot_lag_limit_bytes")
            if held is not None and limit and held > limit / 2:
                yield Alert(
                    f"slot:{status.name}", Severity.DANGER if held > limit * 0.8 else Severity.WARNING, status.name,
                    f"its slot retains {size(held)} of the database's log; at {size(limit)} the slot is dropped.", page,
                )  # fmt: skip
            letters = int(status.number("dead_letters") or 0)
            if letters:
                reasons = status.facts.get("dead_letter_reasons")
                yield Alert(
                    f"letters:{topic}:{status.name}", Severity.WARNING, status.name,
                    f"{in_words(letters, reasons if isinstance(reasons, Mapping) else {})}.", page,
                )  # fmt: skip
            differences = status.number("differences")
            if differences:
                verified_ms = status.number("verified_ms")
                when = "" if verified_ms is None else f", as verified at {moment(verified_ms)[:-4]} UTC"
                yield Alert(
                    f"differs:{topic}:{status.name}", Severity.WARNING, status.name,
                    f"differs from its source in {count(differences)} {'row' if differences == 1 else 'rows'}{when}.",
                    page,
                )  # fmt: skip


def gateways(known: Known) -> Iterator[Alert]:
    """What gateways dropped, or could not read."""
    for status in known.statuses.get(GATEWAYS, {}).values():
        if dropped := int(status.number("dropped") or 0):
            yield Alert(
                f"dropped:{status.name}", Severity.WARNING, status.name,
                f"dropped {count(dropped)} record{'' if dropped == 1 else 's'} since its start: it could not keep up.",
                _PAGES[GATEWAYS],
            )  # fmt: skip
        if refused := int(status.number("refused") or 0):
            yield Alert(
                f"refused:{status.name}", Severity.NOTE, status.name,
                f"could not read {count(refused)} of what it was sent: its log says why.", _PAGES[GATEWAYS],
            )  # fmt: skip


RULES: tuple[Callable[[Known], Iterator[Alert]], ...] = (partitions, groups, queues, jobs, patterns, parts, gateways)


def topic_link(name: str) -> str:
    return f"/topics/{quote(name, safe='')}"


def group_link(name: str) -> str:
    return f"/groups/{quote(name, safe='')}"


def queue_link(name: str) -> str:
    return f"/queues/{quote(name, safe='')}"


def pattern_link(name: str) -> str:
    return f"/patterns/{quote(name, safe='')}"


def job_link(name: str) -> str:
    return f"/pipelines/{quote(name, safe='')}"


def _partitions(indexes: list[int]) -> str:
    if len(indexes) == 1:
        return f"partition {indexes[0]} has"
    shown = ", ".join(map(str, indexes[:5])) + (" …" if len(indexes) > 5 else "")
    return f"{len(indexes)} partitions ({shown}) have"
