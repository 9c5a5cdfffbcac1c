"""The topics that somebody listens to: a feed for each, from the first listener until a while after the last one.

What always holds: so many topics are followed at once, and no more; where all of them have listeners a further one is
refused.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from headrace.client.address import Address
from headrace.errors import HeadraceError
from headrace.gateways.http.listening import LiveRecord, keep
from headrace.serving.record_feed import MOST_KEPT, RecordFeed

_IDLE_S: Final = 60.0


class TooManyTopics(HeadraceError):
    """All that may be followed are."""


@dataclass(slots=True)
class _Followed:
    feed: RecordFeed[LiveRecord]
    users: int = 0
    left_at: float = 0.0


class Feeds:
    """For the event loop."""

    def __init__(self, bootstrap: Sequence[Address], most: int, kept_bytes: int) -> None:
        self._bootstrap = bootstrap
        self._most = most
        self._kept_bytes = kept_bytes
        self._followed: dict[str, _Followed] = {}
        self._is_ended = False

    @property
    def listeners(self) -> int:
        return sum(each.users for each in list(self._followed.values()))

    @property
    def topics(self) -> int:
        return len(self._followed)

    @contextmanager
    def using(self, topic: str) -> Iterator[RecordFeed[LiveRecord]]:
        """The feed of a topic, for as long as it is needed; raises `TooManyTopics`."""
        followed = self._followed.get(topic)
        if followed is None:
            self._make_room()
            followed = self._followed[topic] = _Followed(
                RecordFeed(self._bootstrap, topic, keep, MOST_KEPT, self._kept_bytes)
            )
            if self._is_ended:
                followed.feed.stop()
            followed.feed.start()
        followed.users += 1
        try:
            yield followed.feed
        finally:
            followed.users -= 1
            followed.left_at = time.monotonic()

    def _make_room(self) -> None:
        self.end_idle()
        if len(self._followed) < self._most:
            return
        idle = [(each.left_at, topic) for topic, each in self._followed.items() if not each.users]
        if not idle:
            raise TooManyTopics(f"{self._most:,} topics are listened to already: raise followed, or try again later")
        self._end(min(idle)[1])

    def end_idle(self) -> None:
        """Follow no more what nobody has listened to for a while."""
        now = time.monotonic()
        for topic, each in list(self._followed.items()):
            if not each.users and now - each.left_at > _IDLE_S:
                self._end(topic)

    def _end(self, topic: str) -> None:
        self._followed.pop(topic).feed.stop()

    def end_streams(self) -> None:
        """Let all listeners go; from any thread."""
        self._is_ended = True
        for each in list(self._followed.values()):
            each.feed.stop()

    def join(self) -> None:
        for each in list(self._followed.values()):
            each.feed.join()
