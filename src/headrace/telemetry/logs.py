"""Structured log lines: an event, and the facts as key and value.

The lines go through Python's own logging, under `headrace`, so an application that embeds us hears what it asks for
and nothing else. The command line configures them once, at its start. Values never hold secrets: whoever logs a
configuration logs names.
"""

import json
import logging
import sys
import time
from datetime import UTC, datetime

_OURS = "headrace"
_FACTS = "facts"
_COLOURS = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "31;1"}

logging.getLogger("headrace").addHandler(logging.NullHandler())


class EventLogger:
    """Logs an event by name, with facts beside it."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, **facts: object) -> None:
        """Something for whoever looks for a mistake."""
        self._logger.debug(event, extra={_FACTS: facts})

    def info(self, event: str, **facts: object) -> None:
        """Something that happens in the course of things."""
        self._logger.info(event, extra={_FACTS: facts})

    def warning(self, event: str, **facts: object) -> None:
        """Something that someone may want to look at."""
        self._logger.warning(event, extra={_FACTS: facts})

    def error(self, event: str, **facts: object) -> None:
        """Something that did not work."""
        self._logger.error(event, extra={_FACTS: facts})

    def failure(self, event: str, error: BaseException, **facts: object) -> None:
        """Something that nobody expected, with where it happened."""
        self._logger.error(event, exc_info=error, extra={_FACTS: facts | {"error": repr(error)}})


class RareLines:
    """Log lines that somebody else could make us write without end: one in a while, the rest of them counted."""

    __slots__ = ("_left_out", "_logger", "_quiet_s", "_until")

    def __init__(self, logger: EventLogger, quiet_s: float) -> None:
        self._logger = logger
        self._quiet_s = quiet_s
        self._until: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def warning(self, event: str, **facts: object) -> None:
        """Log it, unless the same event was logged a moment ago."""
        now = time.monotonic()
        if now < self._until.get(event, now):
            self._left_out[event] = self._left_out.get(event, 0) + 1
            return
        self._until[event] = now + self._quiet_s
        left_out = self._left_out.pop(event, 0)
        self._logger.warning(event, **facts, **({"left_out": left_out} if left_out else {}))


def get_logger(name: str) -> EventLogger:
    """The logger of a module; pass `__name__`."""
    return EventLogger(logging.getLogger(name))


# The levels that Kafka's tools know, by what they are here.
LEVELS = {"FATAL": 50, "ERROR": 40, "WARN": 30, "INFO": 20, "DEBUG": 10, "TRACE": 5}
ROOT = "root"  # as Kafka's tools call it: here the logger above all of ours


def levels_of_loggers() -> dict[str, str]:
    """The level of each of our loggers, its own or the one that it has from above, by Kafka's names of levels."""
    names = [name for name in list(logging.root.manager.loggerDict) if name.startswith(f"{_OURS}.")]
    loggers = {ROOT: logging.getLogger(_OURS)} | {name: logging.getLogger(name) for name in sorted(names)}
    return {name: _name_of(logger.getEffectiveLevel()) for name, logger in loggers.items()}


def set_level(name: str, level: str | None) -> None:
    """Set the level of one of our loggers while the process runs; None lets it have the one from above again."""
    logging.getLogger(_OURS if name == ROOT else name).setLevel(logging.NOTSET if level is None else LEVELS[level])


def _name_of(level: int) -> str:
    return next((name for name, least in LEVELS.items() if level >= least), "TRACE")


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The facts, with time, level and event before them."""
        head = {"time": _time_of(record), "level": record.levelname.lower(), "event": record.getMessage()}
        if record.exc_info:
            head["traceback"] = self.formatException(record.exc_info)
        return json.dumps(head | getattr(record, _FACTS, {}), default=str, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """A line for people: time, level, event, and the facts as key=value."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        """The line, with the level in colour on a terminal."""
        level = f"{record.levelname.lower():<7}"
        if self._colours:
            level = f"\x1b[{_COLOURS[record.levelname]}m{level}\x1b[0m"
        facts = " ".join(f"{key}={_plain(value)}" for key, value in getattr(record, _FACTS, {}).items())
        line = f"{_time_of(record)} {level} {record.getMessage()} {facts}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _plain(value: object) -> str:
    text = str(value)
    return repr(text) if " " in text or not text else text


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def configure(*, level: str = "info", as_json: bool = False) -> None:
    """Send log lines to standard error, from `level` on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter(colours=sys.stderr.isatty()))
    root = logging.getLogger("headrace")
    root.handlers = [handler]
    root.setLevel(level.upper())
    root.propagate = False
