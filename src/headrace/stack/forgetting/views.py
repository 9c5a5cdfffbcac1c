"""Materialized views: rows that hold sealed values are unreadable; what was opened before it came there is found only.

A view is what its query makes of its inputs, so no row of it can be rewritten: it is built anew.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError
from headrace.extras import missing_extra
from headrace.forgetting.report import Finding, Hit, Outcome
from headrace.forgetting.sealed import key_ids_in
from headrace.forgetting.search import Needles
from headrace.stack.forgetting.place import Subject
from headrace.stores.errors import NoSuchView
from headrace.stores.views.question import everything
from headrace.stores.views.shape import show_row


class ViewPlace:
    """One view, in whatever store it is kept."""

    def __init__(self, view: str, store: Any, bootstrap: str) -> None:
        self._view, self._store, self._bootstrap = view, store, bootstrap
        self.name = f"view {view} ({store})"

    def _rows(self) -> Iterator[bytes]:
        try:
            reader = self._store.reader(self._view, self._bootstrap)
        except NoSuchView:
            return
        try:
            question = everything(reader.kept().shape)
            while True:
                answer = reader.page(question)
                for row in answer.rows:
                    yield json.dumps(show_row(answer.kept.shape, row), default=str, ensure_ascii=False).encode()
                if len(answer.rows) < question.limit:
                    return
                question = replace(question, after=tuple(answer.rows[-1][one.column.name] for one in question.order))
        except NoSuchView:
            return
        finally:
            reader.close()

    def forget(self, subject: Subject, *, dry: bool) -> Iterator[Finding]:  # noqa: ARG002 - nothing is done here
        count = sum(1 for row in self._rows() if not subject.key_ids.isdisjoint(key_ids_in(row)))
        outcome = Outcome.UNREADABLE if count else Outcome.NOTHING
        yield Finding(self.name, "rows", outcome, count, "the key is destroyed" if count else "")

    def search(self, needles: Needles) -> Iterator[Hit]:
        for place, row in enumerate(self._rows(), 1):
            for number in sorted(needles.find(row)):
                yield Hit(self.name, f"row {place} by its key", number)


class UnknownViews:
    """A file whose views are not known, because it cannot be loaded."""

    def __init__(self, part: str, error: HeadraceError) -> None:
        self._error = error
        self.name = f"views of {part}"

    def forget(self, subject: Subject, *, dry: bool) -> Iterator[Finding]:  # noqa: ARG002 - nothing can be done
        yield Finding(self.name, "rows", Outcome.FAILED, 0, str(self._error))

    def search(self, needles: Needles) -> Iterator[Hit]:  # noqa: ARG002 - nothing can be seen
        raise self._error


def views_of(part: str, file: Path, bootstrap: str) -> Iterator[ViewPlace | UnknownViews]:
    """The views that a file declares."""
    try:
        from headrace.pipelines.jobs.load import load
        from headrace.pipelines.views.declare import views_in

        declared = views_in(load(file))
    except HeadraceError as error:
        yield UnknownViews(part, error)
    except ModuleNotFoundError as error:
        if (missing := missing_extra(error, f"looking into the views of {part}")) is None:
            raise
        yield UnknownViews(part, missing)
    else:
        for name, sink in declared.items():
            yield ViewPlace(name, sink.store, bootstrap)
