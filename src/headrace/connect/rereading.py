"""Tables read anew beside the log, as signals in it ask: for every source that reads chunks between watermarks."""

from collections.abc import Callable, Iterable, Iterator

from headrace.connect.change import Event, Origin
from headrace.connect.errors import SourceRefused
from headrace.connect.incremental import Incremental
from headrace.connect.signals import STOP, Signal, is_internal, signal_in
from headrace.telemetry.logs import get_logger

log = get_logger(__name__)


class Rereading:
    """Obeys the signals for one reader."""

    def __init__(
        self,
        incremental: Incremental,
        *,
        reader: str,
        signal_table: str,
        knows: Callable[[str], bool],
        check: Callable[[], None],
        origin: Callable[[], tuple[Origin, str]],
    ) -> None:
        """`knows` says whether a table is captured, `check` refuses what makes marks in the log impossible."""
        self.incremental = incremental
        self._reader = reader
        self._signal_table = signal_table
        self._knows = knows
        self._check = check
        self._origin = origin

    def through(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events as others see them: with rows that were read, without marks and signals."""
        for event in self.incremental.through(events, self._origin):
            if is_internal(event, self._signal_table):
                signal = signal_in(event, self._signal_table)
                if signal is not None and signal.reader in ("", self._reader):
                    self._obey(signal)
            else:
                yield event

    def _obey(self, signal: Signal) -> None:
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
            known = [name for name in dict.fromkeys(signal.tables) if self._knows(name)]
            for name in set(signal.tables) - set(known):
                log.warning("snapshot of unknown table asked for", table=name, reader=self._reader)
            incremental.remaining = incremental.remaining.with_tables(known)
        log.info("signal obeyed", signal=signal.kind, tables=",".join(signal.tables), reader=self._reader)
