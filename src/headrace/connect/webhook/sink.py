"""Each change as a POST, in the order of the log for each key.

The `Idempotency-Key` names the change by its place in the log, so a receiver that remembers keys sees each change
once, though one whose answer was lost is sent again. Changes of different keys go over several connections at once.
With a secret, `X-Headrace-Signature: sha256=…` is the HMAC of the body. An answer of 2xx is success; a 4xx that will
not change is a change that the receiver refuses, and goes to the dead letters; everything else is tried again.

A receiver keeps no place for us, so it stands in a topic (`place_topic.py`) and moves on after the answers.
"""

import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from zlib import crc32

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.sink import ChangeBatch, Place, RowChange, RowRefused, SinkError, SinkUnavailable
from headrace.connect.sync.http import HttpHost
from headrace.connect.webhook.place_topic import PlaceTopic

_LATER: Final = frozenset({408, 409, 423, 425, 429})  # these answers may be another tomorrow


class WebhookSink:
    """Tells one receiver about the changes of one topic."""

    every_change = True

    def __init__(
        self,
        name: str,
        topic: str,
        make_host: Callable[[], HttpHost],
        cluster: Callable[[], Cluster],
        secret: str | None,
        connections: int,
    ) -> None:
        self._name = name
        self._topic = topic
        self._make_host = make_host
        self._connect = cluster
        self._secret = secret
        self._connections = connections
        self._cluster: Cluster | None = None
        self._places: PlaceTopic | None = None
        self._hosts: list[HttpHost] = []
        self._delivered: set[tuple[int, int]] = set()  # of batches that are not behind the place yet

    def open(self) -> Place | None:
        """Look up the place."""
        self.close()
        self._cluster = self._connect()
        self._places = PlaceTopic(self._cluster, self._name)
        self._hosts = [self._make_host() for _ in range(self._connections)]
        return self._places.load()

    def apply(self, batch: ChangeBatch) -> None:
        """Post, then move the place; a truncate is told as a change of its own."""
        changes: Sequence[RowChange] = batch.changes
        if batch.clears:
            self._post(self._hosts[0], _cleared(batch.place), f"{self._topic}/truncate/{batch.place.to_json()}")
        lanes: list[list[RowChange]] = [[] for _ in self._hosts]
        for change in changes:
            if (change.partition, change.offset) not in self._delivered:
                lanes[crc32(change.key_text.encode()) % len(lanes)].append(change)
        self._deliver(lanes)
        assert self._places is not None
        self._places.store(batch.place)
        self._delivered.clear()

    def close(self) -> None:
        """Disconnect."""
        for host in self._hosts:
            host.close()
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _deliver(self, lanes: Sequence[Sequence[RowChange]]) -> None:
        """Each lane in order; after a failure the others end with the change that they are at."""
        failed = threading.Event()
        busy = [(host, lane) for host, lane in zip(self._hosts, lanes, strict=True) if lane]
        if not busy:
            return
        with ThreadPoolExecutor(len(busy)) as pool:
            futures = [pool.submit(self._deliver_lane, host, lane, failed) for host, lane in busy]
        errors = [error for future in futures if (error := future.exception()) is not None]
        # A refusal is dealt with at once, and the rest is then tried again in any case.
        for error in sorted(errors, key=lambda error: not isinstance(error, RowRefused)):
            raise error

    def _deliver_lane(self, host: HttpHost, lane: Sequence[RowChange], failed: threading.Event) -> None:
        for change in lane:
            if failed.is_set():
                return
            try:
                self._post(host, self._body(change), f"{self._topic}/{change.partition}/{change.offset}", change)
            except SinkError:
                failed.set()
                raise
            self._delivered.add((change.partition, change.offset))

    def _post(self, host: HttpHost, body: bytes, key: str, change: RowChange | None = None) -> None:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        if self._secret is not None:
            digest = hmac.new(self._secret.encode(), body, hashlib.sha256).hexdigest()
            headers["X-Headrace-Signature"] = f"sha256={digest}"
        answer = host.ask("POST", host.path, body, headers)
        if 200 <= answer.status < 300:
            return
        if 400 <= answer.status < 500 and answer.status not in _LATER and change is not None:
            raise RowRefused(
                f"{host.host} refused the change with status {answer.status}",
                partition=change.partition,
                offset=change.offset,
            )
        raise SinkUnavailable(f"{host.host} answered with status {answer.status}")

    def _body(self, change: RowChange) -> bytes:
        told = {
            "op": "delete" if change.row is None else "upsert",
            "key": change.key or None,
            "row": change.row,
            **({} if change.key else {"before": change.before}),
            "partial": change.partial,
            "topic": self._topic,
            "partition": change.partition,
            "offset": change.offset,
            "ts_ms": change.timestamp_ms,
        }
        return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


def _cleared(place: Place) -> bytes:
    offsets = {str(partition): offset for partition, offset in place.offsets.items()}
    return json.dumps({"op": "truncate", "topic": place.topic, "offsets": offsets}).encode()


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
) -> WebhookSink:
    """A sink that posts each change to a URL; `bootstrap` is filled in by whoever runs it."""
    if not 1 <= connections <= 64:
        raise InvalidConnectSetting("connections", connections, "choose 1 to 64")
    HttpHost(url, timeout_s)  # a wrong URL is told now

    def connect() -> Cluster:
        return Cluster(parse_bootstrap(bootstrap), ConnectionSettings(client_id=f"headrace-sync-{name}"))

    return WebhookSink(name, topic, lambda: HttpHost(url, timeout_s, headers), connect, secret, connections)
