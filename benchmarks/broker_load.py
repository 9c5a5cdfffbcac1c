"""Load from prebuilt frames: as many bytes as a broker takes or gives, at next to no cost on this side.

One process a connection, each with a blocking socket and a partition of its own. What is measured runs from the first
byte sent to the last answer; every answer's error is looked at, and the log's end afterwards.
"""

import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from broker_wire import Batch, FetchFrame, Refused, Wire, check_produced, connect, make_batch, produce_frame, read_frame
from brokers import Contender
from headrace.records import Codec

CONNECTIONS = 2
IN_FLIGHT = 5  # what Kafka's own producers have
MAX_BYTES = 1_000_000_000  # of one run, so that dirty pages and the disk stay in bounds
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Spent:
    """What one load process did, and when."""

    started: float
    ended: float
    count: int
    size_bytes: int
    cpu_seconds: float


@dataclass(frozen=True)
class Run:
    """One load on one broker."""

    seconds: float
    count: int  # of batches
    size_bytes: int
    broker_cpu_seconds: float
    load_cpu_seconds: float
    beside: tuple[Any, ...] = ()  # what the loads that ran beside it returned

    def figures(self, records: int) -> dict[str, float]:
        """The metrics of the report, for batches of this many records."""
        return {
            "mb_per_s": self.size_bytes / 1e6 / self.seconds,
            "records_per_s": self.count * records / self.seconds,
            "cpu_s_per_gb": self.broker_cpu_seconds / (self.size_bytes / 1e9),
            "load_cpu_share": self.load_cpu_seconds / self.seconds,
        }


# A load prepares itself, calls what it is given to wait for the start, and returns what it did.
Load = Callable[[Callable[[], None]], Any]


def together(loads: Sequence[Load]) -> list[Any]:
    """Run each load in a process of its own, all let go at once; what they returned."""
    with _children(loads) as pipes:
        for pipe in pipes:
            _receive(pipe)  # ready
        for pipe in pipes:
            pipe.send("go")
        return [_receive(pipe) for pipe in pipes]


def run_loads(broker: Contender, loads: Sequence[Load], beside: Sequence[Load] = ()) -> Run:
    """Run the loads, others beside them, and take the broker's clock before and after."""
    cpu = broker.cpu_seconds()
    returned = together([*loads, *beside])
    cpu = broker.cpu_seconds() - cpu
    spent: list[Spent] = returned[: len(loads)]
    return Run(
        max(each.ended for each in spent) - min(each.started for each in spent),
        sum(each.count for each in spent),
        sum(each.size_bytes for each in spent),
        cpu,
        sum(each.cpu_seconds for each in spent),
        tuple(returned[len(loads) :]),
    )


@contextmanager
def _children(loads: Sequence[Load]) -> Iterator[list[Connection]]:
    pipes, processes = [], []
    try:
        for load in loads:
            ours, theirs = _FORK.Pipe()
            process = _FORK.Process(target=_child, args=(load, theirs), daemon=True)
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        yield pipes
        for process in processes:
            process.join(10)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()


def _child(load: Load, pipe: Connection) -> None:
    def wait_for_start() -> None:
        pipe.send("ready")
        pipe.recv()

    try:
        pipe.send(load(wait_for_start))
    except (OSError, Refused, EOFError) as error:
        pipe.send(error)


def _receive(pipe: Connection) -> Any:
    answer = pipe.recv()
    if isinstance(answer, Exception):
        raise answer
    return answer


def own_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


# --- produce


def produce(broker: Contender, batch: Batch, acks: int, seconds: float, max_bytes: int = MAX_BYTES) -> Run:
    """Fill a fresh topic for so long, or with so much."""
    with broker.topic(CONNECTIONS) as topic:
        return fill(broker, topic, batch, acks, seconds, max_bytes)


def fill(
    broker: Contender,
    topic: str,
    batch: Batch,
    acks: int,
    seconds: float,
    max_bytes: int = MAX_BYTES,
    beside: Sequence[Load] = (),
) -> Run:
    """Append to a topic's partitions, and see that all of it arrived."""
    limit = max(IN_FLIGHT, max_bytes // CONNECTIONS // len(batch.data))
    with Wire(broker.address) as wire:
        before = wire.end_offsets(topic, CONNECTIONS)
    loads = [_producer(broker.address, topic, index, batch, acks, seconds, limit) for index in range(CONNECTIONS)]
    run = run_loads(broker, loads, beside)
    expected = sum(before) + run.count * batch.records
    deadline = time.monotonic() + 10
    with Wire(broker.address) as wire:
        # With acks=1 an answer may be ahead of what readers see.
        while (found := sum(wire.end_offsets(topic, CONNECTIONS))) != expected:
            if time.monotonic() > deadline:
                raise Refused(f"{expected} records ought to be in the log, {found} are")
            time.sleep(0.01)
    return run


def _producer(address: str, topic: str, partition: int, batch: Batch, acks: int, seconds: float, limit: int) -> Load:
    frame = produce_frame(topic, partition, batch, acks)

    def load(wait_for_start: Callable[[], None]) -> Spent:
        sock = connect(address)
        buffer = bytearray(64 * 1024)
        view = memoryview(buffer)
        wait_for_start()
        cpu = own_cpu_seconds()
        started = time.perf_counter()
        deadline = started + seconds
        sock.sendall(frame)
        size = read_frame(sock, buffer)  # all answers are as long as the first
        check_produced(buffer, topic)
        sent = answered = 1
        filled = 0
        while True:
            while sent - answered < IN_FLIGHT and sent < limit and time.perf_counter() < deadline:
                sock.sendall(frame)
                sent += 1
            if sent == answered:
                break
            count = sock.recv_into(view[filled:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            filled += count
            whole = filled // size
            for number in range(whole):
                check_produced(buffer, topic, number * size)
            answered += whole
            if left := filled - whole * size:
                buffer[:left] = buffer[whole * size : filled]
            filled = left
        ended = time.perf_counter()
        sock.close()
        return Spent(started, ended, sent, sent * len(batch.data), own_cpu_seconds() - cpu)

    return load


# --- fetch


@contextmanager
def filled_topic(broker: Contender, batch: Batch, size_bytes: int) -> Iterator[str]:
    """A topic with so much to read, all of it in the page cache."""
    with broker.topic(CONNECTIONS) as topic:
        fill(broker, topic, batch, 1, 120, size_bytes)
        yield topic


def fetch(broker: Contender, topic: str, batch: Batch, batches_per_fetch: int, seconds: float) -> Run:
    """Read a topic's partitions for so long, over and over, one fetch at a time on each connection."""
    with Wire(broker.address) as wire:
        ends = wire.end_offsets(topic, CONNECTIONS)
    loads = [
        _consumer(broker.address, topic, index, batch, batches_per_fetch, seconds, ends[index])
        for index in range(CONNECTIONS)
    ]
    return run_loads(broker, loads)


def _consumer(
    address: str, topic: str, partition: int, batch: Batch, batches_per_fetch: int, seconds: float, end: int
) -> Load:
    # A multiple of the batch's size: no batch is cut, and the answer's length says how many there are.
    frame = FetchFrame(topic, partition, batches_per_fetch * len(batch.data))
    batch_size = len(batch.data)

    def load(wait_for_start: Callable[[], None]) -> Spent:
        sock = connect(address)
        buffer = bytearray(batches_per_fetch * batch_size + 4096)
        wait_for_start()
        cpu = own_cpu_seconds()
        started = time.perf_counter()
        deadline = started + seconds
        offset = batches = 0
        while time.perf_counter() < deadline:
            sock.sendall(frame.from_offset(offset))
            size = read_frame(sock, buffer)
            frame.check(buffer)
            count = size // batch_size
            if not count:
                raise Refused(f"a fetch from offset {offset} of {end} brought nothing")
            batches += count
            offset += count * batch.records
            if offset >= end:
                offset = 0
        ended = time.perf_counter()
        sock.close()
        return Spent(started, ended, batches, batches * batch_size, own_cpu_seconds() - cpu)

    return load


def warm_up(broker: Contender, seconds: float, cycles: range) -> tuple[float, list[float]]:
    """Load the broker in all ways until it gets no faster: how long that took, and the CPU s/GB of each cycle."""
    plain, single, packed = make_batch(16 * 1024, 1024), make_batch(1024, 900), make_batch(16 * 1024, 100, Codec.LZ4)
    costs: list[float] = []
    started = time.monotonic()
    while len(costs) < cycles.start or (len(costs) < cycles.stop - 1 and min(costs[-3:]) < 0.95 * min(costs[:-3])):
        costs.append(produce(broker, plain, 1, seconds).figures(1)["cpu_s_per_gb"])
        for batch, acks in ((single, 1), (packed, -1)):
            produce(broker, batch, acks, seconds / 2)
        with filled_topic(broker, plain, 50_000_000) as topic:
            fetch(broker, topic, plain, 1, seconds / 2)
    return time.monotonic() - started, costs
