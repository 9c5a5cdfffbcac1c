"""Views in Redis: a row is a string of JSON under the view's name and the row's key, and a batch is one MULTI.

    GET 'headrace:view:timelines:{"user":7,"post":12}'

The hash `headrace:view:NAME` holds shape, freshness and the last batch; its field `rows` is what the keys of rows begin
with, which changes when a new version takes over. All of a batch, with its number, is done by one MULTI that is given
up if another writer was there in between (WATCH), so a replayed batch changes nothing and readers see whole batches.
One Redis is meant, not a Redis Cluster. A batch is held in memory: limit its size with `maxRecordsPerTrigger`.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace import extras
from headrace.pipelines.views.stores.redis_books import AT_ONCE, TIMEOUT_S, Found, index_of, rows_prefix
from headrace.pipelines.views.stores.redis_reader import RedisReader
from headrace.stores.batch import Recorded, Step, next_step
from headrace.stores.errors import BadView, StoreAway
from headrace.stores.views.freshness import Freshness
from headrace.stores.views.shape import check_same
from headrace.stores.views.store import MOST_LOGGED, Kept, Label, Tally, ViewBatch, check_tally, follows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class RedisStore:
    """Views behind one prefix."""

    url: str = field(repr=False)  # it may hold a password
    prefix: str = "headrace:view:"
    kind = "redis"

    def __str__(self) -> str:
        return f"Redis {self.prefix}*"

    def prepared(self, found: "DataFrame") -> "DataFrame":
        """Rows as JSON."""
        from headrace.pipelines.operators.tables.consolidate import with_row_json

        return with_row_json(found)

    def state(self, label: Label) -> str:
        """The key of what is known of a view."""
        return f"{self.prefix}{label}"

    def write(self, batch: ViewBatch) -> Freshness | None:
        """Write a batch and its freshness as one; None if it is there already."""
        state = self.state(batch.label)
        with self.connected() as client, client.pipeline(transaction=True) as pipe:
            pipe.watch(state)
            found = Found.read(pipe.hgetall(state))
            step = next_step(f"view:{batch.label}", found.recorded, batch.query_id, batch.batch_id, batch.on_new_query)
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
            kept = follows(before, batch, tally, logged=logged, fresh_start=fresh_start)
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
                    raise BadView(f"version {version} of view {view!r} is not there: build it before switching to it")
                return
            known = before.kept.freshness.revision if before.kept else 0
            revision = max(built.kept.freshness.revision, known) + 1
            kept = Kept(built.kept.shape, replace(built.kept.freshness, revision=revision), revision)
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
        client = module.Redis.from_url(self.url, socket_timeout=TIMEOUT_S, socket_connect_timeout=10)
        try:
            yield client
        except module.RedisError as error:
            raise StoreAway(f"Redis cannot be asked: {error}") from error
        finally:
            client.close()

    def reader(self, view: str, bootstrap: str | None = None) -> RedisReader:  # noqa: ARG002 - for topics
        """A reader of one view."""
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


def redis(url: str, prefix: str = "headrace:view:") -> RedisStore:
    """Keep views in Redis, behind a prefix."""
    if not url.startswith(("redis://", "rediss://", "unix://")):
        raise BadView("a view in Redis needs a URL such as redis://host:6379/0")
    return RedisStore(url, prefix)
