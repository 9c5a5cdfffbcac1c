"""A setting: its name, type and default, what it means, and which values it may have.

What always holds: a value that `check` lets through can be parsed as its type; a secret is never shown.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from headrace.errors import HeadraceError, nearest

# Taken but not shown, as in Kafka: for tests that want small segments.
INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"
NO_EFFECT = "Kept and shown; without effect on a single node."


class InvalidSetting(HeadraceError):
    """A setting that does not exist, or cannot have this value."""


class SettingType(IntEnum):
    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9  # never shown, and not to be given on a command line


INT, LONG, STRING = SettingType.INT, SettingType.LONG, SettingType.STRING
BOOLEAN, DOUBLE, LIST = SettingType.BOOLEAN, SettingType.DOUBLE, SettingType.LIST


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    type: SettingType
    default: str
    meaning: str
    broker_name: str = ""  # what a topic's setting defaults to is set on the broker under this name
    at_least: int | None = None
    choices: tuple[str, ...] = ()
    is_dynamic: bool = False  # of the broker's: whether it can be changed while the broker runs
    stand_in: tuple[str, str] | None = None  # on the broker it is null by default, and this setting counts instead
    reader: Callable[[str], object] | None = None  # reads a value in a language of its own, or raises; "" needs none

    @property
    def is_secret(self) -> bool:
        return self.type is SettingType.PASSWORD

    def shown(self, value: str) -> str | None:
        """The value as DescribeConfigs tells it: parsed and written again; None for a secret."""
        if self.is_secret:
            return None
        value = value.strip()
        if self.type is SettingType.BOOLEAN:
            return value.lower()
        if self.type is SettingType.LIST:
            return ",".join(dict.fromkeys(part.strip() for part in value.split(",")))
        return value

    def check(self, value: str) -> None:
        if self.type in (SettingType.INT, SettingType.LONG, SettingType.DOUBLE):
            try:
                number = float(value) if self.type is SettingType.DOUBLE else int(value)
            except ValueError:
                raise InvalidSetting(f"{self.name}={value!r} is not a number") from None
            if self.at_least is not None and number < self.at_least:
                raise InvalidSetting(f"{self.name}={value} is too small: give at least {self.at_least}")
        elif self.type is SettingType.BOOLEAN and value.strip().lower() not in ("true", "false"):
            raise InvalidSetting(f"{self.name}={value!r} is neither true nor false")
        elif self.choices:
            # An empty list is legal: a topic without a clean-up policy keeps everything.
            parts = [value] if self.type is not SettingType.LIST else value.split(",") if value else []
            for part in parts:
                if part.strip() not in self.choices:
                    raise InvalidSetting(f"{self.name}={value!r} is unknown: choose of {', '.join(self.choices)}")
        elif self.reader and value.strip():
            try:
                self.reader(value)
            except HeadraceError as error:
                raise InvalidSetting(f"{self.name} is invalid: {error}") from None


def check_settings(known: Mapping[str, Setting], values: Mapping[str, str]) -> None:
    """Refuse what is not in the table, with the nearest name that is, and what cannot have its value."""
    for name, value in values.items():
        setting = known.get(name)
        if setting is not None:
            setting.check(value)
        elif name != INTERNAL_SEGMENT_BYTES:
            raise InvalidSetting(f"unknown setting {name!r}: {nearest(name, known, otherwise='check its name')}")
