"""The replication stream: COPY BOTH over libpq, with keep-alives and feedback.

`receive` hands each message of the log to a function, without looking into it. Feedback tells the server how far it may
forget; it is sent when the server asks for it, when it has moved and a second has gone by, and at the latest every ten
seconds, so that the server never takes us for dead while we read.
"""

import contextlib
import select
import struct
import time
from collections.abc import Callable
from typing import Final

from psycopg import OperationalError, pq

from headrace.connect.errors import SourceUnavailable
from headrace.connect.postgres.connection import connect_replication, in_one_line, raise_result
from headrace.connect.postgres.decode import POSTGRES_EPOCH_US

_LSN: Final = struct.Struct(">Q").unpack_from
_KEEPALIVE: Final = struct.Struct(">cQqB")
_FEEDBACK: Final = struct.Struct(">cQQQqB")
_DATA, _ALIVE = ord("w"), ord("k")
_MESSAGE_AT: Final = 25  # behind the letter, two places in the log, and the time
_SOON_S, _LATEST_S = 1.0, 10.0
_END_OF_TRANSACTION_S = 1.0
_BATCH_BYTES: Final = 16 * 1024 * 1024  # rows may be large, and nobody wants thousands of such at once

Handle = Callable[[bytes, int, int], bool]  # whether to stop for now


class ReplicationStream:
    """One stream of one slot; one thread reads it."""

    def __init__(self, url: str) -> None:
        self._connection = connect_replication(url)
        self._flushed = 0
        self._reported = 0
        self._reported_at = 0.0
        self.server_lsn = 0  # as far as the server has sent everything, by its last keep-alive

    @property
    def connection(self) -> pq.abc.PGconn:
        """For commands before the stream begins."""
        return self._connection

    def start(self, slot: str, options: dict[str, str]) -> None:
        """Begin at the slot's own place, which is what was acknowledged last.

        Beginning at a later one would make the server forget what waits before it: a transaction that was prepared.
        """
        named = ", ".join("{} '{}'".format(name, value.replace("'", "''")) for name, value in options.items())
        command = f'START_REPLICATION SLOT "{slot}" LOGICAL 0/0 ({named})'
        self._connection.send_query(command.encode())
        result = self._connection.get_result()
        if result is None or result.status != pq.ExecStatus.COPY_BOTH:
            assert result is not None
            raise_result(self._connection, result, command)
        self._connection.nonblocking = 1
        self._reported_at = time.monotonic()

    def receive(self, handle: Handle, limit: int, timeout_s: float, is_inside: Callable[[], bool]) -> None:
        """Hand over what has come, at most `limit` messages; wait up to `timeout_s` if nothing has.

        While `is_inside` says that a transaction has not ended, its rest is waited for: the server sends it in one go,
        and many small batches would be the worse of two.
        """
        try:
            self._receive(handle, limit, timeout_s, is_inside)
        except OperationalError as error:
            raise SourceUnavailable(f"the database ended the replication stream ({in_one_line(error)})") from error

    def _receive(self, handle: Handle, limit: int, timeout_s: float, is_inside: Callable[[], bool]) -> None:
        get = self._connection.get_copy_data
        received = received_bytes = 0
        deadline = time.monotonic() + timeout_s
        while received < limit and received_bytes < _BATCH_BYTES:
            size, view = get(1)
            if size > 0:
                data = bytes(view)
                if data[0] == _DATA:
                    received += 1
                    received_bytes += size
                    if handle(data, _MESSAGE_AT, _LSN(data, 1)[0]):
                        return
                elif data[0] == _ALIVE:
                    self._answer(data)
            elif size == 0:
                self._feed_back()
                if received:
                    if not is_inside():
                        return
                    deadline = max(deadline, time.monotonic() + _END_OF_TRANSACTION_S)
                if not self._wait(deadline):
                    return
            else:
                self._end()
        self._feed_back()

    def _wait(self, deadline: float) -> bool:
        """Wait for bytes; whether the deadline is still ahead."""
        left = deadline - time.monotonic()
        ready, _, _ = select.select([self._connection.socket], [], [], max(0.0, min(left, _SOON_S)))
        if ready:
            self._connection.consume_input()
            return True
        return left > 0

    def _answer(self, data: bytes) -> None:
        _, lsn, _, asks = _KEEPALIVE.unpack_from(data)
        self.server_lsn = max(self.server_lsn, lsn)
        if asks:
            self._send(time.monotonic())

    def keep_alive(self) -> None:
        """Give a sign of life, though nothing is received now."""
        try:
            self._feed_back()
        except OperationalError as error:
            raise SourceUnavailable(f"the database ended the replication stream ({in_one_line(error)})") from error

    def confirm(self, lsn: int) -> None:
        """The server may forget what is before this; it is told soon."""
        self._flushed = max(self._flushed, lsn)

    def _feed_back(self) -> None:
        now = time.monotonic()
        wait = _SOON_S if self._flushed > self._reported else _LATEST_S
        if now - self._reported_at >= wait:
            self._send(now)

    def _send(self, now: float) -> None:
        clock = time.time_ns() // 1000 - POSTGRES_EPOCH_US
        self._connection.put_copy_data(_FEEDBACK.pack(b"r", self._flushed, self._flushed, self._flushed, clock, 0))
        while self._connection.flush():
            select.select([], [self._connection.socket], [], _LATEST_S)
        self._reported, self._reported_at = self._flushed, now

    def _end(self) -> None:
        result = self._connection.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            raise_result(self._connection, result, "START_REPLICATION")
        raise SourceUnavailable("the database ended the replication stream: it is shutting down, or the slot was taken")

    def close(self) -> None:
        """End the stream; the slot stays."""
        if self._connection.status == pq.ConnStatus.OK and self._flushed > self._reported:
            with contextlib.suppress(OperationalError):  # then it is told the next time
                self._send(time.monotonic())
        self._connection.finish()
