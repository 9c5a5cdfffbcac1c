"""A section `[search.NAME]` at work, with a status."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from headrace.client.address import Address
from headrace.errors import HeadraceError
from headrace.reporting import Show, run_reported
from headrace.searches.runner import SearchRunner
from headrace.searches.settings import SearchSettings
from headrace.status import FAILED, RUNNING, SEARCHES, STOPPED, WAITING, Status

_KIND: Final = "search"
_MOST_TOP: Final = 20
_LONGEST: Final = 500  # of what somebody wrote: a status is one record


def run_search(
    settings: SearchSettings, bootstrap: Sequence[Address], stop: threading.Event, show: Show, *, once: bool = False
) -> dict[str, HeadraceError]:
    """Run one until it is told to stop, or with `once` until every document is read; its status is kept."""
    part = RunningSearch(SearchRunner(settings, bootstrap, stopping=stop))
    return run_reported(part, partial(part.runner.run, until_idle=once), SEARCHES, bootstrap, show)


@dataclass(frozen=True, slots=True)
class RunningSearch:
    """A search as it is reported."""

    runner: SearchRunner

    @property
    def name(self) -> str:
        return self.runner.settings.name

    @property
    def records(self) -> int:
        return self.runner.progress.documents

    def status(self, per_s: float, error: HeadraceError | None, *, is_over: bool) -> Status:
        settings, progress = self.runner.settings, self.runner.progress
        state = (WAITING if progress.waiting else RUNNING) if not is_over else FAILED if error else STOPPED
        return Status.of(
            settings.name,
            _KIND,
            state,
            problem=str(error) if error else progress.problem,
            waiting=progress.waiting if state == WAITING else "",
            source=settings.documents,
            target=settings.hits,
            records=progress.documents,
            per_s=per_s,
            hits=progress.hits,
            lag_records=progress.lag,
            queries=progress.queries,
            queries_topic=settings.queries,
            queries_offset=progress.queries_offset,
            refused={
                name[:_LONGEST]: reason[:_LONGEST] for name, reason in islice(progress.refused.items(), _MOST_TOP)
            },
            unselective=progress.unselective,
            backfills=dict(list(progress.backfills.items())[:_MOST_TOP]),
            top=dict(progress.by_query.most_common(_MOST_TOP)),
            dead_letters=progress.letters,
        )
