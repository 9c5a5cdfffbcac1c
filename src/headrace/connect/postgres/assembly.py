"""Transactions that arrive before they are decided: held piece by piece, in memory first and then on disk.

A large transaction is streamed while it runs, between others and with its subtransactions mixed, and a prepared one may
wait for days. Pieces are kept as they came, because only the commit says whether they count and when.
"""

import struct
import tempfile
from collections.abc import Iterator
from typing import IO, NamedTuple

_HEADER = struct.Struct(">IQI")
MEMORY_BYTES = 16 * 1024 * 1024  # of one transaction, before it goes to disk


class Piece(NamedTuple):
    """One message of a transaction; `xid` is that of the subtransaction."""

    xid: int
    lsn: int
    data: bytes


class _Held:
    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._file: IO[bytes] | None = None
        self._pieces: list[Piece] = []
        self._size_bytes = 0
        self.aborted: set[int] = set()

    def add(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._size_bytes += len(piece.data)
        if self._size_bytes > self._memory_bytes:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="headrace-cdc-")  # noqa: SIM115 - closed when it is taken
            self._file.write(b"".join(_HEADER.pack(p.xid, p.lsn, len(p.data)) + p.data for p in self._pieces))
            self._pieces.clear()
            self._size_bytes = 0

    def take(self) -> Iterator[Piece]:
        if self._file is not None:
            with self._file as file:
                file.seek(0)
                while header := file.read(_HEADER.size):
                    xid, lsn, size = _HEADER.unpack(header)
                    piece = Piece(xid, lsn, file.read(size))
                    if xid not in self.aborted:
                        yield piece
        yield from (piece for piece in self._pieces if piece.xid not in self.aborted)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Assembly:
    """Every transaction that is not decided."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._memory_bytes = memory_bytes
        self._held: dict[int, _Held] = {}
        self._prepared: dict[int, int] = {}

    @property
    def oldest_prepared(self) -> int | None:
        """Where the oldest prepared transaction was prepared."""
        return min(self._prepared.values(), default=None)

    def add(self, xid: int, piece: Piece) -> None:
        held = self._held.get(xid)
        if held is None:
            held = self._held[xid] = _Held(self._memory_bytes)
        held.add(piece)

    def prepare(self, xid: int, lsn: int) -> None:
        """The transaction is complete, and waits."""
        self._prepared[xid] = lsn

    def abort(self, xid: int, subxid: int) -> None:
        """A subtransaction was rolled back, or the whole if both are the same."""
        held = self._held.get(xid)
        if xid == subxid:
            self._prepared.pop(xid, None)
            self._held.pop(xid, None)
            if held is not None:
                held.close()
        elif held is not None:
            held.aborted.add(subxid)

    def take(self, xid: int) -> Iterator[Piece]:
        """The messages of a transaction that is committed now; it is forgotten."""
        self._prepared.pop(xid, None)
        held = self._held.pop(xid, None)
        if held is not None:
            yield from held.take()

    def close(self) -> None:
        for held in self._held.values():
            held.close()
        self._held.clear()
