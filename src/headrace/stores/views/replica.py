"""A view's rows in memory, for reading from stores that know rows by their key alone.

What always holds: rows and freshness are those of the same whole batch, for whoever asks.
"""

import heapq
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.stores.views.question import Condition, Question
from headrace.stores.views.shape import key_text, load_key, load_row
from headrace.stores.views.store import KEPT_REVISIONS, MOST_LOGGED, Answer, Change, Changes, Kept, Row


class Rows:
    """Rows by the text of their key, and together by the first column of the key, which most questions name."""

    def __init__(self, first: str, rows: Mapping[str, Row]) -> None:
        self._first = first
        self.by_key = dict(rows)
        self._together: dict[Any, dict[str, Row]] = {}
        for key, row in rows.items():
            self._together.setdefault(row[first], {})[key] = row

    def put(self, key: str, row: Row | None) -> None:
        before = self.by_key.pop(key, None)
        if before is not None:
            others = self._together[before[self._first]]
            del others[key]
            if not others:
                del self._together[before[self._first]]
        if row is not None:
            self.by_key[key] = row
            self._together.setdefault(row[self._first], {})[key] = row

    def candidates(self, question: Question) -> Iterable[Row]:
        """All rows that a question may be asking for."""
        for condition in question.conditions:
            if condition.column.name == self._first and condition.operator == "eq":
                return self._together.get(condition.value, {}).values()
        return self.by_key.values()


class Replica:
    """A view as of one whole batch."""

    def __init__(self) -> None:
        self.kept: Kept | None = None
        self._rows = Rows("", {})
        self._log: dict[int, frozenset[str]] = {}
        self._lock = threading.Lock()

    def reset(self, kept: Kept, rows: Mapping[str, str | bytes]) -> None:
        """Begin anew with these rows, as JSON."""
        loaded = Rows(kept.shape.key[0], {key: load_row(kept.shape, text) for key, text in rows.items()})
        with self._lock:
            self._rows, self._log = loaded, {}
            self.kept = _counted(kept, len(rows), kept.freshness.revision)

    def apply(self, kept: Kept, changed: Mapping[str, str | bytes | None]) -> None:
        """Go on to a later revision; a row that is gone is None."""
        loaded = {key: None if text is None else load_row(kept.shape, text) for key, text in changed.items()}
        with self._lock:
            assert self.kept is not None
            for key, row in loaded.items():
                self._rows.put(key, row)
            revision, floor = kept.freshness.revision, self.kept.logged_from
            if len(changed) > MOST_LOGGED:
                self._log, floor = {}, revision
            else:
                self._log[revision] = frozenset(changed)
            while len(self._log) > KEPT_REVISIONS:
                oldest = next(iter(self._log))
                del self._log[oldest]
                floor = oldest
            self.kept = _counted(kept, len(self._rows.by_key), floor)

    def row(self, values: Sequence[Any]) -> Answer:
        with self._lock:
            kept = self._known()
            text = key_text(kept.shape, dict(zip(kept.shape.key, values, strict=True)))
            found = self._rows.by_key.get(text)
            return Answer(kept, [] if found is None else [found])

    def page(self, question: Question) -> Answer:
        with self._lock:
            return Answer(self._known(), answer(self._rows.candidates(question), question))

    def changes(self, since: int) -> Changes:
        with self._lock:
            kept = self._known()
            if not kept.logged_from <= since <= kept.freshness.revision:
                return Changes(kept, None)
            texts = sorted(set().union(*(keys for revision, keys in self._log.items() if revision > since)))
            return Changes(kept, [Change(load_key(kept.shape, text), self._rows.by_key.get(text)) for text in texts])

    def _known(self) -> Kept:
        assert self.kept is not None
        return self.kept


def _counted(kept: Kept, rows: int, logged_from: int) -> Kept:
    return Kept(kept.shape, replace(kept.freshness, rows=rows), logged_from)


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda found, asked: found == asked,
    "ne": lambda found, asked: found != asked,
    "lt": lambda found, asked: found < asked,
    "le": lambda found, asked: found <= asked,
    "gt": lambda found, asked: found > asked,
    "ge": lambda found, asked: found >= asked,
}


def fits(row: dict[str, Any], conditions: Iterable[Condition]) -> bool:
    """Whether a row is asked for; as in SQL, a comparison with nothing is never true."""
    return all(_holds(row[condition.column.name], condition) for condition in conditions)


def _holds(value: Any, condition: Condition) -> bool:
    if condition.operator == "null":
        return bool((value is None) == condition.value)
    if value is None:
        return False
    if condition.operator == "in":
        return any(_ranked(value) == _ranked(one) for one in condition.value)
    return _TESTS[condition.operator](_ranked(value), _ranked(condition.value))


def answer(rows: Iterable[dict[str, Any]], question: Question) -> list[dict[str, Any]]:
    """The page that a question asks for."""

    def place(row: dict[str, Any]) -> tuple["_Place", ...]:
        return tuple(_Place(row[order.column.name], order.descending) for order in question.order)

    wanted: Iterable[dict[str, Any]] = (row for row in rows if fits(row, question.conditions))
    if question.after is not None:
        pairs = zip(question.after, question.order, strict=True)
        last = tuple(_Place(value, order.descending) for value, order in pairs)
        wanted = (row for row in wanted if last < place(row))
    return heapq.nsmallest(question.limit, wanted, key=place)


def _ranked(value: Any) -> Any:
    """NaN equals itself and is greater than all else, as in PostgreSQL and Spark."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


class _Place:
    """A value where it stands in an order; nothing comes last, either way."""

    __slots__ = ("descending", "value")

    def __init__(self, value: Any, descending: bool) -> None:
        self.value = None if value is None else _ranked(value)
        self.descending = descending

    def __lt__(self, other: "_Place") -> bool:
        if self.value is None or other.value is None:
            return self.value is not None
        return bool(other.value < self.value if self.descending else self.value < other.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Place) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment]
