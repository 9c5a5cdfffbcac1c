"""Changes that nobody saw: what may have changed rows of a table and is not in its changes. Never in silence.

A table was replaced by another of its name, a partition was attached or emptied by itself, a statement was written to
the log as text: rows are different now, and the log does not tell which. A source says so by an `UnseenChange` at the
place where it happened. Then it is as `unseen_changes` says:

- `reread`: the table is emptied for all who follow its topic (a truncate, because rows may have vanished and nobody
  knows their keys) and every row of it is read again, while the log runs on;
- `stop`: nothing more is told of this table, and why is in the status, the log and the topic of schema changes. Others
  go on. It begins again, as with `reread`, when somebody asks for it to be read or starts with `reread`.

A table that cannot be read again, because the database takes no marks, stops too.
"""

from collections.abc import Mapping
from typing import Any, Final

from headrace.connect.change import TRUNCATE, Change, Event, Origin, Place, SchemaChange, UnseenChange, with_values
from headrace.connect.table import Table
from headrace.telemetry.logs import get_logger

log = get_logger(__name__)
REREAD, STOP = "reread", "stop"
POLICIES: Final = (REREAD, STOP)
STORED: Final = "stopped"  # the key of a position under which stopped tables stand
FACT: Final = "stopped_tables"  # and that of the facts


class StoppedTables:
    """The tables whose capture stopped, each with the sentence that says why; one of these in each source."""

    def __init__(self, stored: Mapping[str, str] | None = None) -> None:
        self._why = dict(stored or {})

    def __bool__(self) -> bool:
        return bool(self._why)

    def __contains__(self, table: str) -> bool:
        return table in self._why

    @property
    def names(self) -> list[str]:
        return list(self._why)

    def stop(self, change: UnseenChange) -> SchemaChange:
        name = change.table.full_name
        reason = f" (it is not read again: {change.because})" if change.because else ""
        self._why[name] = (
            f"capture of table {name} stopped, because {change.what} and its topic may not agree with it any more"
            f"{reason}: headrace cdc snapshot reads it again and goes on, as does a start with "
            'unseen_changes = "reread"'
        )
        log.warning("table stopped", table=name, reason=self._why[name])
        return SchemaChange(change.table, change.table, self._why[name], change.origin, change.place)

    def resume(self, table: str) -> bool:
        """Go on with a table; whether it had stopped."""
        return self._why.pop(table, None) is not None

    def lets_through(self, event: Event) -> bool:
        """Whether an event is told: not if it is of a table that stopped."""
        return not self._why or not isinstance(event, Change | SchemaChange) or event.table.full_name not in self._why

    @property
    def stored(self) -> dict[str, Any]:
        """What is kept of them in a position."""
        return with_values(**{STORED: dict(self._why)})

    @property
    def facts(self) -> dict[str, Any]:
        """Which tables stopped, and why; any thread may ask."""
        return with_values(**{FACT: dict(self._why)})

    def as_json(self) -> dict[str, str]:
        return dict(self._why)


def emptied(table: Table, what: str, origin: Origin, place: Place) -> list[Event]:
    """What is told of a table that is read again from nothing: why, and that no row of it counts any more."""
    log.warning("table is read again", table=table.full_name, reason=what)
    summary = f"{what}; the table is emptied and read again"
    return [SchemaChange(table, table, summary, origin, place), Change(table, TRUNCATE, None, None, origin, place)]


def stopped_sentences(facts: Mapping[str, Any]) -> str:
    """Of what a source knows about itself: why tables of it stopped; empty if none has."""
    found = facts.get(FACT)
    return "; ".join(map(str, found.values())) if isinstance(found, Mapping) else ""
