"""Connections to mail servers whose replies come in time and have an end.

smtplib waits anew for each piece of a reply, and keeps as many lines as come: a server that says one thing after
another would hold its caller up for ever, or fill its memory.
"""

import smtplib
import socket
import time
from typing import Final

_MOST_BYTES: Final = 64 * 1024  # of a reply
_PIECE_BYTES: Final = 4096


class _Replies:
    """What a server says, line by line, as smtplib reads it."""

    def __init__(self, connected: socket.socket, within_s: float) -> None:
        self._socket = connected
        self._within_s = within_s
        self._held = bytearray()
        self.begin()

    def begin(self) -> None:
        """Another reply is waited for."""
        self._until = time.monotonic() + self._within_s
        self._left_bytes = _MOST_BYTES

    def readline(self, limit: int) -> bytes:
        """The next line; raises OSError for a reply that does not end, of which smtplib makes its own."""
        while b"\n" not in self._held and len(self._held) < limit:
            left_s = self._until - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("the reply did not end in time")
            self._socket.settimeout(left_s)
            try:
                came = self._socket.recv(_PIECE_BYTES)
            finally:
                self._socket.settimeout(self._within_s)
            if not came:
                break
            self._held += came
        if len(self._held) >= limit and b"\n" not in self._held[:limit]:
            raise OSError("the line is too long")  # smtplib would say status 500, as if the server had refused the mail
        end = self._held.find(b"\n") + 1 or len(self._held)
        line = bytes(self._held[:end])
        del self._held[:end]
        self._left_bytes -= len(line)
        if self._left_bytes < 0:
            raise OSError("the reply is too long")
        return line

    def close(self) -> None:
        """The socket is closed by whoever has it."""


class InTime(smtplib.SMTP):
    """In the clear, until TLS is begun."""

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = _Replies(self.sock, self.timeout)
        if self.file is not None:
            self.file.begin()
        return super().getreply()


class InTimeTls(InTime, smtplib.SMTP_SSL):
    """By TLS from the beginning."""
