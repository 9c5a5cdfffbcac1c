"""A topic published to a group. Each message carries where its record stands, so that who misses some reads the log.

What always holds: the position that is committed is behind records that went out, so a gateway that was killed
publishes some again and leaves none out; and who begins under the same name ends the one before.
"""

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Final

from headrace.client.address import Address
from headrace.client.admin import ensure_topic
from headrace.client.cluster import PATIENT, Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ClientError, Refused
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.connect.delivery import Entry, Sender, read_committed
from headrace.connect.keep_running import KeepRunning
from headrace.errors import HeadraceError
from headrace.gateways.bad_input import BadInput
from headrace.gateways.errors import GatewayError
from headrace.gateways.files.follower import POSITIONS
from headrace.gateways.gateway import Progress
from headrace.gateways.multicast.message import Origin
from headrace.gateways.multicast.publisher import Publisher
from headrace.gateways.multicast.settings import MulticastSettings
from headrace.model import TopicPartition

_OPTIONS: Final = FetchOptions(max_wait_ms=200, committed=True)
_COMMIT_EVERY_S: Final = 1.0
_FLUSH_S: Final = 1.0
_LOOK_EVERY_S: Final = 2.0


@dataclass(slots=True)
class OutwardGateway:
    settings: MulticastSettings
    bootstrap: Sequence[Address]
    stopping: Event
    progress: Progress = field(default_factory=Progress)
    _positions: dict[int, int] = field(default_factory=dict)  # behind what was published
    _topic_id: str = ""
    _publisher: Publisher | None = None

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def source(self) -> str:
        return self.settings.topic

    @property
    def target(self) -> str:
        return self.settings.place

    def run(self) -> None:
        settings = self.settings
        self._publisher = publisher = Publisher(
            settings.group, name=settings.name, key=settings.read_key(), settings=settings.sending
        )
        try:
            KeepRunning(self.name, self.progress, self.stopping, lambda: self.progress.records, self._refused).run(
                self._run_once
            )
        finally:
            publisher.close(_FLUSH_S)

    def _refused(self, refusal: Refused) -> HeadraceError:
        return GatewayError(f"the broker refuses what gateway {self.name} reads or remembers ({refusal})")

    def _run_once(self) -> None:
        settings = self.settings
        client = ConnectionSettings(client_id=f"headrace-multicast-{self.name}")
        with Cluster(self.bootstrap, client, retry=PATIENT.at_most(2)) as cluster:
            topic = cluster.topic(settings.topic, refresh=True)
            ensure_topic(cluster, POSITIONS, partitions=1, configs={"cleanup.policy": "compact"})
            sender = Sender(cluster, f"headrace-multicast-{self.name}", self.name)
            sender.begin()
            try:
                if self._topic_id != topic.id_text or not self._positions:
                    self._positions, self._topic_id = self._first_positions(cluster, topic.id_text), topic.id_text
                while self._publish(cluster, sender, topic.id):
                    pass
            except Exception:
                with contextlib.suppress(ClientError):
                    sender.abort()
                raise

    def _key(self, partition: int) -> bytes:
        return json.dumps({"multicast": self.name, "partition": partition}).encode()

    def _first_positions(self, cluster: Cluster, topic_id: str) -> dict[int, int]:
        held = bounds(cluster, cluster.partitions(self.settings.topic), committed=True)
        keys = {self._key(where.partition): where for where in held}
        found = {
            keys[key]: json.loads(value) for key, value in read_committed(cluster, POSITIONS, keys.__contains__).items()
        }
        positions: dict[int, int] = {}
        for where, bound in held.items():
            stored = found.get(where)
            if stored is None or stored["topic"] != topic_id:
                # Of a topic that was made again, or a partition that was added, all is news.
                positions[where.partition] = (
                    bound.start if found or self._topic_id or self.settings.from_start else bound.end
                )
            else:
                positions[where.partition] = min(max(stored["offset"], bound.start), bound.end)
        return positions

    def _publish(self, cluster: Cluster, sender: Sender, topic_id: bytes) -> bool:
        """Publish until it is told to stop; or until partitions were added, then it is to begin anew."""
        assert self._publisher is not None
        publisher, progress, topic = self._publisher, self.progress, self.settings.topic
        bad = BadInput(self.name, progress)
        held = bounds(cluster, cluster.partitions(topic), committed=True)
        for where, bound in held.items():
            position = self._positions.setdefault(where.partition, 0)
            self._positions[where.partition] = max(position, bound.start)
        starts = {where: self._positions[where.partition] for where in held}
        after = {where: start - 1 for where, start in starts.items()}
        reached: dict[TopicPartition, int] = {}
        committed = dict.fromkeys(self._positions, -1)
        committed_at = looked_at = time.monotonic()
        progress.waiting = progress.problem = ""
        ids = {topic: self._topic_id} if self._topic_id else None
        for records in read_records(cluster, starts, options=_OPTIONS, ids=ids, reached=reached):
            for where, record in records:
                progress.received += 1
                try:
                    publisher.publish(
                        record.value,
                        key=record.key,
                        headers=tuple((header.name, header.value) for header in record.headers),
                        timestamp_ms=record.timestamp,
                        origin=Origin(topic, where.partition, record.offset, after[where], topic_id),
                    )
                except GatewayError as error:  # it is longer than a message may be; its place shows that it is missing
                    bad.refuse(str(error), f"{where} at offset {record.offset}")
                else:
                    progress.records += 1
                    progress.bytes += len(record.key or b"") + len(record.value or b"")
                after[where] = record.offset
                self._positions[where.partition] = record.offset + 1
                if self.stopping.is_set():
                    break
            if not self.stopping.is_set():
                self._positions.update({where.partition: at for where, at in reached.items()})
            now = time.monotonic()
            if now - committed_at >= _COMMIT_EVERY_S or self.stopping.is_set():
                committed_at = now
                if self._positions != committed and publisher.flush(_FLUSH_S):
                    self._commit(sender)
                    committed = dict(self._positions)
            self._report(publisher)
            if self.stopping.is_set():
                break
            if now - looked_at >= _LOOK_EVERY_S:
                looked_at = now
                if self._look(cluster, len(held)):
                    return True
        return False

    def _commit(self, sender: Sender) -> None:
        now_ms = time.time_ns() // 1_000_000
        entries: list[Entry] = [
            (self._key(number), json.dumps({"offset": offset, "topic": self._topic_id}).encode(), now_ms, ())
            for number, offset in self._positions.items()
        ]
        sender.commit({TopicPartition(POSITIONS, 0): entries})

    def _look(self, cluster: Cluster, partitions: int) -> bool:
        """How much is left; whether there are more partitions than before."""
        topic = cluster.topic(self.settings.topic, refresh=True)
        held = bounds(cluster, cluster.partitions(self.settings.topic), committed=True)
        self.progress.lag_records = sum(
            max(bound.end - self._positions.get(where.partition, 0), 0) for where, bound in held.items()
        )
        return len(topic.partitions) > partitions

    def _report(self, publisher: Publisher) -> None:
        counts = publisher.counts
        self.progress.problem = publisher.problem
        self.progress.more.update(
            datagrams=counts.datagrams, repairs=counts.repairs, naks=counts.naks, session=str(publisher.session)
        )
