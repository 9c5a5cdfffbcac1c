"""What a page is: one value, from which its address, its place in the menu, its JSON and its live parts are derived.

A page is a `Page` in a file of `pages/`, a template of the same name, and a line in `pages/__init__.py`. Its `view`
makes a model from what the desk knows (the state of things, and questions to the cluster that are asked in a thread);
the template shows it. Every block of the template whose name begins with `live_` is kept up to date in the browser.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from headrace.client.cluster import PATIENT, Cluster
from headrace.dashboard.errors import NotThere
from headrace.dashboard.event_stores import EventStores
from headrace.dashboard.settings import Settings
from headrace.dashboard.snapshot import Snapshot
from headrace.dashboard.stream import Readers
from headrace.dashboard.watch import State, Watch

R = TypeVar("R")

_QUICK = PATIENT.at_most(3)
_MAX_REMEMBERED = 200


class Desk:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.watch = Watch(settings)
        self.readers = Readers(settings)
        self.events = EventStores(settings)
        self._remembered: dict[object, tuple[float, Any]] = {}

    @property
    def state(self) -> State:
        return self.watch.state

    @property
    def snapshot(self) -> Snapshot:
        """The cluster as it was last seen, for pages that need it."""
        assert self.state.snapshot is not None
        return self.state.snapshot

    async def ask(self, question: Callable[[Cluster], R]) -> R:
        """What the cluster answers, asked in a thread over a connection of its own."""

        def run() -> R:
            with Cluster(self.settings.bootstrap, self.settings.connection, retry=_QUICK) as cluster:
                return question(cluster)

        return await asyncio.to_thread(run)

    async def ask_seldom(self, key: object, seconds: float, question: Callable[[Cluster], R]) -> R:
        """The same, but an answer is good for a while: a page that is shown live does not ask each time."""
        return await self.remember(key, seconds, lambda: self.ask(question))

    async def remember(self, key: object, seconds: float, find: Callable[[], Awaitable[R]]) -> R:
        """What was found a moment ago, or is now."""
        now_s = time.monotonic()
        known = self._remembered.get(key)
        if known and known[0] > now_s:
            return known[1]  # type: ignore[no-any-return]
        answer = await find()
        self._remembered.pop(key, None)
        self._remembered[key] = (now_s + seconds, answer)
        while len(self._remembered) > _MAX_REMEMBERED:
            self._remembered.pop(next(iter(self._remembered)))
        return answer

    def forget(self, key: object) -> None:
        """Ask anew the next time: something was changed."""
        self._remembered.pop(key, None)


Model = Mapping[str, Any]
Params = Mapping[str, str]


def find_in(held: Mapping[str, R], kind: str, name: str) -> R:
    """A topic or group of the snapshot."""
    if name not in held:
        raise NotThere(f"There is no {kind} {name!r}: it was deleted, or the name is misspelt.")
    return held[name]


@dataclass(frozen=True, slots=True)
class Asked:
    """Which page is wanted: what its path holds, and what stands behind the question mark."""

    path: Params = field(default_factory=dict)
    query: Params = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Menu:
    section: str
    label: str
    shortcut: str  # pressed after g
    icon: str  # a symbol of icons.svg


@dataclass(frozen=True, slots=True)
class Stream:
    path: str
    run: Callable[[Desk, Request, "Show"], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Action:
    """A form that changes something; run only where writing is allowed, and with the form's proof checked."""

    path: str
    run: Callable[[Desk, Params, Params, "Show"], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Page:
    path: str
    title: str
    template: str
    view: Callable[[Desk, Asked], Awaitable[Model]]
    menu: Menu | None = None
    parent: str = ""  # the path of the page in whose place of the menu this one stands
    actions: tuple[Action, ...] = ()
    streams: tuple[Stream, ...] = ()


@dataclass(frozen=True, slots=True)
class Show:
    """How a page's own streams and actions render: parts of templates, and whole pages."""

    part: Callable[[str, Model], str]
    whole: Callable[[str, Model], Response]
