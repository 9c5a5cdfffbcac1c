"""`headrace events`: look into a store of events, and at what aggregates were at any time.

Nothing here writes to a store (`event_erasure.py` does), or makes one that is not there. Streams are read by their
index, one page after another; what has to look at all events shows how far it is.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import click

from headrace.cli import event_erasure, event_travel
from headrace.cli.event_flow import flow, run
from headrace.cli.event_text import event_as_json, event_as_line
from headrace.cli.output import ProgressLine, console, json_option, print_json, print_table
from headrace.cli.parameters import TIMESTAMP, limit_option, opened_store, store_argument
from headrace.eventsourcing.causation import in_order_of_causes, is_of_request
from headrace.eventsourcing.errors import EventSourcingError
from headrace.eventsourcing.model import StoredEvent, category_of
from headrace.eventsourcing.store import EventStore

_REPORTED = 1_000  # events
_MOST_DEEP = 20  # an event is set in by at most so many steps


@click.group()
def events() -> None:
    """Look into a store of events, and at what aggregates were at any time.

    STORE is its address: sqlite:///shop.db, postgresql://user@host/shop or kafka://host:port/topic. In a database
    ?table=NAME names the table of events, if it is not headrace_events.

    \b
      headrace events list sqlite:///shop.db
      headrace events show sqlite:///shop.db order-7
      headrace events show sqlite:///shop.db --correlation checkout-19
      headrace events replay sqlite:///shop.db order-7 --aggregate shop:order --at 2h
      headrace events schema check events.json shop
      headrace events verify sqlite:///shop.db
    """


for _command in (*event_travel.COMMANDS, *event_erasure.COMMANDS, flow, run):
    events.add_command(_command)


# --- looking


@events.command("list")
@store_argument
@click.option("--category", metavar="NAME", help="List the streams of this category.")
@click.option("--streams", "has_streams", is_flag=True, help="List the streams of all categories.")
@click.option("--after", metavar="STREAM", default="", help="Only streams whose names come after this one.")
@limit_option("How many streams to list at most.")
@json_option
def list_all(url: str, category: str | None, has_streams: bool, after: str, limit: int, as_json: bool) -> None:
    """List the categories of STORE, or its streams, with how many events each has.

    A stream's category is its name up to the first dash: order of order-7. In a topic there is no list of streams, and
    all events are read for it.
    """
    with opened_store(url) as store, ProgressLine("looked at", "events") as line:
        if category is None and not has_streams:
            _list_categories(store, line.show, as_json=as_json)
            return
        rows = list[dict[str, object]]()
        for stream in store.list_streams(category or "", after=after, on_progress=line.show):
            if len(rows) == limit:
                break
            rows.append({"stream": stream.name, "category": category_of(stream.name), "version": stream.version})
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo("no streams" if category is None else f"no streams of category {category}")
    else:
        print_table(["stream", "category", ">version"], [list(row.values()) for row in rows])


def _list_categories(store: EventStore, show: Callable[[int, int], None], *, as_json: bool) -> None:
    streams, counts = Counter[str](), Counter[str]()
    for stream in store.list_streams(on_progress=show):
        streams[category_of(stream.name)] += 1
        counts[category_of(stream.name)] += stream.version
    rows = [{"category": name, "streams": streams[name], "events": counts[name]} for name in sorted(streams)]
    if as_json:
        print_json({"position": store.last_position(), "categories": rows})
    elif not rows:
        click.echo("no events yet")
    else:
        print_table(["category", ">streams", ">events"], [[row["category"], *_numbers(row)] for row in rows])


def _numbers(row: dict[str, object]) -> list[str]:
    return [f"{value:,}" for value in row.values() if isinstance(value, int)]


@events.command()
@store_argument
@click.argument("stream", required=False)
@click.option("--from", "first", type=click.IntRange(min=1), default=1, metavar="VERSION", help="The first to show.")
@click.option("--to", type=click.IntRange(min=1), metavar="VERSION", help="The last to show.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N of them.")
@click.option("--correlation", metavar="ID", help="All that followed from one request, in whatever stream, as a tree.")
@click.option(
    "--since", type=TIMESTAMP, metavar="TIME", help="With --correlation: only events of this time or later, as in 2h."
)
@json_option
def show(
    url: str,
    stream: str | None,
    first: int,
    to: int | None,
    last: int | None,
    correlation: str | None,
    since: int | None,
    as_json: bool,
) -> None:
    """Show the events of STREAM, or all that followed from one request.

    Each with its cause (the event or command that led to it) and its correlation (what all that followed from one
    request has in common). What followed from a request is looked for in all events.

    \b
      headrace events show sqlite:///shop.db order-7 --last 10
      headrace events show sqlite:///shop.db --correlation checkout-19
    """
    if (stream is None) == (correlation is None):
        raise click.UsageError("name either a STREAM or a --correlation ID")
    with opened_store(url) as store:
        if correlation is not None:
            _show_request(store, correlation, since or 0, as_json=as_json)
            return
        assert stream is not None
        found = store.read_stream(stream, after=first - 1, to=to, limit=last, backward=last is not None)
        number = 0
        for event in found if last is None else reversed(list(found)):
            number += 1
            _print_event(event, as_json=as_json)
        if not number and not next(store.read_stream(stream, limit=1), None):
            raise EventSourcingError(f"there is no stream {stream!r}: see headrace events list")


def _show_request(store: EventStore, correlation: str, since_ms: int, *, as_json: bool) -> None:
    found = [event for event in looked_at(store) if event.time_ms >= since_ms and is_of_request(event, correlation)]
    if not found:
        raise EventSourcingError(f"no event has the correlation id {correlation!r}")
    for depth, event in in_order_of_causes(found):
        _print_event(event, as_json=as_json, depth=depth)


def looked_at(store: EventStore) -> Iterator[StoredEvent]:
    """All events, while it is shown how far that is."""
    total = store.last_position()
    with ProgressLine("looked at", "events") as line:
        for number, event in enumerate(store.read(to=total), 1):
            if number % _REPORTED == 0:
                line.show(number, total)
            yield event


def _print_event(event: StoredEvent, *, as_json: bool, depth: int | None = None) -> None:
    if as_json:
        print_json(event_as_json(event) | ({} if depth is None else {"depth": depth}))
        return
    indent = ""
    if depth:  # a long chain of causes would be mostly indentation
        indent = "   " * min(depth - 1, _MOST_DEEP) + (f"({depth}) " if depth > _MOST_DEEP + 1 else "") + "└─ "
    console().print(event_as_line(event, with_stream=depth is not None, indent=indent), soft_wrap=True)
