"""Connections of a store that several threads use: each is lent to one call at a time."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from headrace.eventsourcing.errors import StoreUnavailable


class Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class Pool(Generic[C]):
    """As many connections as there are calls at once; one that `outlives_errors` is used again after a failure."""

    def __init__(self, make: Callable[[], C], *, outlives_errors: bool = False) -> None:
        self._make = make
        self._outlives_errors = outlives_errors
        self._idle: list[C] = []
        self._lock = threading.Lock()
        self.is_closed = False

    @contextmanager
    def borrow(self) -> Iterator[C]:
        if self.is_closed:
            raise StoreUnavailable("the event store is closed: open it again")
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._make()
        try:
            yield connection
        except BaseException:
            if self._outlives_errors:
                self._give_back(connection)
            else:
                connection.close()  # with whatever it was about to do, and the locks it may hold
            raise
        self._give_back(connection)

    def _give_back(self, connection: C) -> None:
        with self._lock:
            is_kept = not self.is_closed
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()

    def close(self) -> None:
        with self._lock:
            self.is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
