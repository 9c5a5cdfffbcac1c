"""`headrace audit`: who did what, from the files that a broker and the servers over HTTP wrote."""

from collections import deque
from collections.abc import Callable, Iterator
from heapq import merge
from pathlib import Path
from typing import Any, Final

import click

from headrace.cli.output import json_option, print_json, print_table
from headrace.cli.parameters import TIMESTAMP, Parsed, connect
from headrace.client.address import Address, parse_bootstrap
from headrace.client.errors import UnknownTopic
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.errors import HeadraceError
from headrace.telemetry.audit import (
    CHANGE,
    DENIAL,
    DENIED,
    FAILED,
    HTTP,
    LOGIN,
    OK,
    UNKNOWN,
    format_time,
    parse_events,
    read_events,
)

_OF_STACK: Final = Path(".headrace/audit")
_TOPIC: Final = "__headrace_audit"
_DEFAULT_LIMIT: Final = 100


class _NothingRecorded(HeadraceError):
    """There is no audit log to look at."""


@click.command()
@click.argument("files", nargs=-1, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--since", type=TIMESTAMP, metavar="TIME", help="From this time on, as 2026-11-16T12:00 or 2h for two hours ago."
)
@click.option("--until", type=TIMESTAMP, metavar="TIME", help="Before this time.")
@click.option("--principal", metavar="USER", help="By this user, as alice.")
@click.option("--client", metavar="ADDRESS", help="From this address.")
@click.option(
    "--event", "events", multiple=True, type=click.Choice([CHANGE, DENIAL, LOGIN, HTTP]), help="Of this kind."
)
@click.option(
    "--outcome", "outcomes", multiple=True, type=click.Choice([OK, FAILED, DENIED, UNKNOWN]), help="That ended so."
)
@click.option("--api", metavar="NAME", help="By this request, as CREATE_TOPICS.")
@click.option("--resource", metavar="NAME", help="About the topic, group, user … of this name.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=_DEFAULT_LIMIT,
    show_default=True,
    help="At most the last so many; 0 for all.",
)
@click.option(
    "--bootstrap",
    type=Parsed("addresses", parse_bootstrap),
    default=None,
    metavar="HOST:PORT[,…]",
    help="Read the topic of the broker there, which keeps one with audit.topic=true.",
)
@json_option
def audit(
    files: tuple[Path, ...],
    since: int | None,
    until: int | None,
    principal: str | None,
    client: str | None,
    events: tuple[str, ...],
    outcomes: tuple[str, ...],
    api: str | None,
    resource: str | None,
    limit: int,
    bootstrap: tuple[Address, ...] | None,
    as_json: bool,
) -> None:
    """Show who changed what, and who was denied something, from the audit log.

    FILES are those of the broker's setting audit.file, and of --audit of what answers HTTP; without any, those of the
    stack in this folder. Files that were set aside are read too. With --bootstrap it is read from the broker's topic,
    which takes the permission to read __headrace_audit.

    \b
      headrace audit
      headrace audit audit.log --since 2h --outcome denied
      headrace audit audit.log --resource orders --json
      headrace audit --bootstrap 127.0.0.1:9092 --event change
    """
    if bootstrap and files:
        raise click.UsageError("give either files or --bootstrap")
    chosen = files or tuple(sorted(_OF_STACK.glob("*.log")))
    if not chosen and not bootstrap:
        raise _NothingRecorded(f"there is no audit log in {_OF_STACK}: name a file, or set audit.file on the broker")
    for path in files:
        if not path.exists():
            raise _NothingRecorded(f"there is no audit log {path}: check the name, and audit.file of the broker")
    user = principal if principal is None or ":" in principal else f"User:{principal}"

    def wanted(event: dict[str, Any]) -> bool:
        return (
            (since is None or _text(event, "time") >= format_time(since))
            and (until is None or _text(event, "time") < format_time(until))
            and (user is None or event.get("principal") == user)
            and (client is None or _text(event, "client").rpartition(":")[0].strip("[]") == client.strip("[]"))
            and (not events or event.get("event") in events)
            and (not outcomes or event.get("outcome") in outcomes)
            and (api is None or _text(event, "api") == api.upper())
            and (resource is None or resource in _names(event))
        )

    read = [_read_topic(bootstrap, wanted)] if bootstrap else [read_events(path, wanted) for path in chosen]
    found = merge(*read, key=lambda event: _text(event, "time"))
    shown = deque(found, maxlen=limit or None)
    if as_json:
        for event in shown:
            print_json(event)
    elif not shown:
        click.echo("nothing that matches was recorded")
    else:
        columns = ["time", "event", "outcome", "principal", "client", "what", "on"]
        print_table(columns, [[cell(event) for cell in _CELLS] for event in shown])


def _read_topic(bootstrap: tuple[Address, ...], wanted: Callable[[dict[str, Any]], bool]) -> Iterator[dict[str, Any]]:
    with connect(bootstrap) as cluster:
        try:
            held = bounds(cluster, cluster.partitions(_TOPIC))
        except UnknownTopic:
            raise _NothingRecorded(f"{cluster} keeps no audit log in a topic: start it with audit.topic=true") from None
        starts = {partition: bound.start for partition, bound in held.items()}
        ends = {partition: bound.end for partition, bound in held.items()}
        for records in read_records(cluster, starts, until=ends):
            yield from parse_events((each.record.value or b"" for each in records), wanted)


def _text(event: dict[str, Any], name: str) -> str:
    return str(event.get(name, ""))


def _resources(event: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in event.get("resources", ()) if isinstance(each, dict)]


def _names(event: dict[str, Any]) -> list[str]:
    return [str(each.get("name")) for each in _resources(event)]


def _what(event: dict[str, Any]) -> str:
    words = [
        event.get(name) for name in ("api", "operation", "method", "path", "mechanism", "error", "reason", "status")
    ]
    times = (
        f"{event['repeated']} more" if event.get("repeated") else f"{event['count']} lost" if event.get("count") else ""
    )
    return " ".join(str(word) for word in (*words, times) if word)


def _on(event: dict[str, Any]) -> str:
    parts = []
    for each in _resources(event)[:3]:
        facts = [f"{name}={value}" for name, value in each.items() if name not in ("type", "name")]
        parts.append(" ".join([f"{each.get('type')} {each.get('name')}", *facts]))
    more = len(_resources(event)) - 3
    return "; ".join(parts) + (f"; and {more} more" if more > 0 else "")


_CELLS: Final[tuple[Callable[[dict[str, Any]], str], ...]] = (
    *((lambda event, name=name: _text(event, name)) for name in ("time", "event", "outcome", "principal", "client")),
    _what,
    _on,
)
