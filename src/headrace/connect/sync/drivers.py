"""Drivers, which are extras: imported when a sink needs one, and asked for in one sentence when it is missing."""

import importlib
from typing import Any

from headrace.connect.sink import SinkRefused


def driver(module: str, extra: str) -> Any:
    """The driver's module."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise SinkRefused(
            f"this sink needs the Python package {error.name!r}: pip install 'headrace[{extra}]'"
        ) from error
