"""How captures, copies and views stand, as rows: what they said of themselves, and how long ago. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.dashboard.reports import BatchReport
from headrace.dashboard.watch import State
from headrace.dead_letters import topic_for
from headrace.status import BATCHES_SILENT_AFTER_MS, DERIVED, PIPELINES, SILENT, SILENT_AFTER_MS, Status

_TEXTS = ("kind", "waiting", "database", "problem", "slot", "source", "target", "url")
_NUMBERS = (
    "per_s", "dead_letters", "lag_records", "lag_ms", "slot_lag_bytes", "slot_lag_limit_bytes", "snapshot_done",
    "snapshot_total", "verified_ms", "differences", "rows",
)  # fmt: skip
_LISTS = ("topics", "tables")
_SHOWN = {
    *_TEXTS, *_NUMBERS, *_LISTS, "position", "state", "dead_letter_reasons", "records", "name", "updated_ms",
    "dead_letters_topic",
}  # fmt: skip


_TONES = {
    "running": "good", "streaming": "good", "ready": "good", "done": "good", "stable": "good", "snapshot": "busy",
    "rebuilding": "busy", "waiting": "warn", "retrying": "warn", "silent": "warn", "failed": "bad", "dead": "bad",
    "ended": "idle", "paused": "idle", "stopped": "idle", "empty": "idle", "unknown": "idle", "never ran": "idle",
}  # fmt: skip
_SERVED = "@serve"  # behind a view's name: what its server tells, which is not what its keeper tells
_SIGNS = {"good": "●", "busy": "◐", "warn": "▲", "bad": "✕", "idle": "○"}


def tone(state: str) -> str:
    """How a state is coloured: good, busy, warn, bad or idle."""
    return _TONES.get(state.lower(), "busy")


def sign(tone: str) -> str:
    """What tells a tone from another without colour."""
    return _SIGNS[tone]


def row(status: Status, now_ms: int) -> dict[str, Any]:
    """One status; facts that have no column of their own are kept beside it."""
    numbers = {fact: status.number(fact) for fact in _NUMBERS}
    done, total = numbers["snapshot_done"], numbers["snapshot_total"]
    ago_ms = max(now_ms - status.at_ms, 0)
    return {
        "name": status.name,
        "state": status.state_at(now_ms),
        "position": _position(status.facts.get("position")),
        "reasons": _counts(status.facts.get("dead_letter_reasons")),
        "snapshot_share": None if done is None or not total else min(done / total, 1.0),
        "ago_ms": ago_ms,
        "is_stale": ago_ms > SILENT_AFTER_MS,
        **{fact: status.text(fact) for fact in _TEXTS},
        **numbers,
        **{fact: _as_list(status.facts.get(fact)) for fact in _LISTS},
        "others": {fact: status.text(fact) for fact in sorted(status.facts) if fact not in _SHOWN},
    }


def rows(statuses: Mapping[str, Status], now_ms: int) -> list[dict[str, Any]]:
    """All of a kind, by name."""
    return sorted((row(status, now_ms) for status in statuses.values()), key=lambda found: found["name"])


def join_served(statuses: Mapping[str, Status], now_ms: int) -> dict[str, Status]:
    """What keeper and server tell of a view as one; the keeper's word counts, a living server adds the address."""
    found = {name: status for name, status in statuses.items() if not name.endswith(_SERVED)}
    for name, served in statuses.items():
        view = name.removesuffix(_SERVED)
        if name.endswith(_SERVED) and (view not in found or now_ms - served.at_ms <= SILENT_AFTER_MS):
            kept = found.get(view, Status(view, {}, served.at_ms))
            found[view] = Status(view, {**served.facts, **kept.facts}, kept.at_ms)
    return found


def job_state(last: BatchReport, waiting: int | None, state: State) -> str:
    """What a job does: as it reported itself since its last batch, or else as far as its batches show."""
    now_ms = state.at_ms
    said = state.statuses.get(PIPELINES, {}).get(last.job)
    if said is not None and said.at_ms >= last.at_ms and (reported := said.state_at(now_ms)) != SILENT:
        return reported
    if now_ms - last.at_ms <= BATCHES_SILENT_AFTER_MS:
        return "running"
    return "silent" if waiting else "ended"


def _position(value: object) -> str:
    """A position in words: its plain members by name; what is nested inside is for programs."""
    if not isinstance(value, Mapping):
        return str(value or "")
    members = {name: member for name, member in value.items() if isinstance(member, str | int | float) and member != ""}
    return ", ".join(f"{str(name).replace('_', ' ')} {member}" for name, member in members.items())


def _counts(value: object) -> dict[str, float]:
    return {str(name): number for name, number in value.items()} if isinstance(value, Mapping) else {}


def _as_list(value: object) -> list[str]:
    return [str(part) for part in value] if isinstance(value, list) else [] if value is None else [str(value)]


@dataclass(frozen=True, slots=True)
class DeadLetters:
    source: str  # the topic whose records could not be used; empty if it is not known
    jobs: tuple[str, ...] = ()
    syncs: tuple[str, ...] = ()


def dead_letter_topics(state: State) -> dict[str, DeadLetters]:
    """The topics of dead letters that exist, by name."""
    topics = state.snapshot.topics if state.snapshot else {}
    found = {letters: DeadLetters(name) for name in topics if (letters := topic_for(name, None)) in topics}
    for (job, _), reports in state.jobs.items():
        last = reports[-1]
        for name in last.dead_letter_topics:
            if name in topics:
                known = found.get(name, DeadLetters(last.topics[0] if len(last.topics) == 1 else ""))
                found[name] = replace(known, jobs=tuple(sorted({*known.jobs, job})))
    for status in state.statuses.get(DERIVED, {}).values():
        name = topic_for(status.text("source"), status.text("dead_letters_topic"))
        if name in found:
            found[name] = replace(found[name], syncs=(*found[name].syncs, status.name))
    return found
