"""`headrace events replay|diff|schema`: events folded by the user's own code, now, as of any time, or by changed code;
and whether that code can still read what is stored.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import click
from rich.text import Text

from headrace.cli.event_text import event_as_json, event_as_line
from headrace.cli.moment import parse_time
from headrace.cli.output import ProgressLine, console, json_option, print_json, print_table
from headrace.cli.parameters import TIMESTAMP, Decorator, Parsed, opened_store, store_argument
from headrace.clock import SystemClock
from headrace.errors import harmless
from headrace.eventsourcing.aggregate import Aggregate
from headrace.eventsourcing.errors import EventSourcingError
from headrace.eventsourcing.event_types import EVENT_TYPES, EventTypes
from headrace.eventsourcing.loading import load_stream
from headrace.eventsourcing.model import StreamInfo, category_of
from headrace.eventsourcing.schemas import Check, Stored, check_stored, compare, read_schemas, write_schemas
from headrace.eventsourcing.store import EventStore
from headrace.eventsourcing.travel import AsOf, Change, changes_between, compare_folds, state_as_json, steps_of
from headrace.extras import import_here, import_named

_REPORTED: Final = 1_000  # events


def _load_aggregate(target: str) -> Aggregate[Any]:
    found: Aggregate[Any] = import_named(target, "aggregate", lambda value: isinstance(value, Aggregate))
    return found


def _read_point(text: str) -> AsOf:
    """A version, or a time."""
    if re.fullmatch(r"[0-9]{1,15}", text.strip()):
        return AsOf(version=int(text))
    return AsOf(time_ms=parse_time(text, SystemClock().now_ms()))


def _read_event(text: str) -> AsOf:
    """An event by its position in the store, or by its id."""
    return AsOf(position=int(text)) if re.fullmatch(r"[0-9]{1,18}", text.strip()) else AsOf(event_id=text.strip())


def _aggregate_option(name: str, meaning: str, *, required: bool = True) -> Decorator:
    kind = Parsed("module:name", _load_aggregate)
    return click.option(name, type=kind, required=required, metavar="MODULE:NAME", help=meaning)


_POINT: Final = Parsed("version or time", _read_point)
_aggregate: Final = _aggregate_option("--aggregate", "What folds the events, as in shop:order.")


# --- states


@click.command()
@store_argument
@click.argument("stream")
@_aggregate
@click.option("--to", type=click.IntRange(min=0), metavar="VERSION", help="As of this version.")
@click.option("--at", type=TIMESTAMP, metavar="TIME", help="As of this time, as in 2026-05-01T12:30:00Z or 2h.")
@click.option("--event", type=Parsed("event", _read_event), metavar="ID", help="As of this event, by id or position.")
@click.option("--steps", "has_steps", is_flag=True, help="Show each event, and the state after it.")
@json_option
def replay(
    url: str,
    stream: str,
    aggregate: Aggregate[Any],
    to: int | None,
    at: int | None,
    event: AsOf | None,
    has_steps: bool,
    as_json: bool,
) -> None:
    """Fold the events of STREAM, and show its state: now, or as of a version, a time or an event.

    As of a time is up to the first event that is later. The code is imported from the current folder.

    \b
      headrace events replay sqlite:///shop.db order-7 --aggregate shop:order
      headrace events replay sqlite:///shop.db order-7 --aggregate shop:order --at 2h
      headrace events replay sqlite:///shop.db order-7 --aggregate shop:order --steps --to 5
    """
    if sum(each is not None for each in (to, at, event)) > 1:
        raise click.UsageError("give only one of --to, --at and --event")
    until = event or AsOf(version=to, time_ms=at)
    with opened_store(url) as store:
        _check_stream(store, stream)
        if has_steps:
            for led_to_it, state in steps_of(store, aggregate, stream, until):
                shown = None if led_to_it is None else event_as_json(led_to_it)
                if as_json:
                    print_json({"event": shown, "state": state_as_json(state)})
                    continue
                if led_to_it is not None:
                    console().print(event_as_line(led_to_it), soft_wrap=True)
                console().print(Text(f"   =  {_as_text(state_as_json(state))}", "green"), soft_wrap=True)
            return
        loaded = load_stream(store, aggregate, stream, None, until.find_version(store, stream))
    passed = loaded.passed_by
    state = state_as_json(loaded.state)
    if as_json:
        more = {"redacted": passed.redacted, "unknown": dict(passed.unknown)}
        print_json({"stream": stream, "version": loaded.version, "state": state, **more})
        return
    console().print(Text.assemble((harmless(stream), "cyan"), f" {loaded.version}  ", _as_text(state)), soft_wrap=True)
    for kind, number in passed.unknown.items():
        click.echo(f"left out: {number} of type {harmless(kind)}, which the code does not know", err=True)
    if passed.redacted:
        click.echo(f"left out: {passed.redacted} whose data was redacted", err=True)


def _check_stream(store: EventStore, stream: str) -> None:
    if next(iter(store.read_stream(stream, limit=1)), None) is None:
        raise EventSourcingError(f"there is no stream {stream!r}: see headrace events list")


def _as_text(value: Any) -> str:
    return harmless(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


# --- differences


@click.command()
@store_argument
@click.argument("stream", required=False)
@_aggregate
@click.option("--from", "first", type=_POINT, metavar="POINT", help="The state as of a version or a time.")
@click.option("--to", "last", type=_POINT, metavar="POINT", help="The other state; now, if it is not given.")
@_aggregate_option("--against", "Changed code: fold the same events with this one, too.", required=False)
@click.option("--category", metavar="NAME", help="With --against: all streams of it; else that of the aggregate.")
@json_option
def diff(
    url: str,
    stream: str | None,
    aggregate: Aggregate[Any],
    first: AsOf | None,
    last: AsOf | None,
    against: Aggregate[Any] | None,
    category: str | None,
    as_json: bool,
) -> None:
    """Show how a state has changed, or what changed code would make of the same events.

    With --from, the state of STREAM as of one version or time and another. With --against, STREAM or all streams of a
    category are folded by both aggregates; those whose states differ are shown. The exit code is 1 if anything differs.

    \b
      headrace events diff sqlite:///shop.db order-7 --aggregate shop:order --from 3 --to 5
      headrace events diff sqlite:///shop.db --aggregate shop:order --against shop_next:order
    """
    if (first is None) == (against is None) or (against is not None and last is not None):
        raise click.UsageError("give either --from (and --to), or --against")
    if stream is None and against is None:
        raise click.UsageError("name a STREAM")
    with opened_store(url) as store:
        if stream is not None:
            _check_stream(store, stream)
        if against is not None:
            differing = _diff_code(store, stream, category or aggregate.name, (aggregate, against), as_json=as_json)
        else:
            assert stream is not None
            assert first is not None
            differing = _diff_points(store, stream, aggregate, (first, last or AsOf()), as_json=as_json)
    if differing:
        raise click.exceptions.Exit(1)


def _diff_points(
    store: EventStore, stream: str, aggregate: Aggregate[Any], points: tuple[AsOf, AsOf], *, as_json: bool
) -> int:
    before, after = (load_stream(store, aggregate, stream, None, point.find_version(store, stream)) for point in points)
    changes = list(changes_between(state_as_json(before.state), state_as_json(after.state)))
    if as_json:
        shown = {"stream": stream, "from": before.version, "to": after.version, "changes": _changes_as_json(changes)}
        print_json(shown)
    else:
        click.echo(f"{harmless(stream)}: version {before.version} and version {after.version}", err=True)
        _print_changes(changes)
    return len(changes)


def _diff_code(
    store: EventStore,
    stream: str | None,
    category: str,
    code: tuple[Aggregate[Any], Aggregate[Any]],
    *,
    as_json: bool,
) -> int:
    """How many streams differ."""
    if stream is None:
        streams: Iterable[StreamInfo] = store.list_streams(category)
        total = sum(1 for _ in store.list_streams(category))
    else:
        last = next(iter(store.read_stream(stream, backward=True, limit=1)))
        streams, total = [StreamInfo(stream, last.version)], 1
    number = differing = 0
    with ProgressLine("compared", "streams") as line:
        for number, each in enumerate(compare_folds(store, streams, *code), 1):
            line.show(number, total)
            if not each.differs:
                continue
            differing += 1
            if as_json:
                print_json({"stream": each.stream, "version": each.version, "changes": _changes_as_json(each.changes)})
            else:
                console().print(Text(f"{harmless(each.stream)} {each.version}", "cyan"), soft_wrap=True)
                _print_changes(each.changes)
    where = f"of category {category}" if stream is None else f"of category {category_of(stream)}"
    click.echo(f"{differing:,} of {number:,} streams {where} differ", err=True)
    return differing


def _changes_as_json(changes: Iterable[Change]) -> list[dict[str, Any]]:
    named = ("before", "after")
    return [
        {"path": each.path} | {name: value for name, value in zip(named, each[1:], strict=True) if _is_there(value)}
        for each in changes
    ]


def _is_there(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | list | dict)


def _print_changes(changes: list[Change]) -> None:
    for path, before, after in changes:
        line = Text(f"  {harmless(path)}  ", "bold")
        line.append(_as_text(before) if _is_there(before) else "nothing", "red").append(" → ", "dim")
        console().print(line.append(_as_text(after) if _is_there(after) else "nothing", "green"), soft_wrap=True)


# --- schemas


@click.group()
def schema() -> None:
    """Record what event classes look like, and check that today's code can read what they wrote.

    FILE is committed with the code. CODE are modules whose @event classes are meant, or one registry as MODULE:NAME.

    \b
      headrace events schema write events.json shop.events
      headrace events schema check events.json shop.events
      headrace events schema check events.json shop.events --store postgresql://user@host/shop
    """


_file_argument: Final = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
_code_argument: Final = click.argument("code", nargs=-1, required=True)


@schema.command("write")
@_file_argument
@_code_argument
@json_option
def write_schema(file: Path, code: tuple[str, ...], as_json: bool) -> None:
    """Record the events of CODE in FILE, unless they could not read what is recorded there.

    Versions that were recorded stay: events of them may be stored.
    """
    checked = compare(read_schemas(file) if file.exists() else {}, _load_types(code))
    if not checked.broken:
        write_schemas(file, checked.recorded)
    _report(checked, (), as_json=as_json, done="recorded")


@schema.command("check")
@_file_argument
@_code_argument
@click.option("--store", "url", metavar="STORE", help="Also read samples of each type and version that is stored.")
@click.option(
    "--samples", type=click.IntRange(min=1), default=10, show_default=True, help="How many, first and last, of each."
)
@click.option("--strict", is_flag=True, help="Also fail if FILE does not have all events as they are now.")
@json_option
def check_schema(file: Path, code: tuple[str, ...], url: str | None, samples: int, strict: bool, as_json: bool) -> None:
    """Check that CODE can read what is recorded in FILE; the exit code is 1 if not, for a CI to fail.

    A field that is gone, renamed, of another type or new without a default needs a new version with an upcast; a
    recorded version needs upcasts up to today's, and a recorded event its class.
    """
    types = _load_types(code)
    checked = compare(read_schemas(file), types)
    stored: list[Stored] = []
    if url is not None:
        with opened_store(url) as store, ProgressLine("looked at", "events") as line:
            total = store.last_position()

            def looked_at() -> Iterable[Any]:
                for number, event in enumerate(store.read(to=total), 1):
                    if number % _REPORTED == 0:
                        line.show(number, total)
                    yield event

            stored = check_stored(looked_at(), types, samples)
    _report(checked, stored, as_json=as_json, done="not recorded yet", fails_for_new=strict)


def _load_types(code: tuple[str, ...]) -> EventTypes:
    """The registry that modules add to, or the one that is named."""
    found: list[EventTypes] = []
    for each in code:
        if ":" in each:
            named = import_named(each, "registry", lambda value: isinstance(value, EventTypes | Aggregate))
            types = named.types if isinstance(named, Aggregate) else named
        else:
            import_here(each, f"module {each!r}")
            types = EVENT_TYPES
        if types not in found:
            found.append(types)
    if len(found) > 1:
        raise EventSourcingError("these are several registries of events: record each in a file of its own")
    if not found[0].known:
        raise EventSourcingError(
            f"{', '.join(code)} has no @event classes: for a registry of its own, name it as in {code[0]}:types"
        )
    return found[0]


def _report(checked: Check, stored: Iterable[Stored], *, as_json: bool, done: str, fails_for_new: bool = False) -> None:
    problems = [*checked.broken, *(each.problem for each in stored if each.problem)]
    if as_json:
        print_json({"broken": problems, "new": checked.new, "stored": [each._asdict() for each in stored]})
    else:
        if stored:
            rows = [[each.type, each.version, f"{each.events:,}", "no" if each.problem else "yes"] for each in stored]
            print_table(["type", ">version", ">events", "readable"], rows)
        for problem in problems:
            click.echo(harmless(problem), err=True)
        for each in checked.new:
            click.echo(f"{harmless(each)}, {done if not problems else 'not recorded'}")
        if not problems and not checked.new:
            click.echo(f"{len(checked.recorded)} events, all as they were recorded")
    if problems or (fails_for_new and checked.new):
        raise click.exceptions.Exit(1)


COMMANDS: Final = (replay, diff, schema)
