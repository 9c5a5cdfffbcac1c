"""Changes of databases, topics and views for browsers: each who listens has a stream of his own, from his own place.

What always holds: only what the gateway was started with can be listened to, whatever a listener asks for; there are so
many streams at most, and each ends with its listener; a database that does not answer holds up those who listen to it,
and nobody else. A place is the token of a change: who comes back with it gets what came since.
"""

import json
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from headrace.connect.changes import Changes, RowChange
from headrace.connect.changes import changes as open_changes
from headrace.connect.changes.token import is_larger
from headrace.connect.errors import BadToken
from headrace.errors import HeadraceError, nearest
from headrace.gateways.gateway import Progress
from headrace.gateways.http.socket_messages import message
from headrace.serving.event_lines import HEARTBEAT, encoded_text

CHANGES: Final = ("from", "table", "snapshot", "heartbeat")
_MOST: Final = 100  # each has a connection to its database, and a thread
_MOST_TOKEN_BYTES: Final = 4 * 1024 * 1024  # of a browser, which anybody could have made: few bytes may stand for many
_HEARTBEAT_OP: Final = "h"


class UnknownChanges(HeadraceError):
    """A name that this gateway has no changes of."""


class TooManyListeners(HeadraceError):
    """All the streams that there may be are open."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A change, a heartbeat, or why there will be no more."""

    said: Mapping[str, Any] | None
    position: str
    problem: str = ""

    def as_event(self) -> bytes:
        if self.problem:
            return encoded_text("problem", json.dumps({"error": self.problem}, ensure_ascii=False))
        if self.said is None:
            return (f"id: {self.position}\n".encode() if self.position else b"") + HEARTBEAT
        return encoded_text("change", json.dumps(self.said, ensure_ascii=False), self.position)

    def as_message(self) -> str:
        if self.problem:
            return message("problem", error=self.problem)
        if self.said is None:
            return message("heartbeat", place=self.position)
        return message("change", place=self.position, change=self.said)


class ChangesListeners:
    """All streams that are open; for the event loop."""

    def __init__(self, urls: Mapping[str, str], progress: Progress) -> None:
        self._urls = urls
        self.progress = progress
        self.open: set[Changes] = set()
        self.ended = threading.Event()

    def listener(
        self, name: str, resume: str | None, *, tables: Sequence[str], snapshot: bool, heartbeat_s: float
    ) -> "ChangesListener":
        """A stream that is not open yet; raises what is wrong with the question."""
        if name not in self._urls:
            hint = nearest(name, self._urls) if self._urls else "it has none: start it with changes = {…}"
            raise UnknownChanges(f"this gateway has no changes {name!r}: {hint}")
        if resume is not None and is_larger(resume, _MOST_TOKEN_BYTES):
            raise BadToken(f"it holds more than {_MOST_TOKEN_BYTES // 2**20} MiB", "begin anew without one")
        stream = open_changes(
            self._urls[name], list(tables), resume=resume, snapshot=snapshot and resume is None, heartbeat_s=heartbeat_s
        )
        return ChangesListener(self, stream, heartbeat_s)

    def end_streams(self) -> None:
        """Let all who listen go; from any thread."""
        self.ended.set()
        for stream in list(self.open):
            threading.Thread(target=stream.close, daemon=True).start()

    def let_go(self, stream: Changes) -> None:
        """A stream counts until nothing of it is left: its server may not answer for long."""
        while True:
            stream.close()
            if stream.is_let_go:
                break
        self.open.discard(stream)


@dataclass(slots=True)
class ChangesListener:
    """One who listens."""

    listeners: ChangesListeners
    stream: Changes
    heartbeat_s: float

    async def changes(self) -> AsyncGenerator[Heard, None]:
        """Until the stream or the gateway ends; what ends it is said last."""
        try:
            # What is there before the first change: the place from which whoever is cut off goes on.
            await self.stream.open_async()
            if self.stream.position:
                yield Heard(None, self.stream.position)
            while (change := await self.stream.next_async()) is not None:
                yield _heard(change)
        except HeadraceError as error:
            if not self.listeners.ended.is_set():
                yield Heard(None, "", str(error))

    @contextmanager
    def held(self) -> Iterator[None]:
        """For as long as somebody listens; raises `TooManyListeners`."""
        listeners = self.listeners
        if len(listeners.open) >= _MOST:
            raise TooManyListeners(f"{_MOST} listen to changes already, which is all that may: try again later")
        listeners.open.add(self.stream)
        listeners.progress.connections += 1
        try:
            yield
        finally:
            listeners.progress.connections -= 1
            threading.Thread(target=listeners.let_go, args=(self.stream,), daemon=True).start()


def _heard(change: RowChange) -> Heard:
    if change.op == _HEARTBEAT_OP:
        return Heard(None, change.position)
    said = change.as_json()
    return Heard(said, said["position"])
