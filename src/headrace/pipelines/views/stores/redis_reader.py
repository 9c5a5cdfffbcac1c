"""Reading a view in Redis: every answer is of whole batches, because it counts only if no batch came in between."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from headrace import extras
from headrace.pipelines.views.stores.redis_books import AT_ONCE, TIMEOUT_S, Found, index_of
from headrace.stores.errors import StoreAway
from headrace.stores.views.question import Question
from headrace.stores.views.replica import Replica
from headrace.stores.views.store import Answer, Change, Changes, Kept, never_written
from headrace.stores.views.values import key_text, loaded_key, loaded_row

T = TypeVar("T")

_READ_WITHIN_S = 10.0
_SLICE_S = 0.5


class RedisReader:
    """Reads one view: a row by its key from Redis itself, pages from a copy in memory that follows the changes."""

    def __init__(self, url: str, view: str, state: str) -> None:
        """`state` is the key of what is known of the view."""
        self._view, self._state = view, state
        self._redis = extras.load("redis")
        self._client = self._redis.Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=10)
        self._replica = Replica()
        self._turn = threading.Lock()
        self._closed = False

    def kept(self) -> Kept:
        """What is known of the view."""
        return self._whole(lambda _, found: found.known)

    def row(self, values: Sequence[Any]) -> Answer:
        """The row with this key, or none."""

        def read(pipe: Any, found: Found) -> Answer:
            shape = found.known.shape
            text = pipe.get(found.rows + key_text(shape, dict(zip(shape.key, values, strict=True))))
            return Answer(found.known, [] if text is None else [loaded_row(shape, text)])

        return self._whole(read)

    def page(self, question: Question) -> Answer:
        """The rows that a question asks for."""
        with self._turn:
            self._follow()
        return self._replica.page(question)

    def changes(self, since: int) -> Changes:
        """What changed since a revision."""
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
        """Let go of connections."""
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
        [Change(loaded_key(shape, key), loaded_row(shape, rows[key]) if key in rows else None) for key in sorted(keys)],
    )


def _rows(pipe: Any, prefix: str, keys: Sequence[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for at in range(0, len(keys), AT_ONCE):
        piece = keys[at : at + AT_ONCE]
        values = pipe.mget([prefix + key for key in piece])
        found |= {key: value for key, value in zip(piece, values, strict=True) if value is not None}
    return found
