"""What gateways into topics are told alike, and the inlet that is made of it."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from threading import Event
from typing import Any, Final

from headrace.client.address import Address
from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.connect.delivery import Entry
from headrace.errors import HeadraceError
from headrace.gateways.gateway import Overload, Progress
from headrace.gateways.inlet import LIMIT_BYTES, Dropped, Inlet, Overloaded, unwritten
from headrace.gateways.writing import Appending, Lot, Placed, Writing
from headrace.records import Codec
from headrace.section_keys import Key

_MEBIBYTE: Final = 1024 * 1024
_LOOK_EVERY_S: Final = 0.05
_WRITE_WITHIN_S: Final = 2.0
_GIVE_UP_AFTER_S: Final = 0.3


def inward_keys(overload: Overload = Overload.BLOCK) -> tuple[Key, ...]:
    """Of every gateway into topics; what it does by default about too many records is its own."""
    return (
        Key(
            "overload",
            str,
            "What happens when records come faster than the broker takes them: block (whoever sends waits), "
            "drop-newest, drop-oldest, or fail.",
            overload.value,
            choices=tuple(each.value for each in Overload),
        ),
        Key(
            "buffer_mb",
            int,
            "How many MiB of records may wait for the broker.",
            LIMIT_BYTES // _MEBIBYTE,
            least=1,
            most=16 * 1024,
        ),
        Key(
            "compression",
            str,
            "How batches are compressed.",
            "none",
            choices=tuple(codec.name.lower() for codec in Codec),
        ),
    )


def inlet_of(
    name: str, values: Mapping[str, Any], topics: Sequence[str], bootstrap: Sequence[Address], progress: Progress
) -> Inlet:
    """The inlet that the values of `inward_keys` ask for; topics that are not there are made before it writes."""
    codec = Codec.named(values["compression"])

    def begin(cluster: Cluster) -> Writing:
        for topic in topics:
            ensure_topic(cluster, topic)
        progress.waiting = progress.problem = ""
        return Appending(codec)

    return Inlet(
        bootstrap,
        name,
        progress,
        limit_bytes=values["buffer_mb"] * _MEBIBYTE,
        overload=Overload(values["overload"]),
        codec=codec,
        open_writing=begin,
    )


async def accepted(inlet: Inlet, lot: Lot) -> "Future[list[Placed]]":
    """Wait for room, and hand records over; what is answered is done when they are durable."""
    while (found := inlet.offer(lot)) is None:
        await inlet.room()
    return found


async def durable(future: "Future[list[Placed]]") -> list[Placed]:
    """Wait until records are; whoever waits may be cancelled, the records are not."""
    return await asyncio.shield(asyncio.wrap_future(future))


class Handing:
    """Records of one client on their way into a topic, from an event loop."""

    def __init__(self, inlet: Inlet, topic: str) -> None:
        self._inlet = inlet
        self._topic = topic
        self._last: Future[list[Placed]] | None = None

    @property
    def is_settled(self) -> bool:
        """Whether all that was handed over is written, or failed."""
        return self._last is None or self._last.done()

    async def settled(self) -> None:
        """Wait until it is."""
        if self._last is not None:
            with contextlib.suppress(HeadraceError):
                await durable(self._last)

    async def hand_over(self, entries: Sequence[Entry]) -> "Future[list[Placed]]":
        """Raises `Overloaded` and `Stopped`."""
        try:
            self._last = await accepted(self._inlet, Lot(self._topic, entries))
        except Overloaded:
            self._inlet.progress.dropped += len(entries)
            raise
        return self._last

    async def hand_over_silently(self, entries: Sequence[Entry]) -> None:
        """Where nobody is told of records that are not written: they are counted. Raises `Stopped`."""
        if entries:
            with contextlib.suppress(Overloaded):
                count_unwritten(await self.hand_over(entries), len(entries), self._inlet.progress)


def count_unwritten(future: "Future[list[Placed]]", count: int, progress: Progress) -> None:
    """Count records that the broker refused, or that the end of the gateway came before; those dropped are already."""

    def note(done: "Future[list[Placed]]") -> None:
        error = done.exception()
        if error is not None and not isinstance(error, Dropped):
            progress.more["not_written"] = progress.more.get("not_written", 0) + unwritten(error, count)

    future.add_done_callback(note)


async def stopped(stopping: Event) -> None:
    """Wait on an event loop until somebody outside says that it is time."""
    while not stopping.is_set():  # noqa: ASYNC110 - it is set by another thread
        await asyncio.sleep(_LOOK_EVERY_S)


async def close(inlet: Inlet, progress: Progress) -> None:
    """Write what waits, if the broker takes it in time; nothing more comes."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + _WRITE_WITHIN_S
    while inlet.bytes_waiting and not progress.waiting and loop.time() < ends:  # noqa: ASYNC110 - another thread writes
        await asyncio.sleep(_LOOK_EVERY_S)
    await loop.run_in_executor(None, inlet.close, _GIVE_UP_AFTER_S)


__all__ = ["Handing", "accepted", "close", "count_unwritten", "durable", "inlet_of", "inward_keys", "stopped"]
