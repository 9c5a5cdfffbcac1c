"""What producing loses when the coordinators have work to do beside it: offsets to commit, transactions to end.

Two cores are shared by the broker, the producers' two processes and the one that makes the other work. So it is not
enough to produce with and without that process: its own CPU would count as the broker's slow-down. It therefore runs
in both measurements, at the same rate. In the one that counts as "alone" it talks to a sink, which answers every frame
with bytes made beforehand; in the other, to the broker. What differs is what the broker does for it, less the sink's
few system calls. (The other, idle, broker would be a worse sink: what it spends would be hidden in "alone".)

Each round is alone, beside, beside, alone: what drifts in between drifts for both.
"""

import select
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

import broker_load as load
from broker_load import Load, own_cpu_seconds
from broker_wire import TIMEOUT_S, Batch, Refused, Wire, connect, read_frame
from brokers import Contender
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.frame import decode_response, encode_request, encode_response
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from headrace.protocol.messages.shared import PartitionOutcome

COMMITS_PER_S = 5_000
REACHED = 0.98  # of the rate that was wanted; with less than this the row says so
TICK_S = 0.002
_MAX_BYTES = 4 * load.MAX_BYTES  # the work beside has to last as long as the producing
_COMMIT_VERSION = 9
_IN_FLIGHT = 100  # what Kafka's own consumers allow
_GROUP = "bench-commits"
_HEAD = struct.Struct(">ih")


class Done(NamedTuple):
    """What ran beside."""

    count: int
    seconds: float
    cpu_seconds: float

    @property
    def per_s(self) -> float:
        return self.count / self.seconds


OTHER_PARTITIONS = 8
# Makes the load for an address and a topic of its own, with so many partitions.
MakeLoad = Callable[[str, str], Load]


def slow_down(
    broker: Contender, batch: Batch, seconds: float, make: MakeLoad, answers_for: Callable[[str], Mapping[int, bytes]]
) -> dict[str, float]:
    """One round: how much less is produced when the broker has the other work too."""
    runs: dict[bool, list[load.Run]] = {False: [], True: []}
    for is_beside in (False, True, True, False):
        with (
            broker.topic(load.CONNECTIONS) as topic,
            broker.topic(OTHER_PARTITIONS) as other,
            socket.create_server(("127.0.0.1", 0), backlog=1024) as sink,
        ):
            address = f"127.0.0.1:{sink.getsockname()[1]}"
            if is_beside:
                loads = [make(broker.address, other)]
            else:
                loads = [make(address, other), _sink(sink, answers_for(other))]
            runs[is_beside].append(load.fill(broker, topic, batch, 1, seconds, _MAX_BYTES, loads))
    alone, beside = (sum(r.size_bytes for r in runs[k]) / 1e6 / sum(r.seconds for r in runs[k]) for k in (False, True))
    others: list[Done] = [run.beside[0] for run in runs[True]]
    # What the broker spent on the others: all but what producing as much costs it alone.
    per_byte = sum(r.broker_cpu_seconds for r in runs[False]) / sum(r.size_bytes for r in runs[False])
    spent = sum(r.broker_cpu_seconds - per_byte * r.size_bytes for r in runs[True])
    return {
        "slow_down_percent": 100 * (1 - beside / alone),
        "alone_mb_per_s": alone,
        "beside_mb_per_s": beside,
        "others_per_s": min(done.per_s for done in others),
        "others_alone_per_s": min(run.beside[0].per_s for run in runs[False]),
        "cpu_us_per_other": spent / sum(done.count for done in others) * 1e6,
        "other_load_cpu_share": sum(done.cpu_seconds for done in others) / sum(done.seconds for done in others),
    }


def _sink(server: socket.socket, answers: Mapping[int, bytes]) -> Load:
    """Answer every frame by its API's canned answer, until all connections are closed."""

    def serve(wait_for_start: Callable[[], None]) -> None:
        wait_for_start()
        selector = selectors.DefaultSelector()
        server.setblocking(False)
        selector.register(server, selectors.EVENT_READ)
        is_used = False
        while len(selector.get_map()) > 1 or not is_used:
            for key, _ in selector.select():
                if key.fileobj is server:
                    sock = server.accept()[0]
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    selector.register(sock, selectors.EVENT_READ, bytearray())
                    is_used = True
                    continue
                sock, rest = key.fileobj, key.data
                data = sock.recv(1 << 16)  # type: ignore[union-attr]
                if not data:
                    selector.unregister(sock)
                    continue
                rest += data
                at = 0
                out = []
                while len(rest) - at >= _HEAD.size:
                    size, api = _HEAD.unpack_from(rest, at)
                    if len(rest) - at < 4 + size:
                        break
                    out.append(answers[api])
                    at += 4 + size
                del rest[:at]
                sock.sendall(b"".join(out))  # type: ignore[union-attr]

    return serve


# --- offset commits


def committer(address: str, topic: str, seconds: float, connections: int) -> Load:
    """Commit at a steady rate, every tick as many as are due.

    On one connection they are sent in one go, and all their answers read. Kafka handles a connection's requests one
    after the other and gathers commits for some milliseconds before it writes them, so it cannot reach this rate there,
    as fast as it may be. On many connections, each with one commit under way, it can.
    """
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    frame = encode_request(OffsetCommitRequest(group_id=_GROUP, topics=topics), _COMMIT_VERSION, 1, "bench")

    def run(wait_for_start: Callable[[], None]) -> Done:
        sock, *others = (connect(address) for _ in range(connections))
        buffer = bytearray(64 * 1024)
        wait_for_start()
        sock.sendall(frame)
        size = read_frame(sock, buffer)
        answer = decode_response(OffsetCommitResponse, _COMMIT_VERSION, bytes(buffer[4:size]))[1]
        error = answer.topics[0].partitions[0].error_code
        if error:
            raise Refused(f"commit: {ErrorCode(error).name}")
        # Every request is the same, and so is every answer that tells of no error.
        good = bytes(buffer[:size])
        done = _commit_by_many(others, frame, good, seconds) if others else _commit_by_one(sock, frame, good, seconds)
        for each in (sock, *others):
            each.close()
        return done

    return run


def _commit_by_one(sock: socket.socket, frame: bytes, good: bytes, seconds: float) -> Done:
    size = len(good)
    all_good = good * _IN_FLIGHT
    view = memoryview(bytearray(len(all_good)))
    cpu = own_cpu_seconds()
    begin = now = time.perf_counter()
    deadline = begin + seconds
    done = 0
    while now < deadline:
        count = min(int((now - begin) * COMMITS_PER_S) - done, _IN_FLIGHT)
        if count > 0:
            sock.sendall(frame * count)
            wanted, filled = count * size, 0
            while filled < wanted:
                received = sock.recv_into(view[filled:wanted], 0, socket.MSG_WAITALL)
                if not received:
                    raise ConnectionError("the broker closed the connection")
                filled += received
            if view[:wanted] != all_good[:wanted]:
                raise Refused("an offset was not committed")
            done += count
        now = time.perf_counter()
        # Behind, it does not wait: what is due is asked for at once, in larger bunches.
        if (done - (now - begin) * COMMITS_PER_S) > -TICK_S * COMMITS_PER_S:
            time.sleep(TICK_S)
            now = time.perf_counter()
    return Done(done, time.perf_counter() - begin, own_cpu_seconds() - cpu)


def _commit_by_many(socks: list[socket.socket], frame: bytes, good: bytes, seconds: float) -> Done:
    poll = select.epoll()
    by_fd = {sock.fileno(): sock for sock in socks}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    idle = deque(socks)
    cpu = own_cpu_seconds()
    begin = now = time.perf_counter()
    deadline = begin + seconds
    sent = done = 0
    while now < deadline or len(idle) < len(socks):
        if now > deadline + TIMEOUT_S:
            raise Refused("a commit is not answered")
        while idle and now < deadline and sent < int((now - begin) * COMMITS_PER_S):
            idle.popleft().sendall(frame)
            sent += 1
        time.sleep(TICK_S)  # answers are gathered meanwhile: one look for all of them
        for fd, _ in poll.poll(0, len(socks)):
            if by_fd[fd].recv(4096) != good:
                raise Refused("an offset was not committed")
            idle.append(by_fd[fd])
            done += 1
        now = time.perf_counter()
    return Done(done, now - begin, own_cpu_seconds() - cpu)


def commit_answers(topic: str) -> dict[int, bytes]:
    """What the sink says to a commit."""
    outcome = PartitionOutcome(partition_index=0)
    answer = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name=topic, partitions=[outcome])])
    return {ApiKey.OFFSET_COMMIT: encode_response(answer, _COMMIT_VERSION, 1)}


def prepare_commits(broker: Contender) -> None:
    """Have the coordinator's topic made."""
    with Wire(broker.address) as wire:
        wire.find_coordinator(0, _GROUP)
