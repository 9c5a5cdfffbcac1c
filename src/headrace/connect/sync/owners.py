"""Groups that show the place of a derived system: who reads there, and why nobody else may move it.

A derived system keeps its place in its target and commits it to a group only for others to see. Such a group has no
members and looks unused to every tool that knows only groups. Moving its offsets would change only what is shown.
"""

import time
from dataclasses import asdict, dataclass

from headrace.client.coordinators import Coordinators
from headrace.connect.errors import ConnectError
from headrace.connect.sync.places import owner_of
from headrace.status import DERIVED, SILENT, read_statuses

_AT_REST = frozenset({"stopped", "failed", "silent", "never ran"})


class GroupInUse(ConnectError):
    """A group that belongs to a part of ours."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The part that a group belongs to, and its state."""

    part: str
    state: str

    def __str__(self) -> str:
        return f"{self.part} {self.state}"

    def as_json(self) -> dict[str, str]:
        """For programs."""
        return asdict(self)


def find_owner(coordinators: Coordinators, group: str) -> Owner | None:
    """Who reads for a group without being its member; None if the group is not one of ours."""
    name = owner_of(group)
    if name is None:
        return None
    said = read_statuses(coordinators.cluster, DERIVED).get(name)
    return Owner(f"sync.{name}", SILENT if said is None else said.state_at(time.time_ns() // 1_000_000))


def check_movable(group: str) -> None:
    """Refuse to move the place of a derived system: the one that counts is in its target."""
    name = owner_of(group)
    if name is not None:
        raise GroupInUse(
            f"group {group!r} shows the position of sync.{name}, which is stored in its target, so moving the group "
            f"would have no effect: to read the topic again, run headrace sync rebuild {name}"
        )


def check_unused(group: str, owner: Owner | None) -> None:
    """Refuse to delete the group of a derived system that runs."""
    if owner is not None and owner.state not in _AT_REST:
        raise GroupInUse(f"group {group!r} belongs to {owner.part}, which is {owner.state}: stop it first")
