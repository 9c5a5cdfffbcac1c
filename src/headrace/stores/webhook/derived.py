"""Each change as a POST, in the order of the log for each key.

The `Idempotency-Key` names the change by its place in the log, so a receiver that remembers keys sees each change
once, though one whose answer was lost is sent again. Changes of different keys go over several connections at once.
What the receiver refuses goes to the dead letters.

A receiver keeps no place for us, so it stands in a topic and moves on after the answers.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from zlib import crc32

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.http_client import InvalidServer
from headrace.stores.compacted_topic import CompactedTopic
from headrace.stores.derived import ChangeBatch, Place, RowChange
from headrace.stores.errors import InvalidConnectSetting, RowRefused, SinkError, SinkUnavailable
from headrace.stores.webhook.sender import Sender, WebhookFailed, WebhookRefused, own_reach

TOPIC: Final = "headrace-sync-places"


@dataclass(eq=False)
class WebhookSink:
    """Sends the changes of one topic to one receiver."""

    name: str
    topic: str
    sender: Sender
    connect: Callable[[], Cluster]
    connections: int
    every_change: ClassVar[bool] = True
    _cluster: Cluster | None = field(default=None, init=False)
    _places: CompactedTopic | None = field(default=None, init=False)
    # Partitions and offsets in batches that are not behind the place yet.
    _delivered: set[tuple[int, int]] = field(default_factory=set, init=False)

    def open(self) -> Place | None:
        self.close()
        self._cluster = self.connect()
        self._places = CompactedTopic(self._cluster, TOPIC, {})
        place = self._places.read_last(self.name)
        return None if place is None else Place.from_json(place)

    def apply(self, batch: ChangeBatch) -> None:
        """Post, then move the place; a truncate is a change of its own."""
        changes: Sequence[RowChange] = batch.changes
        if batch.clears:
            self._post(_cleared(batch.place), f"{self.topic}/truncate/{batch.place.to_json()}")
        lanes: list[list[RowChange]] = [[] for _ in range(self.connections)]
        for change in changes:
            if (change.partition, change.offset) not in self._delivered:
                lanes[crc32(change.key_text.encode()) % len(lanes)].append(change)
        self._deliver(lanes)
        assert self._places is not None
        self._places.write(self.name, batch.place.to_json().encode())
        behind = batch.place.offsets
        self._delivered = {(each, offset) for each, offset in self._delivered if offset >= behind.get(each, 0)}

    def close(self) -> None:
        self.sender.close()
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _deliver(self, lanes: Sequence[Sequence[RowChange]]) -> None:
        """Each lane in order; after a failure the others end with the change that they are at."""
        failed = threading.Event()
        busy = [lane for lane in lanes if lane]
        if not busy:
            return
        with ThreadPoolExecutor(len(busy)) as pool:
            futures = [pool.submit(self._deliver_lane, lane, failed) for lane in busy]
        errors = [error for future in futures if (error := future.exception()) is not None]
        # A refusal is dealt with at once, and the rest is then tried again in any case.
        for error in sorted(errors, key=lambda error: not isinstance(error, RowRefused)):
            raise error

    def _deliver_lane(self, lane: Sequence[RowChange], failed: threading.Event) -> None:
        for change in lane:
            if failed.is_set():
                return
            try:
                self._post(self._body(change), f"{self.topic}/{change.partition}/{change.offset}", change)
            except SinkError:
                failed.set()
                raise
            self._delivered.add((change.partition, change.offset))

    def _post(self, record: Mapping[str, Any], key: str, change: RowChange | None = None) -> None:
        try:
            self.sender.post(record, key)
        except WebhookFailed as error:
            raise SinkUnavailable(str(error)) from error
        except WebhookRefused as error:
            if change is None:
                raise SinkUnavailable(str(error)) from error
            raise RowRefused(str(error), partition=change.partition, offset=change.offset) from error

    def _body(self, change: RowChange) -> dict[str, Any]:
        return {
            "op": "delete" if change.row is None else "upsert",
            "key": change.key or None,
            "row": change.row,
            **({} if change.key else {"before": change.before}),
            "partial": change.partial,
            "topic": self.topic,
            "partition": change.partition,
            "offset": change.offset,
            "ts_ms": change.timestamp_ms,
        }


def _cleared(place: Place) -> dict[str, Any]:
    offsets = {str(partition): offset for partition, offset in place.offsets.items()}
    return {"op": "truncate", "topic": place.topic, "offsets": offsets}


def webhook(
    name: str,
    topic: str,
    url: str,
    bootstrap: str,
    *,
    secret: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 30.0,
    connections: int = 8,
    allow_private: Sequence[str] = (),
) -> WebhookSink:
    """A sink that posts each change to a URL; `bootstrap` is filled in by whoever runs it.

    A name that leads to a private address is refused, unless `allow_private` has its network.
    """
    if not 1 <= connections <= 64:
        raise InvalidConnectSetting("connections", connections, "choose 1 to 64")
    try:
        reach = own_reach(url, allow_private)
        sender = Sender(url, secret, reach=reach, timeout_s=timeout_s, headers=headers, connections=connections)
    except InvalidServer as error:
        raise InvalidConnectSetting("url", "…", f"it {error}") from None

    def connect() -> Cluster:
        return Cluster(parse_bootstrap(bootstrap), ConnectionSettings(client_id=f"headrace-sync-{name}"))

    return WebhookSink(name, topic, sender, connect, connections)
