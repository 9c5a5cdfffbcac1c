"""How long one record takes: to be acknowledged, and to reach a reader that waits for it."""

import statistics
import time
from collections.abc import Callable

from broker_load import Load, together
from broker_wire import Batch, FetchFrame, check_produced, connect, make_batch, produce_frame, read_frame
from brokers import Contender

RECORD_BYTES = 1024
SPIN_S = 0.0002  # sleeping is this imprecise
_CATCH_UP_S = 10


def percentiles(seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100)
    return {"p50_ms": cuts[49] * 1e3, "p99_ms": cuts[98] * 1e3}


def one_by_one(broker: Contender, acks: int, seconds: float) -> dict[str, float]:
    """One record a request, one request at a time, on one connection."""
    batch = make_batch(RECORD_BYTES, RECORD_BYTES)
    with broker.topic(1) as topic:
        cpu = broker.cpu_seconds()
        ((elapsed, waits),) = together([_asker(broker.address, topic, batch, acks, seconds)])
        cpu = broker.cpu_seconds() - cpu
    return {
        "requests_per_s": len(waits) / elapsed,
        "cpu_us_per_request": cpu / len(waits) * 1e6,
        **percentiles(waits),
    }


def _asker(address: str, topic: str, batch: Batch, acks: int, seconds: float) -> Load:
    frame = produce_frame(topic, 0, batch, acks)

    def load(wait_for_start: Callable[[], None]) -> tuple[float, list[float]]:
        sock = connect(address)
        buffer = bytearray(4096)
        waits = []
        clock = time.perf_counter
        wait_for_start()
        started = sent = clock()
        deadline = started + seconds
        while sent < deadline:
            sock.sendall(frame)
            read_frame(sock, buffer)
            answered = clock()
            check_produced(buffer, topic)
            waits.append(answered - sent)
            sent = clock()
        sock.close()
        return sent - started, waits

    return load


def end_to_end(broker: Contender, acks: int, rate_per_s: int, seconds: float) -> dict[str, float]:
    """From the sending of a record to its arrival at a long-polled fetch, at a fixed rate."""
    batch = make_batch(RECORD_BYTES, RECORD_BYTES)
    count = int(seconds * rate_per_s)
    with broker.topic(1) as topic:
        sent, arrived = together(
            [
                _metronome(broker.address, topic, batch, acks, rate_per_s, count),
                _follower(broker.address, topic, batch, count, 2 * seconds),
            ]
        )
    # Offsets count from 0 in a fresh topic, so the n-th that was sent is the n-th that came. The first few open files.
    return percentiles([end - start for start, end in zip(sent, arrived, strict=True)][count // 20 :])


def _metronome(address: str, topic: str, batch: Batch, acks: int, rate_per_s: int, count: int) -> Load:
    frame = produce_frame(topic, 0, batch, acks)

    def load(wait_for_start: Callable[[], None]) -> list[float]:
        sock = connect(address)
        buffer = bytearray(4096)
        clock = time.perf_counter
        sent = []
        wait_for_start()
        begin = clock() + 0.05
        for number in range(count):
            due = begin + number / rate_per_s
            while (left := due - clock()) > 0:
                time.sleep(max(0, left - SPIN_S))
            # From when it was due: a broker that holds up the next record is not let off (coordinated omission).
            sent.append(due)
            sock.sendall(frame)
            read_frame(sock, buffer)
            check_produced(buffer, topic)
        sock.close()
        return sent

    return load


def _follower(address: str, topic: str, batch: Batch, count: int, seconds: float) -> Load:
    frame = FetchFrame(topic, 0, 1024 * 1024)
    batch_size = len(batch.data)

    def load(wait_for_start: Callable[[], None]) -> list[float]:
        sock = connect(address)
        buffer = bytearray(2 * 1024 * 1024)
        clock = time.perf_counter
        arrived: list[float] = []
        wait_for_start()
        deadline = clock() + seconds + _CATCH_UP_S
        while len(arrived) < count and clock() < deadline:
            sock.sendall(frame.from_offset(len(arrived)))
            size = read_frame(sock, buffer)
            now = clock()
            frame.check(buffer)
            arrived += [now] * (size // batch_size)
        sock.close()
        return arrived

    return load
