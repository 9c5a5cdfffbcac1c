"""A pattern tried on events: its matches, what was counted, and how both are shown."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from headrace.cep.errors import InvalidEvent
from headrace.cep.match import Event, Match
from headrace.cep.pattern import Pattern
from headrace.cli.output import human_count, print_table
from headrace.cli.trial_events import Events, InvalidEvents, Row

_PLACES_SHOWN: Final = 6
_FOR_EVER_US: Final = 9_000 * 365 * 86_400_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_US: Final = 253_402_300_799_000_000  # of the year 9999
_TIMED_OUT_KEPT: Final = 1_000


class Trial:
    """A pattern that is matched over events, and what was counted."""

    def __init__(
        self,
        found: Pattern,
        read: Events,
        keys: tuple[str, ...],
        time: str | None,
        unit: str,
        lateness_us: int | None,
        most_partial: int,
    ) -> None:
        self._read = read
        self.keys = keys or found.tree.partition
        self.time = time
        self.timed_out: list[dict[str, Any]] = []
        self.partial = 0
        # In order whatever the order of arrival, unless a stream's lateness is to be tried.
        self._lateness_us = (_FOR_EVER_US if lateness_us is None else lateness_us) if time is not None else None
        self.matcher = found.matcher(
            key=self.keys,
            time=time,
            unit=unit,
            lateness=None if self._lateness_us is None else timedelta(microseconds=self._lateness_us),
            columns=read.columns,
            bounded=True,
            most_partial=most_partial,
            on_timed_out=self._keep_timed_out,
        )
        automaton = found.compile(read.columns, bounded=True)
        self.measures = tuple(measure.name for measure in automaton.tree.output.measures)
        self.variables = automaton.variables

    def matches(self) -> Iterator[Match]:
        matcher = self.matcher
        for row in self._read.rows:
            try:
                found = matcher.push(row)
            except InvalidEvent as error:
                raise InvalidEvents(f"{self._read.place} {row.place}: {error}") from None
            yield from found
        if self._lateness_us is not None:
            # All events are there: what waited for earlier ones is matched, and what is open then is partial.
            yield from matcher.advance(matcher.watermark_us + self._lateness_us + 1)
        self.partial = matcher.partial_matches
        yield from matcher.finish()

    def _keep_timed_out(self, match: Match) -> None:
        if len(self.timed_out) < _TIMED_OUT_KEPT:
            self.timed_out.append(self.described(match))

    # --- what is shown

    def described(self, match: Match) -> dict[str, Any]:
        """A match for programs."""
        return {
            "key": dict(zip(self.keys, match.key, strict=True)),
            "time": self._time(match.time_us),
            "rows": [
                {"variable": variable, "at": _place(event), "event": dict(event.values)} for variable, event in match
            ],
            "measures": dict(match.measures),
        }

    def _time(self, time_us: int) -> str | None:
        if self.time is None or not 0 <= time_us <= _LAST_US:
            return None
        return (_EPOCH + timedelta(microseconds=time_us)).isoformat().replace("+00:00", "Z")

    @property
    def place(self) -> str:
        """What an event's place is."""
        return self._read.place

    @property
    def counts(self) -> dict[str, int]:
        counts = self.matcher.counts
        return {
            "events": counts.events,
            "matches": counts.matches,
            "timed_out": counts.timed_out,
            "partial": self.partial,
            "late": counts.late,
            "dropped_at_cap": counts.dropped,
            "skipped": self._read.skipped[0],
        }

    def counts_in_words(self) -> str:
        counts = self.counts
        said = [
            _counted(counts["events"], "event", "events"),
            _counted(counts["matches"], "match", "matches"),
            f"{human_count(counts['timed_out'])} timed out",
            f"{human_count(counts['partial'])} partial at the end",
            f"{human_count(counts['late'])} late",
        ]
        if counts["dropped_at_cap"]:
            said.append(f"{human_count(counts['dropped_at_cap'])} partial matches dropped at the cap")
        if counts["skipped"]:
            said.append(f"{human_count(counts['skipped'])} records left out that are not JSON objects")
        return ", ".join(said)


def _counted(number: int, one: str, many: str) -> str:
    return f"{human_count(number)} {one if number == 1 else many}"


def _place(event: Event) -> str:
    return event.values.place if isinstance(event.values, Row) else ""


def print_document(matches: Iterator[dict[str, Any]], trial: Trial, with_timed_out: bool) -> None:
    """One document, written as matches come: however many there are, none is kept."""
    click.echo('{"matches": [', nl=False)
    for number, match in enumerate(matches):
        click.echo((",\n" if number else "\n") + _json(match), nl=False)
    more = f', "timed_out": {_json(trial.timed_out)}' if with_timed_out else ""
    click.echo(f'], "counts": {_json(trial.counts)}{more}}}')


def _json(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False).encode(errors="backslashreplace").decode()


def print_matches(matches: Iterator[dict[str, Any]], trial: Trial, limit: int, with_timed_out: bool) -> None:
    shown: list[dict[str, Any]] = []
    hidden = 0
    for match in matches:
        if len(shown) < limit:
            shown.append(match)
        else:
            hidden += 1
    if shown:
        _print_rows(shown, trial)
    if hidden:
        click.echo(f"… and {human_count(hidden)} more matches: --limit shows them")
    if with_timed_out and trial.timed_out:
        click.echo("timed out:")
        _print_rows(trial.timed_out[:limit], trial)


def _print_rows(matches: list[dict[str, Any]], trial: Trial) -> None:
    has_time = trial.time is not None
    columns = [*trial.keys, *(["known at"] if has_time else []), *trial.measures]
    columns += [f"{variable}, {trial.place}" for variable in trial.variables]
    rows = []
    for match in matches:
        places: dict[str, list[str]] = {}
        for row in match["rows"]:
            places.setdefault(row["variable"], []).append(row["at"])
        rows.append(
            [
                *(_cell(match["key"].get(key)) for key in trial.keys),
                *([match["time"] or "–"] if has_time else []),
                *(_cell(match["measures"].get(name)) for name in trial.measures),
                *(_places(places.get(variable, [])) for variable in trial.variables),
            ]
        )
    print_table(columns, rows)


def _cell(value: Any) -> str:
    return "–" if value is None else value if isinstance(value, str) else _json(value)


def _places(places: list[str]) -> str:
    """Lines of a file, or partition:offset."""
    if not places:
        return "–"
    more = f" … ({len(places)})" if len(places) > _PLACES_SHOWN else ""
    return ", ".join(places[:_PLACES_SHOWN]) + more
