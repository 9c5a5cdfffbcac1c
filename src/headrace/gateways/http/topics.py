"""What the gateway asks the cluster: which topics there are, and where a time begins in one. One thread asks.

What always holds: an answer is a few seconds old at most; and a cluster that does not answer is not asked again for
every request that comes meanwhile.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from headrace.client.address import Address
from headrace.client.cluster import PATIENT, Cluster, Topic
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ClientError, LostConnection, UnknownTopic
from headrace.client.offsets import Start, StartKind, find_stretch
from headrace.model import TopicPartition, check_topic_name
from headrace.serving.asking import InvalidRequest
from headrace.serving.record_feed import Place

T = TypeVar("T")
_KNOWN_S: Final = 5.0
_UNKNOWN_S: Final = 1.0
_AWAY_S: Final = 0.5
_MOST_REMEMBERED: Final = 10_000


class Topics:
    """Asks; for the event loop."""

    def __init__(self, bootstrap: Sequence[Address]) -> None:
        settings = ConnectionSettings(client_id="headrace-http", connect_timeout_s=3.0, request_timeout_s=10.0)
        self._cluster = Cluster(bootstrap, settings, retry=PATIENT.at_most(2))
        self._pool = ThreadPoolExecutor(1, "headrace-http-topics")
        self._known: dict[str, tuple[float, Topic | ClientError]] = {}
        self._away: tuple[float, LostConnection] | None = None

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._cluster.close()

    async def ask(self, question: Callable[[Cluster], T]) -> T:
        """What the cluster answers; raises a `ClientError`."""
        self._check_away()

        def ask() -> T:
            self._check_away()  # it may have been found out meanwhile, by whoever was before us
            try:
                return question(self._cluster)
            except LostConnection as error:
                self._away = time.monotonic(), error
                raise

        return await asyncio.get_running_loop().run_in_executor(self._pool, ask)

    def _check_away(self) -> None:
        if self._away is not None and time.monotonic() - self._away[0] < _AWAY_S:
            raise self._away[1]

    async def topic(self, name: str) -> Topic:
        """A topic as it was a few seconds ago at most; raises `UnknownTopic`."""
        check_topic_name(name)
        known = self._known.get(name)
        if known is not None and time.monotonic() - known[0] < (_UNKNOWN_S if _is_error(known[1]) else _KNOWN_S):
            if isinstance(known[1], ClientError):
                raise known[1]
            return known[1]
        found: Topic | UnknownTopic
        try:
            found = await self.ask(lambda cluster: cluster.topic(name, refresh=True))
        except UnknownTopic as error:
            found = error
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        self._known[name] = time.monotonic(), found
        if isinstance(found, UnknownTopic):
            raise found
        return found

    async def place(self, name: str, start: Place | Start) -> Place | None:
        """The place that is meant; None for the end, whatever comes from now on."""
        if isinstance(start, Place):
            return start
        match start.kind:
            case StartKind.EARLIEST:
                return Place({})
            case StartKind.LATEST:
                return None
            case StartKind.OFFSET:
                topic = await self.topic(name)
                return Place(dict.fromkeys(topic.partitions, start.number))
            case StartKind.TIME:
                topic = await self.topic(name)
                asked = [TopicPartition(name, partition) for partition in topic.partitions]
                found = await self.ask(lambda cluster: find_stretch(cluster, asked, start, committed=True))
                return Place({where.partition: at for where, at in found.starts.items()}, topic.id_text)
        raise InvalidRequest("from is a place that cannot be found here")


def _is_error(found: Topic | ClientError) -> bool:
    return isinstance(found, ClientError)
