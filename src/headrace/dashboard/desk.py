"""What a page can see and do: the state of things, and questions to the cluster that are asked in a thread."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from headrace.client.cluster import PATIENT, Cluster
from headrace.dashboard.reading import Readers
from headrace.dashboard.settings import Settings
from headrace.dashboard.watch import State, Watch

R = TypeVar("R")

_QUICK = PATIENT.at_most(3)
_MAX_REMEMBERED = 200


class Desk:
    """Everything that pages are given."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.watch = Watch(settings)
        self.readers = Readers(settings)
        self._remembered: dict[object, tuple[float, Any]] = {}

    @property
    def state(self) -> State:
        """What is known now."""
        return self.watch.state

    async def ask(self, question: Callable[[Cluster], R]) -> R:
        """What the cluster answers, asked in a thread over a connection of its own."""

        def run() -> R:
            with Cluster(self.settings.bootstrap, self.settings.connection, retry=_QUICK) as cluster:
                return question(cluster)

        return await asyncio.to_thread(run)

    async def ask_seldom(self, key: object, seconds: float, question: Callable[[Cluster], R]) -> R:
        """The same, but an answer is good for a while: a page that is shown live does not ask each time."""
        now_s = time.monotonic()
        known = self._remembered.get(key)
        if known and known[0] > now_s:
            return known[1]  # type: ignore[no-any-return]
        answer = await self.ask(question)
        self._remembered.pop(key, None)
        self._remembered[key] = (now_s + seconds, answer)
        while len(self._remembered) > _MAX_REMEMBERED:
            self._remembered.pop(next(iter(self._remembered)))
        return answer

    def forget(self, key: object) -> None:
        """Ask anew the next time: something was changed."""
        self._remembered.pop(key, None)
