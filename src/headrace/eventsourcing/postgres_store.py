"""Events in PostgreSQL: an append is one call of a function, and writers do not wait for each other's commits.

A sequence numbers the events, and sequences commit out of order: a reader may see position 7 while 6 is still on its
way, go on from 7, and miss 6 for good. So a writer, before it takes its first number, holds an advisory lock on the
last number taken so far, shared and until its transaction ends: whatever it takes is above. Whoever wants to know up
to where all is settled reads the sequence first and the locks thereafter: the lowest number locked, or else what the
sequence said. A writer whose lock was not there yet takes its numbers later, so they are above both. Nobody waits,
nothing of this is stored, and transactions that append no events hold up nobody.

Other advisory locks make check and append one step: one for each stream and command id, and, since a condition may ask
for any tag, type or category, one for each of these (as one of a few hundred numbers), shared by those who append such
events, exclusive for a condition that asks for them. They are taken in one order: nobody waits in a circle.

A notification is sent only while somebody waits: in PostgreSQL those who notify commit one after the other.
"""

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import urlsplit
from zlib import crc32

from headrace.eventsourcing.errors import BoundaryConflict, Conflict, InvalidAppend, InvalidStore
from headrace.eventsourcing.model import Appended, Condition, Query, StreamAppend, category_of, check_append
from headrace.eventsourcing.sql import SqlEventStore, cells_of
from headrace.stores.postgres.database import PostgresDatabase
from headrace.stores.sql.statements import TableName, quote

_BUCKETS: Final = 256  # of tags, types and categories: few enough for PostgreSQL's table of locks
_WAITERS: Final = 1 << 31  # the lock of those who wait
_LONGEST_NAME: Final = 52  # bytes, so that the longest suffix fits into PostgreSQL's 63
_LONGEST_CHANNEL: Final = 63
_SLICE_S: Final = 0.5  # how long a wait goes on after `close`
_IN_FLIGHT_S: Final = 0.005  # between looks while an append is under way, which may have begun before we listened


class PostgresEventStore(SqlEventStore[PostgresDatabase]):
    """The tables of one store in a schema."""

    engine, text, binary = PostgresDatabase, 'text COLLATE "C"', "bytea"

    def __init__(
        self, url: str, table: str = "headrace_events", schema: str = "public", *, create: bool = True
    ) -> None:
        for what, given in (("table", table), ("schema", schema)):
            if len(given.encode()) > _LONGEST_NAME:  # PostgreSQL would cut names, to the same ones
                raise InvalidStore(f"{what} {given!r} is too long for events in PostgreSQL: use {_LONGEST_NAME} bytes")
        self._url = url
        self._settled = 0
        name = TableName(table, schema)
        self._sequence = name.with_suffix("position")
        self._append, self._horizon = name.with_suffix("append"), name.with_suffix("settled")
        self._channel = f"{schema}.{table}"
        if len(self._channel.encode()) > _LONGEST_CHANNEL:
            self._channel = f"headrace_{blake2b(self._channel.encode(), digest_size=16).hexdigest()}"
        super().__init__(name, self._connect, create=create)
        with self._reachable() as db:
            [(self._oid,)] = db.run("SELECT to_regclass(?)::oid::bigint", (str(name),))

    def _connect(self) -> PostgresDatabase:
        db = PostgresDatabase(self._url)
        db.connect()
        # What is checked after a lock was waited for must see what was committed meanwhile, whatever the default is.
        db.run("SET default_transaction_isolation = 'read committed'")
        return db

    def __str__(self) -> str:
        return f"PostgreSQL schema {self.table.schema}"

    def rows(self, db: PostgresDatabase, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return db.run(statement, values, binary=True)

    def create_tables(self, db: PostgresDatabase) -> None:
        db.run(f"CREATE SCHEMA IF NOT EXISTS {quote(self.table.schema)}")
        db.run(f"CREATE SEQUENCE {self._sequence}")
        text = self.text
        db.run(
            f"CREATE TABLE {self.table} (position bigint PRIMARY KEY, stream {text} NOT NULL, version bigint NOT NULL, "
            f"type {text} NOT NULL, schema integer NOT NULL, data bytea NOT NULL, id {text} NOT NULL, "
            f"time_ms bigint NOT NULL, tags {text} NOT NULL, causation_id {text} NOT NULL, "
            f"correlation_id {text} NOT NULL, command_id {text} NOT NULL, headers {text} NOT NULL, "
            "UNIQUE (stream, version))"
        )
        commands = quote(self.table.with_suffix("commands").name)
        db.run(f"CREATE INDEX {commands} ON {self.table} (command_id) WHERE command_id <> ''")
        db.run(f"CREATE TABLE {self.tags} (tag {text}, position bigint, PRIMARY KEY (tag, position))")
        names = {"events": self.table, "tags": self.tags, "sequence": self._sequence}
        literal = str(self._sequence).replace("'", "''")
        db.run(_HORIZON.format(name=self._horizon, **names))
        db.run(_APPEND.format(name=self._append, channel=self._channel.replace("'", "''"), literal=literal, **names))

    # --- appending

    def append(
        self, appends: Sequence[StreamAppend], *, condition: Condition | None = None, command_id: str = ""
    ) -> Appended:
        values = self._values(appends, condition, command_id)
        with self._reachable() as db, db.transaction() if self.inline else nullcontext():
            rows = self._call(db, values)
            if rows[0][0] == "done":
                self._project_inline(db, rows[0][3])
        return _outcome_of(rows, appends, condition)

    def _values(self, appends: Sequence[StreamAppend], condition: Condition | None, command_id: str) -> tuple[Any, ...]:
        """What the function takes, for an append."""
        check_append(appends, condition, command_id)
        keys, modes = self._locks(appends, condition, command_id)
        columns = list(zip(*(cells_of(event) for each in appends for event in each.events), strict=True))
        streams = [each.stream for each in appends]
        numbers = [number for number, each in enumerate(appends, 1) for _ in each.events]
        steps = [step for each in appends for step in range(1, len(each.events) + 1)]
        after = 0 if condition is None else condition.after
        kinds, schemas, data, idents, times, tags, causations, correlations, headers = columns
        return (
            self._oid, _numbers(keys), _numbers(map(int, modes)), command_id,
            None if condition is None else _criteria(condition.query), after,
            _texts(streams), _numbers(each.expected for each in appends), _numbers(numbers), _numbers(steps),
            _texts(kinds), _numbers(schemas), _bytes(data), _texts(idents), _numbers(times), _texts(tags),
            _texts(causations), _texts(correlations), _texts(headers),
        )  # fmt: skip

    def _call(self, db: PostgresDatabase, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self.rows(db, f"SELECT * FROM {self._append}({_MARKS})", values)  # noqa: S608

    def _locks(
        self, appends: Sequence[StreamAppend], condition: Condition | None, command_id: str
    ) -> tuple[list[int], list[bool]]:
        """Keys in their order, and which of them are held alone."""
        modes: dict[int, bool] = {}
        for each in appends:
            names = {f"category {category_of(each.stream)}", "any"}
            for event in each.events:
                names.add(f"type {event.type}")
                names.update(f"tag {tag}" for tag in event.tags)
            modes |= dict.fromkeys(map(_bucket, names), False)
        for criterion in () if condition is None else condition.query.criteria:
            # What matches has all of the tags, one of the types and the category: one kind of these is enough.
            names = {f"tag {min(criterion.tags)}"} if criterion.tags else {f"type {kind}" for kind in criterion.types}
            names = names or {f"category {criterion.category}" if criterion.category else "any"}
            modes |= dict.fromkeys(map(_bucket, names), True)
        if self.inline:  # all that is before is settled, and nobody else appends until this is
            modes[_bucket("any")] = True
        for name in [f"stream {each.stream}" for each in appends] + ([f"command {command_id}"] if command_id else []):
            modes[_BUCKETS + crc32(name.encode()) % (_WAITERS - _BUCKETS)] = True
        keys = sorted(modes)
        return [self._key(key) for key in keys], [modes[key] for key in keys]

    def _key(self, number: int) -> int:
        """The number as a key of this store's, among advisory locks with one of 64 bits."""
        return int.from_bytes((self._oid << 32 | number).to_bytes(8), signed=True)

    # --- erasure

    @contextmanager
    def writing(self) -> Iterator[PostgresDatabase]:
        with self._reachable() as db, db.transaction():
            yield db

    def append_in(self, db: PostgresDatabase, appends: Sequence[StreamAppend]) -> Appended:
        return _outcome_of(self._call(db, self._values(appends, None, "")), appends, None)

    def beside(self, name: str, *, create: bool) -> "PostgresEventStore | None":
        table = self.table.with_suffix(name)
        with self._reachable() as db:
            is_there = db.exists(table.with_suffix("format"))
        return PostgresEventStore(self._url, table.name, table.schema) if create or is_there else None

    # --- up to where all is settled

    def last_position(self) -> int:
        with self._reachable() as db:
            return self._settled_in(db)[0]

    def _settled_in(self, db: PostgresDatabase) -> tuple[int, bool]:
        """How far all is settled, and whether an append is under way."""
        [(settled, is_in_flight)] = db.run(f"SELECT * FROM {self._horizon}(?)", (self._oid,))  # noqa: S608
        # A writer that was slow to lock holds an old number, though it takes new ones: what was settled stays so.
        self._settled = max(self._settled, settled)
        return self._settled, is_in_flight

    def wait(self, after: int, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        key = self._key(_WAITERS)
        with self._reachable() as db:
            db.run(f"LISTEN {quote(self._channel)}")
            db.run("SELECT pg_advisory_lock_shared(?)", (key,))
            try:
                while True:
                    settled, is_in_flight = self._settled_in(db)
                    left = until - time.monotonic()
                    if settled > after or left <= 0 or self.pool.is_closed:
                        return settled > after
                    # An append that was under way when we took the lock may not notify us.
                    db.notices(min(left, _IN_FLIGHT_S if is_in_flight else _SLICE_S))
            finally:
                if not db.is_broken:
                    db.run("SELECT pg_advisory_unlock_shared(?)", (key,))
                    db.run(f"UNLISTEN {quote(self._channel)}")


def _outcome_of(
    rows: Sequence[tuple[Any, ...]], appends: Sequence[StreamAppend], condition: Condition | None
) -> Appended:
    """What the function answered; raises what was in the append's way."""
    [(outcome, names, at, position)] = rows
    if outcome == "boundary":
        assert condition is not None
        raise BoundaryConflict(condition.query, condition.after, position)
    versions = [int(each) for each in at.split(",")]
    if outcome == "conflict":
        raise Conflict(names[0], {each.stream: each.expected for each in appends}[names[0]], versions[0])
    if outcome == "repeat":
        return Appended(position, dict(zip(names, versions, strict=True)), is_repeat=True)
    before = zip(appends, versions, strict=True)
    return Appended(position, {each.stream: version + len(each.events) for each, version in before})


def _bucket(name: str) -> int:
    return crc32(name.encode()) % _BUCKETS


# Arrays are written by hand: the driver looks at every element of a list, which takes longer than the append itself.


def _numbers(values: Iterable[int]) -> str:
    return f"{{{','.join(map(str, values))}}}"


def _texts(values: Iterable[str]) -> str:
    quoted = (each.replace("\\", "\\\\").replace('"', '\\"') for each in values)
    return "{" + ",".join(f'"{each}"' for each in quoted) + "}"


def _bytes(values: Iterable[bytes]) -> str:
    return "{" + ",".join(f'"\\\\x{each.hex()}"' for each in values) + "}"


def _criteria(query: Query) -> str:
    return json.dumps([
        {"types": sorted(each.types), "tags": sorted(each.tags), "category": each.category} for each in query.criteria
    ])  # fmt: skip


# A function in PL/pgSQL sees with each of its statements what was committed before: the sequence is read before the
# locks, and the caller's next statement sees all that was settled. A number is locked by its lower half.
_HORIZON: Final = """
CREATE FUNCTION {name}(a_store bigint, OUT settled bigint, OUT in_flight boolean) AS $headrace$
DECLARE
    taken bigint;
    lowest bigint;
BEGIN
    SELECT CASE WHEN is_called THEN last_value ELSE 0 END INTO taken FROM {sequence};
    SELECT min(CASE WHEN ahead >= 2147483648 THEN ahead - 4294967296 ELSE ahead END) INTO lowest FROM (
        SELECT ((objid::bigint - taken) % 4294967296 + 4294967296) % 4294967296 AS ahead FROM pg_locks
        WHERE locktype = 'advisory' AND classid::bigint = a_store AND objsubid = 2
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    ) AS held;
    settled := taken + LEAST(coalesce(lowest, 0), 0);
    in_flight := lowest IS NOT NULL;
END $headrace$ LANGUAGE plpgsql
"""
# Arrays of few elements look cheaper to plan for than any: without the setting each append would be planned anew.
_APPEND: Final = """
CREATE FUNCTION {name}(
    a_store bigint, a_locks bigint[], a_alone boolean[], a_command text, a_criteria jsonb, a_after bigint,
    a_streams text[], a_expected bigint[], a_numbers integer[], a_steps integer[],
    a_types text[], a_schemas integer[], a_data bytea[], a_ids text[], a_times bigint[], a_tags text[],
    a_causations text[], a_correlations text[], a_headers text[],
    OUT outcome text, OUT names text[], OUT at text, OUT last bigint
) SET plan_cache_mode = force_generic_plan AS $headrace$
DECLARE
    versions bigint[];
    criterion record;
    number integer;
    half bigint;
BEGIN
    FOR number IN 1 .. cardinality(a_locks) LOOP
        IF a_alone[number] THEN
            PERFORM pg_advisory_xact_lock(a_locks[number]);
        ELSE
            PERFORM pg_advisory_xact_lock_shared(a_locks[number]);
        END IF;
    END LOOP;

    IF a_command <> '' THEN
        SELECT array_agg(d.stream), string_agg(d.version::text, ','), max(d.position) INTO names, at, last FROM (
            SELECT e.stream, max(e.version) AS version, max(e.position) AS position FROM {events} e
            WHERE e.command_id = a_command AND e.command_id <> '' GROUP BY e.stream
        ) AS d;
        IF last IS NOT NULL THEN
            outcome := 'repeat';
            RETURN;
        END IF;
    END IF;

    IF a_criteria IS NOT NULL THEN
        FOR criterion IN
            SELECT * FROM jsonb_to_recordset(a_criteria) AS c(types text[], tags text[], category text)
        LOOP
            IF cardinality(criterion.tags) > 0 THEN
                SELECT t.position INTO last FROM {tags} t JOIN {events} e ON e.position = t.position
                WHERE t.tag = criterion.tags[1] AND t.position > a_after
                AND string_to_array(e.tags, E'\\n') @> criterion.tags
                AND (criterion.types = '{{}}' OR e.type = ANY (criterion.types))
                AND (criterion.category = '' OR split_part(e.stream, '-', 1) = criterion.category)
                ORDER BY t.position LIMIT 1;
            ELSE
                SELECT e.position INTO last FROM {events} e WHERE e.position > a_after
                AND (criterion.types = '{{}}' OR e.type = ANY (criterion.types))
                AND (criterion.category = '' OR split_part(e.stream, '-', 1) = criterion.category)
                ORDER BY e.position LIMIT 1;
            END IF;
            IF last IS NOT NULL THEN
                outcome := 'boundary';
                RETURN;
            END IF;
        END LOOP;
    END IF;

    FOR number IN 1 .. cardinality(a_streams) LOOP
        versions[number] := coalesce((SELECT max(e.version) FROM {events} e WHERE e.stream = a_streams[number]), 0);
        IF a_expected[number] NOT IN (-1, versions[number]) THEN
            outcome := 'conflict';
            names := ARRAY[a_streams[number]];
            at := versions[number];
            RETURN;
        END IF;
    END LOOP;

    SELECT (CASE WHEN is_called THEN last_value ELSE 0 END) % 4294967296 INTO half FROM {sequence};
    PERFORM pg_advisory_xact_lock_shared(
        (CASE WHEN a_store > 2147483647 THEN a_store - 4294967296 ELSE a_store END)::integer,
        (CASE WHEN half > 2147483647 THEN half - 4294967296 ELSE half END)::integer
    );
    WITH added AS (
        INSERT INTO {events} (position, stream, version, type, schema, data, id, time_ms, tags, causation_id,
                              correlation_id, command_id, headers)
        SELECT nextval('{literal}'), a_streams[n], versions[n] + step, kind, shape, content, ident, moment, tagged,
               causation, correlation, a_command, header
        FROM unnest(a_numbers, a_steps, a_types, a_schemas, a_data, a_ids, a_times, a_tags, a_causations,
                    a_correlations, a_headers)
             AS u(n, step, kind, shape, content, ident, moment, tagged, causation, correlation, header)
        RETURNING {events}.position, {events}.tags
    ), tagging AS (
        INSERT INTO {tags} (tag, position)
        SELECT t.tag, a.position FROM added a, string_to_table(a.tags, E'\\n') AS t(tag) WHERE a.tags <> ''
    )
    SELECT max(added.position) INTO last FROM added;

    -- After the lock on the number: whoever waits and does not see that lock is seen here.
    half := (a_store << 32) | 2147483648;
    IF NOT (CASE WHEN pg_try_advisory_lock(half) THEN pg_advisory_unlock(half) ELSE false END) THEN
        PERFORM pg_notify('{channel}', '');
    END IF;
    at := array_to_string(versions, ',');  -- a text is read quicker than an array
    outcome := 'done';
END $headrace$ LANGUAGE plpgsql
"""
_MARKS: Final = (
    "?::bigint, ?::bigint[], ?::boolean[], ?::text, ?::jsonb, ?::bigint, ?::text[], ?::bigint[], ?::integer[], "
    "?::integer[], ?::text[], ?::integer[], ?::bytea[], ?::text[], ?::bigint[], ?::text[], ?::text[], ?::text[], "
    "?::text[]"
)


def postgres(
    url: str, table: str = "headrace_events", schema: str = "public", *, create: bool = True
) -> PostgresEventStore:
    """Keep events in a PostgreSQL database, in tables whose names begin with `table`; `create` them if need be."""
    if not url.startswith(("postgresql://", "postgres://")):
        raise InvalidAppend("events in PostgreSQL need a URL such as postgresql://user@host:5432/database")
    user = urlsplit(url).netloc.rpartition("@")[0]
    if "@" in user or re.search("%(?![0-9a-fA-F]{2})", user):  # the driver would quote it, with the password
        raise InvalidStore("a URL of PostgreSQL has an @ or a % in its user or password: write %40 and %25 for them")
    return PostgresEventStore(url, table, schema, create=create)
