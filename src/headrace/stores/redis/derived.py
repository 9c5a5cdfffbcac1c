"""Keys of Redis kept in step with a topic: `PREFIX` and the record's key.

As `hash` a row is a hash of its columns, without those that are null (so a row of nulls alone is not there); as `json`
it is a string that holds JSON. With `mode="invalidate"` a change removes the row's key and the application loads it
anew; with `write-through` the row is written. A time to live is set anew with each change.

The state is the hash `headrace:sync:NAME`. Its field `prefix` names the keys in use: a rebuild fills keys with
another prefix (`g2:PREFIX`), and the switch changes that field, in one step. A reader that has to live through
rebuilds asks it: `HGET headrace:sync:NAME prefix`. One Redis is meant, not a Redis Cluster, whose scripts cannot
reach across slots.
"""

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from headrace import extras
from headrace.stores.derived import ChangeBatch, Place, RowChange, StoredRow, Values, complete_rows, key_text
from headrace.stores.errors import (
    InvalidConnectSetting,
    RowRefused,
    SinkRefused,
    SinkUnavailable,
    TakenOver,
    TargetReplaced,
)
from headrace.stores.redis import AT_ONCE, connect, is_url
from headrace.stores.values import encode_row

HASH, JSON = "hash", "json"
WRITE_THROUGH, INVALIDATE = "write-through", "invalidate"
_SCAN: Final = 1_000
_MOST_FIELDS: Final = 3_000  # Lua hands so many arguments to a call, and not many more
# Out of memory, still loading, a replica, a full disk, a long script: it may go better the next time.
_PASSING: Final = (
    "OOM",
    "LOADING",
    "READONLY",
    "MISCONF",
    "BUSY",
    "TRYAGAIN",
    "MASTERDOWN",
    "NOREPLICAS",
    "UNKILLABLE",
)
_GLOB: Final = str.maketrans({mark: "\\" + mark for mark in "*?[]^\\"})

_TAKEN, _LOST, _REPLACED = b"taken", b"lost", b"replaced"

# What runs inside Redis: a part of a batch and, with the last part, the place; nobody sees it half done. Redis writes a
# script's effects to its own log as one, so after a crash of Redis rows and place are those of the same moment. The
# arguments are the owner, the place or nothing, the time to live in seconds or 0, and the operations.
# Operations, as JSON: ["set", KEY, TEXT], ["hash", KEY, [NAME, VALUE, …]], ["some", KEY, [NAME, VALUE, …], [NULL, …]]
# and ["gone", KEY]. All names and values are texts, so nothing is lost between the two languages.
_APPLY: Final = """
local owner = redis.call('HGET', KEYS[1], 'owner')
if not owner then return 'lost' end
if owner == '' then return 'replaced' end
if owner ~= ARGV[1] then return 'taken' end
local place, ttl = ARGV[2], tonumber(ARGV[3])
for _, operation in ipairs(cjson.decode(ARGV[4])) do
  local what, key = operation[1], operation[2]
  if what == 'set' then
    if ttl > 0 then redis.call('SET', key, operation[3], 'EX', ttl) else redis.call('SET', key, operation[3]) end
  elseif what == 'hash' then
    redis.call('DEL', key)
    if #operation[3] > 0 then redis.call('HSET', key, unpack(operation[3])) end
    if ttl > 0 then redis.call('EXPIRE', key, ttl) end
  elseif what == 'some' then
    -- A row that expired is not brought back in part: who misses it loads it whole.
    if ttl == 0 or redis.call('EXISTS', key) == 1 then
      if #operation[3] > 0 then redis.call('HSET', key, unpack(operation[3])) end
      for _, name in ipairs(operation[4]) do redis.call('HDEL', key, name) end
      if ttl > 0 then redis.call('EXPIRE', key, ttl) end
    end
  else
    redis.call('UNLINK', key)
  end
end
if place ~= '' then redis.call('HSET', KEYS[1], 'place', place) end
return 'ok'
"""

# The state of what was built takes the place of the state in use, without an owner; the prefix that was in use is told.
_SWITCH: Final = """
if redis.call('EXISTS', KEYS[2]) == 0 then return false end
local old = redis.call('HGET', KEYS[1], 'prefix')
redis.call('HSET', KEYS[2], 'owner', '')
redis.call('RENAME', KEYS[2], KEYS[1])
return old or ''
"""


@dataclass(eq=False)
class RedisSink:
    """Keeps the keys behind one prefix in step with one topic."""

    name: str
    topic: str
    url: str = field(repr=False)  # it may hold a password
    prefix: str  # as configured; the one in use may be a later generation's
    form: str
    mode: str
    ttl_s: int
    every_change: ClassVar[bool] = False
    _client: Any = field(default=None, init=False)
    _owner: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self._redis = extras.load("redis")
        self.live = self.prefix
        self.state = f"headrace:sync:{self.name}"

    @property
    def forgets(self) -> bool:
        """Whether a row may be missing that the log has."""
        return self.ttl_s > 0

    # --- keeping in step

    def open(self) -> Place | None:
        """Become the owner."""
        with self._translated():
            self._connect()
            self._owner = secrets.token_hex(16)
            with self._client.pipeline(transaction=True) as pipeline:
                pipeline.hset(self.state, "owner", self._owner)
                pipeline.hsetnx(self.state, "prefix", self.live)
                pipeline.hmget(self.state, "place", "prefix")
                place, prefix = pipeline.execute()[2]
            self.live = prefix.decode()
            self._apply = self._client.register_script(_APPLY)
        return Place.from_json(place) if place else None

    def apply(self, batch: ChangeBatch) -> None:
        """In parts; only the last has the place."""
        with self._translated():
            if batch.clears:
                self._call([], "")  # it must still be ours
                self._remove(self.live)
            changes = self._whole(batch.changes)
            operations = [self._operation(change) for change in changes]
            for at in range(0, max(len(operations), 1), AT_ONCE):
                is_last = at + AT_ONCE >= len(operations)
                self._call(operations[at : at + AT_ONCE], batch.place.to_json() if is_last else "")

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connect(self) -> None:
        self.close()
        self._client = connect(self.url)

    def _call(self, operations: Sequence[list[Any]], place: str) -> None:
        answer = self._apply(keys=[self.state], args=[self._owner, place, self.ttl_s, encode_row(operations)])
        if answer == _TAKEN:
            raise TakenOver(self.name)
        if answer == _REPLACED:
            raise TargetReplaced(f"the keys of {self.name!r} in Redis were replaced by rebuilt ones")
        if answer == _LOST:
            raise SinkUnavailable(f"Redis has lost {self.state}: its keys are filled from the beginning")

    def _whole(self, changes: Sequence[RowChange]) -> Sequence[RowChange]:
        """JSON is replaced as a whole, so a partial row needs what is stored."""
        partial = [change for change in changes if change.partial]
        if not partial or self.form != JSON or self.mode == INVALIDATE:
            return changes
        found = self._client.mget([self._key(change.key) for change in partial])
        stored = {
            change.key_text: json.loads(text) for change, text in zip(partial, found, strict=True) if text is not None
        }
        if self.ttl_s:  # a row that expired is not brought back in part
            gone = {change.key_text for change in partial} - stored.keys()
            changes = [change._replace(row=None) if change.key_text in gone else change for change in changes]
        return complete_rows(changes, stored)

    def _key(self, key: Values) -> str:
        return self.live + key_text(key)

    def _operation(self, change: RowChange) -> list[Any]:
        key, row = self._key(change.key), change.row
        if row is None or self.mode == INVALIDATE:
            return ["gone", key]
        if self.form == JSON:
            return ["set", key, encode_row(row)]
        if len(row) > _MOST_FIELDS:
            raise RowRefused(
                f"a row of {len(row)} columns is too wide for a hash: set form = 'json'",
                partition=change.partition,
                offset=change.offset,
            )
        fields = [part for name, value in row.items() if value is not None for part in (name, _text(value))]
        if not change.partial:
            return ["hash", key, fields]
        return ["some", key, fields, [name for name, value in row.items() if value is None]]

    def _remove(self, prefix: str) -> None:
        for keys in self._keys(prefix):
            self._client.unlink(*keys)

    def _keys(self, prefix: str) -> Iterator[list[bytes]]:
        cursor = 0
        while True:
            cursor, keys = self._client.scan(cursor, match=prefix.translate(_GLOB) + "*", count=_SCAN)
            if keys:
                yield keys
            if not cursor:
                return

    @contextmanager
    def _translated(self) -> Iterator[None]:
        errors = self._redis.exceptions
        try:
            yield
        except (errors.AuthenticationError, errors.NoPermissionError) as error:
            raise SinkRefused(f"Redis does not let us in: {error}") from error
        except errors.ResponseError as error:
            if str(error).startswith("WRONGTYPE") or "WRONGTYPE" in str(error):
                raise RowRefused(f"Redis holds something else under the row's key: {error}") from error
            if any(word in str(error) for word in _PASSING) or type(error) is not errors.ResponseError:
                raise SinkUnavailable(f"Redis does not take it now: {error}") from error
            raise SinkRefused(f"Redis refuses it: {error}") from error
        except (errors.RedisError, OSError) as error:
            raise SinkUnavailable(f"Redis cannot be reached: {error}") from error

    # --- reading back

    def place(self) -> Place | None:
        with self._reading():
            found = self._client.hget(self.state, "place")
        return Place.from_json(found) if found else None

    def scan(self) -> Iterator[list[StoredRow]]:
        """Every row; one that changes meanwhile may be seen before or after."""
        self._refuse_invalidating()
        with self._reading():
            for keys in self._keys(self.live):
                yield self._rows(list(dict.fromkeys(keys)))

    def look_up(self, keys: Sequence[Values]) -> list[StoredRow]:
        with self._reading():
            return self._rows([self._key(key).encode() for key in keys])

    def comparable(self, key: Values, row: Values) -> StoredRow:
        if self.form == JSON:
            return StoredRow(key_text(key), dict(row))
        return StoredRow(key_text(key), {n: None if value is None else _text(value) for n, value in row.items()})

    def _rows(self, keys: Sequence[bytes]) -> list[StoredRow]:
        with self._client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.get(key) if self.form == JSON else pipeline.hgetall(key)
            found = pipeline.execute()
        rows = []
        for key, value in zip(keys, found, strict=True):
            if value:
                row = json.loads(value) if self.form == JSON else {n.decode(): v.decode() for n, v in value.items()}
                rows.append(StoredRow(key.decode()[len(self.live) :], row))
        return rows

    def _refuse_invalidating(self) -> None:
        if self.mode == INVALIDATE:
            raise SinkRefused(
                f"{self.name!r} only removes keys of Redis and holds no rows: there is nothing to compare"
            )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._translated():
            self._connect()
            try:
                self.live = (self._client.hget(self.state, "prefix") or self.live.encode()).decode()
                yield
            finally:
                self.close()

    # --- rebuilding

    def beside(self) -> "RedisSink":
        """The same sink for keys of the next generation."""
        self._refuse_invalidating()
        new = replace(self)
        with self._reading():
            number = int(self._client.hget(self.state, "generation") or 1) + 1
            new.live = f"g{number}:{self.prefix}"
            new.state = f"{self.state}:new"
            self._client.delete(new.state)
            self._remove(new.live)
            self._client.hset(new.state, mapping={"generation": number, "prefix": new.live})
        return new

    def switch(self) -> None:
        """The new keys come into use, and the old ones go."""
        with self._reading():
            old = self._client.register_script(_SWITCH)(keys=[self.state, f"{self.state}:new"])
            if old is None:
                raise SinkRefused(
                    f"nothing was built beside the keys of {self.name!r}: build it before switching to it"
                )
            if old:
                self._remove(old.decode())


def _text(value: object) -> str:
    if value.__class__ is int:
        return str(value)
    return value if isinstance(value, str) else encode_row(value)


def redis(
    name: str,
    topic: str,
    url: str,
    prefix: str,
    *,
    form: str = HASH,
    mode: str = WRITE_THROUGH,
    ttl_s: int = 0,
) -> RedisSink:
    """A sink to Redis."""
    if not is_url(url):
        raise InvalidConnectSetting("url", url.split("@")[-1], "write redis://HOST:PORT/DATABASE")
    if not prefix:
        raise InvalidConnectSetting("prefix", prefix, "without one the keys cannot be told from others")
    if form not in (HASH, JSON):
        raise InvalidConnectSetting("form", form, "choose 'hash' or 'json'")
    if mode not in (WRITE_THROUGH, INVALIDATE):
        raise InvalidConnectSetting("mode", mode, "choose 'write-through' or 'invalidate'")
    if ttl_s < 0:
        raise InvalidConnectSetting("ttl_s", ttl_s, "write seconds, or 0 for ever")
    return RedisSink(name, topic, url, prefix, form, mode, ttl_s)
