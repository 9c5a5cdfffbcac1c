"""Sections of `headrace.toml`, checked: whatever is wrong is told with the section's and the key's name."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from headrace.connect.errors import ConnectError, InvalidConnectSetting
from headrace.errors import nearest

_WORDS: Final = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


class InvalidSettingsFile(ConnectError):
    """A section that lacks what it needs, or has what is unknown."""


def checked(where: str, section: Mapping[str, Any], kinds: Mapping[str, type]) -> dict[str, Any]:
    """The values of a section, each of the kind it should have; an unknown key is told with the nearest known one."""
    found: dict[str, Any] = {}
    for key, value in section.items():
        if key not in kinds:
            raise InvalidSettingsFile(f"[{where}] has no key {key!r}: {nearest(key, kinds)}")
        found[key] = _fitting(f"{where}.{key}", value, kinds[key])
    return found


def shown_address(url: str) -> str:
    """A URL as others may see it: host, port and path, without user, password and parameters."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    path = parts.path if host or not parts.scheme else parts.path[1:]  # as in sqlite:///relative, sqlite:////absolute
    return f"{host}{path}".rstrip("/")


def _fitting(name: str, value: Any, kind: type) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise InvalidConnectSetting(name, value, f"it must be {_WORDS[kind]}")
    return value


Keys = tuple[str, ...]
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
    return each_text(value, (name,), lambda path, text: resolved(".".join(path), text, environment, folder))


def escaped(value: Any) -> Any:
    """A value that is itself again when its references are replaced."""
    return each_text(value, (), lambda _, text: text.replace("${", "$${"))


def each_text(value: Any, path: Keys, change: Callable[[Keys, str], str]) -> Any:
    """A value with every text in it changed; `path` are the keys and places that lead to it."""
    if isinstance(value, Mapping):
        return {key: each_text(part, (*path, key), change) for key, part in value.items()}
    if isinstance(value, list):
        return [each_text(part, (*path, str(number)), change) for number, part in enumerate(value)]
    return change(path, value) if isinstance(value, str) else value


def _content(name: str, folder: Path, path: str) -> str:
    """What stands in a file, without the line end behind it."""
    try:
        return (folder / path).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        why = error.strerror
    except UnicodeDecodeError:
        why = "it is not UTF-8 text"
    raise Unresolved(f"{name} names the file {path}, which cannot be read ({why}): put it there, or mend the name")
