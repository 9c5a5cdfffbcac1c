"""What a user says about derived systems: a section `[sync.NAME]` of `headrace.toml` for each of them.

    [sync.orders-cache]
    topic = "shop.public.orders"
    sink = "redis"
    url = "redis://127.0.0.1:6379/0"
    prefix = "orders:"

What is not listed here belongs to the sink: see the options of its class.
"""

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.connect.errors import ConnectError, InvalidConnectSetting
from headrace.connect.sync.dead_letters import SUFFIX
from headrace.connect.sync.decoding import RecordFormat
from headrace.connect.sync.feed import BatchLimits
from headrace.model import check_topic_name

DEFAULT_FILE = "headrace.toml"
ENVELOPES, DEFAULT_LIMITS = RecordFormat(), BatchLimits()


class InvalidSyncFile(ConnectError):
    """A settings file that cannot be read or says nothing about derived systems."""


@dataclass(frozen=True, slots=True)
class SyncSettings:
    """One derived system."""

    name: str
    topic: str
    sink: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # they may hold secrets
    form: RecordFormat = ENVELOPES
    limits: BatchLimits = DEFAULT_LIMITS
    dead_letters: str = ""
    first_pause_s: float = 0.2
    longest_pause_s: float = 30.0

    def __post_init__(self) -> None:
        check_topic_name(self.topic)
        if self.dead_letters:
            check_topic_name(self.dead_letters)

    @property
    def dead_letters_topic(self) -> str:
        """Where records go that cannot be used."""
        return self.dead_letters or self.topic + SUFFIX


_OWN = {
    "topic": str, "sink": str, "value": str, "key": str, "key_column": str, "value_column": str, "batch_records": int,
    "batch_bytes": int, "dead_letters": str, "first_pause_s": float, "longest_pause_s": float,
}  # fmt: skip


def from_section(name: str, section: Mapping[str, Any]) -> SyncSettings:
    """One section of the file."""
    own: dict[str, Any] = {}
    for key, kind in _OWN.items():
        if key not in section:
            continue
        value = section[key]
        if kind is float and isinstance(value, int):
            value = float(value)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InvalidConnectSetting(f"sync.{name}.{key}", value, f"it must be a {_WORDS[kind]}")
        own[key] = value
    for key in ("topic", "sink"):
        if key not in own:
            raise InvalidSyncFile(f"section [sync.{name}] has no {key!r}: add {key} = …")
    form = {key: own.pop(key) for key in ("value", "key", "key_column", "value_column") if key in own}
    limits = {
        field_name: own.pop(key)
        for key, field_name in (("batch_records", "records"), ("batch_bytes", "size_bytes"))
        if key in own
    }
    options = {key: value for key, value in section.items() if key not in _OWN}
    return SyncSettings(name, form=RecordFormat(**form), limits=BatchLimits(**limits), options=options, **own)


_WORDS = {str: "text", int: "whole number", float: "number"}


def load(path: Path, names: Collection[str] = ()) -> list[SyncSettings]:
    """The derived systems of a file: all of them, or those that are named."""
    try:
        with path.open("rb") as file:
            read = tomllib.load(file)
    except FileNotFoundError as error:
        raise InvalidSyncFile(f"{path} is not there: write one with a section [sync.NAME], or give --config") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidSyncFile(f"{path} is no TOML: {error}") from error
    sections = read.get("sync")
    if not isinstance(sections, dict) or not all(isinstance(section, dict) for section in sections.values()):
        raise InvalidSyncFile(f"{path} has no section [sync.NAME]: add one for each derived system")
    for name in names:
        if name not in sections:
            raise InvalidSyncFile(f"{path} has no section [sync.{name}], only {', '.join(sorted(sections))}")
    return [from_section(name, sections[name]) for name in (names or sections)]
