"""What a process says, line by line, and what it means for whoever watches it. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.dead_letters import in_words
from headrace.status import RUNNING, WAITING

INFO, WARNING, ERROR = "info", "warning", "error"
_SHOWN: Final = (
    "records",
    "snapshot_done",
    "snapshot_total",
    "slot_lag_bytes",
    "per_s",
    "state",
    "waiting",
    "dead_letters",
    "dead_letter_reasons",
)
_LEVELS: Final = {"debug": INFO, "info": INFO, "warning": WARNING, "error": ERROR, "critical": ERROR}
# Colours of a child's own are dropped, and so is whatever else could move the cursor of whoever reads.
_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Said:
    """One line: a sentence for people, if there is one, and facts for programs."""

    sentence: str = ""
    level: str = INFO
    facts: Mapping[str, Any] = field(default_factory=dict)
    is_ready: bool = False
    is_repeated: bool = False  # said again and again: shown when it differs from the last time
    problem: str | None = None  # what is wrong now; empty when nothing is any more


def plain(text: str) -> str:
    """A line that does nothing to a terminal but stand there."""
    return _CONTROL.sub("", text.replace("\t", "    ")).rstrip()


def json_object(text: str) -> dict[str, Any] | None:
    """The object on a line; None if it holds something else."""
    if not text.startswith("{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_line(text: str) -> Said:
    """A line as every process of ours may write it: an event of the log, a refusal, or any text."""
    found = json_object(text)
    if found is not None and "level" in found and "event" in found:
        facts = {name: value for name, value in found.items() if name not in ("time", "level", "event")}
        told = " ".join(f"{name}={value}" for name, value in facts.items())
        return Said(plain(f"{found['event']} {told}"), _LEVELS.get(str(found["level"]), INFO))
    refusal = text.removeprefix("headrace: ")
    if refusal != text:
        return Said(plain(refusal), ERROR, problem=plain(refusal))
    return Said(plain(text))


def read_condition(text: str) -> Said:
    """How a capture or a derived system stands, as it says again and again; or any other line."""
    found = json_object(text)
    if found is None or "per_s" not in found or "state" not in found:
        return read_line(text)
    state, problem, waiting = (str(found.get(name) or "") for name in ("state", "problem", "waiting"))
    letters = in_words(int(found.get("dead_letters") or 0), found.get("dead_letter_reasons") or {})
    problem = "; ".join(filter(None, [problem, letters]))
    told = f"{state}: {waiting}" if state == WAITING and waiting else state
    facts = {name: found[name] for name in _SHOWN if found.get(name) is not None}
    return Said(
        f"is {told}" + (f": {problem}" if problem else ""),
        WARNING if state == WAITING or letters else INFO,
        {"waiting": "", **facts},
        is_ready=state == RUNNING,
        is_repeated=True,
        problem=problem,
    )
