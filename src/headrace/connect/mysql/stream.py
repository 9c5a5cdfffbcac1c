"""The binary log as the server sends it to a replica: packets from a socket, events out of them.

The driver makes the connection and logs in. From the command on its own buffer is empty and stays so: bytes are taken
from the socket here, many events at a time, with a time limit that never loses a byte.
"""

import contextlib
import select
import socket
import time
from typing import Any

import pymysql
from pymysql.constants import COMMAND

from headrace.connect.errors import SourceUnavailable
from headrace.connect.mysql.connection import Connection, Server, connect, raise_error, translated
from headrace.connect.mysql.gtid import GtidState, MysqlState
from headrace.connect.mysql.settings import Address

_RECEIVE_BYTES = 1 << 18
_WHOLE_PACKET = 0xFFFFFF
_OK, _ERROR, _END = 0x00, 0xFF, 0xFE
_USE_GTID = 0x04


class BinlogStream:
    """The log behind a state, event by event."""

    def __init__(self, address: Address, server: Server, server_id: int, heartbeat_s: float) -> None:
        self._address = address
        self._server = server
        self._server_id = server_id
        self._heartbeat_s = heartbeat_s
        self._connection: Connection | None = None
        self._buffer = bytearray()
        self._at = 0
        self._parts: list[bytes] = []
        self._heard_at = 0.0

    def start(self, state: GtidState) -> None:
        """Ask for everything behind a state."""
        self._connection = connection = connect(self._address)
        with translated(self._address):
            settings = [
                f"SET @master_heartbeat_period = {int(self._heartbeat_s * 1_000_000_000)}",
                "SET @master_binlog_checksum = @@global.binlog_checksum",
            ]
            if self._server.is_mariadb:
                settings += [
                    "SET @mariadb_slave_capability = 4",
                    f"SET @slave_connect_state = '{state}'",
                    "SET @slave_gtid_strict_mode = 0",
                    "SET @slave_gtid_ignore_duplicates = 0",
                ]
            with connection.cursor() as cursor:
                for setting in settings:
                    cursor.execute(setting)
            command, argument = self._dump(state)
            # The driver has no call for this command; the one that it sends all commands with is the nearest.
            execute: Any = connection._execute_command  # type: ignore[attr-defined]  # noqa: SLF001
            execute(command, argument)
        self._heard_at = time.monotonic()

    def _dump(self, state: GtidState) -> tuple[int, bytes]:
        number = self._server_id.to_bytes(4, "little")
        if isinstance(state, MysqlState):
            data = state.encoded()
            argument = _USE_GTID.to_bytes(2, "little") + number + bytes(4) + (4).to_bytes(8, "little")
            return COMMAND.COM_BINLOG_DUMP_GTID, argument + len(data).to_bytes(4, "little") + data
        return COMMAND.COM_BINLOG_DUMP, (4).to_bytes(4, "little") + bytes(2) + number

    def next_event(self, timeout_s: float) -> bytes | None:
        """An event as it stands in the log; None if there was none for that long."""
        deadline = time.monotonic() + timeout_s
        while True:
            packet = self._packet()
            if packet is not None:
                return self._event(packet)
            if not self._receive(max(0.0, deadline - time.monotonic())):
                return None

    def _packet(self) -> bytes | None:
        """A whole packet of the buffer, its parts put together."""
        buffer, at = self._buffer, self._at
        while len(buffer) - at >= 4:
            size = buffer[at] | buffer[at + 1] << 8 | buffer[at + 2] << 16
            end = at + 4 + size
            if len(buffer) < end:
                break
            part = bytes(memoryview(buffer)[at + 4 : end])
            self._at = at = end
            if size == _WHOLE_PACKET:
                self._parts.append(part)
                continue
            if self._parts:
                part = b"".join([*self._parts, part])
                self._parts = []
            return part
        if at:
            del buffer[:at]
            self._at = 0
        return None

    def _receive(self, timeout_s: float) -> bool:
        """More bytes from the server; whether there were any."""
        assert self._connection is not None
        stream: socket.socket = self._connection._sock  # type: ignore[attr-defined]  # noqa: SLF001
        pending = getattr(stream, "pending", None)  # what TLS has decrypted already
        if not (pending is not None and pending()):
            ready, _, _ = select.select([stream], [], [], timeout_s)
            if not ready:
                if time.monotonic() - self._heard_at > 3 * self._heartbeat_s + 10:
                    raise SourceUnavailable(f"the server at {self._address.where} sends no sign of life any more")
                return False
        with translated(self._address):
            data = stream.recv(_RECEIVE_BYTES)
        if not data:
            raise SourceUnavailable(f"the server at {self._address.where} ended the connection")
        self._heard_at = time.monotonic()
        self._buffer += data
        return True

    def _event(self, packet: bytes) -> bytes:
        if packet[0] == _OK:
            return packet[1:]
        if packet[0] == _ERROR:
            number = int.from_bytes(packet[1:3], "little")
            said = packet[3:].decode(errors="replace")
            raise_error(self._address, number, said[6:] if said.startswith("#") else said)
        raise SourceUnavailable(f"the server at {self._address.where} ended the log")

    def close(self) -> None:
        """Hang up; there is no other way to stop the server from sending."""
        if self._connection is not None:
            with contextlib.suppress(OSError, pymysql.err.MySQLError):
                self._connection._force_close()  # type: ignore[attr-defined]  # noqa: SLF001
            self._connection = None
        self._buffer.clear()
        self._at = 0
        self._parts = []
