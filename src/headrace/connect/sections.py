"""Sections of `headrace.toml`, read and checked: whatever is wrong is told with the section's and the key's name."""

import difflib
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from headrace.connect.errors import ConnectError, InvalidConnectSetting

DEFAULT_FILE: Final = "headrace.toml"
_WORDS: Final = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


class InvalidSettingsFile(ConnectError):
    """A settings file that cannot be read, or that lacks what was asked for."""


def load_sections(path: Path, kind: str, names: Collection[str] = ()) -> dict[str, dict[str, Any]]:
    """The sections `[kind.NAME]` of a file: all of them, or those that are named."""
    try:
        with path.open("rb") as file:
            read = tomllib.load(file)
    except FileNotFoundError as error:
        wanted = f"{path} is not there: write one with a section [{kind}.NAME], or give --config"
        raise InvalidSettingsFile(wanted) from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidSettingsFile(f"{path} is not valid TOML: {error}") from error
    sections = read.get(kind)
    if not isinstance(sections, dict) or not all(isinstance(section, dict) for section in sections.values()):
        raise InvalidSettingsFile(f"{path} has no section [{kind}.NAME]: add one")
    for name in names:
        if name not in sections:
            raise InvalidSettingsFile(f"{path} has no section [{kind}.{name}], only {', '.join(sorted(sections))}")
    return {name: sections[name] for name in (names or sections)}


def checked(where: str, section: Mapping[str, Any], kinds: Mapping[str, type]) -> dict[str, Any]:
    """The values of a section, each of the kind it should have; an unknown key is told with the nearest known one."""
    found: dict[str, Any] = {}
    for key, value in section.items():
        if key not in kinds:
            near = difflib.get_close_matches(key, kinds, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(kinds))}"
            raise InvalidSettingsFile(f"[{where}] has no key {key!r}: {hint}")
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
