"""A broker's life under requests of any kind, in process and in virtual time: the same seed makes the same life.

The broker is the real one from its connections down to the bytes of its files; only the sockets, the clock, the threads
and the disk are a simulation's. Clients come and go, with and without a login, and send what `frames.py` writes. Beside
them a neighbour produces and fetches, and has to get back what it sent.

What has to hold, or the life ends with `Broken`:
- nothing is logged with a traceback, and no callback or task fails;
- every answer can be read as its declaration says;
- every batch that is served or stored is whole by its checksum;
- the neighbour is served, before and after a power cut, and finds every record that was acknowledged;
- after the power cut the broker starts, and can use everything that it wrote itself; compaction and retention run.
"""

import asyncio
import hashlib
import logging
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from struct import Struct as Layout
from typing import Any, NamedTuple
from unittest.mock import patch

from headrace.broker.config import LOOPBACK, Listener
from headrace.broker.connection import Connection
from headrace.broker.endpoint import Access, Endpoint
from headrace.errors import HeadraceError
from headrace.protocol.api import APIS, ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.frame import decode_response, encode_request
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.schema import Message
from headrace.records import Record, build_batch, crc_of, headers_in
from headrace.security.scram import salt_password
from headrace.testing.clock import FakeClock
from tests.fuzz.frames import FrameWriter, Vocabulary, error_codes, raw_bytes
from tests.simulation.simulated_broker import SETTINGS, SimulatedBroker, run_simulation
from tests.simulation.virtual_loop import VirtualLoop

FRAMES_A_LIFE = 1000
PATIENCE_S = 24 * 3600  # of the neighbour, in virtual time: quotas that the others set may keep it waiting
_SOME_DISK = os.statvfs("/")  # whose room is shown: a disk in memory has none
# What is logged as an error, and right: somebody who may do so has deleted a topic of the broker's.
_EXPECTED = {"a coordinator's topic, or the end of it, is gone: its state is read anew"}
_START = Layout(">hhi")
_TOPICS: tuple[tuple[str, int, dict[str, str]], ...] = (
    ("f0", 2, {"segment.ms": "2000"}),
    ("f1", 1, {}),
    ("f-compacted", 1, {"cleanup.policy": "compact", "segment.ms": "500"}),
)
_NEIGHBOURS_TOPIC = "n-4711"  # nobody else knows the name


class Broken(Exception):
    """What should hold does not."""


class Event(NamedTuple):
    """What a client did: `open`, `send`, `close`; a `pause`, in milliseconds; or `tend`, a look after everything."""

    what: str
    client: int = 0
    data: bytes = b""
    number: int = 0


class Loop(VirtualLoop):
    """Virtual time, sockets that are objects, and threads that are through at once."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.readers: dict[int, Callable[[], None]] = {}

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:
        self.readers[fd] = lambda: callback(*args)

    def remove_reader(self, fd: Any) -> bool:
        return self.readers.pop(fd, None) is not None

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class Socket:
    """Both ends of a socket, without one."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.inbox = bytearray()
        self.outbox = bytearray()
        self.is_ended = False

    def fileno(self) -> int:
        return self._number

    def recv_into(self, buffer: memoryview, /) -> int:
        count = min(len(self.inbox), len(buffer))
        if not count and not self.is_ended:
            raise BlockingIOError
        buffer[:count] = self.inbox[:count]
        del self.inbox[:count]
        return count

    def sendmsg(self, parts: list[Any], /) -> int:
        for part in parts:
            self.outbox += part
        return sum(map(len, parts))

    def getsockopt(self, level: int, name: int, /) -> int:
        return 0

    def setsockopt(self, level: int, name: int, value: int, /) -> None: ...

    def shutdown(self, how: int, /) -> None: ...

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 9092)

    def getpeername(self) -> tuple[str, int]:
        return ("127.0.0.1", 10_000 + self._number)

    def close(self) -> None: ...


class Client:
    """A client's side of a connection: it sends bytes, and reads every answer."""

    def __init__(self, number: int, loop: Loop, endpoint: Endpoint, world: "World") -> None:
        self.socket = Socket(number)
        self._loop = loop
        self._asked: dict[int, list[tuple[int, int]]] = {}
        self.connection = Connection(
            self.socket,
            endpoint,
            world.broker,
            loop,
            world.shared,
            lambda _: None,  # type: ignore[arg-type]
        )

    def send(self, data: bytes) -> None:
        if len(data) >= 4 + _START.size:
            key, version, correlation_id = _START.unpack_from(data, 4)
            self._asked.setdefault(correlation_id, []).append((key, version))
        self.socket.inbox += data
        self.pump()

    def pump(self) -> None:
        while self.socket.inbox and self.socket.fileno() in self._loop.readers:
            self._loop.readers[self.socket.fileno()]()

    def answers(self) -> Iterator[tuple[int, int, Message]]:
        """What has come, decoded; an answer to a request that nobody knowingly sent is passed over."""
        box = self.socket.outbox
        while len(box) >= 8 and len(box) >= 4 + int.from_bytes(box[:4], "big"):
            size = int.from_bytes(box[:4], "big")
            frame = bytes(box[4 : 4 + size])
            del box[: 4 + size]
            asked = self._asked.pop(int.from_bytes(frame[:4], "big"), [])
            if len(asked) != 1:
                continue
            key, version = asked[0]
            if key == ApiKey.API_VERSIONS and version not in APIS[key].versions:
                version = 0
            if APIS.get(key) is None or version not in APIS[key].versions:
                continue
            try:
                yield key, version, decode_response(APIS[key].response, version, frame)[1]
            except HeadraceError as error:
                raise Broken(f"the answer to API {key} version {version} cannot be read: {error}") from error

    def end(self) -> None:
        self.connection.close()


class World(SimulatedBroker):
    """The broker, and what its clients share."""

    shared = bytearray(256 * 1024)

    def endpoints(self) -> tuple[Endpoint, Endpoint]:
        config = self.broker.config
        access = Access(config)
        access.open(self.broker.find_credential, b"secret")
        secured = Listener(LOOPBACK, "SASL_PLAINTEXT", "SASL_PLAINTEXT")
        return Endpoint(Listener(LOOPBACK), config, access), Endpoint(secured, config, access)


class Complaints(logging.Handler):
    """What the broker logs as a mistake of its own, or as damage."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: Counter[str] = Counter()
        self.broken: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.lines[text] += 1
        if text in _EXPECTED:
            return
        if record.exc_info or record.levelno >= logging.ERROR:
            facts = getattr(record, "facts", {})
            trace = "".join(traceback.format_exception(record.exc_info[1])) if record.exc_info else ""
            self.broken = self.broken or f"{text} {facts}\n{trace}"

    @contextmanager
    def listening(self) -> Iterator["Complaints"]:
        ours = logging.getLogger("headrace")
        ours.addHandler(self)
        level = ours.level
        try:
            yield self
        finally:
            ours.removeHandler(self)
            ours.setLevel(level)


class Life:
    """One broker from its start to its end, and what was done to it."""

    def __init__(self, seed: int, chance: Random, clock: FakeClock, counts: Counter[str]) -> None:
        self.seed = seed
        self.chance = chance
        self.world = World(chance, clock, {**SETTINGS, "auto.create.topics.enable": "false"})
        self.loop = asyncio.get_running_loop()
        self.counts = counts
        self.events: list[Event] = []
        self.digest = hashlib.sha256()  # of everything that was sent
        self.slowest = (0.0, -1, -1)  # seconds of one frame, its API and version
        self.complaints = Complaints()
        self.vocabulary = Vocabulary(chance)
        self._clients: dict[int, Client] = {}
        self._opened = self._sockets = 0
        self._produced: list[bytes] = []

    # --- the course of it

    async def prepare(self) -> None:
        # The neighbour's own settings, so that those that others give to the broker as a whole are not its own.
        self.world.broker.topics.create(_NEIGHBOURS_TOPIC, 1, {"max.message.bytes": "100000", "retention.ms": "-1"})
        self._make_topics()
        password = salt_password("SCRAM-SHA-256", "fuzz-secret", b"s" * 24, 4096)
        user = ScramCredentialUpsertion(
            name="fuzz", mechanism=1, iterations=4096, salt=b"s" * 24, salted_password=password
        )
        await self.world.ask(AlterUserScramCredentialsRequest(upsertions=[user]), 0)
        self._endpoints = self.world.endpoints()
        self._neighbour = self._connect(secured=False)
        await self.check_neighbour()  # whoever asks for nothing is not kept for long

    def _make_topics(self) -> None:
        """Make those that are not there, or not any more."""
        topics = self.world.broker.topics
        for name, partitions, settings in _TOPICS:
            if name not in topics.by_name:
                topics.create(name, partitions, settings)

    async def _tend(self) -> None:
        self._make_topics()
        await self.check_neighbour()

    async def run(self, frames: int) -> None:
        """Send so many frames, and look at everything."""
        writer = FrameWriter(self.vocabulary)
        chance = self.chance
        open_clients: list[int] = []
        for number in range(frames):
            if not open_clients or (len(open_clients) < 4 and chance.random() < 0.05):
                open_clients.append(await self.open(secured=chance.random() < 0.15))
            client = chance.choice(open_clients)
            _, _, data = writer.frame(number) if chance.random() < 0.98 else (0, 0, raw_bytes(chance))
            await self.do(Event("send", client, data))
            self.counts["frames"] += 1
            if chance.random() < 0.02 or client not in self._clients:
                open_clients.remove(client)
                await self.do(Event("close", client))
            if chance.random() < 0.1:
                await self.do(Event("pause", number=chance.choice((1, 10, 100, 1000, 60_000))))
            if number % 100 == 99:
                await self.do(Event("tend"))

    async def open(self, *, secured: bool) -> int:
        self._opened += 1
        number = self._opened
        await self.do(Event("open", number, number=int(secured)))
        if secured and self.chance.random() < 0.7:  # a login as it should be, and what follows it
            token = b"\0fuzz\0fuzz-secret"
            await self.do(Event("send", number, _framed(17, 1, b"\0\5PLAIN")))
            await self.do(Event("send", number, _framed(36, 1, len(token).to_bytes(4, "big") + token)))
        return number

    async def do(self, event: Event) -> None:
        """Let one thing happen, and look at what comes of it."""
        self.events.append(event)
        client = self._clients.get(event.client)
        if event.what == "open":
            self._clients[event.client] = self._connect(secured=bool(event.number))
        elif event.what == "tend":
            await self._tend()
        elif event.what == "pause":
            await asyncio.sleep(event.number / 1000)
        elif client and event.what == "send":
            self.digest.update(event.data)
            key, version, _ = _START.unpack_from(event.data.ljust(12, b"\0"), 4)
            self.counts[f"api {key} {version}"] += 1
            began_s = time.thread_time()
            client.send(event.data)
            if (took_s := time.thread_time() - began_s) > self.slowest[0]:
                self.slowest = (took_s, key, version)
        elif client and event.what == "close":
            client.end()
            del self._clients[event.client]
        await asyncio.sleep(0)
        for number, each in tuple(self._clients.items()):
            each.pump()
            self._take_answers(each)
            if each.connection.is_closed:
                self.counts["closed"] += 1
                del self._clients[number]
        self._look_for_complaints()

    def _connect(self, *, secured: bool) -> Client:
        self._sockets += 1
        return Client(self._sockets, self.loop, self._endpoints[secured], self.world)  # type: ignore[arg-type]

    def _take_answers(self, client: Client) -> None:
        for key, version, answer in client.answers():
            self.counts["answers"] += 1
            self.counts[f"answered {key} {version}"] += 1
            for code in set(error_codes(answer)):
                self.counts[f"error {code}"] += 1
            if isinstance(answer, FetchResponse):
                _check_fetched(answer)
            self.vocabulary.learn(answer)

    def _look_for_complaints(self) -> None:
        if self.complaints.broken:
            raise Broken(f"the broker logged: {self.complaints.broken}")

    # --- the neighbour

    async def check_neighbour(self) -> None:
        """It produces, and finds what it has produced, byte for byte behind what the broker rewrites."""
        number = len(self._produced)
        batch = build_batch([Record(0, 1_700_000_000_000, b"n%d" % number, b"v" * (number % 50))], codec=number % 5)
        partition = PartitionProduceData(index=0, records=batch)
        topic = TopicProduceData(name=_NEIGHBOURS_TOPIC, partition_data=[partition])
        answer: Any = await self._ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9)
        told = answer.responses[0].partition_responses[0]
        if told.error_code or told.base_offset != number:
            raise Broken(f"the neighbour's record {number} is at {told.base_offset}: {ErrorCode(told.error_code).name}")
        self._produced.append(batch)
        await self._check_produced(max(number - 3, 0))

    async def _check_produced(self, first: int) -> None:
        wanted = FetchPartition(partition=0, fetch_offset=first, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic=_NEIGHBOURS_TOPIC, partitions=[wanted])
        answer: Any = await self._ask(
            FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[topic]), 11
        )
        data = bytes(answer.responses[0].partitions[0].records or b"")
        got = [data[at + 16 : at + header.size] for at, header in headers_in(data)]
        if got != [batch[16:] for batch in self._produced[first:]]:
            raise Broken(f"the neighbour fetches {len(got)} batches from {first}, not the ones it produced")

    async def _ask(self, request: Message, version: int) -> Message:
        neighbour = self._neighbour
        for _ in range(200):
            neighbour.send(encode_request(request, version, 1, "neighbour"))
            waited_s, step_s = 0.0, 0.001
            while True:
                neighbour.pump()
                for _, _, answer in neighbour.answers():
                    if getattr(answer, "throttle_time_ms", 0) and isinstance(answer, FetchResponse):
                        break  # over a quota the answer is empty: it asks again
                    return answer
                if neighbour.connection.is_closed or waited_s > PATIENCE_S:
                    self._look_for_complaints()
                    raise Broken("the neighbour is not served any more")
                await asyncio.sleep(step_s)
                waited_s, step_s = waited_s + step_s, min(step_s * 2, 600)
                if not neighbour._asked:
                    break
        raise Broken("the neighbour is throttled without end")

    # --- the end of it

    async def end(self) -> None:
        """Whatever was stored is whole; the power fails; the broker starts again, and all goes on."""
        self._check_stored()
        for number in tuple(self._clients):
            await self.do(Event("close", number))
        directory = self.world.broker.directory
        directory.compact()
        directory.enforce_retention()
        self._look_for_complaints()
        self._neighbour.end()
        self.world.crash()
        self._look_for_complaints()
        self._endpoints = self.world.endpoints()
        self._neighbour = self._connect(secured=False)
        self._check_stored()
        await self._check_produced(0)
        await self.check_neighbour()
        self._neighbour.end()
        self.world.close()
        self._look_for_complaints()

    def _check_stored(self) -> None:
        for partition, log in self.world.broker.directory.logs.items():
            offset = log.start_offset
            while offset < log.end_offset:
                found = log.read(offset, 1 << 20).slice
                if found is None:
                    break
                data = found.read()
                for at, header in headers_in(data):
                    if crc_of(data[at : at + header.size]) != header.crc:
                        raise Broken(f"a damaged batch is stored in {partition} at offset {header.base_offset}")
                    offset = header.next_offset


def _check_fetched(answer: FetchResponse) -> None:
    for topic in answer.responses:
        for partition in topic.partitions:
            data = bytes(partition.records or b"")
            for at, header in headers_in(data):
                if crc_of(data[at : at + header.size]) != header.crc:
                    raise Broken(f"a damaged batch is served at offset {header.base_offset}")


def _framed(key: int, version: int, body: bytes) -> bytes:
    frame = _START.pack(key, version, 2**30 + key) + b"\0\4fuzz" + body
    return len(frame).to_bytes(4, "big") + frame


class Outcome(NamedTuple):
    counts: Counter[str]
    digest: str
    events: list[Event]
    failure: str | None
    slowest: tuple[float, int, int]


def live(seed: int, frames: int = FRAMES_A_LIFE, replayed: list[Event] | None = None) -> Outcome:
    """A whole life, or one in which only these events happen; what came of it."""
    counts: Counter[str] = Counter()
    lives: list[Life] = []

    async def simulate(chance: Random, clock: FakeClock) -> Counter[str]:
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            for module in ("connection", "admission", "answers", "turns", "throttling"):
                stack.enter_context(patch(f"headrace.broker.{module}.monotonic", loop.time))
            stack.enter_context(patch("headrace.broker.throttling.thread_time", lambda: 0.0))
            stack.enter_context(patch("os.statvfs", lambda _: _SOME_DISK))
            life = Life(seed, chance, clock, counts)
            lives.append(life)
            stack.enter_context(life.complaints.listening())
            await life.prepare()
            if replayed is None:
                await life.run(frames)
            else:
                for event in replayed:
                    await life.do(event)
                await life.do(Event("tend"))
            await life.end()
        return counts

    failure = None
    try:
        run_simulation(seed, simulate, Loop)
    except Exception as error:
        failure = str(error) if isinstance(error, Broken) else "".join(traceback.format_exception(error))
    life = lives[0]
    for line, count in life.complaints.lines.items():
        counts[f"log {line}"] += count
    return Outcome(counts, life.digest.hexdigest(), life.events, failure, life.slowest)
