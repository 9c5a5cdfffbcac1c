"""Lines over connections: TCP, and Unix sockets whose clients may put a length before each packet, as Datadog's do.

What always holds: a line that is not over stays with its connection, within the longest a line may be; one that is
longer is refused and read past; and a line that its connection did not end is no line.
"""

import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Final

_PIECE: Final = 64 * 1024
_LENGTH: Final = 4  # bytes, the least first
_TURN_S: Final = 0.25

Feed = Callable[[bytes], None]
Refuse = Callable[[str, int], None]


@dataclass(slots=True)
class Lines:
    """What one connection sends, cut into packets of whole lines. Pure."""

    line_bytes: int
    may_be_framed: bool
    _held: bytearray = field(default_factory=bytearray)
    _is_framed: bool | None = None
    _is_skipping: bool = False

    def cut(self, data: bytes) -> tuple[list[bytes], int]:
        """Packets that are whole, and how many lines were too long."""
        self._held += data
        if self._is_framed is None:
            if self.may_be_framed and len(self._held) < _LENGTH and b"\n" not in self._held:
                return [], 0
            # No text has a zero in it, and no packet that is taken is so long that its length has none.
            self._is_framed = self.may_be_framed and self._held[2:_LENGTH] == b"\0\0"
        return self._frames() if self._is_framed else self._lines()

    @property
    def is_within(self) -> bool:
        """Whether something has begun that did not end."""
        return bool(self._held)

    def _lines(self) -> tuple[list[bytes], int]:
        found: list[bytes] = []
        if self._is_skipping:
            end = self._held.find(b"\n")
            if end < 0:
                self._held.clear()
                return [], 0
            del self._held[: end + 1]
            self._is_skipping = False
        end = self._held.rfind(b"\n") + 1
        if end:
            found.append(bytes(self._held[:end]))
            del self._held[:end]
        if len(self._held) <= self.line_bytes:
            return found, 0
        self._held.clear()
        self._is_skipping = True
        return found, 1

    def _frames(self) -> tuple[list[bytes], int]:
        """Raises `ValueError` where there is no length."""
        found, at = [], 0
        while len(self._held) - at >= _LENGTH:
            size = int.from_bytes(self._held[at : at + _LENGTH], "little")
            if size > _PIECE:
                raise ValueError(f"a packet of {size} bytes is announced, more than the {_PIECE} that are taken")
            if len(self._held) - at - _LENGTH < size:
                break
            found.append(bytes(self._held[at + _LENGTH : at + _LENGTH + size]))
            at += _LENGTH + size
        del self._held[:at]
        return found, 0


class StreamServer:
    """All connections of some listening sockets, in one thread."""

    def __init__(self, listeners: list[socket.socket], line_bytes: int, most: int, feed: Feed, refuse: Refuse) -> None:
        """At most so many connections are open; one more is closed at once, and refused."""
        self._listeners = listeners
        self._line_bytes = line_bytes
        self._most = most
        self._feed = feed
        self._refuse = refuse
        self.connections = 0

    def serve(self, stopping: Event) -> None:
        with selectors.DefaultSelector() as selector:
            for listener in self._listeners:
                listener.setblocking(False)
                selector.register(listener, selectors.EVENT_READ)
            try:
                while not stopping.is_set():
                    for key, _ in selector.select(_TURN_S):
                        if key.data is None:
                            self._accept(selector, key.fileobj)
                        else:
                            self._read(selector, key.fileobj, key.data)
            finally:
                for key in list(selector.get_map().values()):
                    if key.data is not None:
                        key.fileobj.close()  # type: ignore[union-attr]  # sockets are all that is registered
                self.connections = 0

    def _accept(self, selector: selectors.BaseSelector, listener: Any) -> None:
        try:
            there, _ = listener.accept()
        except OSError:  # whoever called has gone, or there are no file descriptors left
            return
        if self.connections >= self._most:
            there.close()
            self._refuse(f"a connection more than the {self._most} of max_connections was closed", 1)
            return
        there.setblocking(False)
        self.connections += 1
        selector.register(there, selectors.EVENT_READ, Lines(self._line_bytes, listener.family == socket.AF_UNIX))

    def _read(self, selector: selectors.BaseSelector, there: Any, lines: Lines) -> None:
        try:
            data = there.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            packets, too_long = lines.cut(data) if data else ([], 0)
        except ValueError as error:
            self._refuse(str(error), 1)
            packets, too_long, data = [], 0, b""
            lines = Lines(0, False)
        for packet in packets:
            self._feed(packet)
        if too_long:
            self._refuse(f"a line has more bytes than the {self._line_bytes} of max_line", too_long)
        if not data:
            if lines.is_within:
                self._refuse("a connection ended within a line", 1)
            selector.unregister(there)
            there.close()
            self.connections -= 1
