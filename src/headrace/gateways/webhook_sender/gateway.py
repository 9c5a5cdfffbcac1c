"""All endpoints of a gateway: those of its section and those of the endpoints' topic, which may change while it runs.

What always holds: what couriers took down is committed in one transaction with their places, under the gateway's name,
so that of two gateways of one name one goes on; a dead letter is durable before the place behind its record; an
endpoint that was changed goes on where the one before it was; and an endpoint waits for nobody else's.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.client.address import Address
from headrace.client.admin import ensure_topic
from headrace.client.cluster import PATIENT, Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ClientError
from headrace.client.offsets import bounds
from headrace.connect.delivery import Entry, Sender, read_committed
from headrace.connect.keep_running import KeepRunning
from headrace.dead_letters import forget_letters, topic_for, write_letters
from headrace.delivery.letters import Letter
from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Progress
from headrace.gateways.webhook_sender.courier import Courier, Report, Surroundings
from headrace.gateways.webhook_sender.endpoint import Endpoint
from headrace.gateways.webhook_sender.lanes import Place
from headrace.gateways.webhook_sender.places import (
    Health,
    health_record,
    is_of,
    place_record,
    read_healths,
    read_places,
)
from headrace.gateways.webhook_sender.registry import Control, Registry, Request
from headrace.model import TopicPartition
from headrace.reach import Reach
from headrace.stores.compacted_topic import SMALL, CompactedTopic
from headrace.telemetry.logs import get_logger

PLACES: Final = "__headrace_webhook_places"
_TURN_S: Final = 0.2
_ENDS_WITHIN_S: Final = 1.0
_LAG_EVERY_S: Final = 5.0
_MOST_TESTS: Final = 20  # at a time
# What a killed one leaves open holds up readers of the log, and others of other names, for as long.
_TRANSACTION_MS: Final = 10_000
_MOST_LOG_WAITING: Final = 50_000
_SEGMENT_BYTES: Final = 16 * 1024 * 1024
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SenderSettings:
    name: str
    endpoints: Mapping[str, Endpoint]
    registry_topic: str
    log_topic: str
    log_bytes: int
    log_ms: int
    secrets_folder: str
    reach: Reach


@dataclass
class WebhookSender:
    """A gateway out of topics."""

    settings: SenderSettings
    bootstrap: Sequence[Address]
    stopping: threading.Event
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        self._all = _Endpoints(self.settings, self.bootstrap, self.progress)
        self.progress.waiting = "for the broker"

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def source(self) -> str:
        topics = {each.topic for each in self._all.wanted().values()}
        return ", ".join(sorted(topics)) or f"endpoints in {self.settings.registry_topic}"

    @property
    def target(self) -> str:
        hosts = sorted({each.host for each in self._all.wanted().values()})
        return ", ".join(hosts[:5]) + (f" and {len(hosts) - 5} more" if len(hosts) > 5 else "") or "no endpoint yet"

    def run(self) -> None:
        keep = KeepRunning(self.name, self.progress, self.stopping, lambda: self._all.commits, _refused)
        try:
            keep.run(self._work)
        finally:
            self._all.stop()

    def _work(self) -> None:
        settings = ConnectionSettings(client_id=f"headrace-gateway-{self.name}")
        with Cluster(self.bootstrap, settings, retry=PATIENT.at_most(2)) as cluster:
            work = self._all.begin(cluster)
            while not self.stopping.is_set():
                self._all.turn(work)
                self.progress.waiting = ""
                self._all.news.wait(_TURN_S)
                self._all.news.clear()
                self.stopping.wait(0.02)  # what comes together is committed together
            self._all.end(work)


def _refused(error: Exception) -> GatewayError:
    return GatewayError(f"the broker refuses what the gateway asks or writes ({error})")


@dataclass(slots=True)
class _Connected:
    """What one connection to the broker has."""

    cluster: Cluster
    sender: Sender
    registry: CompactedTopic
    lag_at: float = float("-inf")
    is_read: bool = False  # whether what comes of the registry is new


class _Endpoints:
    """The registry, the couriers, and what is still to be committed."""

    def __init__(self, settings: SenderSettings, bootstrap: Sequence[Address], progress: Progress) -> None:
        self._settings = settings
        self._progress = progress
        self._around = Surroundings(settings.name, bootstrap, settings.reach, settings.secrets_folder)
        self._registry = Registry()
        self._couriers: dict[str, Courier] = {}
        self._leaving: list[Courier] = []  # which end what they have under way
        self._retired: dict[str, int] = {}
        self._healths: dict[str, Health] = {}
        self._places: dict[tuple[str, str], dict[int, Place]] = {}
        self._committed_healths: dict[str, Health] = {}
        self._committed_places: dict[tuple[str, str], dict[int, Place]] = {}
        self._log: list[bytes] = []
        self._letters: list[Letter] = []
        self._finished: list[Request] = []
        self._taken_back: dict[str, list[bytes]] = {}  # by the topic of letters
        self._testing: dict[str, Courier] = {}
        self.news = threading.Event()
        self.commits = 0
        self._done_records = self._done_bytes = self._done_given_up = 0

    def wanted(self) -> dict[str, Endpoint]:
        """All endpoints; what the section says stands before the topic."""
        return {**self._registry.endpoints, **self._settings.endpoints}

    # --- a connection

    def begin(self, cluster: Cluster) -> _Connected:
        """Take the name over; the places are read when it is the first time."""
        settings = self._settings
        ensure_topic(cluster, PLACES, partitions=1, configs={"cleanup.policy": "compact", **SMALL})
        ensure_topic(cluster, settings.registry_topic, partitions=1, configs={"cleanup.policy": "compact", **SMALL})
        ensure_topic(
            cluster,
            settings.log_topic,
            partitions=1,
            configs={
                "retention.bytes": str(settings.log_bytes),
                "retention.ms": str(settings.log_ms),
                "segment.bytes": str(min(_SEGMENT_BYTES, settings.log_bytes)),
            },
        )
        owner = f"headrace-webhook-sender-{settings.name}"
        sender = Sender(cluster, owner, settings.name, timeout_ms=_TRANSACTION_MS)
        sender.begin()
        if not self.commits:
            stored = read_committed(cluster, PLACES, lambda key: is_of(settings.name, key))
            self._places, self._healths = read_places(stored), read_healths(stored)
            self._committed_places = {key: dict(places) for key, places in self._places.items()}
            self._committed_healths = dict(self._healths)
            self.commits = 1
        self._registry.clear()
        registry = CompactedTopic(
            cluster, settings.registry_topic, SMALL, forget=self._registry.clear, is_for_others=True
        )
        return _Connected(cluster, sender, registry)

    def turn(self, work: _Connected) -> None:
        for record in work.registry.read_news():
            kind, _, endpoint_id = (record.key or b"").decode(errors="replace").partition("/")
            before = self._registry.control(endpoint_id)
            self._registry.apply(record.key, record.value)
            if kind == "state" and work.is_read:
                self._enable_resumed(endpoint_id, before)
        work.is_read = True
        self._gather()
        self._match()
        self._commit(work)
        self._show(work)

    def _enable_resumed(self, endpoint_id: str, before: Control) -> None:
        """Whoever is resumed now is, though the clock of who said so is behind ours."""
        control = self._registry.control(endpoint_id)
        if control.paused or control.resumed_ms == before.resumed_ms:
            return
        for courier in self._leaving:
            if courier.endpoint.id == endpoint_id:
                courier.health = courier.health.resumed()
        if endpoint_id in self._healths:
            self._healths[endpoint_id] = self._healths[endpoint_id].resumed()

    def stop(self) -> None:
        for courier in self._everybody():
            courier.stop()

    def end(self, work: _Connected) -> None:
        """Wait a moment for what is under way, so that it is known what came of it."""
        self.stop()
        ends = time.monotonic() + _ENDS_WITHIN_S
        while any(courier.is_busy for courier in self._everybody()) and time.monotonic() < ends:
            self.news.wait(0.05)
            self.news.clear()
        self._gather()
        with suppress(ClientError):
            self._commit(work)

    def _everybody(self) -> list[Courier]:
        return [*self._couriers.values(), *self._leaving, *self._testing.values()]

    # --- who is at work

    def _match(self) -> None:
        """Have those at work who should be."""
        wanted = self.wanted()
        for endpoint_id, courier in list(self._couriers.items()):
            endpoint = wanted.get(endpoint_id)
            is_same = endpoint is not None and endpoint.said == courier.endpoint.said
            if not is_same or not self._may_run(endpoint_id) or courier.is_restart_wanted:
                courier.stop()
                self._leaving.append(self._couriers.pop(endpoint_id))
        for courier in [each for each in self._leaving if each.is_over]:
            self._keep(courier)
            self._leaving.remove(courier)
            self._count(courier)
        busy = {courier.endpoint.id for courier in self._leaving}
        for endpoint_id, endpoint in wanted.items():
            if endpoint_id not in self._couriers and endpoint_id not in busy and self._may_run(endpoint_id):
                self._couriers[endpoint_id] = self._courier(endpoint)
                self._couriers[endpoint_id].start()
        for endpoint_id in {key for key, _ in self._places} | set(self._healths):
            if endpoint_id not in wanted and endpoint_id not in busy and endpoint_id not in self._registry.refused:
                self._healths.pop(endpoint_id, None)
                for key in [key for key in self._places if key[0] == endpoint_id]:
                    del self._places[key]
        self._ask(wanted)

    def _courier(self, endpoint: Endpoint) -> Courier:
        stored = {topic: places for (each, topic), places in self._places.items() if each == endpoint.id}
        health = self._healths.get(endpoint.id, Health())
        # If it was disabled it is resumed.
        return Courier(endpoint, self._around, stored, health.resumed(), self.news)

    def _may_run(self, endpoint_id: str) -> bool:
        control = self._registry.control(endpoint_id)
        courier = self._couriers.get(endpoint_id)
        health = courier.health if courier else self._healths.get(endpoint_id, Health())
        return not control.paused and not health.is_disabled(control.resumed_ms)

    def _ask(self, wanted: Mapping[str, Endpoint]) -> None:
        done = {request.key for request in self._finished}
        for key, request in list(self._registry.requests.items()):
            endpoint = wanted.get(request.endpoint)
            if endpoint is None:
                if request not in self._finished:
                    self._finished.append(request)
            elif key in done:
                continue
            elif request.do == "test":
                if key not in self._testing and len(self._testing) < _MOST_TESTS:
                    self._testing[key] = self._courier(endpoint)
                    self._testing[key].ask(request)
            elif (courier := self._couriers.get(request.endpoint)) is not None:
                courier.ask(request)

    # --- what is committed

    def _gather(self) -> None:
        for courier in [*self._couriers.values(), *self._leaving]:
            self._keep(courier)
        for key, courier in list(self._testing.items()):
            report = courier.report()
            self._take(courier, report)
            if report.finished:
                del self._testing[key]

    def _keep(self, courier: Courier) -> None:
        report = courier.report()
        self._take(courier, report)
        if report.topic:
            self._places[courier.endpoint.id, report.topic] = dict(report.places)
        before = self._healths.get(courier.endpoint.id)
        self._healths[courier.endpoint.id] = report.health
        if report.health.disabled_ms and (before is None or before.disabled_ms != report.health.disabled_ms):
            _log.error(
                "webhook endpoint was disabled",
                gateway=self._settings.name,
                endpoint=courier.endpoint.id,
                failures=report.health.failures,
                why=report.health.reason,
                mend=f"headrace webhook resume {courier.endpoint.id}",
            )

    def _take(self, courier: Courier, report: Report) -> None:
        if report.taken_back:
            self._taken_back.setdefault(topic_for(courier.endpoint.topic, None), []).extend(report.taken_back)
        self._log += report.log
        del self._log[:-_MOST_LOG_WAITING]
        self._letters += report.letters
        self._finished += report.finished

    def _commit(self, work: _Connected) -> None:
        if self._letters:
            by_topic: dict[str, list[Letter]] = {}
            for letter in self._letters:
                by_topic.setdefault(topic_for(letter.topic, None), []).append(letter)
            for topic, letters in by_topic.items():
                write_letters(work.cluster, topic, letters)
            self._letters = []
        for topic, ids in list(self._taken_back.items()):
            forget_letters(work.cluster, topic, ids)
            del self._taken_back[topic]
        name, now_ms = self._settings.name, time.time_ns() // 1_000_000
        kept: list[tuple[bytes, bytes | None]] = []
        for key in {**self._committed_places, **self._places}:
            before, after = self._committed_places.get(key, {}), self._places.get(key, {})
            kept += [
                place_record(name, *key, partition, after.get(partition))
                for partition in {**before, **after}
                if before.get(partition) != after.get(partition)
            ]
        kept += [
            health_record(name, each, self._healths.get(each))
            for each in {**self._committed_healths, **self._healths}
            if self._committed_healths.get(each) != self._healths.get(each)
        ]
        gathered: dict[TopicPartition, list[Entry]] = {}
        if kept:
            gathered[TopicPartition(PLACES, 0)] = [(key, value, now_ms, ()) for key, value in kept]
        if self._log:
            gathered[TopicPartition(self._settings.log_topic, 0)] = [(None, each, now_ms, ()) for each in self._log]
        if gathered:
            work.sender.commit(gathered)
            self.commits += 1
            self._log = []
            self._committed_places = {key: dict(places) for key, places in self._places.items()}
            self._committed_healths = dict(self._healths)
        while self._finished:
            work.registry.write(self._finished[0].key, None)
            self._registry.requests.pop(self._finished.pop(0).key, None)

    # --- how it stands

    def _count(self, courier: Courier) -> None:
        self._done_records += courier.delivered
        self._done_bytes += courier.delivered_bytes
        self._done_given_up += courier.given_up

    def _show(self, work: _Connected) -> None:
        progress, wanted = self._progress, self.wanted()
        couriers = [*self._couriers.values(), *self._leaving]
        progress.records = self._done_records + sum(each.delivered for each in couriers)
        progress.bytes = self._done_bytes + sum(each.delivered_bytes for each in couriers)
        progress.refused = self._done_given_up + sum(each.given_up for each in couriers)
        progress.received = progress.records + progress.refused
        controls = {each: self._registry.control(each) for each in wanted}
        paused = [each for each, control in controls.items() if control.paused]
        disabled = [
            each
            for each, control in controls.items()
            if self._healths.get(each, Health()).is_disabled(control.resumed_ms) and each not in paused
        ]
        failing = {each: courier for each, courier in self._couriers.items() if courier.problem}
        progress.problem = self._problem(disabled, failing)
        if time.monotonic() - work.lag_at >= _LAG_EVERY_S:
            work.lag_at = time.monotonic()
            progress.lag_records = self._lag(work.cluster)
        more: dict[str, Any] = {
            "endpoints": len(wanted),
            "failing": len(failing),
            "paused": len(paused),
            "disabled": len(disabled),
            "given_up": progress.refused,
            "invalid": len(self._registry.refused),
        }
        progress.more = more

    def _problem(self, disabled: Sequence[str], failing: Mapping[str, Courier]) -> str:
        if disabled:
            which, reason = disabled[0], self._healths[disabled[0]].reason
            more = f", and {len(disabled) - 1} more" if len(disabled) > 1 else ""
            return f"endpoint {which} is disabled ({reason}){more}: headrace webhook resume {which}"
        for endpoint_id, courier in failing.items():
            more = f", and {len(failing) - 1} more" if len(failing) > 1 else ""
            return f"endpoint {endpoint_id} fails ({courier.problem}){more}"
        for endpoint_id, sentence in self._registry.refused.items():
            return f"endpoint {endpoint_id} cannot be: {sentence}"
        return ""

    def _lag(self, cluster: Cluster) -> int:
        ends: dict[tuple[str, int], int] = {}
        lag = 0
        for courier in self._couriers.values():
            topic = courier.endpoint.topic
            for partition, place in self._places.get((courier.endpoint.id, courier.topic), {}).items():
                if (topic, partition) not in ends:
                    with suppress(ClientError):
                        where = TopicPartition(topic, partition)
                        ends[topic, partition] = bounds(cluster, [where], committed=True)[where].end
                lag += max(0, ends.get((topic, partition), 0) - place.offset)
        return lag


__all__ = ["PLACES", "SenderSettings", "WebhookSender"]
