"""Structured log lines: an event, and the facts as key and value.

The lines go through Python's own logging, under `headrace`, so an application that embeds us hears what it asks for
and nothing else. The command line configures them once, at its start. Values never hold secrets: whoever logs a
configuration logs names.
"""

import logging
import sys
from typing import Any

import structlog

logging.getLogger("headrace").addHandler(logging.NullHandler())


def get_logger(name: str) -> Any:
    """The logger of a module; pass `__name__`."""
    return structlog.wrap_logger(
        logging.getLogger(name),
        wrapper_class=structlog.stdlib.BoundLogger,
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.render_to_log_kwargs],
    )


def configure(*, level: str = "info", as_json: bool = False) -> None:
    """Send log lines to standard error: readable and coloured on a terminal, or one JSON object a line."""
    renderer: Any = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.ExtraAdder(),
                structlog.stdlib.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger("headrace")
    root.handlers = [handler]
    root.setLevel(level.upper())
    root.propagate = False
