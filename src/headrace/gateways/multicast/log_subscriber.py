"""A topic heard live from the group in which a gateway publishes it, and read from the log wherever that is not enough.

Who comes late, misses something for good, or is too slow, reads the log for what is missing and goes on live; while
nobody is heard who has published the topic in the group, the log is looked at every second. Decided in `joining.py`;
here are the group and the cluster.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self

from headrace.client.address import Address, parse_bootstrap
from headrace.client.cluster import PATIENT, Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ClientError, OffsetOutOfRange, TopicReplaced
from headrace.client.fetch import FetchOptions, check_id
from headrace.client.offsets import Bounds, bounds
from headrace.client.reader import read_records
from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Overload
from headrace.gateways.multicast.events import Ended, Lost
from headrace.gateways.multicast.group import LOOPBACK, Group
from headrace.gateways.multicast.joining import Joining, TopicRecord
from headrace.gateways.multicast.message import Message
from headrace.gateways.multicast.stream import ReceivingSettings
from headrace.gateways.multicast.subscriber import QUEUE_BYTES, Subscriber
from headrace.gateways.multicast.wire import Session
from headrace.model import TopicPartition
from headrace.protocol.schema import ZERO_UUID
from headrace.retry import Backoff
from headrace.telemetry.logs import RareLines, get_logger

_OPTIONS: Final = FetchOptions(max_wait_ms=200, committed=True)
_AT_ONCE: Final = 1_024
_LOOK_EVERY_S: Final = 1.0
_BACKOFF: Final = Backoff(0.1, 2.0)
_log = RareLines(get_logger(__name__), quiet_s=1.0)


class TopicGap(NamedTuple):
    """Offsets that the log does not have any more: from `first`, up to but without `end`."""

    partition: int
    first: int
    end: int


class LogSubscriber:
    """Records of a topic: iterate over it; `start` is `latest`, `earliest`, or the next offset of each partition.

    What the log had let go before it was read is given to `on_gap`. `positions` says where another one would go on.
    `is_caught_up` says whether records come live.
    """

    def __init__(
        self,
        group: str | Group,
        bootstrap: str | Sequence[Address],
        topic: str,
        *,
        start: Literal["latest", "earliest"] | Mapping[int, int] = "latest",
        interface: str = LOOPBACK,
        key: bytes | None = None,
        queue_bytes: int = QUEUE_BYTES,
        settings: ReceivingSettings | None = None,
        client: ConnectionSettings | None = None,
        on_gap: Callable[[TopicGap], object] | None = None,
    ) -> None:
        if isinstance(start, str) and start not in ("latest", "earliest"):
            raise GatewayError(f"start = {start!r} cannot be: say latest, earliest, or an offset for each partition")
        self.topic = topic
        self.on_gap = on_gap
        self.waiting = ""
        self.from_log = 0  # records
        self.from_group = 0
        self._bootstrap = parse_bootstrap(bootstrap) if isinstance(bootstrap, str) else tuple(bootstrap)
        self._client = client or ConnectionSettings(client_id="headrace-multicast-log")
        self._start = start
        self._joining: Joining | None = None
        self._topic_id: str | None = None
        self._origin_id: bytes = ZERO_UUID  # as messages have it
        self._has_to_look = True
        self._looked_at = 0.0
        self._carriers: set[Session] = set()  # that are heard, and have brought records of the topic
        self._is_closed = False
        self._ready: deque[TopicRecord | TopicGap] = deque()
        self._positions: dict[int, int] = {}
        # It listens before it asks where the log ends: nothing can pass between the two.
        self._subscriber = Subscriber(
            group,
            interface=interface,
            key=key,
            queue_bytes=queue_bytes,
            settings=settings,
            overload=Overload.DROP_OLDEST,
        )

    # --- for programs

    def __iter__(self) -> Iterator[TopicRecord]:
        for event in self.events():
            if isinstance(event, TopicRecord):
                yield event
            elif self.on_gap is not None:
                self.on_gap(event)
            else:
                _log.warning("log does not hold what is missing", topic=self.topic, first=event.first, end=event.end)

    def events(self) -> Iterator[TopicRecord | TopicGap]:
        """Records, and what cannot be had any more, until it is closed."""
        failures = 0
        yield from self._hand_out()
        while not self._is_closed:
            try:
                with Cluster(self._bootstrap, self._client, retry=PATIENT.at_most(2)) as cluster:
                    for _ in self._turns(cluster):
                        failures = 0
                        yield from self._hand_out()
            except TopicReplaced as error:
                raise GatewayError(
                    f"topic {self.topic} was deleted and made again, and its offsets begin anew: begin again as well"
                ) from error
            except OffsetOutOfRange:
                self._has_to_look = True  # the log let go of what was about to be read
            except ClientError as error:
                failures += 1
                self.waiting = f"for the broker: {error}"
                # What comes live is emitted meanwhile as far as nothing is missing.
                until = time.monotonic() + _BACKOFF.pause_s(failures)
                while not self._is_closed and (left := until - time.monotonic()) > 0:
                    self._hear(left)
                    yield from self._hand_out()

    @property
    def positions(self) -> dict[int, int]:
        """Of each partition, the offset behind what was handed out; none before the log was asked."""
        return dict(self._positions)

    @property
    def is_caught_up(self) -> bool:
        return self._joining is not None and not self._has_to_look and not self._joining.targets

    @property
    def doubles(self) -> int:
        """Live messages that had been emitted already, and were left out."""
        return self._joining.doubles if self._joining is not None else 0

    def close(self) -> None:
        self._is_closed = True
        self._subscriber.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _hand_out(self) -> Iterator[TopicRecord | TopicGap]:
        """What is ready; whoever breaks off and iterates again goes on with what is left."""
        while self._ready:
            event = self._ready.popleft()
            self._positions[event.partition] = event.end if isinstance(event, TopicGap) else event.offset + 1
            yield event

    def _emit(self, records: list[TopicRecord]) -> None:
        for record in records:
            self.from_group += record.is_live
            self.from_log += not record.is_live
        self._ready.extend(records)

    # --- the group

    def _hear(self, timeout_s: float) -> None:
        joining = self._joining
        if joining is None:  # where it begins is not known yet: what comes waits in the inbox
            time.sleep(min(timeout_s, 0.1))
            return
        for event in self._subscriber.take(_AT_ONCE, timeout_s):
            if isinstance(event, Message):
                if event.origin is None or event.origin.topic != self.topic:
                    continue
                if event.origin.topic_id in (self._origin_id, ZERO_UUID):
                    self._carriers.add(event.session)
                    self._emit(joining.live(event, event.origin))
                else:
                    self._has_to_look = True  # another topic has this name by now, or a gateway goes on with one before
            elif isinstance(event, Ended):
                self._carriers.discard(event.session)
                self._has_to_look = True
            elif isinstance(event, Lost):
                self._carriers.clear()  # what found no room may have been an end
                self._has_to_look = True

    # --- the log

    def _turns(self, cluster: Cluster) -> Iterator[None]:
        """One turn after another: some of the log, or what the group has."""
        topic = cluster.topic(self.topic, refresh=True)
        if self._topic_id is None:
            self._topic_id, self._origin_id = topic.id_text, topic.id
        check_id(topic, self._topic_id)
        if self._joining is None:
            self._joining = Joining(self._first_positions(cluster))
            self._positions = self._joining.positions
        joining = self._joining
        self.waiting = ""
        while not self._is_closed:
            now = time.monotonic()
            is_alone = not self._carriers
            if self._has_to_look or (is_alone and now >= self._looked_at + _LOOK_EVERY_S):
                self._has_to_look, self._looked_at = False, now
                try:
                    check_id(cluster.topic(self.topic, refresh=True), self._topic_id)
                    held = self._bounds(cluster)
                except ClientError:
                    self._has_to_look = True
                    raise
                for number, bound in held.items():
                    joining.look({number: bound.end})
                    self._miss(joining, number, bound)
            if joining.targets:
                yield from self._read_log(cluster, joining)
            else:
                self._hear(_LOOK_EVERY_S if not is_alone else _LOOK_EVERY_S / 4)
                yield

    def _miss(self, joining: Joining, number: int, held: Bounds) -> None:
        if missed := joining.begins_at(number, held.start):
            self._ready.append(TopicGap(number, *missed))

    def _bounds(self, cluster: Cluster) -> dict[int, Bounds]:
        partitions = cluster.partitions(self.topic)
        return {where.partition: held for where, held in bounds(cluster, partitions, committed=True).items()}

    def _first_positions(self, cluster: Cluster) -> dict[int, int]:
        held = self._bounds(cluster)
        if isinstance(self._start, str):
            return {number: each.end if self._start == "latest" else each.start for number, each in held.items()}
        unknown = self._start.keys() - held.keys()
        if unknown:
            raise GatewayError(f"topic {self.topic} has no partition {min(unknown)}: it has {len(held)}, from 0")
        for number, offset in self._start.items():
            if not 0 <= offset <= held[number].end:
                raise GatewayError(
                    f"offset {offset} of partition {number} is not in topic {self.topic}, which ends at "
                    f"{held[number].end}: name one up to there"
                )
        return {number: self._start.get(number, each.end) for number, each in held.items()}

    def _read_log(self, cluster: Cluster, joining: Joining) -> Iterator[None]:
        targets = joining.targets
        for number, bound in self._bounds(cluster).items():
            if number in targets:
                self._miss(joining, number, bound)
        yield
        targets = joining.targets
        until = {TopicPartition(self.topic, number): target for number, target in targets.items()}
        starts = {where: joining.positions[where.partition] for where in until}
        if not starts:
            return
        reached: dict[TopicPartition, int] = {}
        ids = {self.topic: self._topic_id} if self._topic_id else None
        for read in read_records(cluster, starts, until=until, options=_OPTIONS, ids=ids, reached=reached):
            found: dict[int, list[TopicRecord]] = {where.partition: [] for where in reached}
            for where, record in read:
                headers = tuple((header.name, header.value) for header in record.headers)
                found[where.partition].append(
                    TopicRecord(
                        where.partition, record.offset, record.key, record.value, headers, record.timestamp,
                        is_live=False,
                    )
                )  # fmt: skip
            for where in list(reached):
                self._emit(joining.read(where.partition, found[where.partition], min(reached[where], until[where])))
            self._hear(0)  # also meanwhile: what comes live must not find its inbox full
            yield
            if self._is_closed:
                return
