"""What a process says, line by line, what it means for whoever watches it, and what of it is for people. Pure.

Spark tells of one failure in a hundred lines, and of the same one at every attempt; whoever watches the one log of a
stack wants to see that something happened. So stack traces become a line, and what is said again and again is said once
(`Digest`); all of it is in the part's own file. The time is handed in, because a trace comes in one burst and what
comes later is something else.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from headrace.dead_letters import in_words
from headrace.status import RUNNING, WAITING

INFO, WARNING, ERROR = "info", "warning", "error"
_SHOWN: Final = (
    "records", "snapshot_done", "snapshot_total", "slot_lag_bytes", "per_s", "state", "waiting", "dead_letters",
    "dead_letter_reasons",
)  # fmt: skip
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
    repeats: str = ""  # of what is said again and again: shown when this differs from the last time
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


def read_server(text: str) -> Said:
    """A server's one line of JSON says where to point a browser."""
    found = json_object(text)
    if found is None or "url" not in found:
        return read_line(text)
    return Said(f"ready on {found['url']}", facts={"url": str(found["url"]).partition("?")[0]}, is_ready=True)


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
        # The text of an error may be another one at each attempt; what is waited for is the news.
        repeats=f"{told}: {letters if waiting else problem}",
        problem=problem,
    )


_BURST_S: Final = 0.5
_AGAIN_AFTER_S: Final = 30.0
_LONGEST: Final = 240  # letters of a line that is no sentence of ours
_REMEMBERED: Final = 200

# Log4j's lines as `quiet_logs` has them written, and as Spark writes them where it has settings of its own.
_LOGGED: Final = re.compile(
    r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|\d\d/\d\d/\d\d \d\d:\d\d:\d\d) (?P<level>[A-Za-z]+) (?P<rest>[\w.$]+: .*)"
)
_LOG4J_LEVELS: Final = {"info": INFO, "warn": WARNING, "error": ERROR, "fatal": ERROR}
_TRACEBACK: Final = "Traceback (most recent call last):"
_CHAINED: Final = ("During handling of the above", "The above exception was")
_RAISED: Final = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Refused)\b.*")
_JAVA_FRAME: Final = re.compile(r"\s+at [\w.$/<>@-]+\(.*\)\s*|\s*\.\.\. \d+ (?:more|common frames omitted)\s*")
_JAVA_CAUSE: Final = re.compile(r"\s*(?:Caused by|Suppressed): .*|Driver stacktrace:\s*|JVM stacktrace:\s*")
_JAVA_RAISED: Final = re.compile(r"(?:Exception in thread .*|(?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error)\b.*)")
# Py4J's log of a call that was interrupted, and then the stack of it: somebody pressed Ctrl-C, and knows.
_INTERRUPTED: Final = re.compile(r"[A-Z]+:(?:root|py4j[\w.]*):.* while (?:sending|receiving|calling)\b.*")
_NUMBERS: Final = re.compile(r"0x[0-9a-f]+|\d+")
# A query that fails is told by whoever runs it, in our words, and that a process has ended by the supervisor.
_TOLD_BY_US: Final = (
    "MicroBatchExecution: Query ",
    "Executor: Exception in task",
    "TaskSetManager: Lost task",
    "TaskSchedulerImpl: ",
    "NettyRpcEnv: ",
)
# A worker whose Spark has gone has nobody to tell it to.
_NO_NEWS: Final = (
    "KeyboardInterrupt",
    "py4j.protocol.Py4J",
    "BrokenPipeError",
    "ConnectionResetError",
    "java.io.EOFException",
)


class _Block(Enum):
    NONE = auto()
    LOGGED = auto()  # what follows a line of Log4j's
    PYTHON = auto()  # inside a traceback
    PYTHON_END = auto()  # behind the line that names the error: another one may be chained to it
    JAVA = auto()


@dataclass(slots=True)
class Digest:
    """One part's words, line by line."""

    _block: _Block = _Block.NONE
    _last_s: float = 0.0
    _told_s: dict[str, float] = field(default_factory=dict)

    def take(self, line: str, now_s: float) -> str | Said | None:
        """A line to be read as it is, or what it is to people, or None where there is nothing to tell."""
        if now_s - self._last_s > _BURST_S:
            self._block = _Block.NONE
        self._last_s = now_s
        if line.startswith(("{", "headrace: ")):  # our own words end whatever was before
            self._block = _Block.NONE
            return line
        if logged := _LOGGED.fullmatch(line):
            self._block = _Block.LOGGED
            return self._once(logged["rest"], _LOG4J_LEVELS.get(logged["level"].lower(), INFO), now_s)
        if _INTERRUPTED.fullmatch(line):
            self._block = _Block.LOGGED
            return None
        if line.rstrip().endswith(_TRACEBACK):
            is_new = self._block is not _Block.LOGGED
            self._block = _Block.PYTHON if is_new and self._block is not _Block.PYTHON_END else self._block
            return None
        return self._within(line, now_s)

    def _within(self, line: str, now_s: float) -> str | Said | None:
        if self._block is _Block.LOGGED or _JAVA_FRAME.fullmatch(line) or _JAVA_CAUSE.fullmatch(line):
            return None
        if self._block is _Block.PYTHON:
            if line.startswith((" ", "\t")) or not _RAISED.match(line):
                return None
            self._block = _Block.PYTHON_END
            return self._once(line, WARNING, now_s)
        if self._block is _Block.PYTHON_END:
            is_chain = not line.strip() or line.startswith((" ", "\t", *_CHAINED)) or _RAISED.match(line)
            if is_chain:
                return None
        if _JAVA_RAISED.fullmatch(line):
            is_inside = self._block is _Block.JAVA
            self._block = _Block.JAVA
            return None if is_inside else self._once(line, WARNING, now_s)
        self._block = _Block.NONE
        return line

    def _once(self, text: str, level: str, now_s: float) -> Said | None:
        """Told now, unless the same was told a moment ago; numbers make no difference."""
        if text.startswith((*_NO_NEWS, *_TOLD_BY_US)):
            return None
        key = _NUMBERS.sub("#", text)
        if now_s - self._told_s.get(key, -_AGAIN_AFTER_S) < _AGAIN_AFTER_S:
            return None
        self._told_s.pop(key, None)
        self._told_s[key] = now_s
        if len(self._told_s) > _REMEMBERED:
            del self._told_s[next(iter(self._told_s))]
        return Said(plain(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"), level)
