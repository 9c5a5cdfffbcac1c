"""What of a process's words is for people: stack traces become a line, and what is said again and again is said once.

Spark tells of one failure in a hundred lines, and of the same one at every attempt; whoever watches the one log of a
stack wants to see that something happened. All of it is in the part's own file. Pure: the time is handed in, because a
trace comes in one burst and what comes later is something else.
"""

import re
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from headrace.stack.lines import ERROR, INFO, WARNING, Said, plain

_BURST_S: Final = 0.5
_AGAIN_AFTER_S: Final = 30.0
_SHOWN: Final = 240  # letters of a line that is no sentence of ours
_REMEMBERED: Final = 200

# Log4j's lines as `quiet_logs` has them written, and as Spark writes them where it has settings of its own.
_LOGGED: Final = re.compile(
    r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|\d\d/\d\d/\d\d \d\d:\d\d:\d\d) (?P<level>[A-Za-z]+) (?P<rest>[\w.$]+: .*)"
)
_LEVELS: Final = {"info": INFO, "warn": WARNING, "error": ERROR, "fatal": ERROR}
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
            return self._once(logged["rest"], _LEVELS.get(logged["level"].lower(), INFO), now_s)
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
        return Said(plain(text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"), level)
