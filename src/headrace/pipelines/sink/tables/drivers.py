"""Database drivers, imported when a sink is used and not before: each belongs to an extra."""

import importlib
from typing import Any

from headrace.pipelines.sink.tables.errors import SinkMisconfigured


def driver(module: str, extra: str) -> Any:
    """The module, or one sentence that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SinkMisconfigured(
            f"this sink needs the package {module}, which is not installed: pip install 'headrace[{extra}]'"
        ) from error
