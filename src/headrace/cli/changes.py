"""`headrace changes`: the changes of a database, a topic or a view, one JSON object a line."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from headrace.cli.parameters import PAIR
from headrace.cli.tail import check_output
from headrace.connect.changes import Changes
from headrace.connect.changes import changes as open_changes
from headrace.errors import HeadraceError

_LOOK_S = 1.0  # how often a quiet stream looks whether anybody still reads our output


class NoPosition(HeadraceError):
    """A file of a position that cannot be used."""


@click.command()
@click.argument("url")
@click.option("--table", "tables", multiple=True, help="Only this table (schema.table); several times.")
@click.option("--op", "operations", multiple=True, help="Only these changes: c, u, d, r, t, m or s; several times.")
@click.option("--column", "columns", multiple=True, help="Only this column of before and after; several times.")
@click.option("--slot", help="The name by which PostgreSQL or SQLite remembers this reader.")
@click.option("--snapshot", is_flag=True, help="Begin with every row that is there.")
@click.option("--resume", metavar="TOKEN", help="Go on behind the change that had this position.")
@click.option(
    "--position", "place", type=click.Path(dir_okay=False, path_type=Path),
    help="Keep the position in this file, and go on from it if it is there.",
)  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), help="End after so many changes.")
@click.option(
    "--for", "quiet_s", type=click.FloatRange(min=0, min_open=True), help="End when nothing came for so many seconds."
)
@click.option(
    "--heartbeat",
    "heartbeat_s",
    type=click.FloatRange(min=0, min_open=True),
    help="A line with the op h when nothing came for so many seconds.",
)
@click.option(
    "--set", "settings", multiple=True, type=PAIR, metavar="KEY=VALUE", help="A setting of the source; several times."
)
def changes(
    url: str,
    tables: tuple[str, ...],
    operations: tuple[str, ...],
    columns: tuple[str, ...],
    slot: str | None,
    snapshot: bool,
    resume: str | None,
    place: Path | None,
    limit: int | None,
    quiet_s: float | None,
    heartbeat_s: float | None,
    settings: tuple[tuple[str, str], ...],
) -> None:
    """Print the changes behind URL as they happen, one JSON object a line, until Ctrl-C.

    URL is postgresql://…, mysql://…, mariadb://…, sqlite:///path, kafka://host:port/topic or
    http://host:port/views/NAME. A line has op, table, key, before, after, transaction, ts_us and position; the position
    of the last line that was worked through is what --resume takes.

    \b
      headrace changes sqlite:///shop.db --table orders --snapshot
      headrace changes kafka://127.0.0.1:9092/orders --position orders.position
    """
    if place is not None and resume is not None:
        raise click.UsageError("--position and --resume both say where to begin: give one of them")
    if place is not None and place.exists():
        resume = _stored(place)
    stream = open_changes(
        url,
        tables,
        slot=slot,
        snapshot=snapshot,
        resume=resume,
        operations=operations,
        columns=columns,
        heartbeat_s=heartbeat_s,
        acknowledge=place is None,  # what is behind the file's position must be there when it is read again
        **{name: _value(text) for name, text in settings},
    )
    if place is not None and not stream.can_resume:
        raise click.UsageError("--position needs --slot here: without, the database keeps nothing for who is away")
    try:
        with stream:
            _print(stream, place, limit, quiet_s)
    except KeyboardInterrupt:
        return


def _print(stream: Changes, place: Path | None, limit: int | None, quiet_s: float | None) -> None:
    left, waited = limit, 0.0
    wait_s = _LOOK_S if quiet_s is None else min(_LOOK_S, quiet_s)
    lines: list[str] = []
    stored = _keep(stream, place, "")
    while not stream.is_over and (left is None or left > 0):
        try:
            change = stream.next(0.0 if lines else wait_s)
        except HeadraceError:
            _write(lines)  # an error comes behind the changes that stand before it
            raise
        if change is not None:
            waited = 0.0
            lines.append(json.dumps(change.as_json(), ensure_ascii=False))
            left = None if left is None else left - 1
            if len(lines) < 256 and left != 0:
                continue
        if lines:
            _write(lines)
            lines.clear()
            stored = _keep(stream, place, stored)
            continue
        check_output()
        stored = _keep(stream, place, stored)  # of what was passed over nothing is printed
        waited += wait_s
        if quiet_s is not None and waited >= quiet_s:
            return


def _keep(stream: Changes, place: Path | None, stored: str) -> str:
    """Store how far it has come, if that is wanted and news; then the source may forget what is before."""
    if place is None or (token := stream.position) == stored:
        return stored
    _store(place, token)
    stream.acknowledge(token)
    return token


def _write(lines: list[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _stored(place: Path) -> str:
    try:
        return place.read_text().strip()
    except UnicodeDecodeError:
        raise NoPosition(f"{place} holds no position: name another file, or remove it to begin anew") from None


def _store(place: Path, token: str) -> None:
    """As a whole or not at all."""
    beside = place.with_name(f"{place.name}.new")
    with beside.open("w") as out:
        out.write(f"{token}\n")
        out.flush()
        os.fsync(out.fileno())
    beside.replace(place)


def _value(text: str) -> Any:
    """A setting as JSON has it, else a text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
