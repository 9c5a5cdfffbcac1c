"""Views in Redis: a row is a string of JSON under the view's name and the row's key, and a batch is one MULTI.

    GET 'headrace:view:timelines:{"user":7,"post":12}'

The hash `headrace:view:NAME` holds shape, freshness and the last batch; its field `rows` is what the keys of rows begin
with, which changes when a new version takes over. All of a batch, with its number, is done by one MULTI that is given
up if another writer was there in between (WATCH), so a replayed batch changes nothing and readers see whole batches.
One Redis is meant, not a Redis Cluster. A batch is held in memory: limit its size with `maxRecordsPerTrigger`.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from headrace import extras
from headrace.stores.batch import Recorded, Step, decide_step
from headrace.stores.errors import BadView, StoreAway
from headrace.stores.redis import AT_ONCE, connect, is_url
from headrace.stores.views.question import Question
from headrace.stores.views.replica import Replica
from headrace.stores.views.shape import Shape, check_same, key_text, load_key, load_row
from headrace.stores.views.store import (
    MOST_LOGGED,
    Answer,
    Change,
    Changes,
    Freshness,
    Kept,
    Label,
    Tally,
    ViewBatch,
    check_tally,
    never_written,
    next_kept,
    not_built,
    take_over,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


T = TypeVar("T")
_READ_WITHIN_S = 10.0
_SLICE_S = 0.5


@dataclass(frozen=True)
class Found:
    """What the state says."""

    kept: Kept | None
    rows: str
    recorded: tuple[Recorded, ...]

    @classmethod
    def read(cls, state: dict[bytes, bytes]) -> "Found":
        """From the hash; nothing where it is empty."""
        if not state:
            return cls(None, "", ())
        kept = Kept(
            Shape.from_json(state[b"shape"].decode()),
            Freshness.from_json(state[b"freshness"]),
            int(state[b"logged_from"]),
        )
        return cls(kept, state[b"rows"].decode(), tuple(Recorded(*one) for one in json.loads(state[b"batches"])))

    @property
    def known(self) -> Kept:
        """What is known, where something is."""
        assert self.kept is not None
        return self.kept

    def after(self, step: Step, batch: ViewBatch) -> list[Recorded]:
        """The memory of batches with this one."""
        others = [one for one in self.recorded if one.query_id != batch.query_id]
        if step is not Step.WRITE:
            others = [replace(one, superseded=True) for one in others]
        return [*others, Recorded(batch.query_id, batch.batch_id)]


def rows_prefix(state: str, before: str) -> str:
    """What keys of rows begin with: the view's own name, and another one where that is taken."""
    first = f"{state}:"
    return first if before != first else f"{state}~:"


def index_of(rows: str) -> str:
    """The sorted set of a version's keys."""
    return f"{rows}#keys"


@dataclass(frozen=True)
class RedisStore:
    """Views behind one prefix."""

    url: str = field(repr=False)  # it may hold a password
    prefix: str = "headrace:view:"
    kind = "redis"

    def __str__(self) -> str:
        return f"Redis {self.prefix}*"

    def prepare(self, found: "DataFrame") -> "DataFrame":
        """Rows as JSON."""
        from headrace.stores.frames import with_row_json

        return with_row_json(found)

    def state(self, label: Label) -> str:
        """The key of what is known of a view."""
        return f"{self.prefix}{label}"

    def write(self, batch: ViewBatch) -> Freshness | None:
        state = self.state(batch.label)
        with self.connected() as client, client.pipeline(transaction=True) as pipe:
            pipe.watch(state)
            found = Found.read(pipe.hgetall(state))
            step = decide_step(
                f"view:{batch.label}", found.recorded, batch.query_id, batch.batch_id, batch.on_new_query
            )
            if step is Step.SKIP:
                return None
            before = found.kept
            fresh_start = step is Step.START_OVER
            if before and not fresh_start:
                check_same(str(batch.label), before.shape, batch.shape)
            rows = found.rows if found.rows and not fresh_start else rows_prefix(state, found.rows)
            tally, keys = _met(pipe, rows, batch)
            check_tally(batch.label, batch.shape.key, tally, upserts=batch.upserts)
            logged = tally.changed <= MOST_LOGGED
            kept = next_kept(before, batch, tally, logged=logged, fresh_start=fresh_start)
            pipe.multi()
            _put(pipe, rows, batch)
            self._put_state(pipe, batch.label, kept, rows, found.after(step, batch))
            if logged and keys:
                pipe.zadd(f"{state}#changes", dict.fromkeys(keys, kept.freshness.revision))
            pipe.zremrangebyscore(f"{state}#changes", "-inf", kept.logged_from)
            self._execute(pipe, batch.label)
            if fresh_start and found.rows:
                _remove(client, found.rows)
        return kept.freshness

    def switch(self, view: str, version: int) -> None:
        """Let a version that was built beside take the view's place; once more changes nothing."""
        new, live = Label(view, version), Label(view)
        with self.connected() as client, client.pipeline(transaction=True) as pipe:
            pipe.watch(self.state(new), self.state(live))
            built, before = (Found.read(pipe.hgetall(self.state(label))) for label in (new, live))
            if built.kept is None:
                if before.kept is None:
                    raise not_built(view, version)
                return
            kept = take_over(built.kept, before.kept)
            pipe.multi()
            pipe.delete(self.state(new), f"{self.state(new)}#changes", f"{self.state(live)}#changes")
            self._put_state(pipe, live, kept, built.rows, built.recorded)
            self._execute(pipe, live)
            if before.rows:
                _remove(client, before.rows)

    def _put_state(self, pipe: Any, label: Label, kept: Kept, rows: str, recorded: Sequence[Recorded]) -> None:
        batches = [[one.query_id, one.batch_id, one.superseded] for one in recorded]
        state = self.state(label)
        pipe.hset(
            state,
            mapping={
                "shape": kept.shape.to_json(),
                "freshness": kept.freshness.to_json(),
                "logged_from": kept.logged_from,
                "rows": rows,
                "batches": json.dumps(batches),
            },
        )
        pipe.publish(state, kept.freshness.revision)

    def _execute(self, pipe: Any, label: Label) -> None:
        try:
            pipe.execute()
        except extras.load("redis").WatchError as error:
            raise StoreAway(f"view {str(label)!r} in Redis was changed by another writer meanwhile") from error

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """A connection, with what Redis says as one sentence."""
        module = extras.load("redis")
        client = connect(self.url)
        try:
            yield client
        except module.RedisError as error:
            raise StoreAway(f"Redis cannot be asked: {error}") from error
        finally:
            client.close()

    def reader(self, view: str, bootstrap: str | None = None) -> "RedisReader":  # noqa: ARG002 - for topics
        return RedisReader(self.url, view, self.state(Label(view)))


def _met(pipe: Any, rows: str, batch: ViewBatch) -> tuple[Tally, list[str]]:
    """How the batch meets the rows that are there, and the keys that it changes."""
    keys: list[str] = []
    added = removed = changed = 0
    clashing = strange = None
    for part in batch.spool.batches():
        for at in range(0, part.num_rows, AT_ONCE):
            piece = part.slice(at, AT_ONCE)
            texts = piece.column("headrace_key").to_pylist()
            there = [score is not None for score in pipe.zmscore(index_of(rows), texts)]
            changed += len(texts)
            if changed <= MOST_LOGGED:
                keys += texts
            flags = zip(
                texts,
                there,
                piece.column("headrace_known").to_pylist(),
                piece.column("headrace_deleted").to_pylist(),
                strict=True,
            )
            for text, is_there, known, deleted in flags:
                added += not deleted and not is_there
                removed += deleted and is_there
                if is_there and not deleted and not known:
                    clashing = clashing or text
                if known and not is_there:
                    strange = strange or text
    return Tally(changed, added, removed, clashing, strange), keys


def _put(pipe: Any, rows: str, batch: ViewBatch) -> None:
    for part in batch.spool.batches():
        pairs = zip(part.column("headrace_key").to_pylist(), part.column("headrace_row").to_pylist(), strict=True)
        for key, row in pairs:
            if row is None:
                pipe.unlink(rows + key)
                pipe.zrem(index_of(rows), key)
            else:
                pipe.set(rows + key, row)
                pipe.zadd(index_of(rows), {key: 0})


def _remove(client: Any, rows: str) -> None:
    """Rows that nobody points to any more."""
    while texts := client.zrange(index_of(rows), 0, AT_ONCE - 1):
        client.unlink(*(rows.encode() + text for text in texts))
        client.zrem(index_of(rows), *texts)


class RedisReader:
    """Reads one view: a row by its key from Redis itself, pages from a copy in memory that follows the changes."""

    def __init__(self, url: str, view: str, state: str) -> None:
        """`state` is the key of what is known of the view."""
        self._view, self._state = view, state
        self._redis = extras.load("redis")
        self._client = connect(url)
        self._replica = Replica()
        self._turn = threading.Lock()
        self._closed = False

    def kept(self) -> Kept:
        return self._whole(lambda _, found: found.known)

    def row(self, values: Sequence[Any]) -> Answer:

        def read(pipe: Any, found: Found) -> Answer:
            shape = found.known.shape
            text = pipe.get(found.rows + key_text(shape, dict(zip(shape.key, values, strict=True))))
            return Answer(found.known, [] if text is None else [load_row(shape, text)])

        return self._whole(read)

    def page(self, question: Question) -> Answer:
        with self._turn:
            self._follow()
        return self._replica.page(question)

    def changes(self, since: int) -> Changes:
        return self._whole(lambda pipe, found: _changes(pipe, found, self._state, since))

    def wait(self, revision: int, timeout_s: float) -> None:
        """Until a batch of this view is told of; what came before we listened is looked up once."""
        until = time.monotonic() + timeout_s
        try:
            with self._client.pubsub(ignore_subscribe_messages=True) as told:
                told.subscribe(self._state)
                if self.kept().freshness.revision > revision:
                    return
                while not self._closed and (left := until - time.monotonic()) > 0:
                    news = told.get_message(timeout=min(left, _SLICE_S))
                    if news and int(news["data"]) > revision:
                        return
        except self._redis.RedisError as error:
            raise StoreAway(f"Redis cannot be asked: {error}") from error

    def close(self) -> None:
        self._closed = True
        self._client.close()

    def _follow(self) -> None:
        """Bring the copy in memory up to now."""
        known = self._replica.kept
        if known is not None:
            found = self.changes(known.freshness.revision)
            if found.kept.freshness.revision == known.freshness.revision:
                return
            if found.changes is not None:
                rows = self._texts(found)
                if rows is not None:
                    self._replica.apply(found.kept, rows)
                    return

        def read(pipe: Any, found: Found) -> tuple[Kept, dict[str, bytes]]:
            texts = pipe.zrange(index_of(found.rows), 0, -1)
            return found.known, _rows(pipe, found.rows, [text.decode() for text in texts])

        self._replica.reset(*self._whole(read))

    def _texts(self, found: Changes) -> dict[str, bytes | None] | None:
        """The changed rows as they are at that revision; None if the view has gone on meanwhile."""
        assert found.changes is not None
        keys = [key_text(found.kept.shape, change.key) for change in found.changes]

        def read(pipe: Any, now: Found) -> dict[str, bytes | None] | None:
            if now.known.freshness.revision != found.kept.freshness.revision:
                return None
            rows = _rows(pipe, now.rows, keys)
            return {key: rows.get(key) for key in keys}

        return self._whole(read)

    def _whole(self, read: Callable[[Any, Found], T]) -> T:
        """What is read while no batch was written; once more if one was."""
        until = time.monotonic() + _READ_WITHIN_S
        try:
            while True:
                with self._client.pipeline(transaction=True) as pipe:
                    pipe.watch(self._state)
                    found = Found.read(pipe.hgetall(self._state))
                    if found.kept is None:
                        raise never_written(self._view)
                    answer = read(pipe, found)
                    pipe.multi()
                    pipe.exists(self._state)
                    try:
                        pipe.execute()
                        return answer
                    except self._redis.WatchError as error:
                        if time.monotonic() > until:
                            raise StoreAway(f"view {self._view!r} changes faster than it can be read whole") from error
        except self._redis.RedisError as error:
            raise StoreAway(f"Redis cannot be asked: {error}") from error


def _changes(pipe: Any, found: Found, state: str, since: int) -> Changes:
    kept = found.known
    if not kept.logged_from <= since <= kept.freshness.revision:
        return Changes(kept, None)
    keys = [key.decode() for key in pipe.zrangebyscore(f"{state}#changes", f"({since}", "+inf")]
    rows = _rows(pipe, found.rows, keys)
    shape = kept.shape
    return Changes(
        kept,
        [Change(load_key(shape, key), load_row(shape, rows[key]) if key in rows else None) for key in sorted(keys)],
    )


def _rows(pipe: Any, prefix: str, keys: Sequence[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for at in range(0, len(keys), AT_ONCE):
        piece = keys[at : at + AT_ONCE]
        values = pipe.mget([prefix + key for key in piece])
        found |= {key: value for key, value in zip(piece, values, strict=True) if value is not None}
    return found


def redis(url: str, prefix: str = "headrace:view:") -> RedisStore:
    """Keep views in Redis, behind a prefix."""
    if not is_url(url):
        raise BadView("a view in Redis needs a URL such as redis://host:6379/0")
    return RedisStore(url, prefix)
