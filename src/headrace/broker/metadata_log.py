"""The broker's metadata at work: a hidden topic, and the state that is read from it at the start.

What is decided is written, applied, and answered once it is durable, as a coordinator's decisions are. No client sees
the topic by any API: what is in it is asked for and changed by the requests that are made for that.
"""

from collections.abc import Callable
from typing import Any, Protocol

from headrace.broker.coordinator_log import CoordinatorLog, replay
from headrace.broker.coordinator_shell import CoordinatorShell, Durability
from headrace.broker.topics import TopicCatalog
from headrace.coordinator.decision import Answer, CoordinatorRecord, Decision, RequestToken
from headrace.coordinator.metadata import METADATA_TOPIC, RECORD_TYPES, MetadataChange, MetadataImage
from headrace.protocol.schema import Message


class _Changed:
    """The effect of a change: whoever follows the image looks at it."""


class MetadataRuntime(Durability, Protocol):
    async def in_thread(self, work: Callable[[], Any]) -> Any: ...


class MetadataLog:
    def __init__(self, runtime: MetadataRuntime, topics: TopicCatalog, on_durable: Callable[[], None]) -> None:
        self._runtime = runtime
        self.on_change: Callable[[], None] = lambda: None  # is called after every change of the image
        self._on_durable = on_durable  # is called once a change is durable, and when all was read again
        self.image = MetadataImage()
        self.log = CoordinatorLog(
            topics, METADATA_TOPIC, partitions=1, encode=RECORD_TYPES.encode, owner_of=lambda _: METADATA_TOPIC
        )
        self._shell = CoordinatorShell(
            runtime,
            self.log,
            decide=lambda event, _: event(self.image),
            apply=self._apply,
            on_timer=lambda _: True,  # there are no timers
            on_effect=lambda _: self._on_durable(),
            load=self.load,
        )

    def load(self) -> None:
        """Take in what was written; or do so anew."""
        self.image = MetadataImage()
        self.log.note_cuts()
        for log in self.log.partitions():
            replay(log, RECORD_TYPES.decode, lambda record, _: self.image.apply(record))
        self.on_change()
        self._on_durable()

    def _apply(self, record: CoordinatorRecord, _: int) -> None:
        self.image.apply(record)
        self.on_change()

    async def change(self, decide: Callable[[MetadataImage], MetadataChange]) -> Message | None:
        """Decide on the state as it is now, write it, and answer once it is durable; None if it cannot be written."""
        if not self.log.is_made:
            await self._runtime.in_thread(self.log.make)

        def event(token: RequestToken) -> Callable[[MetadataImage], Decision]:
            return lambda image: _decision_on(decide(image), token)

        return await self._shell.request(event)

    def close(self) -> None:
        self._shell.close()


def _decision_on(change: MetadataChange, token: RequestToken) -> Decision:
    effects = (_Changed(),) if change.records else ()
    return Decision(answers=(Answer(token, change.response),), records=tuple(change.records), effects=effects)
