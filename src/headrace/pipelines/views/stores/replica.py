"""A view's rows in memory, for reading from stores that know rows by their key alone.

What always holds: rows and freshness are those of the same whole batch, for whoever asks.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.pipelines.views.memory_answer import answered
from headrace.pipelines.views.question import Question
from headrace.pipelines.views.stores.store import KEPT_REVISIONS, MOST_LOGGED, Answer, Change, Changes, Kept, Row
from headrace.pipelines.views.values import key_text, loaded_key, loaded_row


class Rows:
    """Rows by the text of their key, and together by the first column of the key, which most questions name."""

    def __init__(self, first: str, rows: Mapping[str, Row]) -> None:
        self._first = first
        self.by_key = dict(rows)
        self._together: dict[Any, dict[str, Row]] = {}
        for key, row in rows.items():
            self._together.setdefault(row[first], {})[key] = row

    def put(self, key: str, row: Row | None) -> None:
        """Set a row, or remove it."""
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
        loaded = Rows(kept.shape.key[0], {key: loaded_row(kept.shape, text) for key, text in rows.items()})
        with self._lock:
            self._rows, self._log = loaded, {}
            self.kept = _counted(kept, len(rows), kept.freshness.revision)

    def apply(self, kept: Kept, changed: Mapping[str, str | bytes | None]) -> None:
        """Go on to a later revision; a row that is gone is None."""
        loaded = {key: None if text is None else loaded_row(kept.shape, text) for key, text in changed.items()}
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
        """The row with this key, or none."""
        with self._lock:
            kept = self._known()
            text = key_text(kept.shape, dict(zip(kept.shape.key, values, strict=True)))
            found = self._rows.by_key.get(text)
            return Answer(kept, [] if found is None else [found])

    def page(self, question: Question) -> Answer:
        """The rows that a question asks for."""
        with self._lock:
            return Answer(self._known(), answered(self._rows.candidates(question), question))

    def changes(self, since: int) -> Changes:
        """What changed since a revision."""
        with self._lock:
            kept = self._known()
            if not kept.logged_from <= since <= kept.freshness.revision:
                return Changes(kept, None)
            texts = sorted(set().union(*(keys for revision, keys in self._log.items() if revision > since)))
            return Changes(kept, [Change(loaded_key(kept.shape, text), self._rows.by_key.get(text)) for text in texts])

    def _known(self) -> Kept:
        assert self.kept is not None
        return self.kept


def _counted(kept: Kept, rows: int, logged_from: int) -> Kept:
    return Kept(kept.shape, replace(kept.freshness, rows=rows), logged_from)
