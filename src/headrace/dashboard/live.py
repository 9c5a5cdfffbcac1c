"""The live parts of a page: sent once they differ from what the browser has."""

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable

from headrace.dashboard.stream import HEARTBEAT, Event
from headrace.dashboard.watch import Watch

MAX_CLIENTS = 64
_HEARTBEAT_S = 10.0

Parts = Callable[[], Awaitable[dict[str, str] | None]]  # None: the page is another one now, and has to be loaded


class LivePages:
    """Keeps open pages up to date."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._clients = 0

    @property
    def clients(self) -> int:
        """How many pages are open now."""
        return self._clients

    async def events(self, parts: Parts) -> AsyncGenerator[Event, None]:
        """An event for each part of a page whenever it changes."""
        if self._clients >= MAX_CLIENTS:
            yield Event("full", f"{MAX_CLIENTS} pages are open already: close one and reload this one")
            return
        self._clients += 1
        sent: dict[str, bytes] = {}
        version = -1
        try:
            while True:
                state = await self._watch.newer_than(version, _HEARTBEAT_S)
                if state.version == version:
                    yield HEARTBEAT
                    continue
                version = state.version
                found = await parts()
                if found is None:
                    yield Event("reload", None)
                    return
                for name, html in found.items():
                    # A part is kept as what it hashes to: 64 clients with a large table each would be much to hold.
                    digest = hashlib.blake2b(html.encode(), digest_size=16).digest()
                    if sent.get(name) != digest:
                        sent[name] = digest
                        yield Event("part", {"name": name, "html": html})
                yield Event("seen", {"version": version})
        finally:
            self._clients -= 1
