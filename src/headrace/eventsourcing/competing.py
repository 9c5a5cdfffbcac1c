"""Events shared among several programs: each has some of them, and says what became of each.

    with compete(store, "mailing") as events:
        for each in events:
            send_mail(each.event)
            each.ack()

The store is a topic, and whoever competes is a member of a share group (`queues/`): an event that was taken and not
finished comes again, to somebody else if its program has died; one that was rejected, or came too often, is a dead
letter, as is one that cannot be decoded. Events of different streams come in any order, and with `ordered` those of one
stream one after the other. Another `group` has all events for itself. A store in a database has no share groups.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

from headrace.client.admin import alter_group_configs
from headrace.client.errors import ClientError
from headrace.client.share import FEATURE
from headrace.eventsourcing.broker_store import BrokerEventStore
from headrace.eventsourcing.errors import (
    InvalidSubscription,
    StoreUnavailable,
    UndecodableEvent,
    UnknownEventType,
)
from headrace.eventsourcing.event_records import read_stored
from headrace.eventsourcing.event_types import EVENT_TYPES, EventTypes
from headrace.eventsourcing.kafka_store import KafkaEventStore
from headrace.eventsourcing.model import ALL, Query, StoredEvent
from headrace.eventsourcing.store import EventStore
from headrace.queues.message import Duration, Message
from headrace.queues.queue import Queue
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)
_ORDER, _BY_KEY = "headrace.order", "key"
_LOOK_S: Final = 0.25


class Delivered:
    """An event that this program has, until it says what became of it, or forgets it."""

    __slots__ = ("_message", "event", "stored")

    def __init__(self, event: Any, stored: StoredEvent, message: Message) -> None:
        self.event, self.stored, self._message = event, stored, message

    def __repr__(self) -> str:
        return f"Delivered({self.event!r}, {self.stored}, delivery {self.deliveries})"

    @property
    def deliveries(self) -> int:
        """How often it was delivered, with this time."""
        return self._message.deliveries

    def ack(self) -> None:
        """It is done: it is not delivered again. Sent soon; `flush` waits until it is durable."""
        self._message.ack()

    def retry(self, after: Duration | None = None, reason: str = "") -> None:
        """It is to be delivered again, at once or not before `after`."""
        self._message.retry(after, reason)

    def reject(self, reason: str = "") -> None:
        """It is never to be delivered again, and becomes a dead letter."""
        self._message.reject(reason)


class CompetingSubscription:
    """The events that this program has of a group; close it, or use it in a `with` block."""

    def __init__(self, queue: Queue, query: Query, types: EventTypes) -> None:
        self._queue, self._query, self._types = queue, query, types

    def get(self, timeout_s: float | None = None) -> Delivered | None:
        """The next event; None if none came in time, or it was closed."""
        while (message := self._queue.get(timeout_s)) is not None:
            if (delivered := self._open(message)) is not None:
                return delivered
        return None

    def _open(self, message: Message) -> Delivered | None:
        stored = read_stored(message.record)
        if stored is None or not self._query.matches(stored.stream, stored):
            message.ack()  # not what this group is for
            return None
        try:
            return Delivered(self._types.decode(stored), stored, message)
        except (UndecodableEvent, UnknownEventType) as error:
            _log.warning("an event was set aside as a dead letter", group=self._queue.group, error=str(error))
            message.reject(str(error))
            return None

    def __iter__(self) -> Iterator[Delivered]:
        """Events as they come, until it is closed."""
        while (delivered := self.get()) is not None:
            yield delivered

    async def __aiter__(self) -> AsyncIterator[Delivered]:
        while not self._queue.receiver.is_closed:
            if (delivered := await asyncio.to_thread(self.get, _LOOK_S)) is not None:
                yield delivered

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until what was said of events is durable; whether it is, in this time."""
        return self._queue.flush(timeout_s)

    def close(self) -> None:
        """Send what was said of events, give back the others, leave the group."""
        self._queue.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def compete(
    store: EventStore,
    group: str,
    query: Query = ALL,
    *,
    types: EventTypes = EVENT_TYPES,
    ordered: bool = False,
    prefetch: int = 16,
    max_deliveries: int | None = None,
    lock: Duration | None = None,
    kafka: Mapping[str, str] | None = None,
) -> CompetingSubscription:
    """Take events of a store in a topic together with others of the same group; the group begins with the first event.

    With `ordered`, which is set for the group, the next event of a stream comes when the one before is finished; it
    takes Headrace's own broker. `prefetch`, `max_deliveries`, `lock` and `kafka` are those of `headrace.Queue`.
    """
    if not isinstance(store, BrokerEventStore | KafkaEventStore):
        raise InvalidSubscription(
            f"events in {store} cannot be competed for, as a database has no share groups: have them flow to a topic "
            "first, and take them from a store on that topic"
        )
    queue = Queue(
        store.topic, store.bootstrap_servers, group=group, values="bytes", prefetch=prefetch,
        max_deliveries=max_deliveries, lock=lock, kafka=kafka,
    )  # fmt: skip
    if ordered:
        try:
            with queue.connect() as cluster:
                if FEATURE not in cluster.any_broker().features:
                    raise InvalidSubscription(
                        f"the Kafka at {cluster} keeps no order in share groups: leave `ordered` out, or use "
                        "Headrace's own broker"
                    )
                alter_group_configs(cluster, group, changes={_ORDER: _BY_KEY})
        except ClientError as error:
            raise StoreUnavailable(str(error)) from error
    return CompetingSubscription(queue, query, types)
