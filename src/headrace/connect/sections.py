"""Sections of `headrace.toml`, checked: whatever is wrong is told with the section's and the key's name."""

from collections.abc import Mapping
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
