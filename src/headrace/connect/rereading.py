"""Tables read anew beside the log: as signals in it ask, or because it does not tell all that happened to a table.

For every source that reads chunks between watermarks.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace.connect.change import CREATE, Change, Event, Message, Origin, Place, SchemaChange, UnseenChange
from headrace.connect.errors import SourceRefused
from headrace.connect.incremental import Incremental
from headrace.connect.table import Table
from headrace.connect.unseen import REREAD, StoppedTables, emptied
from headrace.telemetry.logs import get_logger

SIGNAL: Final = "headrace.signal"
EXECUTE, STOP = "execute-snapshot", "stop-snapshot"


@dataclass(frozen=True, slots=True)
class Signal:
    """Read these tables anew, or stop reading them."""

    kind: str
    tables: tuple[str, ...]
    reader: str = ""  # the source that is meant; all that read this database if it is empty


def signal_in(event: Event, signal_table: str) -> Signal | None:
    """The signal that an event is, if it is one that can be understood."""
    if isinstance(event, Message) and event.prefix == SIGNAL:
        return _signal(event.content.decode(errors="replace"), None)
    if isinstance(event, Change) and event.op == CREATE and event.table.full_name == signal_table:
        row = event.table.python_row(event.after) or {}
        return _signal(row.get("data"), row.get("type"))
    return None


def is_internal(event: Event, signal_table: str) -> bool:
    """Whether an event is about signals alone, and no reader's business."""
    if isinstance(event, Message):
        return event.prefix == SIGNAL
    return isinstance(event, Change | SchemaChange) and event.table.full_name == signal_table


def _signal(data: Any, kind: Any) -> Signal | None:
    try:
        asked = json.loads(data) if isinstance(data, str) else data or {}
        tables = asked.get("data-collections") or ()
        names = tuple(str(table) for table in tables)
        found = Signal(str(kind or asked.get("type")), names, str(asked.get("reader") or ""))
    except (ValueError, AttributeError, TypeError):
        return None
    return found if found.kind in (EXECUTE, STOP) else None


def signal_message(kind: str, tables: Sequence[str], reader: str = "") -> str:
    """The content of a message that asks for it."""
    return json.dumps({"type": kind, "data-collections": list(tables), "reader": reader})


log = get_logger(__name__)
_CONCERNING: Final = frozenset({Message, UnseenChange})
_STARTED_ANEW: Final = "it had stopped and the capture was started with unseen_changes = 'reread'"
_ASKED_FOR: Final = "it had stopped and somebody asked for it"


class Rereading:
    """Obeys the signals for one reader, and does what is to be done about changes that the log does not tell."""

    def __init__(
        self,
        incremental: Incremental,
        *,
        reader: str,
        signal_table: str,
        table_of: Callable[[str], Table | None],
        check: Callable[[], None],
        origin: Callable[[], tuple[Origin, Place]],
        unseen_changes: str = REREAD,
        stopped: Mapping[str, str] | None = None,
    ) -> None:
        """`table_of` finds a captured table, `check` refuses what makes marks in the log impossible.

        `stopped` are the tables that had stopped at the stored position.
        """
        self.incremental = incremental
        self.stopped = StoppedTables(stopped)
        self._reader = reader
        self._signal_table = signal_table
        self._table_of = table_of
        self._check = check
        self._origin = origin
        self._unseen_changes = unseen_changes
        self._first: list[Event] = []  # told before anything else
        if unseen_changes == REREAD:
            for table in map(table_of, self.stopped.names):
                if table is not None:
                    self._first += self._reread(UnseenChange(table, _STARTED_ANEW, *origin()))

    def concerns(self, events: list[Event]) -> bool:
        """Whether events have to go `through`, besides rows of the signal table: mostly not, and it costs."""
        is_busy = self.incremental.is_active or bool(self._first or self.stopped)
        return is_busy or not _CONCERNING.isdisjoint(map(type, events))

    def through(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events as others see them: with rows that were read, without marks, signals and tables that stopped."""
        first, self._first = self._first, []
        yield from first
        for event in self.incremental.through(events, self._origin):
            if isinstance(event, UnseenChange):
                yield from self._meet(event)
            elif is_internal(event, self._signal_table):
                signal = signal_in(event, self._signal_table)
                if signal is not None and signal.reader in ("", self._reader):
                    assert isinstance(event, Message | Change)
                    yield from self._obey(signal, event.origin, event.place)
            elif self.stopped.lets_through(event):
                yield event

    def _meet(self, change: UnseenChange) -> Iterator[Event]:
        """Something happened to a table that the log does not tell."""
        if self._unseen_changes == REREAD:
            yield from self._reread(change)
        elif change.table.full_name not in self.stopped:
            yield self._stop(change)

    def _reread(self, change: UnseenChange) -> list[Event]:
        try:
            self._check()
        except SourceRefused as refusal:
            change = replace(change, because=str(refusal))
        if change.because:
            return [self._stop(change)]
        name = change.table.full_name
        self.stopped.resume(name)
        self.incremental.remaining = self.incremental.remaining.with_tables([name])
        return emptied(change.table, change.what, change.origin, change.place)

    def _stop(self, change: UnseenChange) -> Event:
        self.incremental.remaining = self.incremental.remaining.without([change.table.full_name])
        return self.stopped.stop(change)

    def _obey(self, signal: Signal, origin: Origin, place: Place) -> Iterator[Event]:
        incremental = self.incremental
        if signal.kind == STOP:
            chosen = signal.tables or incremental.remaining.tables
            incremental.remaining = incremental.remaining.without(chosen)
        else:
            try:
                self._check()
            except SourceRefused as refusal:  # no reason to stop what runs
                log.warning("snapshot not begun", reason=str(refusal), reader=self._reader)
                return
            for name in dict.fromkeys(signal.tables):
                table = self._table_of(name)
                if table is None:
                    log.warning("snapshot of unknown table asked for", table=name, reader=self._reader)
                elif name in self.stopped:
                    yield from self._reread(UnseenChange(table, _ASKED_FOR, origin, place))
                else:
                    incremental.remaining = incremental.remaining.with_tables([name])
        log.info("signal obeyed", signal=signal.kind, tables=",".join(signal.tables), reader=self._reader)
