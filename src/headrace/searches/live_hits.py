"""Hits as they come, for many who listen, and for those who come back: `serving/record_feed.py`, of hits."""

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from headrace.client.address import Address
from headrace.client.reader import ReadRecord
from headrace.searches.hits import SearchHit, read_hit
from headrace.serving.record_feed import MOST_KEPT, Kept, Listener, Place, RecordFeed, Replays, sent_event

_MOST_REPLAYED: Final = 100_000  # offsets of a partition, for who comes back


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which hits a listener wants; None is any."""

    owner: str | None = None
    tag: str | None = None
    query: str | None = None

    def takes(self, hit: SearchHit) -> bool:
        return (
            (self.owner is None or hit.owner == self.owner)
            and (self.tag is None or self.tag in hit.tags)
            and (self.query is None or hit.query == self.query)
        )


class LiveHit(NamedTuple):
    """A hit, and its value as it was written, in one line."""

    hit: SearchHit
    text: str


def _read(read: ReadRecord) -> tuple[LiveHit, int] | None:
    value = bytes(read.record.value or b"")
    hit = read_hit(None, value)
    if hit is None:
        return None
    return LiveHit(hit, json.dumps(json.loads(value), ensure_ascii=False)), len(value)


class HitFeed(RecordFeed[LiveHit]):
    """Follows the topic of hits from the moment it is started."""

    def __init__(self, bootstrap: Sequence[Address], topic: str, most: int = MOST_KEPT) -> None:
        super().__init__(bootstrap, topic, _read, most)


async def hit_events(
    feed: HitFeed, replays: Replays, wanted: Wanted, last: Place | None
) -> AsyncGenerator[bytes, None]:
    """The events for one listener: `live` once it is up to date, a `hit` each, `missed` where some are gone."""

    def takes(kept: Kept[LiveHit]) -> bool:
        return wanted.takes(kept.item.hit)

    listener = Listener(feed, replays, takes, last, most_replayed=_MOST_REPLAYED)
    async for events in listener.events():
        yield b"".join(sent_event(event, feed.topic, "hit", lambda kept: kept.item.text) for event in events)
