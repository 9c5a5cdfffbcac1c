"""The metrics of clients (KIP-714): which ones they are asked for, and what they pushed last.

A subscription is a client-metrics resource: beginnings of names, an interval, and which clients it is for. A client is
asked for what all subscriptions that match it name together, at the shortest of their intervals. What always holds:
memory is bounded by `MAX_CLIENTS`, `MAX_SERIES` and `MAX_TEXT_BYTES`, whatever clients push; time and fresh ids are
arguments.
"""

from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import re2

from headrace.broker.errors import BrokerError
from headrace.broker.settings.setting import INT, LIST, InvalidSetting, Setting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Uuid
from headrace.records import Codec
from headrace.records.checksum import crc32c
from headrace.telemetry.otlp import Point

MAX_CLIENTS: Final = 1_000
MAX_SERIES: Final = 500  # of a client
MAX_TEXT_BYTES: Final = 65_536  # of a client's names and attributes together
ACCEPTED_CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
DEFAULT_INTERVAL_MS: Final = 300_000
_EXPIRY_MS: Final = 60_000  # or three intervals: after that a silent client is forgotten
_EVERYTHING: Final = "*"
_RESERVED: Final = 3  # ids of instances that Kafka keeps for itself: the smallest ones
CLIENT_METRICS_SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting
    for setting in (
        Setting("interval.ms", INT, "300000", "How often a client pushes, from 100 ms to an hour."),
        Setting("match", LIST, "", "Which clients push: `client_id=…` and so on, regular expressions; empty for all."),
        Setting("metrics", LIST, "", "What they push: beginnings of names, or * for everything; empty for nothing."),
    )
}
_MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


class Client(NamedTuple):
    """Who asks, as a subscription can match it."""

    client_id: str
    software_name: str
    software_version: str
    address: str
    port: int


def parse_match(text: str) -> dict[str, Any]:
    """Which clients a subscription is for: a regular expression for each of their properties that is named."""
    patterns = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, pattern = part.partition("=")
        if name.strip() not in _MATCHED or not pattern or "=" in pattern:
            raise InvalidSetting(f"match={part!r} is not one of {', '.join(_MATCHED)}, `=`, and a regular expression")
        try:
            patterns[name.strip()] = re2.compile(pattern.strip())
        except re2.error as error:
            raise InvalidSetting(f"match={part!r} is not a regular expression: {error}") from None
    return patterns


class Subscription(NamedTuple):
    metrics: frozenset[str]
    interval_ms: int
    match: Mapping[str, Any]

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> "Subscription":
        text = {name: settings.get(name, setting.default) for name, setting in CLIENT_METRICS_SETTINGS.items()}
        metrics = frozenset(filter(None, (each.strip() for each in text["metrics"].split(","))))
        return cls(metrics, int(text["interval.ms"]), parse_match(text["match"]))

    def fits(self, instance_id: Uuid, client: Client) -> bool:
        values = dict(zip(_MATCHED, (_show(instance_id), *map(str, client)), strict=True))
        return all(pattern.fullmatch(values[name]) for name, pattern in self.match.items())


@dataclass(slots=True)
class Instance:
    """A client that asked what to push, and what came of it."""

    id: Uuid
    client: Client
    metrics: tuple[str, ...]
    interval_ms: int
    revision: int  # of the subscriptions
    asked_ms: int = 0
    pushed_ms: int = 0
    seen_ms: int = 0
    is_ended: bool = False
    is_outdated: bool = False  # what it pushed by: so it may ask at once
    pushes: int = 0
    refused: int = 0
    throttled: int = 0
    dropped: int = 0  # points beyond what is kept
    series: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)
    text_bytes: int = 0

    @property
    def subscription_id(self) -> int:
        """Another one whenever the client is asked for something else."""
        asked = crc32c(f"{self.metrics}{self.interval_ms}".encode() + self.id)
        return asked - 2**32 if asked >= 2**31 else asked

    def ask(self, now_ms: int) -> None:
        if self._is_within(max(self.asked_ms, self.pushed_ms), now_ms) and not self.is_outdated:
            raise self._too_early()
        self.asked_ms, self.is_outdated = now_ms, False

    def push(self, now_ms: int, *, is_last: bool) -> None:
        """Take note of a push; the first after the question may come early, since clients spread theirs."""
        if self.is_ended:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "the client said that its last push was its last")
        self.is_ended = is_last
        if self.asked_ms > self.pushed_ms or not self._is_within(self.pushed_ms, now_ms):
            self.pushed_ms = now_ms
        elif not is_last:
            raise self._too_early()

    def _is_within(self, last_ms: int, now_ms: int) -> bool:
        """Whether the interval since then is not over; a clock that was set back keeps nobody waiting for it."""
        return 0 <= now_ms - last_ms < self.interval_ms

    def _too_early(self) -> BrokerError:
        self.throttled += 1
        return BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"the client is to push every {self.interval_ms} ms")

    def take_in(self, points: Iterable[Point]) -> None:
        """Keep the latest value of each series; deltas add up."""
        self.pushes += 1
        for point in points:
            key = (point.name, point.attributes)
            before = self.series.get(key)
            if before is None:
                size = len(point.name) + sum(len(name) + len(value) for name, value in point.attributes)
                if len(self.series) >= MAX_SERIES or self.text_bytes + size > MAX_TEXT_BYTES:
                    self.dropped += 1
                    continue
                self.text_bytes += size
            self.series[key] = point.value + (before or 0.0) if point.is_delta else point.value


class Sample(NamedTuple):
    """A number for whoever shows metrics, with its labels."""

    name: str
    labels: Mapping[str, str]
    value: float


class ClientMetrics:
    """Subscriptions and instances."""

    def __init__(self) -> None:
        self._subscriptions: list[Subscription] = []
        self._settings: Mapping[str, Mapping[str, str]] = {}
        self._revision = 0
        self._instances: OrderedDict[Uuid, Instance] = OrderedDict()  # the one that was silent for longest first

    def subscribe(self, settings: Mapping[str, Mapping[str, str]]) -> None:
        """Follow other subscriptions: each client is told when it is next heard of. What is invalid was never set."""
        settings = {name: dict(each) for name, each in settings.items()}
        if settings == self._settings:
            return
        self._settings = settings
        self._subscriptions = []
        for each in settings.values():
            try:
                self._subscriptions.append(Subscription.of(each))
            except (InvalidSetting, ValueError):
                continue
        self._revision += 1

    def instance(self, instance_id: Uuid, client: Client, now_ms: int) -> Instance:
        """The instance as it is subscribed now; one that is new, or whose subscriptions changed, begins anew."""
        known = self._instances.get(instance_id)
        if known is None or known.revision != self._revision:
            fitting = [each for each in self._subscriptions if each.fits(instance_id, client)]
            metrics = frozenset().union(*(each.metrics for each in fitting))
            asked = (_EVERYTHING,) if _EVERYTHING in metrics else tuple(sorted(metrics))
            interval_ms = min((each.interval_ms for each in fitting), default=DEFAULT_INTERVAL_MS)
            kept = known or Instance(instance_id, client, (), 0, 0)
            self._instances[instance_id] = Instance(
                instance_id,
                client,
                asked,
                interval_ms,
                self._revision,
                pushes=kept.pushes,
                refused=kept.refused,
                throttled=kept.throttled,
                dropped=kept.dropped,
                series=kept.series,
                text_bytes=kept.text_bytes,
            )
        self._instances.move_to_end(instance_id)
        instance = self._instances[instance_id]
        instance.seen_ms = now_ms
        self._forget(now_ms)
        return instance

    def _forget(self, now_ms: int) -> None:
        while self._instances:
            oldest = next(iter(self._instances.values()))
            is_silent = now_ms - oldest.seen_ms > max(_EXPIRY_MS, 3 * oldest.interval_ms)
            if not is_silent and len(self._instances) <= MAX_CLIENTS:
                return
            del self._instances[oldest.id]

    def samples(self) -> Iterator[Sample]:
        """Everything that is known, for whoever shows it."""
        for each in list(self._instances.values()):
            labels = {
                "client_instance_id": _show(each.id),
                "client_id": each.client.client_id,
                "client_software_name": each.client.software_name,
                "client_software_version": each.client.software_version,
            }
            for name in ("pushes", "refused", "throttled", "dropped"):
                yield Sample(f"client_metrics_{name}", labels, getattr(each, name))
            for (name, attributes), value in each.series.items():
                yield Sample(name, dict(attributes) | labels, value)


def is_reserved(instance_id: Uuid) -> bool:
    return int.from_bytes(instance_id, "big") < _RESERVED


def _show(instance_id: Uuid) -> str:
    """As Kafka's tools write it."""
    return urlsafe_b64encode(instance_id).decode().rstrip("=")
