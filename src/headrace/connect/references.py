"""What a text of a settings file leaves out: `${VARIABLE}`, from the environment, and `${file:PATH}`, from a file.

So a secret need not stand in the settings. What was put in is not looked at again, and `$${` is a `${` that refers to
nothing. No error shows a value.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headrace.connect.errors import ConnectError

_REFERENCE: Final = re.compile(r"\$(?:\$\{|\{file:([^}]+)\}|\{(\w+)\})")


class Unresolved(ConnectError):
    """A reference to something that is not there."""


def resolved(name: str, text: str, environment: Mapping[str, str], folder: Path) -> str:
    """A text with its references replaced; `name` is what it is called, paths are relative to `folder`."""

    def value(found: re.Match[str]) -> str:
        if found[1] is not None:
            return _content(name, folder, found[1])
        if found[2] is None:
            return "${"
        if found[2] not in environment:
            raise Unresolved(
                f"{name} names the environment variable {found[2]}, which is not set: set it, or write the value"
            )
        return environment[found[2]]

    return _REFERENCE.sub(value, text)


def all_resolved(name: str, value: Any, environment: Mapping[str, str], folder: Path) -> Any:
    """A value of a settings file with the references in all its texts replaced."""
    if isinstance(value, Mapping):
        return {key: all_resolved(f"{name}.{key}", part, environment, folder) for key, part in value.items()}
    if isinstance(value, list):
        return [all_resolved(f"{name}.{number}", part, environment, folder) for number, part in enumerate(value)]
    return resolved(name, value, environment, folder) if isinstance(value, str) else value


def escaped(value: Any) -> Any:
    """A value that is itself again when its references are replaced."""
    if isinstance(value, Mapping):
        return {key: escaped(part) for key, part in value.items()}
    if isinstance(value, list):
        return [escaped(part) for part in value]
    return value.replace("${", "$${") if isinstance(value, str) else value


def _content(name: str, folder: Path, path: str) -> str:
    """What stands in a file, without the line end behind it."""
    try:
        return (folder / path).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        why = error.strerror
    except UnicodeDecodeError:
        why = "it is no text in UTF-8"
    raise Unresolved(f"{name} names the file {path}, which cannot be read ({why}): put it there, or mend the name")
