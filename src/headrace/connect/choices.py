"""What every source lets a user choose from, checked the same way for all of them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.unseen import POLICIES as UNSEEN_POLICIES

SNAPSHOT_MODES: Final = ("initial", "initial-only", "never", "when-needed")
SCHEMA_POLICIES: Final = ("evolve", "block", "skip")


def check_choices(settings: Any, *, counts: tuple[str, ...] = (), seconds: tuple[str, ...] = ()) -> None:
    """Refuse a snapshot mode or policy that does not exist, a count below 1, a time that is not above 0."""
    policies = {
        "snapshot": SNAPSHOT_MODES,
        "schema_changes": SCHEMA_POLICIES,
        "unseen_changes": UNSEEN_POLICIES,
    }
    for name, allowed in policies.items():
        if getattr(settings, name) not in allowed:
            raise InvalidConnectSetting(name, getattr(settings, name), f"choose among {', '.join(allowed)}")
    for name in counts:
        if getattr(settings, name) < 1:
            raise InvalidConnectSetting(name, getattr(settings, name), "use 1 or more")
    for name in seconds:
        if getattr(settings, name) <= 0:
            raise InvalidConnectSetting(name, getattr(settings, name), "use more than 0 seconds")


def check_modes(types: Any, modes: Mapping[str, Sequence[str]]) -> None:
    """Refuse a way of writing a type that does not exist."""
    for name, allowed in modes.items():
        if getattr(types, name) not in allowed:
            raise InvalidConnectSetting(f"types.{name}", getattr(types, name), f"choose {' or '.join(allowed)}")
