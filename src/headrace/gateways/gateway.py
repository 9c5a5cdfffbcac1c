"""What a gateway is: something that stands between programs that speak no Kafka and the topics of a cluster.

A kind of gateway says what it can be told (`keys`), what is wrong with that (`check`, which opens nothing), and makes
one. A gateway runs until it is told to stop, and says how it is doing while it does: `progress` is written by its
threads and read by whoever reports, once a second.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Event
from typing import Any, Protocol

from headrace.client.address import Address
from headrace.section_keys import Key


class Overload(StrEnum):
    """What happens to records that come faster than they are taken."""

    BLOCK = "block"  # whoever brings them waits
    DROP_NEWEST = "drop-newest"
    DROP_OLDEST = "drop-oldest"
    FAIL = "fail"  # whoever brings them is told so


@dataclass(slots=True)
class Progress:
    """How far a gateway has come, since it was started."""

    received: int = 0  # as they came, good and bad
    records: int = 0  # written to a topic, or sent out of one
    bytes: int = 0
    dropped: int = 0  # by overload
    refused: int = 0  # bad input
    connections: int = 0  # that are open
    lag_records: int = 0  # in a topic, not sent yet
    waiting: str = ""
    problem: str = ""
    more: dict[str, Any] = field(default_factory=dict)  # what only this kind has to say


class Gateway(Protocol):
    """One at work."""

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> str:
        """Where records come from, for people: `udp://127.0.0.1:8125`, a topic."""
        ...

    @property
    def target(self) -> str: ...

    @property
    def progress(self) -> Progress: ...

    def run(self) -> None:
        """Go on until it is told to stop; raises what waiting does not mend."""
        ...


Make = Callable[[str, Mapping[str, Any], Sequence[Address], Event], Gateway]


@dataclass(frozen=True, slots=True)
class GatewayKind:
    """A kind of gateway; `make` is given a name, the values of its keys, a cluster, and what tells it to stop."""

    name: str
    summary: str
    keys: tuple[Key, ...]
    check: Callable[[str, Mapping[str, Any]], object]
    """Raises the first thing that is wrong with the values of a gateway of this name; opens nothing."""
    make: Make
    modules: tuple[str, ...] = ()
    """What it imports that an extra brings."""


__all__ = ["Gateway", "GatewayKind", "Make", "Overload", "Progress"]
