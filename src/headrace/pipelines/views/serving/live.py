"""What changes in a view, as it changes: a state, then a change for each batch, as server-sent events.

A client that comes back with the id of the last event it saw gets what it missed, where the store still knows, and the
whole state where not. There are no queues: each client asks for what is new since its own last event when it is ready
for it, so a slow one costs no memory and sees several batches as one.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from headrace.serving.event_lines import HEARTBEAT, HEARTBEAT_S, encoded
from headrace.stores.errors import ViewError
from headrace.stores.views.question import Condition, Question, everything
from headrace.stores.views.replica import fits
from headrace.stores.views.shape import show_row, show_value
from headrace.stores.views.store import Change, Changes, Kept, Reader

T = TypeVar("T")
Ask = Callable[..., Awaitable[Any]]

_WAIT_S = 1.0  # how long a wait may outlast the server
_PAUSE_S = 1.0


class Follower:
    """Notices when a view goes on, from the first listener to the end."""

    def __init__(self, reader: Reader, ask: Ask) -> None:
        self._reader, self._ask = reader, ask
        self._revision = -1
        self._news = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._known: dict[int, Changes] = {}  # by the revision that was asked from; several listeners ask the same
        self.is_ended = False

    def begin(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._watch())

    async def newer(self, revision: int, timeout_s: float) -> bool:
        """Whether the view goes past a revision in this time."""
        try:
            async with asyncio.timeout(timeout_s), self._news:
                await self._news.wait_for(lambda: self._revision > revision or self.is_ended)
        except TimeoutError:
            return False
        return True

    async def changes(self, since: int) -> Changes:
        known = self._known.get(since)
        if known is not None:
            return known
        found: Changes = await self._ask(self._reader.changes, since)
        if found.kept.freshness.revision >= self._revision:  # else the view went on while we asked
            self._known[since] = found
        return found

    async def end(self) -> None:
        self.is_ended = True
        async with self._news:
            self._news.notify_all()

    async def _watch(self) -> None:
        """One thread waits at the store for all listeners."""
        loop, thread = asyncio.get_running_loop(), ThreadPoolExecutor(1, "headrace-view-wait")
        try:
            while not self.is_ended:
                try:
                    await loop.run_in_executor(thread, self._reader.wait, self._revision, _WAIT_S)
                    kept: Kept = await self._ask(self._reader.kept)
                except ViewError:  # the store is away, or the view is not written yet: listeners stay
                    await asyncio.sleep(_PAUSE_S)
                    continue
                if kept.freshness.revision != self._revision:
                    async with self._news:
                        self._revision, self._known = kept.freshness.revision, {}
                        self._news.notify_all()
        finally:
            thread.shutdown(wait=False)  # it comes back when the reader is closed


class Live:
    """The events for one client; `conditions` choose the rows that it wants."""

    def __init__(
        self, reader: Reader, follower: Follower, ask: Ask, conditions: Sequence[Condition], now_ms: Callable[[], int]
    ) -> None:
        self._reader, self._follower, self._ask = reader, follower, ask
        self._conditions = tuple(conditions)
        self._now_ms = now_ms

    async def events(self, last: int | None) -> AsyncGenerator[bytes, None]:
        """From the event after `last` on, or from a whole state."""
        self._follower.begin()
        revision = last
        while not self._follower.is_ended:
            try:
                if revision is None:
                    async for event, reached in self._state():
                        revision = reached
                        yield event
                if revision is None:
                    continue
                found = await self._follower.changes(revision)
            except ViewError as error:
                yield encoded("problem", {"error": str(error)})
                await asyncio.sleep(_PAUSE_S)
                continue
            if found.changes is None:
                revision = None
                continue
            if found.kept.freshness.revision != revision:
                revision = found.kept.freshness.revision
                yield self._change(found.kept, found.changes)
            if not await self._follower.newer(revision, HEARTBEAT_S):
                yield HEARTBEAT

    async def _state(self) -> AsyncGenerator[tuple[bytes, int | None], None]:
        """All rows a page at a time, then what changed meanwhile: whole with the event `live`."""
        kept: Kept = await self._ask(self._reader.kept)
        question, first = replace(everything(kept.shape), conditions=self._conditions), None
        while True:
            answer = await self._ask(self._reader.page, question)
            begun = first is None
            first = first or answer.kept
            rows = [show_row(answer.kept.shape, row) for row in answer.rows]
            if rows or begun:
                yield encoded("state", {"first": begun, "rows": rows}), None
            if len(answer.rows) < question.limit:
                break
            question = _behind(question, answer.rows[-1])
        since = first.freshness.revision
        found: Changes = await self._ask(self._reader.changes, since)
        if found.changes is None:  # replaced while it was read: once more
            return
        if found.changes:
            yield self._change(found.kept, found.changes, with_id=False), None
        reached = found.kept.freshness.revision
        yield encoded("live", {"freshness": found.kept.freshness.shown(self._now_ms())}, reached), reached

    def _change(self, kept: Kept, changes: Sequence[Change], *, with_id: bool = True) -> bytes:
        shape, key = kept.shape, set(kept.shape.key)
        on_key = [condition for condition in self._conditions if condition.column.name in key]
        wanted = [change for change in changes if fits(change.key, on_key)]
        put = [one.row for one in wanted if one.row is not None and fits(one.row, self._conditions)]
        gone = [one.key for one in wanted if one.row is None or not fits(one.row, self._conditions)]
        data = {
            "upserts": [show_row(shape, row) for row in put],
            "deletes": [
                {column.name: show_value(column, one[column.name]) for column in shape.key_columns} for one in gone
            ],
            "freshness": kept.freshness.shown(self._now_ms()),
        }
        return encoded("change", data, kept.freshness.revision if with_id else None)


def _behind(question: Question, row: Mapping[str, Any]) -> Question:
    return replace(question, after=tuple(row[order.column.name] for order in question.order))
