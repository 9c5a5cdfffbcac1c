"""How a dashboard is started: where it looks, where it listens, and what it may do."""

from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.client.address import Address
from headrace.client.connection import PLAIN, ConnectionSettings
from headrace.client.offsets import Start
from headrace.client.resets import Shift
from headrace.serving.access import ON_LOOPBACK, Access, NotSafe

DEFAULT_PORT = 8088


@dataclass(frozen=True, slots=True)
class Language:
    """How texts that people write are read: the same way as on the command line, which hands its readers in."""

    condition: Callable[[str], Callable[[object], bool]]  # a condition on a JSON document
    start: Callable[[str, int], Start]  # a place in a log, as of a time
    target: Callable[[str, int], Start | Shift]  # where a group shall go on
    time: Callable[[str, int], int]


@dataclass(frozen=True, slots=True)
class StoreSection:
    """A store of events, as a section `[events.NAME]` names it."""

    name: str
    url: str = field(repr=False)  # it may hold a password
    topic: str = ""  # that its events flow to
    aggregates: tuple[str, ...] = ()  # MODULE:NAME of the user's code


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything about one dashboard."""

    bootstrap: tuple[Address, ...]
    language: Language
    port: int = DEFAULT_PORT
    allow_writes: bool = False
    access: Access = ON_LOOPBACK
    interval_s: float = 2.0
    connection: ConnectionSettings = PLAIN
    registry: str = ""  # the URL of a schema registry; without one, schemas are read from the cluster's own topic
    stores: tuple[StoreSection, ...] = ()  # of events, besides topics of the cluster that keep some

    def __post_init__(self) -> None:
        if self.allow_writes and not self.access.asks:
            raise NotSafe("a dashboard that may write needs a token or logins: give one, or leave --allow-writes out")

    @property
    def cluster_name(self) -> str:
        """The cluster as people call it: by its addresses."""
        return ",".join(map(str, self.bootstrap))
