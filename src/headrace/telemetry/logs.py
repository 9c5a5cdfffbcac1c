"""Structured log lines: an event, and the facts as key and value.

A library stays silent until someone configures it; the command line does, once, at its start. Values never hold
secrets: whoever logs a configuration logs names.
"""

import logging
import sys
from typing import Any

import structlog


def get_logger(name: str) -> Any:
    """The logger of a module; pass `__name__`."""
    return structlog.get_logger(name)


def configure(*, level: str = "info", as_json: bool = False) -> None:
    """Send log lines to standard error: readable and coloured on a terminal, or one JSON object a line."""
    renderer = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.dict_tracebacks if as_json else _keep,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def _keep(_logger: Any, _method: str, event: Any) -> Any:
    return event


def silence() -> None:
    """Say nothing, as befits a library."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL + 1))


silence()
