"""Changes of a materialized view, from the server that answers for it: `http://host:port/views/NAME`.

The server sends a state, then what each batch changed, as server-sent events (`pipelines/views/serving`). A row that is
there is put (`u`, or `r` while the state is read), one that is gone is deleted; what a row was before nobody tells. A
query behind the address chooses rows, as it does for every question to a view.

A view goes on by whole batches, so its position is the number of the last one. Inside a batch changes come by key. A
token counts them and holds a digest of each: if the view has gone on when it is used, what is still as it was told is
not told again. Of batches of many thousands it holds no digests, and they come again as they are then. A state that was
not read to its end comes again whole, behind a truncate, because rows may have gone meanwhile.
"""

import json
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Self
from urllib.parse import quote, unquote, urlsplit

from headrace.connect.change import Position
from headrace.connect.changes.row_change import Mark, Marks, RowChange
from headrace.connect.changes.sent_events import Event, parse_events
from headrace.connect.changes.stream import Portion
from headrace.connect.changes.token import Base, Token
from headrace.connect.errors import (
    BadToken,
    ConnectError,
    InvalidConnectSetting,
    PositionLost,
    SourceRefused,
    SourceUnavailable,
)
from headrace.http_client import HttpServer, InvalidServer, NoAnswer, Stream

_ADDRESS: Final = "write http://host:8300/views/NAME, with ?column=value behind it to choose rows"
_ANSWER_S: Final = 40.0  # more than twice the server's heartbeat
_ANEW: Final = "begin anew without resume, and with snapshot=True for the rows as they are now"
_EVENTS_AHEAD: Final = 2
_MOST_DIGESTS: Final = 4096
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class ViewAddress:
    origin: str
    view: str
    query: str

    @property
    def live(self) -> str:
        return f"/views/{quote(self.view, safe='')}/live" + (f"?{self.query}" if self.query else "")


def parse_view_url(url: str) -> ViewAddress:
    """`http://host:port/views/NAME?column=value`."""
    parts = urlsplit(url)
    folder, _, name = parts.path.strip("/").partition("/")
    if folder != "views" or not name or "/" in name or not parts.hostname:
        shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        raise InvalidConnectSetting("url", shown, _ADDRESS)
    return ViewAddress(f"{parts.scheme}://{parts.netloc}", unquote(name), parts.query)


class ViewReader:
    can_reopen = True

    def __init__(self, url: str, marks: Marks, *, snapshot: bool, headers: Mapping[str, str] | None = None) -> None:
        self.marks = marks
        self._address = parse_view_url(url)
        self._is_snapshot = snapshot
        try:
            self._server = HttpServer(self._address.origin, _ANSWER_S, headers)
        except InvalidServer as error:
            raise InvalidConnectSetting("url", self._address.view, str(error)) from error
        self._key: tuple[str, ...] = ()
        self._revision: int | None = None  # None while the state is read
        self._first: list[RowChange] = []
        self._skip = _Told()
        self._following: _Following | None = None

    @property
    def _of(self) -> dict[str, Any]:
        return {"source": "view", "view": self._address.view, "where": self._address.query}

    def check(self, token: Token) -> None:
        token.check(self._of)

    def open(self, token: Token | None) -> Mark:
        about = self._describe()
        self._key = tuple(about["key"])
        if token is not None:
            self._resume(token)
        elif not self._is_snapshot:
            self._revision = int(about["freshness"]["revision"])
        self._base = self._new_base()
        self._follow()
        return Mark(self.marks, self._base, [])

    def _resume(self, token: Token) -> None:
        try:
            revision = token.base.position["revision"]
            self._revision = None if revision is None else int(revision)
            self._skip = _Told.parsed(token.tail) if token.tail else _Told()
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise BadToken("what is in it makes no sense", "pass it as it was given") from error
        if self._revision is None:
            self._skip = _Told()
            self._first = [self._change("t", None, None)]
        self._is_snapshot = self._revision is None

    def _describe(self) -> dict[str, Any]:
        try:
            answer = self._server.ask("GET", "/views")
            found = json.loads(answer.body)
            if not answer.is_success:
                raise SourceRefused(f"the server of views at {self._server.host} refused ({found.get('error')})")
            listed: dict[str, dict[str, Any]] = {one["view"]: one for one in found["views"]}
        except NoAnswer as error:
            raise SourceUnavailable(f"the server of views does not answer: {error}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SourceRefused(f"what answers at {self._server.host} is no server of views", _ADDRESS) from error
        about = listed.get(self._address.view)
        if about is None:
            there = ", ".join(listed) or "none"
            raise SourceRefused(f"there is no view {self._address.view!r} (there is {there})", "correct the name")
        if "freshness" not in about:
            raise SourceUnavailable(f"view {self._address.view!r} cannot be read now ({about.get('problem')})")
        return about

    def _new_base(self) -> Base:
        position: Position = {"revision": self._revision}
        return Base(self._of, position)

    def _follow(self) -> None:
        headers = {} if self._revision is None else {"Last-Event-ID": str(self._revision)}
        self._following = _Following(self._server, self._address.live, headers)

    def reopen(self) -> None:
        if self._following is not None:
            self._following.close()
        if self._revision is None:  # what of the state was told is not known to be there any more
            self._first = [self._change("t", None, None)]
        self._follow()

    # --- events

    def next(self, timeout_s: float) -> Portion | None:
        if self._first:
            first, self._first = self._first, []
            return Portion(first, Mark(self.marks, self._base, []))
        assert self._following is not None
        event = self._following.next(timeout_s)
        if event is None:
            return None
        match event.kind:
            case "state":
                return self._state(event.data)
            case "live":
                self._revision = int(event.id)
                return self._portion([])
            case "change":
                return self._changed(event)
            case "problem":
                raise SourceUnavailable(f"view {self._address.view!r}: {event.data.get('error')}")
        return None

    def _state(self, data: Mapping[str, Any]) -> Portion | None:
        if self._revision is not None:
            if not self._is_snapshot:
                raise PositionLost(
                    f"view {self._address.view!r} has gone on further than its store remembers, so changes behind "
                    f"revision {self._revision} are missing",
                    _ANEW,
                )
            self._revision = None
            self._base = self._new_base()
            return self._portion([self._change("t", None, None), *self._rows("r", data["rows"])])
        return self._portion(self._rows("r", data["rows"]))

    def _changed(self, event: Event) -> Portion | None:
        changes = self._rows("u", event.data["upserts"])
        changes += [self._change("d", key, None) for key in event.data["deletes"]]
        changes.sort(key=_order)
        if self._revision is None:  # what changed while the state was read
            return self._portion(changes)
        revision, base = int(event.id), self._base
        skip, self._skip = self._skip, _Told()
        left = skip.left(changes, revision)
        # Of a batch of which some was told before, what is left is told behind that.
        told = [*skip.digests, *map(_digest, left)] if len(changes) + len(skip.digests) <= _MOST_DIGESTS else []
        begun = skip.count

        def behind(number: int) -> Mark:
            return Mark(self.marks, base, lambda: _Told(begun + number, revision, told[: begun + number]).tail)

        shown = [_at(change, behind(number)) for number, change in enumerate(left, start=1)]
        self._revision = revision
        self._base = self._new_base()
        return Portion(shown, Mark(self.marks, self._base, []))

    def _portion(self, changes: list[RowChange]) -> Portion:
        self._base = self._new_base()
        mark = Mark(self.marks, self._base, [])
        return Portion([_at(change, mark) for change in changes], mark)

    def _rows(self, op: str, rows: list[dict[str, Any]]) -> list[RowChange]:
        return [self._change(op, {name: row.get(name) for name in self._key}, row) for row in rows]

    def _change(self, op: str, key: dict[str, Any] | None, row: dict[str, Any] | None) -> RowChange:
        return RowChange(op, self._address.view, key, None, row, None, time.time_ns() // 1000)

    def acknowledge(self, position: Position) -> None:
        """The store of a view forgets by its own rules."""

    def keep_alive(self) -> None:
        """The server waits for who is slow."""

    def close(self) -> None:
        if self._following is not None:
            self._following.close()
        self._server.close()


def _at(change: RowChange, mark: Mark) -> RowChange:
    return RowChange(
        change.op, change.table, change.key, change.before, change.after, change.transaction, change.ts_us, mark
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Told:
    """So many changes of the batch that ends at a revision, and what they were."""

    count: int = 0
    revision: int = -1
    digests: Sequence[str] = ()

    @classmethod
    def parsed(cls, tail: Sequence[Any]) -> Self:
        count, revision, text = tail
        digests = [text[at : at + _DIGITS] for at in range(0, len(text), _DIGITS)]
        return cls(int(count), int(revision), digests)

    @property
    def tail(self) -> list[Any]:
        return [self.count, self.revision, "".join(self.digests)]

    def left(self, changes: list[RowChange], revision: int) -> list[RowChange]:
        """What of a batch was not told."""
        if revision == self.revision and not self.digests:
            return changes[self.count :]
        known = set(self.digests)
        return [change for change in changes if _digest(change) not in known] if known else changes


def _digest(change: RowChange) -> str:
    told = json.dumps([change.key, change.after], sort_keys=True).encode()
    return sha256(told).hexdigest()[:_DIGITS]


def _order(change: RowChange) -> list[tuple[str, Any]]:
    """By key; values of a column are of one type, or null."""
    return [
        (type(value).__name__, value if isinstance(value, int | float | str) else json.dumps(value))
        for value in (change.key or {}).values()
    ]


class _Following:
    """One answer that does not end, read by a thread of its own, a few events ahead."""

    def __init__(self, server: HttpServer, path: str, headers: Mapping[str, str]) -> None:
        self._events: queue.Queue[Event | ConnectError] = queue.Queue(_EVENTS_AHEAD)
        self._closing = threading.Event()
        try:
            self._stream: Stream = server.follow(path, headers)
        except NoAnswer as error:
            raise SourceUnavailable(f"the server of views does not answer: {error}") from error
        if self._stream.status != 200:
            said = self._stream.rest()
            self._stream.close()
            error_text = _error_in(said)
            kind = SourceUnavailable if self._stream.status >= 500 else SourceRefused
            raise kind(f"the server of views refused to be followed ({error_text or self._stream.status})")
        threading.Thread(target=self._read, name="headrace-view-changes", daemon=True).start()

    def _read(self) -> None:
        failed: ConnectError = SourceUnavailable("the server of views ended the stream")
        try:
            for event in parse_events(self._stream.chunks()):
                if not self._put(event):
                    return
        except NoAnswer as error:
            failed = SourceUnavailable(f"the server of views does not answer: {error}")
        except ValueError as error:
            failed = SourceRefused(f"the server of views sent what cannot be read ({error})")
        self._put(failed)

    def _put(self, found: Event | ConnectError) -> bool:
        while not self._closing.is_set():
            try:
                self._events.put(found, timeout=0.25)
            except queue.Full:
                continue
            return True
        return False

    def next(self, timeout_s: float) -> Event | None:
        try:
            found = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(found, ConnectError):
            raise found
        return found

    def close(self) -> None:
        self._closing.set()
        self._stream.close()


def _error_in(body: bytes) -> str:
    try:
        found = json.loads(body)
    except ValueError:
        return ""
    return str(found.get("error", "")) if isinstance(found, dict) else ""
