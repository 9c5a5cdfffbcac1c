"""What keeps a view in step with the log: it catches up, goes on live, rebuilds, and lets others wait for it.

    runner = ProjectionRunner(store, accounts)     # the view is kept beside the events, or where `views=` says
    runner.start()                                 # in a thread; `run` is the same in this one
    runner.wait_for(appended.position)
    runner.get("account-7")

Many events are applied in one transaction, in which the view's position moves, too: after a crash both agree. Several
runners of one projection, in whatever processes, may run at once: who finds that another one was first goes on from
where that one is.

A view that other code has made is not touched (`ProjectionChanged`), unless it is to be rebuilt (`on_change="rebuild"`,
or `rebuild`): beside the old one, which is read and kept in step as before, and in its place once it has come as far.
Or an event is projected in the very transaction that appends it (`project_inline`).
"""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from headrace.delivery.letters import Letter
from headrace.errors import HeadraceError
from headrace.eventsourcing.background import RETRY, TURN_S, Background
from headrace.eventsourcing.errors import (
    InvalidProjection,
    ProjectionChanged,
    ProjectionFailed,
    StoreUnavailable,
    ViewBehind,
)
from headrace.eventsourcing.memory import MemoryStore
from headrace.eventsourcing.pool import Pool
from headrace.eventsourcing.projection import Projection, View
from headrace.eventsourcing.sql import SqlEventStore
from headrace.eventsourcing.store import EventStore
from headrace.eventsourcing.subscription import Received, Subscription, letter_of, receive
from headrace.eventsourcing.views import BufferedView, MemoryViews, Place, RowCache, Skipped, Transaction, Views, moved
from headrace.eventsourcing.views_sql import SqlViews
from headrace.retry import Backoff
from headrace.status import Status
from headrace.stores.sql.database import Database

BATCH: Final = 2000
_SETTLES_S: Final = 2.0
_LOOK_S: Final = 0.02  # between looks at a view that another process keeps
_BESIDE: "WeakKeyDictionary[MemoryStore, MemoryViews]" = WeakKeyDictionary()
OnInvalid = Literal["fail", "skip"]
OnChange = Literal["fail", "rebuild", "keep"]


class _Worker:
    """Applies events to a view, or to the one beside it, a batch at a time."""

    def __init__(
        self, store: EventStore, projection: Projection, views: Views, *, is_beside: bool, batch: int, skips: bool
    ) -> None:
        self.projection, self.views, self.is_beside = projection, views, is_beside
        self._is_topic = hasattr(store, "topic")
        self._skipped: list[Skipped] = []
        self._cache = RowCache()
        self.place = views.prepare(projection, is_beside=is_beside)
        self.subscription = Subscription(
            store, projection.query, after=self.place.position, types=projection.types, batch=batch,
            on_invalid=self._skip if skips else None, name=projection.name,
        )  # fmt: skip

    def _skip(self, letter: Letter) -> None:
        self._skipped.append(Skipped(letter.offset + self._is_topic, letter.reason))

    def step(self, timeout_s: float = 0.0) -> bool:
        """Apply what comes next; whether something came."""
        try:
            batch = self.subscription.take(timeout_s)
            if batch is None:
                return False
            with self.views.writing(self.projection, is_beside=self.is_beside) as transaction:
                if transaction.place.code != self.projection.fingerprint:
                    raise changed(self.projection, transaction.place)
                is_ours = transaction.place == self.place
                if is_ours:
                    self.apply(transaction, batch.events, batch.position)
        except BaseException:
            self.begin_from(self.place)
            raise
        if is_ours:
            self.place = moved(self.place, batch.position)
            self._cache.trim()
        else:
            self.begin_from(transaction.place)
        return True

    def begin_from(self, place: Place) -> None:
        """Go on from where the view is, of which nothing else is known."""
        self._cache.rows.clear()
        self._skipped.clear()
        self.place = place
        self.subscription.move(place.position)

    def apply(self, transaction: Transaction, events: list[Received], position: int) -> None:
        """What events do to the view, in a transaction whose place is ours."""
        apply_events(self.projection, transaction, events, self._cache)
        opened = set[str]().union(*self.subscription.opened.values())
        transaction.move(moved(transaction.place, position), tuple(self._skipped), opened)
        self._skipped.clear()


def apply_events(projection: Projection, transaction: Transaction, events: list[Received], cache: RowCache) -> None:
    """Call the projection's functions, and write what they put into the view."""
    view, appliers = BufferedView(projection, transaction, cache), projection.appliers
    for event, stored in events:
        apply = appliers.get(type(event))
        if apply is None:
            continue
        try:
            apply(view, event, stored)
        except StoreUnavailable:
            raise
        except Exception as error:
            what = str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
            raise ProjectionFailed(f"projection {projection.name!r} could not apply {stored}: {what}") from error
    try:
        view.flush()
    except InvalidProjection as error:
        between = f"events at positions {events[0].stored.position} to {events[-1].stored.position}"
        raise ProjectionFailed(f"projection {projection.name!r} could not write {between}: {error}") from error


def changed(projection: Projection, place: Place) -> ProjectionChanged:
    return ProjectionChanged(
        f"view {projection.name!r} (at position {place.position}) was made by other code than this program's: rebuild "
        "it with rebuild() or on_change='rebuild', or go on with it by on_change='keep'"
    )


class ProjectionRunner(Background):
    """Keeps the view of one projection, and reads it. Several threads may read and wait."""

    def __init__(
        self,
        store: EventStore,
        projection: Projection,
        *,
        views: Views | str | None = None,
        on_invalid: OnInvalid = "fail",
        on_change: OnChange = "fail",
        batch: int = BATCH,
        retry: Backoff = RETRY,
    ) -> None:
        """`views` is `sqlite:///path`, `postgresql://…`, a `MemoryViews`, or by default where the events are.

        With `on_invalid="skip"` events that cannot be decoded are left out, and kept as dead letters. `batch` events
        are applied in one transaction, at the most. `retry` is how `run` goes on when a database is away.
        """
        for what, given, known in (("on_invalid", on_invalid, OnInvalid), ("on_change", on_change, OnChange)):
            if given not in get_args(known):
                raise InvalidProjection(f"{what}={given!r} is not possible: choose among {', '.join(get_args(known))}")
        super().__init__("projection", projection.name, retry)
        self.store, self.projection = store, projection
        self.views = _views_for(store, projection, views)
        self._on_change, self._skips, self._batch = on_change, on_invalid == "skip", batch
        self._worker: _Worker | None = None
        self._turn = threading.RLock()  # one thread of ours applies at a time
        self._moved = threading.Condition()
        self.views.prepare(projection)

    # --- keeping

    def catch_up(self) -> int:
        """Apply all that is in the log now; the position that the view has then."""
        with self._turn:
            worker = self._worker or self._open()
        end = self.store.last_position()
        while (place := self.views.place(self.projection)).position < end and self._step(0.0):
            pass
        if place.code != worker.place.code:
            raise changed(self.projection, place)
        return place.position

    def _take_turn(self) -> None:
        self._step(TURN_S)

    def _end(self) -> None:
        with self._moved:
            self._moved.notify_all()

    def _step(self, timeout_s: float) -> bool:
        with self._turn:
            worker = self._worker or self._open()
            came = worker.step(timeout_s)
        if came:
            with self._moved:
                self._moved.notify_all()
        return came

    def _open(self) -> _Worker:
        place = self.views.place(self.projection)
        # A moment, as PostgreSQL may have a slow writer before what was settled for others already.
        if place.position and not self.store.wait(place.position - 1, _SETTLES_S):
            raise ProjectionFailed(
                f"view {self.projection.name!r} is at position {place.position}, and {self.store} ends at "
                f"{self.store.last_position()}: it was set back or replaced; rebuild the view with rebuild()"
            )
        if place.code != self.projection.fingerprint:
            if self._on_change == "rebuild":
                self._build_beside()
            elif self._on_change == "keep":
                self._adopt()
            else:
                raise changed(self.projection, place)
        self._worker = self._make_worker(is_beside=False)
        return self._worker

    def _make_worker(self, *, is_beside: bool) -> _Worker:
        return _Worker(
            self.store, self.projection, self.views, is_beside=is_beside, batch=self._batch, skips=self._skips
        )

    def _adopt(self) -> None:
        """Go on with what other code has made."""
        with self.views.writing(self.projection) as transaction:
            place = transaction.place
            transaction.move(Place(place.position, self.projection.fingerprint, place.token), ())

    def close(self) -> None:
        """Stop, and let go of connections that are the runner's own."""
        self.stop()
        self.views.close()

    # --- rebuilding

    def rebuild(self) -> None:
        """Build the view anew from the first event on, while the old one is read, and let it take its place.

        Something that was begun by the same code, and interrupted, goes on from where it was.
        """
        self._build_beside()
        with self._turn:
            self._worker = None
        with self._moved:
            self._moved.notify_all()

    def _build_beside(self) -> None:
        projection, views = self.projection, self.views
        begun = views.prepare(projection, is_beside=True)
        if begun.code != projection.fingerprint or begun.position > self.store.last_position():
            views.drop_beside(projection)
        token = views.place(projection).token
        worker = self._make_worker(is_beside=True)
        try:
            while worker.step():
                pass
        except InvalidProjection:
            if views.place(projection).token == token:
                raise
            return  # another one has built it, and switched
        with views.switching(projection) as (live, transaction):
            if transaction is not None:  # or another one has built it, and switched
                # What the old one has already is in the new one, too: nobody who waited for it reads less now.
                place = transaction.place
                # A store that was set back ends before the old view.
                rest = max(min(live.position, self.store.last_position()), place.position)
                worker.begin_from(place)
                stored = list(self.store.read(projection.query, after=place.position, to=rest))
                worker.apply(transaction, worker.subscription.decode(stored), rest)

    # --- changing by hand

    @contextmanager
    def edit(self) -> Iterator[View]:
        """Change rows by hand, all or nothing: runners, in whatever programs, see what was changed.

        Who changes them in SQL without this may have it undone by a runner that knows the rows as they were.
        """
        with self.views.writing(self.projection) as transaction:
            view = BufferedView(self.projection, transaction, RowCache())
            yield view
            view.flush()
            place = transaction.place
            transaction.move(replace(place, token=Place.new(self.projection).token), ())

    # --- reading

    @property
    def position(self) -> int:
        """Up to where the view is made."""
        return self.views.place(self.projection).position

    @property
    def is_current(self) -> bool:
        """Whether the view was made by this code."""
        return self.views.place(self.projection).code == self.projection.fingerprint

    def get(self, key: str, default: Any = None, *, table: str = "") -> Any:
        """The row under a key, of the first table or another one."""
        found = self.views.read_row(self.projection, self.projection.table_named(table), key)
        return default if found is None else json.loads(found)

    def rows(self, *, table: str = "") -> Iterator[tuple[str, Any]]:
        """All rows of a table, by key."""
        for key, row in self.views.read_rows(self.projection, self.projection.table_named(table)):
            yield key, json.loads(row)

    def query(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Ask the view in SQL, with `?` for values and `{name}` for tables."""
        return self.views.run(self.projection, statement, values)

    def wait_for(self, position: int, timeout_s: float = 10.0) -> None:
        """Wait until the view has all up to a position, as an append returns it; `ViewBehind` if that takes longer."""
        until = time.monotonic() + timeout_s
        while (at := self.position) < position:
            if self._failure is not None:
                raise self._failure
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise ViewBehind(self.projection.name, at, position, timeout_s)
            with self._moved:
                self._moved.wait(min(left_s, _LOOK_S))

    async def wait_for_async(self, position: int, timeout_s: float = 10.0) -> None:
        """As `wait_for`."""
        await asyncio.to_thread(self.wait_for, position, timeout_s)

    def dead_letters(self) -> list[Letter]:
        """The events that the view was made without, and why."""
        return [
            letter_of(self.store, stored, each.reason, self.projection.name)
            for each in self.views.skipped(self.projection)
            for stored in self.store.read(after=each.position - 1, to=each.position)
        ]

    def status(self) -> Status:
        """How it stands, as parts of a stack report it."""
        place, last = self.views.place(self.projection), self.store.last_position()
        lag = max(last - place.position, 0)
        facts: dict[str, Any] = {"position": place.position, "lag_records": lag, "target": str(self.views)}
        if skipped := len(self.views.skipped(self.projection)):
            facts["dead_letters"] = skipped
        if place.code != self.projection.fingerprint:
            facts["problem"] = str(changed(self.projection, place))
        return self._report(**facts)


def _views_for(store: EventStore, projection: Projection, given: Views | str | None) -> Views:
    if given is None:
        if isinstance(store, SqlEventStore):
            return SqlViews(store.pool, store.engine, str(store), store.table.schema)
        if isinstance(store, MemoryStore):
            return _BESIDE.setdefault(store, MemoryViews())
        raise InvalidProjection(
            f"projection {projection.name!r} cannot be kept in a topic beside its events: name a database with "
            "views='sqlite:///path' or views='postgresql://…'"
        )
    return open_views(given) if isinstance(given, str) else given


def open_views(url: str) -> Views:
    """Where views are kept, by its address."""
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        from headrace.eventsourcing.opening import sqlite_path
        from headrace.stores.sqlite.database import SqliteDatabase

        path = sqlite_path(url)
        return _own_views(lambda: SqliteDatabase(path, has_wal=True), SqliteDatabase, f"SQLite {path}")
    if scheme in ("postgresql", "postgres"):
        from headrace.stores.postgres.database import PostgresDatabase

        return _own_views(lambda: PostgresDatabase(url), PostgresDatabase, "PostgreSQL schema public", "public")
    if scheme == "memory":
        return MemoryViews()
    raise InvalidProjection("views are kept at sqlite:///path, postgresql://user@host/database or memory:")


def _own_views(make: Any, engine: type[Database], where: str, schema: str = "") -> Views:
    def connect() -> Database:
        db: Database = make()
        db.connect()
        return db

    return SqlViews(Pool(connect), engine, where, schema, owns_pool=True)


def project_inline(store: EventStore, projection: Projection) -> ProjectionRunner:
    """Have each append by this `store` project its events in its own transaction: both are there, or neither.

    The view is in the database of the events. What other programs append without it is projected with the next append.
    A function that raises has the append fail. Appends wait for each other, in PostgreSQL too.
    """
    if not isinstance(store, SqlEventStore):
        raise InvalidProjection(
            f"projection {projection.name!r} cannot be inline in {store}: only events in SQLite or PostgreSQL are "
            "stored in one transaction with a view; use a ProjectionRunner"
        )
    runner = ProjectionRunner(store, projection)
    while runner.position < store.last_position():
        runner.catch_up()
    views: Any = runner.views

    def project(db: Any, last: int) -> None:
        transaction = views.join(db, projection)
        place = transaction.place
        if place.code != projection.fingerprint:
            raise changed(projection, place)
        stored = store.read_within(db, projection.query, after=place.position)
        opened = dict[int, set[str]]()
        apply_events(projection, transaction, receive(projection.types, stored, opened), RowCache())
        transaction.move(moved(place, last), (), set[str]().union(*opened.values()))

    store.inline.append(project)
    return runner
