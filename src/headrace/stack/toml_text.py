"""Values as TOML text, for a process that reads a configuration; written to be read by a machine. Pure."""

import json
from collections.abc import Mapping
from typing import Any


def toml_text(tables: Mapping[str, Any]) -> str:
    """A document of key and value lines, with tables inline."""
    return "".join(f"{_text(name)} = {_value(value)}\n" for name, value in tables.items())


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case Mapping():
            return "{" + ", ".join(f"{_text(name)} = {_value(part)}" for name, part in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_value, value)) + "]"
        case _:
            return str(value)  # numbers, and dates as ISO-8601: TOML writes them so


def _text(text: str) -> str:
    # JSON's escapes are TOML's, except that TOML wants the delete character escaped as well.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
