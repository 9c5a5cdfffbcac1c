"""The broker's own runtime in virtual time, on a disk that forgets what was not synced when the power fails."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from types import GeneratorType
from typing import Any, TypeVar
from unittest.mock import patch
from uuid import UUID

from headrace.broker.config import LOOPBACK, BrokerConfig
from headrace.broker.handler import Context
from headrace.broker.registry import HANDLERS
from headrace.broker.runtime import Runtime
from headrace.broker.turns import Deferred, run_through
from headrace.coordinator.decision import Decision
from headrace.protocol.schema import Message
from headrace.storage.errors import NotDurable, StorageError
from headrace.storage.log import Log
from headrace.testing.clock import FakeClock
from headrace.testing.filesystem.faults import SimulatedCrash
from headrace.testing.memory_filesystem import MemoryFileSystem
from tests.simulation.virtual_loop import VirtualLoop

T = TypeVar("T")
SETTINGS = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "2"}

_NAMES_UUIDS = tuple(
    f"headrace.{module}.uuid4"
    for module in (
        "broker.groups",
        "broker.handlers.client_metrics",
        "broker.identity",
        "broker.topics",
        "storage.directory",
    )
)


class Idle:
    """Housekeeping that does nothing: threads have no place in a simulation."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class SimulatedRuntime(Runtime):
    """The broker, whose disk takes a while, on the simulation's clock."""

    def __init__(
        self, disk: MemoryFileSystem, clock: FakeClock, chance: random.Random, settings: Mapping[str, str]
    ) -> None:
        super().__init__(BrokerConfig("/data", settings=settings), filesystem=disk, clock=clock)
        self._housekeeper = Idle()  # type: ignore[assignment]
        self._chance = chance
        self.is_up = True

    def _when_durable(self, log: Log, offset: int, done: Callable[[StorageError | None], None]) -> None:
        cuts = log.cuts

        def sync() -> None:
            if not self.is_up:
                return
            try:
                log.flush()
            except StorageError as error:
                done(error)
            else:
                done(None if log.cuts == cuts else NotDurable(str(log.topic_partition), offset))

        asyncio.get_running_loop().call_later(self._chance.randrange(1, 20) / 1000, sync)

    async def in_thread(self, work: Callable[[], T]) -> T:
        await asyncio.sleep(self._chance.randrange(0, 3) / 1000)
        if not self.is_up:
            raise ConnectionError
        return work()

    look_up = in_background = in_thread

    def run_in_background(self, work: Callable[[], object]) -> None:
        work()

    def watch_groups(self, on_step: Callable[[Decision], None]) -> None:
        """Have `on_step` called whenever the group coordinator has decided, written and applied something."""
        shell = self.groups._shell
        write = shell._write

        def step(decision: Decision, now_ms: int) -> bool:
            is_written = write(decision, now_ms)
            if is_written:
                on_step(decision)
            return is_written

        shell._write = step  # type: ignore[method-assign]


class SimulatedBroker:
    """A broker that is up again as soon as it has crashed, and whom to ask."""

    def __init__(self, chance: random.Random, clock: FakeClock, settings: Mapping[str, str] = SETTINGS) -> None:
        self.chance, self.clock = chance, clock
        self.disk = MemoryFileSystem()
        self.steps: Counter[str] = Counter()
        self._settings = settings
        self._pending: list[asyncio.Future[Message]] = []
        self._start()

    def _start(self) -> None:
        self.broker = SimulatedRuntime(self.disk, self.clock, self.chance, self._settings)
        self._prepare()
        self.broker.start()

    def _prepare(self) -> None:
        """Do what has to be done before the broker starts, each time."""

    def crash(self) -> None:
        """The power fails, and comes back."""
        self.broker.is_up = False
        self.close()
        self.disk = self.disk.crash(self.chance)
        for waiting in self._pending:
            if not waiting.done():
                waiting.set_exception(ConnectionError())
        self._pending.clear()
        self._start()

    def close(self) -> None:
        """Let no timer fire any more."""
        self.broker.queues.close()
        self.broker.events.close()
        self.broker.events.let_go()
        self.broker.finished.close()
        self.broker.metadata.close()
        self.broker.groups.close()
        self.broker.shares.close()
        self.broker.transactions.close()

    async def ask(self, request: Message, version: int, *, on_sent: Callable[[], None] = lambda: None) -> Any:
        """The broker's answer; ConnectionError if it crashed, or hung up. `on_sent`: the request is there just now."""
        await asyncio.sleep(self.chance.randrange(0, 4) / 1000)
        context = Context(self.broker, version, "simulated", {}, "127.0.0.1", LOOPBACK)
        on_sent()
        answer = HANDLERS[type(request).__schema__.api_key or 0].run(context, request)
        if isinstance(answer, GeneratorType):
            answer = run_through(answer)
        if not isinstance(answer, Deferred | Coroutine):
            return answer
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending.append(waiting)

        def told(response: Message | None) -> None:
            if not waiting.done():
                waiting.set_result(response) if response else waiting.set_exception(ConnectionError())

        if isinstance(answer, Deferred):
            answer.then(told, lambda _: told(None))
            waiting.add_done_callback(lambda _: answer.abandon())  # as when a connection is closed
        else:
            answering = asyncio.ensure_future(answer)
            answering.add_done_callback(lambda done: told(None if done.cancelled() else done.result()))
        return await waiting


def run_simulation(
    seed: int, simulate: Callable[[random.Random, FakeClock], Any], make_loop: type[VirtualLoop] = VirtualLoop
) -> Counter[str]:
    """Run it to its end in virtual time; the same seed makes the same run."""
    print(f"HEADRACE_SEED={seed}")
    clock = FakeClock()
    loop = make_loop(clock)
    failures: list[BaseException] = []  # in what the loop calls by itself, timers above all

    def failed(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        # What a broker that has crashed had yet to do in this round of the loop ends at its disk.
        if error is not None and not isinstance(error, ConnectionError | SimulatedCrash):
            failures.append(error)

    loop.set_exception_handler(failed)
    names = random.Random(seed)
    patches = [patch(name, lambda: UUID(int=names.getrandbits(128), version=4)) for name in _NAMES_UUIDS]
    for each in patches:
        each.start()
    try:
        steps: Counter[str] = loop.run_until_complete(simulate(random.Random(seed), clock))
    finally:
        for each in patches:
            each.stop()
        for task in (left := asyncio.all_tasks(loop)):
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
        loop.close()
        if failures:
            raise failures[0]
    print(dict(steps))
    return steps
