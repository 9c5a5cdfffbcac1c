"""Transactional producers from patched frames: transactions of one small batch each, by version 2 (KIP-890).

A transaction is two requests, one after the other: Produce, which adds its partition by itself, and EndTxn, whose
answer brings the epoch of the next one. All producers are in one process, which waits for whichever
socket has an answer.
"""

import heapq
import selectors
import struct
import time
from collections.abc import Callable
from itertools import count

from crc32c import crc32c

from broker_beside import Done
from broker_latency import percentiles
from broker_load import Load, own_cpu_seconds, together
from broker_wire import TIMEOUT_S, Refused, Wire, connect
from brokers import Contender
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.frame import encode_request, encode_response
from headrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from headrace.records import Record, build_batch

STATE_TOPIC = "__transaction_state"
RECORD_BYTES = 100
_PRODUCE_VERSION, _END_VERSION, _INIT_VERSION = 12, 5, 4
_SOME_ID, _SOME_EPOCH = 0x0102030405060708, 0x1122
_CRC_AT, _ATTRIBUTES_AT, _PRODUCER_AT = 17, 21, 43  # in a batch
_PRODUCER = struct.Struct(">qh")
_ENDED = struct.Struct(">hqh")
_ENDED_AT = 4 + 4 + 1 + 4  # size, correlation id, no tags, throttle time
_ERROR = struct.Struct(">h")
_CRC = struct.Struct(">I")
_SIZE = struct.Struct(">i")
_RETRY_S = 0.001
_NOT_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
_names = count()


class _Producer:
    """One transactional id on a connection of its own, with at most one request under way."""

    def __init__(self, address: str, topic: str, partition: int, name: str) -> None:
        # size, correlation id, no tags, one topic, its name, one partition, its index; then the error
        self._error_at = 4 + 4 + 1 + 1 + 1 + len(topic) + 1 + 4
        record = Record(0, time.time_ns() // 1_000_000, None, b"x" * RECORD_BYTES)
        batch = build_batch(
            [record], producer_id=_SOME_ID, producer_epoch=_SOME_EPOCH, base_sequence=0, transactional=True
        )
        data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])]
        produce = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=30_000, topic_data=data)
        end = EndTxnRequest(transactional_id=name, producer_id=_SOME_ID, producer_epoch=_SOME_EPOCH, committed=True)
        self._produce = bytearray(encode_request(produce, _PRODUCE_VERSION, 1, "bench"))
        self._end = bytearray(encode_request(end, _END_VERSION, 1, "bench"))
        self._batch_at = self._produce.index(batch)
        self._batch_end = self._batch_at + len(batch)
        self._end_at = self._end.index(_PRODUCER.pack(_SOME_ID, _SOME_EPOCH))
        self.socket = connect(address)
        self._buffer = bytearray()
        self._is_ending = False
        self._name = name
        self.began = 0.0

    def initialise(self) -> None:
        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=60_000)
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            self.socket.sendall(encode_request(request, _INIT_VERSION, 1, "bench"))
            error, *known = _ENDED.unpack_from(self._receive_whole(), _ENDED_AT)
            if error not in _NOT_YET or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        _checked("InitProducerId", (error,))
        self._go_on_as(*known)

    def _receive_whole(self) -> bytes:
        while not (frame := self._receive()):
            pass
        return frame

    def _go_on_as(self, producer_id: int, epoch: int) -> None:
        _PRODUCER.pack_into(self._end, self._end_at, producer_id, epoch)
        at = self._batch_at
        _PRODUCER.pack_into(self._produce, at + _PRODUCER_AT, producer_id, epoch)
        with memoryview(self._produce) as view:
            crc = crc32c(view[at + _ATTRIBUTES_AT : self._batch_end])
        _CRC.pack_into(self._produce, at + _CRC_AT, crc)

    def _receive(self) -> bytes:
        """An answer, or nothing as long as a part of it is missing."""
        data = self.socket.recv(4096)
        if not data:
            raise ConnectionError("the broker closed the connection")
        self._buffer += data
        if len(self._buffer) < 4 or len(self._buffer) < 4 + _SIZE.unpack_from(self._buffer)[0]:
            return b""
        frame = bytes(self._buffer)
        self._buffer.clear()
        return frame

    def send_batch(self) -> None:
        self._is_ending = False
        self.socket.sendall(self._produce)

    def take_answer(self) -> bool | None:
        """Send the next request; True if the transaction is over, None if it has to be begun again a little later."""
        frame = self._receive()
        if not frame:
            return False
        if not self._is_ending:
            error = _ERROR.unpack_from(frame, self._error_at)[0]
            if error == ErrorCode.CONCURRENT_TRANSACTIONS:  # the markers of the last one are not written yet
                return None
            _checked("transactional produce", (error,))
            self._is_ending = True
            self.socket.sendall(self._end)
            return False
        _, *known = _checked("EndTxn", _ENDED.unpack_from(frame, _ENDED_AT))
        self._go_on_as(*known)
        return True


def _checked(what: str, answer: tuple[int, ...]) -> tuple[int, ...]:
    if answer[0]:
        raise Refused(f"{what}: {ErrorCode(answer[0]).name}")
    return answer


def transactor(
    address: str, topic: str, partitions: int, producers: int, seconds: float, rate_per_s: float | None = None
) -> Callable[[Callable[[], None]], tuple[Done, list[float]]]:
    """As many transactions as the broker ends, or as many a second as is said; how long each took."""
    names = [f"bench-{next(_names):06d}" for _ in range(producers)]

    def run(wait_for_start: Callable[[], None]) -> tuple[Done, list[float]]:
        all_of_them = [_Producer(address, topic, n % partitions, name) for n, name in enumerate(names)]
        wait_for_start()  # before anything is asked for: the sink answers only from here on
        selector = selectors.DefaultSelector()
        for producer in all_of_them:
            producer.initialise()
            selector.register(producer.socket, selectors.EVENT_READ, producer)
        clock = time.perf_counter
        waits: list[float] = []
        idle = list(all_of_them)
        again: list[tuple[float, int, _Producer]] = []
        begun = 0
        cpu = own_cpu_seconds()
        start = now = clock()
        deadline = start + seconds
        give_up = deadline + TIMEOUT_S
        while now < deadline or len(idle) < producers:
            if now > give_up:
                raise Refused("a transaction does not end")
            while idle and now < deadline and (rate_per_s is None or begun < (now - start) * rate_per_s):
                producer = idle.pop()
                producer.began = clock()
                producer.send_batch()
                begun += 1
            while again and again[0][0] <= now:
                heapq.heappop(again)[2].send_batch()
            # A due time is kept to the millisecond, as epoll does.
            patience = _RETRY_S if again or (idle and now < deadline) else None
            for key, _ in selector.select(patience):
                outcome = key.data.take_answer()
                if outcome:
                    waits.append(clock() - key.data.began)
                    idle.append(key.data)
                elif outcome is None:
                    heapq.heappush(again, (clock() + _RETRY_S, id(key.data), key.data))
            now = clock()
        elapsed = now - start
        for producer in all_of_them:
            producer.socket.close()
        return Done(len(waits), elapsed, own_cpu_seconds() - cpu), waits

    return run


def transactions(broker: Contender, producers: int, seconds: float) -> dict[str, float]:
    """As many as go, by so many producers, each with a partition of its own."""
    with broker.topic(producers) as topic:
        cpu = broker.cpu_seconds()
        ((done, waits),) = together([transactor(broker.address, topic, producers, producers, seconds)])
        cpu = broker.cpu_seconds() - cpu
    return {
        "transactions_per_s": done.per_s,
        "cpu_us_per_transaction": cpu / done.count * 1e6,
        "load_cpu_share": done.cpu_seconds / done.seconds,
        **percentiles(waits),
    }


def paced(address: str, topic: str, partitions: int, producers: int, seconds: float, rate_per_s: float) -> Load:
    """Transactions at a steady rate."""
    run = transactor(address, topic, partitions, producers, seconds, rate_per_s)
    return lambda wait_for_start: run(wait_for_start)[0]


def transaction_answers(topic: str) -> dict[int, bytes]:
    """What the sink says to a transactional producer."""
    outcome = TopicProduceResponse(name=topic, partition_responses=[PartitionProduceResponse(index=0)])
    produced = ProduceResponse(responses=[outcome])
    return {
        ApiKey.PRODUCE: encode_response(produced, _PRODUCE_VERSION, 1),
        ApiKey.END_TXN: encode_response(EndTxnResponse(producer_id=1, producer_epoch=1), _END_VERSION, 1),
        ApiKey.INIT_PRODUCER_ID: encode_response(
            InitProducerIdResponse(producer_id=1, producer_epoch=0), _INIT_VERSION, 1
        ),
    }


def prepare_transactions(broker: Contender) -> None:
    """Have the coordinator's topic made, and a first transaction behind it."""
    with Wire(broker.address) as wire:
        wire.find_coordinator(1, "bench")
    with broker.topic(1) as topic:
        together([transactor(broker.address, topic, 1, 1, 0.2)])
