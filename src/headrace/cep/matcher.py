"""The plain matcher: events in, matches out, outside of Spark.

Events of any keys come in any order that the given lateness allows. They wait until the watermark (the latest time
seen, less the lateness) is past them, and are matched in the order of time, partition and offset; an event that comes
behind the watermark is late: counted, handed on, not matched. Without a lateness events are matched as they come, and
only one that lies before an earlier one is late.

What always holds: the same events give the same matches however they were mixed on the way, as long as none is late.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from headrace.cep.automaton import Automaton
from headrace.cep.errors import InvalidEvent, InvalidPattern
from headrace.cep.evaluation import compile_expression
from headrace.cep.match import Event, Match, Taken, path
from headrace.cep.partial import NEVER, Cap, Counts, Emitted
from headrace.cep.program import Program
from headrace.cep.stepping import KeyRuns
from headrace.cep.values import as_key, moment
from headrace.errors import nearest

_UNITS_US: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_EARLIEST: Final = -(2**63)
_NOTHING: Final[Sequence[Match]] = ()  # what most events give


class Matcher:
    """Matches a pattern over events that are given one by one."""

    def __init__(
        self,
        compile_for: Callable[[Iterable[str] | None], Automaton],
        *,
        key: tuple[str, ...],
        time: str | None,
        unit: str,
        lateness_us: int | None,
        cap: Cap,
        on_timed_out: Callable[[Match], None] | None = None,
        on_late: Callable[[Event], None] | None = None,
    ) -> None:
        if unit not in _UNITS_US:
            raise InvalidPattern(f"unit is {unit!r}: {nearest(unit, _UNITS_US)}")
        if lateness_us is not None and time is None:
            raise InvalidPattern("a lateness needs the column of the event time: name it with time=")
        self._compile_for = compile_for
        self._key = key
        self._time = time
        self._unit_us = _UNITS_US[unit]
        self._lateness_us = lateness_us
        self._cap = cap
        self._on_timed_out = on_timed_out
        self._on_late = on_late
        self._program: Program | None = None
        self._keys: dict[Any, KeyRuns] = {}
        self._waiting: list[tuple[int, int, int, int, Event]] = []
        self._alarms: list[tuple[int, int, Any]] = []
        self._latest_us = _EARLIEST
        self._arrived = 0
        self._number = 0
        self._alarm_number = 0
        self._emitted = Emitted()  # used again and again as long as nothing is emitted
        self.counts = Counts()

    @property
    def watermark_us(self) -> int:
        """No event before this time is matched any more."""
        return self._latest_us if self._lateness_us is None else self._latest_us - self._lateness_us

    @property
    def partial_matches(self) -> int:
        return sum(runs.size for runs in self._keys.values())

    def prepare(self, columns: Iterable[str]) -> None:
        """Compile the pattern for rows with these columns."""
        known = list(columns)
        wanted = [*self._key, *([self._time] if self._time is not None else [])]
        for name in wanted:
            if name not in known:
                raise InvalidPattern(f"unknown column {name!r}: {nearest(name, known, 'the rows have')}")
        self._program = Program(self._compile_for(known))
        if self._time is None and self._program.has_deadlines:
            raise InvalidPattern("a pattern with a time in it needs the column of the event time: name it with time=")
        if self._program.distinct is not None and self._time is None:
            distinct = self._program.automaton.tree.distinct
            if distinct is not None and distinct.expires_us is not None:
                raise InvalidPattern("values that expire need the column of the event time: name it with time=")
        self._describe = Describer(self._program, self._key)

    # --- events

    def run(self, events: Iterable[Any]) -> Iterator[Match]:
        """The matches of these events, and then of the end."""
        for event in events:
            yield from self.push(event)
        yield from self.finish()

    def push(self, given: Mapping[str, Any]) -> Sequence[Match]:
        """An event; the matches that it made complete."""
        if not isinstance(given, Mapping):
            raise InvalidEvent(f"an event is a mapping of columns to values, and this is {type(given).__name__}")
        if self._program is None:
            self.prepare(given.keys())
        self.counts.events += 1
        get = given.get
        time_us = self._time_of(given) if self._time is not None else self._arrived
        partition, offset = get("partition"), get("offset")
        if type(partition) is not int or type(offset) is not int:  # columns of the event's own that only have the name
            partition = offset = None
        event = Event(given, time_us, 0, get("topic"), partition, offset)
        self._arrived += 1
        if self._time is None:
            return self._match(event)
        if time_us < self.watermark_us:
            self.counts.late += 1
            if self._on_late is not None:
                self._on_late(event)
            return _NOTHING
        if self._lateness_us is None:
            self._latest_us = time_us
            found = self._match(event)
            if self._alarms and self._alarms[0][0] <= time_us:
                return [*found, *self._wake(time_us)]
            return found
        heapq.heappush(self._waiting, (time_us, event.partition or 0, event.offset or 0, self._arrived, event))
        if time_us > self._latest_us:
            self._latest_us = time_us
        return self.advance(self.watermark_us)

    def advance(self, watermark_us: int) -> Sequence[Match]:
        """No event before this time will come: match those that waited, and do what is due."""
        self._latest_us = max(self._latest_us, watermark_us + (self._lateness_us or 0))
        found: list[Match] = []
        while self._waiting and self._waiting[0][0] < watermark_us:
            found += self._match(heapq.heappop(self._waiting)[-1])
        return [*found, *self._wake(watermark_us)] if self._alarms else found

    def finish(self) -> Sequence[Match]:
        """There are no more events: what is still open is decided."""
        found: list[Match] = []
        while self._waiting:
            found += self._match(heapq.heappop(self._waiting)[-1])
        for runs in self._keys.values():
            emitted = Emitted()
            runs.finish(emitted)
            found += self._hand_out(runs, emitted)
        self._keys.clear()
        self._alarms.clear()
        return found

    def _match(self, event: Event) -> Sequence[Match]:
        program = self._program
        assert program is not None
        self._number += 1
        event.number = self._number
        try:
            if not self._key:
                key = None
            elif len(self._key) == 1:
                key = as_key(event.values[self._key[0]])
            else:
                key = tuple(as_key(event.values[name]) for name in self._key)
        except KeyError as error:
            raise InvalidEvent(f"an event has no {error.args[0]!r}, which is its key") from None
        try:
            runs = self._keys.get(key)
        except TypeError:
            raise InvalidEvent(
                f"an event has a {type(key).__name__} in its key: a key is made of texts, numbers and times"
            ) from None
        if runs is None:
            if not program.back and not program.may_begin(event):
                return _NOTHING
            runs = self._keys[key] = KeyRuns(program, self._cap, self.counts)
        emitted = self._emitted
        runs.step(event, emitted)
        if runs.deadline_us < runs.alarm_us:
            self._set_alarm(key, runs)
        found = _NOTHING
        if emitted.matches or emitted.timed_out:
            self._emitted = Emitted()
            found = self._hand_out(runs, emitted)
        if runs.is_idle:
            del self._keys[key]
        return found

    def _wake(self, now_us: int) -> Sequence[Match]:
        """Keys for which something is due."""
        found: list[Match] = []
        while self._alarms and self._alarms[0][0] <= now_us:
            at_us, _, key = heapq.heappop(self._alarms)
            runs = self._keys.get(key)
            if runs is None or runs.alarm_us != at_us:
                continue  # the key is gone, or an earlier alarm was set
            runs.alarm_us = NEVER
            emitted = Emitted()
            runs.advance(now_us, emitted)
            found += self._hand_out(runs, emitted)
            if runs.is_idle:
                del self._keys[key]
            elif runs.deadline_us != NEVER:
                self._set_alarm(key, runs)
        return found

    def _set_alarm(self, key: Any, runs: KeyRuns) -> None:
        runs.alarm_us = runs.deadline_us
        self._alarm_number += 1  # keys need not compare
        heapq.heappush(self._alarms, (runs.alarm_us, self._alarm_number, key))

    def _hand_out(self, runs: KeyRuns, emitted: Emitted) -> Sequence[Match]:
        self.counts.matches += len(emitted.matches)
        self.counts.timed_out += len(emitted.timed_out)
        if not emitted.matches and not emitted.timed_out:
            return _NOTHING
        values = (emitted.matches or emitted.timed_out)[0][0].values
        shown = tuple(values[name] for name in self._key)
        if self._on_timed_out is not None:
            for taken, at_us in emitted.timed_out:
                self._on_timed_out(Match(shown, tuple((row.variable, row.event) for row in path(taken)), at_us))
        first = runs.matches - len(emitted.matches) + 1 if self._program and self._program.keeps_numbers else 0
        return [
            self._describe(shown, taken, at_us, number)
            for number, (taken, at_us) in enumerate(emitted.matches, start=first)
        ]

    def _time_of(self, given: Mapping[str, Any]) -> int:
        assert self._time is not None
        value = given.get(self._time)
        time_us: int | None = None
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                value = None
        if isinstance(value, int) and not isinstance(value, bool):
            time_us = value * self._unit_us
        elif isinstance(value, float) and math.isfinite(value):
            time_us = round(value * self._unit_us)
        elif isinstance(value, datetime):
            since = moment(value) - _EPOCH
            time_us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        if time_us is not None and _FIRST_US <= time_us <= _LAST_US:
            return time_us
        if time_us is not None:
            raise InvalidEvent(
                f"an event has a time in {self._time!r} that is not in the years 1 to 9999: it counts {self._unit_name}"
            )
        raise InvalidEvent(
            f"an event has no time in {self._time!r}: it takes a number of {self._unit_name}, a datetime, or its text"
        )

    @property
    def _unit_name(self) -> str:
        return next(name for name, size_us in _UNITS_US.items() if size_us == self._unit_us)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_US: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_LAST_US: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


class Describer:
    """Matches as they are handed out, with the measures of a pattern in SQL."""

    def __init__(self, program: Program, key: tuple[str, ...]) -> None:
        self._number = 0
        self._key = key
        tree = program.automaton.tree
        self._states = program.automaton.states
        self._all_rows = tree.output.all_rows
        self._is_sql = tree.chooses_one
        self._measures = [
            (measure.name, compile_expression(measure.value, lambda: self._number), measure.is_final)
            for measure in tree.output.measures
        ]

    def __call__(self, key: tuple[Any, ...], taken: Taken, at_us: int, number: int) -> Match:
        rows = path(taken)
        shown = tuple((row.variable, row.event) for row in rows)
        if not self._is_sql:
            return Match(key, shown, at_us, number)
        self._number = number
        measures = {name: value(taken) for name, value, _ in self._measures}
        output: tuple[Mapping[str, Any], ...]
        if self._all_rows:
            output = tuple(
                {**row.values, **{name: value(taken if is_final else row) for name, value, is_final in self._measures}}
                for row in rows
                if not self._states[row.state].is_excluded
            )
        else:
            output = ({**dict(zip(self._key, key, strict=True)), **measures},)
        return Match(key, shown, at_us, number, measures, output)
